package dashboard_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/giveaways"
)

// mara is a member of the guild of whom everything is known, and wrong holds hostile text.
const (
	mara  = "190320984123768832"
	wrong = `<script>alert(1)</script>"><img src=x onerror=alert(2)>` + "\u202edrowssap\u0007"
)

// A text to find leads to the page of the one thing that it names, or to a list.
func TestFindLeadsToTheOneHit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	s.records(t, guildID)
	s.records(t, neighbourID)
	find := func(q string) got { return b.get(page(guildID, "find") + "?q=" + escape(q)) }
	g := func(parts ...string) string { return page(guildID, parts...) }
	for q, want := range map[string]string{
		"12": g("cases", "case-"+guildID), "#12": g("cases", "case-"+guildID), "case-" + guildID: g("cases", "case-"+guildID),
		"t12": g("tickets", "ticket-"+guildID), "T12": g("tickets", "ticket-"+guildID), "ticket-" + guildID: g("tickets", "ticket-"+guildID),
		mara: g("members", mara), "<@" + mara + ">": g("members", mara), "<@!5>": g("members", "5"), "999999999999999999": g("members",
			"999999999999999999"),
		"order-812": g("ledger", s.entry(t, guildID)), s.entry(t, guildID): g("ledger", s.entry(t, guildID)), "mAr": g("members", mara),
		"giveaway-" + guildID: g("giveaways", "giveaway-"+guildID), " 12 ": g("cases", "case-"+guildID),
	} {
		if got := find(q).wants(303); got.to != want {
			t.Errorf("%q leads to %s, want %s", q, got.to, want)
		}
	}
	token := s.makeToken(t, guildID)
	if got := find(token.ID).wants(303); got.to != g("tokens", token.ID) {
		t.Errorf("a token's id leads to %s", got.to)
	}
	hook := b.endpoint()
	if got := find(hook[strings.LastIndex(hook, "/")+1:]).wants(303); got.to != hook {
		t.Errorf("an endpoint's id leads to %s", got.to)
	}
	s.addMarcel(t)
	find("mar").wants(200, ">Mara", ">Marcel", `id="hits"`)
	find("12").wants(200, g("members", "12"), g("cases", "case-"+guildID))
	for _, q := range []string{
		"", "nobody", "#99", "t99", "case-" + neighbourID, "ticket-" + neighbourID, "giveaway-" + neighbourID,
		s.entry(t, neighbourID), strings.Repeat("a", 700), wrong,
	} {
		find(q).wants(200).lacks(`id="hits"`).harmless()
	}
}

// A member's page shows what the guild keeps of the member, and nothing of another guild.
func TestAMembersPageShowsWhatIsKept(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	token := s.records(t, guildID)
	other := s.records(t, neighbourID)
	b.get(page(guildID, "members", mara)).wants(200, "<h1><bdi>Mara", "500, number 1 of 1", "Level</dt><dd>", `href="`+page(guildID,
		"ledger", s.entry(t, guildID))+`">+500</a>`,
		`href="`+page(guildID, "tokens", token.ID)+`"`, token.Preview, `href="`+page(guildID, "cases", "case-"+guildID)+`">#12</a>`,
		`href="`+page(guildID, "tickets", "ticket-"+guildID)+`">t12</a>`, `href="`+page(guildID, "giveaways", "giveaway-"+guildID)+`"`,
		`<a href="https://cdn.example.com/m.png" rel="noopener noreferrer nofollow">`, "shop.customer").
		lacks(neighbourID, other.Preview, "secret subject").harmless()
	b.get(page(guildID, "members", "7")).wants(200, "Nothing is known of this member")
	for _, path := range []string{"x", "1' OR '1'='1", "123456789012345678901"} {
		b.get(page(guildID, "members", escape(path))).wants(404)
	}
}

