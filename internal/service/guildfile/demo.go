package guildfile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
)

const (
	// DemoGuild is the id of the guild that Demo writes.
	DemoGuild = "402187554310020096"
	// DemoMember is a member of the demo guild with a wallet, a level, cases and a ticket.
	DemoMember = "190320984123768832"

	demoMembers = 4200
)

// Demo writes the guild file of a demo guild with realistic data: some thousand members, a few of
// them rich and many poor, cases of every type and status, tickets with transcripts, giveaways in
// every status, and network listings. Its history ends now, so that active things are still active.
func Demo(w io.Writer) error {
	return DemoAt(w, time.Now()) //nolint:forbidigo // a new guild's past is counted from the clock of whoever asks for it
}

// DemoAt is Demo as of the time now. It writes the same text for the same hour.
func DemoAt(w io.Writer, now time.Time) error {
	out := bufio.NewWriter(w)
	g := &demo{
		now:  now.UTC().Truncate(time.Hour),
		rand: rand.New(rand.NewPCG(7, 11)), //nolint:gosec // the same guild each time, nothing to guess
		json: json.NewEncoder(out),
	}
	g.json.SetEscapeHTML(false)
	g.people()
	g.guild()
	g.names()
	g.money()
	g.moderation()
	g.support()
	g.raffles()
	g.network()
	if g.err != nil {
		return fault.Wrap(g.err, "write the demo guild")
	}
	return fault.Wrap(out.Flush(), "write the demo guild")
}

type demo struct {
	now     time.Time
	rand    *rand.Rand
	json    *json.Encoder
	err     error
	members []string // in the order in which they joined
	staff   []string
	minted  int
}

func (g *demo) put(record any) {
	if g.err == nil {
		g.err = g.json.Encode(record)
	}
}

// ago returns the instant d before now.
func (g *demo) ago(d time.Duration) *wire.Time { return new(wire.At(g.now.Add(-d))) }

// within returns a random duration up to most.
func (g *demo) within(most time.Duration) time.Duration {
	return time.Duration(g.rand.Int64N(int64(most))).Truncate(time.Second)
}

// snowflake returns an id of the chat platform for something created at t.
func (g *demo) snowflake(t time.Time) string {
	g.minted++
	ms := t.UnixMilli() - 1420070400000
	return strconv.FormatInt(ms<<22|int64(g.minted&0x3fffff), 10)
}

// id returns an id in Guildhall's own form.
func (g *demo) id(kind string, n int) string { return fmt.Sprintf("demo-%s-%04d", kind, n) }

func pick[T any](g *demo, list []T) T { return list[g.rand.IntN(len(list))] }

// someone returns a random member; members who joined earlier are more likely.
func (g *demo) someone() string {
	f := g.rand.Float64()
	return g.members[int(f*f*float64(len(g.members)))]
}

// lognormal returns a number distributed like money: most are small, a few are very large.
func (g *demo) lognormal(mean, sigma float64) int64 {
	return int64(math.Exp(mean + sigma*g.rand.NormFloat64()))
}

func (g *demo) people() {
	first := g.now.AddDate(-9, 0, 0)
	for range demoMembers {
		g.members = append(g.members, g.snowflake(first.Add(g.within(8*365*24*time.Hour))))
	}
	g.members[3] = DemoMember
	g.staff = slices.Clone(g.members[10:19])
}

func (g *demo) guild() {
	g.put(gen.GuildFileGuild{
		Record: "guild", ID: DemoGuild, Name: new("Harbour Lights"), IconURL: new("https://cdn.example.com/icons/harbour-lights.png"),
		OwnerID: &g.staff[0], MemberCount: new(int64(demoMembers)), Locale: new("en-GB"),
		JoinedAt: g.ago(400 * 24 * time.Hour), CreatedAt: g.ago(2200 * 24 * time.Hour),
	})
	g.put(gen.GuildFileSettings{
		Record: "settings", GuildID: DemoGuild,
		Economy:   &gen.GuildFileEconomy{CurrencyName: new("shells"), CurrencySymbol: new("🐚")},
		Levelling: &gen.GuildFileLevelling{Periods: new(true)},
		Tickets:   &gen.GuildFileTickets{RequireCloseReason: new(true), CloseAction: new(gen.GuildFileTicketsCloseAction("archive"))},
		Timezone:  new("Europe/London"),
		UpdatedAt: g.ago(30 * 24 * time.Hour),
	})
}