// "500 coins, who?": from the member to the entry, the token that made it, and what each
// endpoint answered.
func TestALedgerEntryIsTraced(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	b := l.as(t, "manager")
	well, ill := egresstest.NewReceiver(t, egresstest.Respond(200, "ok")), egresstest.NewReceiver(t, egresstest.Respond(401, "no"))
	for _, url := range []string{well.URL, ill.URL} {
		b.endpointAt(url)
	}
	dbtest.Exec(t, l.DB, `UPDATE webhook_endpoints
			SET events = '{economy.balance_changed}', description = CASE url WHEN $1 THEN 'Mirror' ELSE $2 END`, well.URL, wrong)
	token := l.makeToken(t, guildID, func(n *auth.New) { n.Name, n.Scopes = "Shop", []string{"economy:write"} })
	status, body := l.call(t, l.URL, token.Secret, "POST", "/economy/adjust",
		`{"user_id":"`+mara+`","delta":500,"reason":"order","reference":"order-812","author_id":"5"}`)
	if status != 200 {
		t.Fatal(body)
	}
	path := page(guildID, "ledger", l.entry(t, guildID))
	l.settled(t)
	b.get(path).wants(200, "answered 200", "answered 401", "0 before, 500 after", "Emitted as <code>economy.balance_changed</code>",
		"<bdi>Mirror</bdi>", "next <time", token.Preview,
		`href="`+page(guildID, "tokens", token.ID)+`"><bdi>Shop</bdi>`, `, for <a href="`+page(guildID, "members", "5")+`"`, "order-812",
		page(guildID, "webhooks")+"/").lacks("No event is kept").harmless()
	dbtest.Exec(t, l.DB, `DELETE FROM webhook_endpoints`)
	b.get(path).wants(200, "an endpoint that was removed")
	dbtest.Exec(t, l.DB, `DELETE FROM webhook_deliveries`)
	dbtest.Exec(t, l.DB, `DELETE FROM webhook_events`)
	b.get(path).wants(200, "No event is kept: no endpoint listened")
	for _, id := range []string{"nothing", "0197742a-8c00-7000-8000-000000000402"} {
		b.get(page(guildID, "ledger", id)).wants(404)
	}
	b.get(page(neighbourID, "ledger", l.entry(t, guildID))).wants(404)
}

// The lists of records take the API's filters, and say what is wrong with one.
func TestRecordsAreFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	for _, list := range []string{"cases", "tickets", "giveaways"} {
		b.get(page(guildID, list)).wants(200, "yet.")
	}
	s.records(t, guildID)
	for list, queries := range map[string]map[bool][]string{
		"cases": {
			true: {
				"", "number=12", "number=%2312", "user_id=" + mara, "moderator_id=5", "type=warn", "status=active", "type=warn&status=active",
				"since=2026-01-01T00:00", "until=2099-01-01T00:00", "type=nothing",
			},
			false: {
				"number=13", "user_id=5", "moderator_id=" + mara, "type=ban", "status=deleted", "since=2099-01-01T00:00",
				"until=2026-01-01T00:00", "page=2",
			},
		},
		"tickets": {
			true: {
				"", "number=12", "number=t12", "opener_id=" + mara, "claimed_by_id=none", "category=help", "priority=normal", "status=closed",
				"order=activity", "status=closed&order=activity&category=help",
			},
			false: {"number=13", "opener_id=5", "claimed_by_id=5", "category=x", "priority=low", "status=open", "page=2"},
		},
		"giveaways": {true: {"", "status=ended"}, false: {"status=active", "page=2"}},
	} {
		row := `<th scope="row"><a href="` + page(guildID, list, strings.TrimSuffix(list, "s")+"-"+guildID) + `"`
		for fits, all := range queries {
			for _, query := range all {
				got := b.get(page(guildID, list) + "?" + query).wants(200).harmless()
				if strings.Contains(got.body, row) != fits {
					t.Errorf("%s?%s shows the record: %t, want %t", list, query, !fits, fits)
				}
			}
		}
	}
	b.get(page(guildID, "cases")+"?number=x&since=soon&until=late").wants(422, "Write the number of a case", "Write a time in UTC",
		`value="soon"`)
	b.get(page(guildID, "tickets")+"?number=x").wants(422, "Write the number of a ticket")
	for _, list := range []string{
		"cases?user_id=", "cases?moderator_id=", "tickets?opener_id=", "tickets?category=",
		"tickets?claimed_by_id=", "giveaways?status=",
	} {
		b.get(page(guildID, list) + escape(wrong)).wants(200).harmless()
	}
}

// A case's page shows the case and its trace.
func TestACasesPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.records(t, guildID)
	s.as(t, "manager").get(page(guildID, "cases", "case-"+guildID)).wants(200, "<h1>Case 12</h1>", `href="`+page(guildID, "members",
		mara)+`"><bdi>Mara`,
		`href="`+page(guildID, "members", "5")+`"`, "&lt;script&gt;alert(1)", "by whom is not stored", "No event is kept").harmless()
}

// A case's page shows each change with what stood before and after, who made it, and what became
// of its event.
func TestACasesChangesAreTraced(t *testing.T) {
	t.Parallel()
	l := newLive(t)
	b := l.as(t, "manager")
	b.endpointAt(egresstest.NewReceiver(t, egresstest.Respond(200, "ok")).URL)
	dbtest.Exec(t, l.DB, `UPDATE webhook_endpoints SET events = '{case.created,case.updated}', description = 'Mirror'`)
	token := l.makeToken(t, guildID, func(n *auth.New) { n.Name, n.Scopes = "Desk", []string{"cases:write"} })
	status, body := l.call(t, l.URL, token.Secret, "POST", "/cases",
		`{"user_id":"`+mara+`","moderator_id":"5","type":"warn","reason":"first"}`)
	if status != 201 {
		t.Fatal(body)
	}
	id := dbtest.Value[string](t, l.DB, `SELECT id FROM cases WHERE guild_id = $1 AND reason = 'first'`, guildID)
	if status, body = l.call(t, l.URL, token.Secret, "PATCH", "/cases/"+id, `{"reason":"<b>second</b>","author_id":"6"}`); status != 200 {
		t.Fatal(body)
	}
	l.settled(t)
	got := b.get(page(guildID, "cases", id)).wants(200, "<b>created</b> by", "<b>changed</b> by", ">Desk</bdi>",
		`, for <a href="`+page(guildID, "members", "6")+`"`,
		"<dt>reason</dt>", `before: </span>first</del>`, `after: </span>&lt;b&gt;second&lt;/b&gt;</ins>`, "Emitted as <code>case.created</code>",
		"Emitted as <code>case.updated</code>").harmless()
	if n := strings.Count(got.body, "answered 200"); n != 2 {
		t.Errorf("%d events are told to have arrived, want 2", n)
	}
	dbtest.Exec(t, l.DB, `
		UPDATE cases SET status = 'expired' WHERE id = $1`, id)
	dbtest.Exec(t, l.DB, `
		INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
		SELECT $1, $2, now() + n * interval '1 second', '{"type":"system","token_id":null,"key_id":null}',
			'[{"field":"status","before":"active","after":"expired"}]'
		FROM generate_series(1, 60) n`, guildID, id)
	b.get(page(guildID, "cases", id)).wants(200, "service</span> <bdi>Guildhall", "before: </span>active</del>", `href="?page=2"`)
	b.get(page(guildID, "cases", id)+"?page=2").wants(200, "before: </span>active</del>").lacks("Later changes")
}

// What people have written in a ticket is read by the owner and by operators' links. Who manages
// the guild without administering it sees that the ticket exists. Each reading person stands in the
// audit log once an hour.
func TestTranscriptsAreReadByAdministrators(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	begun := time.Now().Truncate(time.Hour).Add(30 * time.Minute) // no hour ends while the test runs
	s := newSite(t, func(c *dashboard.Config) {
		c.Clock = func() time.Time { return begun.Add(time.Duration(ahead.Load())) }
	})
	s.records(t, guildID)
	ticket, list := page(guildID, "tickets", "ticket-"+guildID), page(guildID, "tickets")
	readings := func() int {
		return dbtest.Value[int](t, s.DB, `SELECT count(*) FROM audit_log
				WHERE action = 'ticket.transcript_read' AND target_id = 'ticket-' || guild_id AND guild_id = $1`, guildID)
	}
	manager, owner := s.as(t, "manager"), s.as(t, "owner")
	for range 2 {
		manager.get(ticket).wants(200, "<h1>Ticket 12</h1>", "You see that the ticket exists").
			lacks("secret subject", "what I wrote", "at first", "between us", "taken back", "files.example.net")
		manager.get(list).wants(200, ">t12</a>").lacks("secret subject")
	}
	if n := readings(); n != 0 {
		t.Errorf("%d readings are noted, and nobody has read", n)
	}
	link, err := dashboard.NewLink(t.Context(), s.DB, guildID, time.Minute)
	must(t, err)
	operator := s.browser(t)
	operator.post(link.Path, nil).wants(303)
	for i, b := range []*browser{owner, owner, operator, operator} {
		b.get(ticket).wants(200, "secret subject", "what I wrote", "at first", "between us", "taken back", "only staff", ">edited</span>",
			"deleted on the platform",
			`<a href="https://files.example.net/a.png?x=1" rel="noopener noreferrer nofollow">`, "at files.example.net", "20,480 bytes",
			"its address cannot be opened", "audit log").harmless()
		if n, want := readings(), 1+i/2; n != want {
			t.Errorf("%d readings are noted after %d pages, want %d", n, i+1, want)
		}
	}
	owner.get(list).wants(200, "secret subject").harmless()
	ahead.Store(int64(time.Hour))
	owner.get(ticket).wants(200, "what I wrote")
	if n := readings(); n != 3 {
		t.Errorf("%d readings are noted, want one more for the next hour", n)
	}
	owner.get(page(guildID, "audit")).wants(200, "ticket.transcript_read", `href="`+ticket+`"><bdi>ticket 12`)
}