// demoNames are the names of the members who joined first; the fourth is DemoMember's.
var demoNames = []string{
	"Ada", "Bo", "Cleo", "Mara", "Dario", "Edda", "Finn", "Greta", "Hugo", "Ines", "Jonas", "Kim", "Leo", "Mila", "Nils", "Olga", "Paul", "Quinn", "Rosa", "Sam",
}

func (g *demo) names() {
	for i, name := range demoNames {
		m := gen.GuildFileMember{
			Record: "member", GuildID: DemoGuild, UserID: g.members[i], Name: new(name), JoinedAt: g.ago(time.Duration(400-i) * 24 * time.Hour),
		}
		if m.UserID == DemoMember {
			m.AvatarURL = new("https://cdn.example.com/avatars/mara.png")
			m.Metadata = &metadata.Values{"shop.customer_id": "C-2041"}
		}
		if i%7 == 6 {
			m.LeftAt = g.ago(20 * 24 * time.Hour)
		}
		g.put(m)
	}
}

func (g *demo) money() {
	for i, user := range g.members {
		talk := g.rand.NormFloat64() // members who talk much have more XP and coins
		if user == DemoMember {
			g.put(gen.GuildFileWallet{Record: "wallet", GuildID: DemoGuild, UserID: user, Balance: 1250, UpdatedAt: g.ago(26 * time.Hour)})
			g.put(gen.GuildFileLevel{Record: "level", GuildID: DemoGuild, UserID: user, TotalXP: 4810, UpdatedAt: g.ago(26 * time.Hour)})
			continue
		}
		seen := g.ago(g.within(200 * 24 * time.Hour))
		if g.rand.IntN(100) < 72 {
			balance := g.lognormal(5.6+0.8*talk, 0.9)
			switch n := g.rand.IntN(100); {
			case n < 6:
				balance = 0 // has spent everything
			case n < 18:
				balance = 100 // has not touched the initial amount
			case i < 60:
				balance *= 20
			}
			g.put(gen.GuildFileWallet{Record: "wallet", GuildID: DemoGuild, UserID: user, Balance: balance, UpdatedAt: seen})
		}
		if g.rand.IntN(100) < 86 {
			g.put(gen.GuildFileLevel{Record: "level", GuildID: DemoGuild, UserID: user, TotalXP: g.lognormal(6.1+1.1*talk, 0.8), UpdatedAt: seen})
		}
	}
}

func (g *demo) moderation() {
	const n = 340
	types := []gen.GuildFileCaseType{"note", "note", "warn", "warn", "warn", "warn", "timeout", "timeout", "mute", "kick", "ban"}
	for i := range n {
		kind := pick(g, types)
		age := time.Duration(n-i)*26*time.Hour + g.within(20*time.Hour)
		made := g.now.Add(-age)
		var status gen.GuildFileCaseStatus = "active"
		var source gen.GuildFileCaseSource = "bot"
		c := gen.GuildFileCase{
			Record: "case", GuildID: DemoGuild, ID: new(g.id("case", i+1)), Number: new(int64(i + 1)),
			UserID: g.someone(), ModeratorID: pick(g, g.staff), Type: kind, Reason: new(pick(g, demoReasons[kind])),
			Status: &status, Source: &source, CreatedAt: new(wire.At(made)), UpdatedAt: new(wire.At(made)),
		}
		if i%60 == 7 {
			c.UserID = DemoMember
		}
		if kind == "note" || i%9 == 0 {
			source = "dashboard"
		}
		if kind == "note" && g.rand.IntN(5) == 0 {
			*c.Reason = ""
		}
		if kind == "timeout" || kind == "mute" || kind == "ban" && g.rand.IntN(2) == 0 {
			lasts := pick(g, []time.Duration{time.Hour, 12 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 28 * 24 * time.Hour})
			if i > n-8 {
				lasts = 60 * 24 * time.Hour // some have not expired yet
			}
			ends := made.Add(lasts)
			c.ExpiresAt = new(wire.At(ends))
			if ends.Before(g.now) {
				status, c.UpdatedAt = "expired", c.ExpiresAt
			}
		}
		later := new(wire.At(made.Add(g.within(age))))
		switch n := g.rand.IntN(20); {
		case n == 0:
			status, c.UpdatedAt, source = "deleted", later, "dashboard"
		case n < 3 && kind != "note" && kind != "kick" && status == "active":
			status, c.UpdatedAt = "revoked", later
		}
		g.put(c)
	}
}