// A long transcript has pages of a hundred entries.
func TestATranscriptHasPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.records(t, guildID)
	dbtest.Exec(t, s.DB, `
		INSERT INTO ticket_messages (guild_id, ticket_id, id, kind, author_type, content, created_at)
		SELECT $1, 'ticket-' || $1, 'm' || n, 'message', 'staff', 'line ' || n || '.', now() + n * interval '1 second'
		FROM generate_series(1, 200) n`, guildID)
	b := s.as(t, "owner")
	ticket := page(guildID, "tickets", "ticket-"+guildID)
	b.get(ticket).wants(200, "what I wrote", "line 96.", `href="?page=2"`).lacks("line 97.")
	b.get(ticket+"?page=2").wants(200, "line 97.", "line 196.", `start="101"`).lacks("what I wrote", "line 197.")
	b.get(ticket+"?page=3").wants(200, "line 197.", "line 200.").lacks(">Later</a>")
	b.get(ticket+"?page=4").wants(200, "no more entries")
}

// Verify repeats a draw, and says where the record differs from what comes out.
func TestADrawIsVerified(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.records(t, guildID)
	dbtest.Exec(t, s.DB, `
		INSERT INTO giveaways (guild_id, id, status, pot, prize, winner_count, channel_id, starts_at, ends_at, entrant_count, entry_count)
		VALUES ($1, 'g', 'drawing', 'frozen', 'A prize', 2, '9', now(), now(), 60, 60)`, guildID)
	dbtest.Exec(t, s.DB, `INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id) SELECT $1, 'g', (1000 + n)::text
			FROM generate_series(1, 60) n`, guildID)
	b := s.as(t, "manager")
	path := page(guildID, "giveaways", "g")
	b.get(path).wants(200, "Nothing was drawn yet", "winners are being drawn", ">1050</bdi>",
		`href="?entrants=2#entrants"`).lacks(">Verify<", ">1051</bdi>")
	b.get(path+"?entrants=2").wants(200, ">1051</bdi>", ">1060</bdi>").lacks(">1050</bdi>")
	must(t, giveaways.Draw(t.Context(), s.DB, guildID, "g"))
	b.get(path).wants(200, "Every prize has a winner", ">Verify<", "its time was over", "drawn, round 1")
	const same, other = "the same winners", ">different</span>"
	b.get(path+"?verify=1&draws=1").wants(200, same).lacks(other)
	dbtest.Exec(t, s.DB, `UPDATE giveaway_draws SET drawn = ARRAY[drawn[2], drawn[1]]`)
	b.get(path+"?verify=1").wants(200, other, "place 1 went to ", "the repetition gives it to").lacks(same)
	dbtest.Exec(t, s.DB, `UPDATE giveaway_draws SET drawn = ARRAY[drawn[2]]`)
	b.get(path+"?verify=1").wants(200, other, "place 2 went to nobody")
	dbtest.Exec(t, s.DB, `UPDATE giveaway_entries SET entries = 2 WHERE user_id = '1001'`)
	b.get(path+"?verify=1").wants(200, other, "the entries are not those that were drawn from")
	b.get(page(guildID, "giveaways", "giveaway-"+guildID)).wants(200, "No draw is stored").harmless()
}

// A giveaway's page says what is wrong with its message, and that it was cancelled.
func TestAGiveawaysPageSaysWhatIsWrongWithItsMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.records(t, guildID)
	b := s.as(t, "manager")
	path := page(guildID, "giveaways", "giveaway-"+guildID)
	b.get(path).wants(200).lacks("<dt>Message</dt>")
	for problem, want := range map[string]string{
		"deleted":    "Reactions to it cannot be read any more",
		"no_channel": "Its channel is gone",
		"forbidden":  "Allow the bot to see the channel",
		"failed":     "The platform refuses",
	} {
		dbtest.Exec(t, s.DB, `UPDATE giveaways SET post_problem = $1`, problem)
		b.get(path).wants(200, `<dt>Message</dt><dd><span class="state failed">`+problem+"</span> ", want)
	}
	b.get(path).wants(200).lacks("<b>cancelled</b>")
	dbtest.Exec(t, s.DB, `UPDATE giveaways SET status = 'cancelled', winners = '{}'`)
	b.get(path).wants(200, "It was cancelled, and nothing was drawn", "<b>cancelled</b> ", `<span class="state cancelled">`)
}