func (g *demo) support() {
	const n = 64
	for i := range n {
		story := demoTickets[i%len(demoTickets)]
		open := i >= n-14
		age := time.Duration(n-i)*31*time.Hour + g.within(24*time.Hour)
		if open {
			age = time.Duration(n-i)*5*time.Hour + g.within(2*time.Hour)
		}
		at := g.now.Add(-age)
		opener, helper := g.someone(), pick(g, g.staff)
		if i == n-2 {
			opener = DemoMember
		}
		id := g.id("ticket", i+1)
		var status gen.GuildFileTicketStatus = "open"
		t := gen.GuildFileTicket{
			Record: "ticket", GuildID: DemoGuild, ID: &id, Number: new(int64(i + 1)), OpenerID: opener, Subject: &story.subject,
			Status: &status, ChannelID: new(g.snowflake(at)), CreatedAt: new(wire.At(at)),
		}
		claimed := !open || i%3 != 0
		if claimed {
			t.ClaimedByID = &helper
		}
		log := &transcript{demo: g, ticket: id, at: at}
		lines := story.lines
		if !claimed {
			lines = lines[:1]
		}
		log.talk(opener, helper, lines)
		log.attach(story.file)
		t.UpdatedAt = log.messages[len(log.messages)-1].CreatedAt
		if !open {
			status, t.CloseReason, t.ClosedByID = "closed", &story.outcome, &helper
			t.ClosedAt, t.UpdatedAt = new(wire.At(log.at)), new(wire.At(log.at))
			log.add("close", helper, "system", story.outcome)
		}
		g.put(t)
		for _, m := range log.messages {
			g.put(m)
		}
	}
}

// transcript builds the transcript of a ticket in the demo guild.
type transcript struct {
	*demo
	ticket   string
	at       time.Time // the instant of the next entry
	messages []gen.GuildFileTicketMessage
}

// talk adds the opening of a ticket and the lines that both sides write in turn; a line that begins
// with # is an internal note.
func (t *transcript) talk(opener, helper string, lines []string) {
	t.add("open", "", "system", "Ticket opened.")
	for i, text := range lines {
		switch {
		case i == 1:
			t.add("claim", helper, "system", "Ticket claimed.")
			t.add("message", helper, "staff", text)
		case text[0] == '#':
			t.add("note", helper, "staff", text[1:])
		case i%2 == 0:
			t.add("message", opener, "opener", text)
		default:
			t.add("message", helper, "staff", text)
		}
	}
}

// attach adds a file to the first message, unless the name is empty.
func (t *transcript) attach(name string) {
	i := slices.IndexFunc(t.messages, func(m gen.GuildFileTicketMessage) bool { return *m.Kind == "message" })
	if name != "" && i >= 0 {
		t.messages[i].Attachments = []gen.RecordAttachment{{
			Name: name, URL: "https://cdn.example.com/attachments/" + t.ticket + "/" + name, ContentType: new("image/png"), Size: new(int64(48_213)),
		}}
	}
}

func (t *transcript) add(
	kind gen.GuildFileTicketMessageKind, author string, authorType gen.GuildFileTicketMessageAuthorType, content string,
) {
	m := gen.GuildFileTicketMessage{
		Record: "ticket_message", GuildID: DemoGuild, ID: new(fmt.Sprintf("%s-%02d", t.ticket, len(t.messages)+1)), TicketID: t.ticket,
		Kind: &kind, Content: content, AuthorType: &authorType, CreatedAt: new(wire.At(t.at)),
	}
	if author != "" {
		m.AuthorID = &author
	}
	if kind == "message" {
		m.ChannelMessageID = new(t.snowflake(t.at))
	}
	t.messages = append(t.messages, m)
	t.at = t.at.Add(time.Minute + t.within(17*time.Minute))
}

func (g *demo) raffles() {
	const day = 24 * time.Hour
	for i, r := range [...]struct {
		status             gen.GuildFileGiveawayStatus
		prize, description string
		winners, entrants  int
		starts, ends       time.Duration // relative to now
	}{
		{"ended", "Steam gift card, 20 pounds", "One entry each. Good luck!", 1, 310, -200 * day, -193 * day},
		{"ended", "Founders' role for a month", "", 3, 128, -120 * day, -117 * day},
		{"ended", "Harbour Lights hoodie", "Boosters have three entries.", 2, 412, -64 * day, -57 * day},
		{"ended", "A very small prize", "Nobody came.", 1, 0, -40 * day, -39 * day},
		{"drawing", "Movie night seat of honour", "", 1, 57, -8 * day, -time.Minute},
		{"paused", "Custom emoji slot", "Paused while we check the rules.", 1, 74, -3 * day, 4 * day},
		{"active", "Mechanical keyboard", "Any colour, any switches. Level 10 and up have three entries.", 1, 536, -4 * day, 10 * day},
		{"active", "500 shells", "Five winners.", 5, 203, -20 * time.Hour, 3 * day},
		{"scheduled", "Winter event pass", "Starts with the event.", 10, 0, 6 * day, 20 * day},
		{"cancelled", "Signed poster", "The artist has none left.", 1, 96, -30 * day, -23 * day},
	} {
		starts, ends := g.now.Add(r.starts), g.now.Add(r.ends)
		made := starts
		if r.starts > 0 {
			made = g.now.Add(-2 * day)
		}
		id := g.id("giveaway", i+1)
		f := gen.GuildFileGiveaway{
			Record: "giveaway", GuildID: DemoGuild, ID: &id, Status: &r.status, Prize: r.prize, WinnerCount: &r.winners,
			HostID: new(pick(g, g.staff)), ChannelID: "402187554310020111", MessageID: new(g.snowflake(made)),
			StartsAt: new(wire.At(starts)), EndsAt: new(wire.At(ends)), CreatedAt: new(wire.At(made)),
		}
		if r.description != "" {
			f.Description = &r.description
		}
		entrants := slices.Clone(g.members)
		g.rand.Shuffle(len(entrants), func(i, j int) { entrants[i], entrants[j] = entrants[j], entrants[i] })
		entrants = entrants[:r.entrants]
		if r.status == "ended" {
			f.EndedAt = new(wire.At(ends.Add(2 * time.Second)))
			f.Winners = entrants[:min(r.winners, r.entrants)]
		}
		until := min(-r.starts, r.ends-r.starts)
		if r.status == "cancelled" {
			until -= 2 * day // before its end
			f.EndedAt = new(wire.At(starts.Add(until)))
		}
		if r.status == "paused" {
			f.PausedAt = g.ago(5 * time.Hour)
		}
		g.put(f)
		for _, user := range entrants {
			weight := int64(1)
			if g.rand.IntN(8) == 0 {
				weight = 3
			}
			g.put(gen.GuildFileGiveawayEntry{
				Record: "giveaway_entry", GuildID: DemoGuild, GiveawayID: id, UserID: user, Entries: &weight,
				EnteredAt: new(wire.At(starts.Add(g.within(until)))),
			})
		}
	}
}

func (g *demo) network() {
	for i := range 40 {
		c := demoListings[i%len(demoListings)]
		last := g.within(300 * 24 * time.Hour)
		user := g.snowflake(g.now.Add(-last - g.within(900*24*time.Hour)))
		if i%8 == 0 {
			user = g.members[len(g.members)-1-i]
		}
		g.put(gen.GuildFileNetworkListing{
			Record: "network_listing", UserID: user, Category: c.category, Severity: c.severity,
			TrustScore: c.trust + g.rand.IntN(15), ReportCount: 1 + g.rand.Int64N(c.reports),
			FirstReportedAt: *g.ago(last + g.within(200*24*time.Hour)), LastReportedAt: *g.ago(last),
		})
	}
}
