package giveaways_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

const party = "🎉"

// opened returns a giveawayAPI with a platform that has the guild's channels.
func opened(t *testing.T) (giveawayAPI, *chattest.Server) {
	t.Helper()
	server := chattest.New(t)
	s := giveawayAPI{apitest.New(t, apitest.Scopes("giveaways:read", "giveaways:write"), apitest.Chat(discord(t, server.URL))), t}
	server.Home(s.Guild)
	return s, server
}

// create creates a giveaway through the API and returns its id.
func (s giveawayAPI) create(prize string, winners int) string {
	s.t.Helper()
	a := s.Do(s.t, "createGiveaway", quote(map[string]any{
		"channel_id": channel, "prize": prize, "winner_count": winners, "ends_at": in(time.Hour),
	})).Want(s.t, 201, `{"data":{"status":"active","message_id":null}}`)
	s.WantEvent(s.t, "giveaway.created", "")
	return a.Str(s.t, "data.id")
}

// message waits until the giveaway has its message with the bot's reaction, and returns the
// message's id.
func (s giveawayAPI) message(server *chattest.Server, id string) string {
	s.t.Helper()
	var message string
	testutil.Eventually(s.t, "the message", func() bool {
		message = dbtest.Value[string](s.t, s.DB(), `SELECT coalesce(message_id, '') FROM giveaways WHERE id = $1`, id)
		return len(server.Reacted(channel, message, party)) > 0
	})
	return message
}

func members(from, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(from + i)
	}
	return list
}

// A giveaway works from its creation to its winners with only the API and a bot token: Guildhall
// posts the message, members react, and the draw reads the reactions.
func TestMembersEnterByReacting(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	defer s.work(discord(t, server.URL))()
	defer s.work(discord(t, server.URL))()
	id := s.create("[Nitro](https://evil.example) @everyone", 3)
	message := s.message(server, id)
	s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"message_id":`+quote(message)+`}}`)
	post := server.Messages(channel)[0]
	if !strings.Contains(post.Content, `\[Nitro](https://evil.example) @everyone`) || string(post.Mentions) != `{"parse":[]}` {
		t.Errorf("the bot says %q, with mentions %s", post.Content, post.Mentions)
	}
	// 250 members and 3 bots react. One of the members was imported with more entries.
	server.React(channel, message, party, members(2000, 250)...)
	server.React(channel, message, party, "90", "2600", "3000")
	server.Bots("90", "2600", "3000")
	server.React(channel, message, "👍", "77")
	dbtest.Exec(s.t, s.DB(), `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries)
		VALUES ($1, $2, '2001', 5), ($1, $2, '1500', 2)`, s.Guild, id)
	dbtest.Exec(s.t, s.DB(), giveaways.Recount)

	// At the second page the platform fails, and is asked again.
	server.Next(slow(), chattest.Refuse(http.StatusServiceUnavailable, 0, "no"), chattest.Limited(time.Second, "user"))
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", `{"data":{"entrant_count":251,"entry_count":256}}`)
	if n := dbtest.Value[int](s.t, s.DB(), `
		SELECT count(*)
		FROM giveaway_entries
		WHERE user_id IN ('90', '2600', '3000', '77', $1)`, chattest.Self); n != 0 {
		t.Errorf("%d entries are of bots, or of those who reacted otherwise", n)
	}
	s.Do(t, "listGiveawayEntries", "", apitest.Path("id", id), apitest.Query("user_id", "2001")).Want(t, 200, `{"data":[{"entries":5}]}`)
	s.Do(t, "listGiveawayEntries", "", apitest.Path("id", id), apitest.Query("user_id", "2249")).Want(t, 200, `{"data":[{"entries":1}]}`)
	s.Do(t, "listGiveawayDraws", "", apitest.Path("id", id)).Want(t, 200, `{"data":[{"round":1,"entry_count":256}]}`)
	won := s.winners(s.Do(t, "getGiveaway", "", apitest.Path("id", id)))
	testutil.Eventually(s.t, "the announcement", func() bool { return len(server.Messages(channel)) == 2 })
	told := server.Messages(channel)[1]
	if told.ReplyTo != message || !strings.Contains(told.Content, "Entered by reaction: 250.") ||
		string(told.Mentions) != `{"parse":[],"users":`+quote(won)+`}` {
		t.Errorf("the bot says %q in reply to %s, with mentions %s", told.Content, told.ReplyTo, told.Mentions)
	}
}

// slow lets a request pass after a moment.
func slow() chattest.Behaviour { return chattest.Slow(time.Millisecond) }

// A giveaway that starts later gets its message when it starts, once.
func TestTheMessageComesWithTheStart(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	a := s.Do(t, "createGiveaway", quote(map[string]any{
		"channel_id": channel, "prize": "Nitro", "winner_count": 1, "starts_at": in(time.Hour), "ends_at": in(2 * time.Hour),
	})).Want(t, 201, `{"data":{"status":"scheduled"}}`)
	s.WantEvent(t, "giveaway.created", "")
	id := a.Str(t, "data.id")
	defer s.work(discord(t, server.URL))()
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents`); n != 0 {
		t.Errorf("%d messages are to be posted before the start", n)
	}
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET starts_at = now() WHERE id = $1`, id)
	s.message(server, id)
	s.WantEvent(t, "giveaway.started", `{"origin":{"type":"system"},"data":{"id":`+quote(id)+`,"status":"active"}}`)
	s.Do(t, "pauseGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
	s.WantEvent(t, "giveaway.paused", "")
	s.Do(t, "resumeGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
	s.WantEvent(t, "giveaway.resumed", "")
	testutil.Eventually(s.t, "the new end", func() bool { return len(server.Messages(channel)) == 2 })
	if text := server.Messages(channel)[1].Content; !strings.Contains(text, "runs on") {
		t.Errorf("the bot says %q", text)
	}
	s.WantNoEvent(t)
}

// A giveaway that is ended before its message was posted never gets a message and is drawn at once.
func TestNobodyIsInvitedToWhatIsOver(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id := s.create("Nitro", 1)
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	defer s.work(discord(t, server.URL))()
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", `{"data":{"entrant_count":0,"message_id":null}}`)
	testutil.Eventually(s.t, "the announcement", func() bool { return len(server.Messages(channel)) == 1 })
	testutil.Eventually(s.t, "the jobs", func() bool {
		return dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE try_at IS NOT NULL`) == 0
	})
	for _, m := range server.Messages(channel) {
		if strings.Contains(m.Content, "React with") {
			t.Errorf("the bot says %q", m.Content)
		}
	}
}

// A message that may have been posted is searched for first, since members may have reacted to it.
// RELIABILITY.md, Messages.
func TestAMessageOfUnknownOutcomeIsFoundOutFirst(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	p := discord(t, server.URL)
	id := s.create("Nitro", 1)
	intent := dbtest.Value[string](t, s.DB(), `SELECT post_id FROM giveaways`)
	server.Next(chattest.Lose(), chattest.Lose(), chattest.Lose())
	if err := giveaways.Announce(context.Background(), s.DB(), p, s.Guild, intent); err == nil {
		t.Fatal("the message was posted")
	}
	message := server.Messages(channel)[0].ID
	server.React(channel, message, party, "42")
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	if err := giveaways.Gather(context.Background(), s.DB(), p, s.Guild, id); err == nil {
		t.Error("the giveaway did not wait")
	}
	dbtest.Exec(s.t, s.DB(), `UPDATE chat_intents SET try_at = now()`)
	defer s.work(p)()
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET redraw_at = now()`)
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", `{"data":{"winners":["42"],"message_id":`+quote(message)+`}}`)
}

// A hundred thousand reactions are read page by page, by workers that die: what was read stays
// stored, no connection is held, and no page is read twice by the workers that continue.
// RELIABILITY.md, Giveaways.
func TestAHundredThousandReactions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a thousand calls")
	}
	s, _ := opened(t)
	id := s.giveaway("active", 1, 0)
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET source = 'api'`)
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	const n = 100_000
	p := &crowd{n: n, dieAfter: 300}
	for attempts := 0; dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaways WHERE pot = 'gathering'`) == 1; attempts++ {
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET redraw_at = now()`) // the lease of the dead worker has ended
		ctx, cancel := context.WithCancel(context.Background())
		p.die = cancel
		err := giveaways.Gather(ctx, s.DB(), p, s.Guild, id)
		cancel()
		if attempts > 10 {
			t.Fatal(err)
		}
	}
	if got := dbtest.Value[int](s.t, s.DB(), `SELECT entrant_count FROM giveaways`); got != n ||
		dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaway_entries`) != n {
		t.Errorf("there are %d entrants, want %d", got, n)
	}
	if limit := n/100 + 1 + 4; p.calls > limit {
		t.Errorf("the platform was asked %d times, want at most %d", p.calls, limit)
	}
	if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
		t.Fatal(err)
	}
	s.WantEvent(t, "giveaway.ended", `{"data":{"entry_count":100000}}`)
}

// While the platform is down, a giveaway stays in status drawing. After a day it is drawn from the
// known entries, and its announcement says so. If the message is gone, the draw does not wait.
func TestAGiveawayDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		t.Run(fmt.Sprintf("the message is gone: %t", gone), func(t *testing.T) {
			t.Parallel()
			s, server := opened(t)
			defer s.work(discord(t, server.URL))()
			id := s.create("Nitro", 1)
			message := s.message(server, id)
			server.React(channel, message, party, "42")
			dbtest.Exec(s.t, s.DB(), `INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id) VALUES ($1, $2, '1500')`, s.Guild, id)
			dbtest.Exec(s.t, s.DB(), giveaways.Recount)
			if gone {
				server.DeleteMessage(channel, message)
			} else {
				server.In(channel, chattest.Refuse(http.StatusForbidden, 50001, "Missing Access"))
			}
			s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
			s.WantEvent(t, "giveaway.drawing", "")
			if !gone {
				testutil.Eventually(s.t, "two failures", func() bool { return dbtest.Value[int](s.t, s.DB(), `SELECT failures FROM giveaways`) >= 2 })
				s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"drawing"}}`)
				dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET drawing_at = now() - interval '24 hours', redraw_at = now()`)
			}
			s.untilEnded(id)
			server.In(channel, nil)
			problem := map[bool]string{true: "deleted", false: "forbidden"}[gone]
			s.WantEvent(t, "giveaway.updated", `{"origin":{"type":"system"},"data":{"changed":["post_problem"],"post_problem":`+quote(problem)+`}}`)
			s.WantEvent(t, "giveaway.ended", `{"data":{"winners":["1500"],"entrant_count":1,"post_problem":`+quote(problem)+`}}`)
			var text string
			if err := s.DB().Reader().GetContext(context.Background(), &text, `
				SELECT content
				FROM chat_intents
				WHERE kind = 'giveaway_ended'`); err != nil || !strings.Contains(text, "could not be read") {
				t.Errorf("the bot is to say %q, %v", text, err)
			}
		})
	}
}

// Messages are posted only in the guild's own channels: the caller's channel is checked before
// anything is stored. RELIABILITY.md, Guilds.
func TestTheChannelMustBeTheGuilds(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	server.Give("300", s.Next(t).Guild)
	server.Give("301", "")
	server.Lookup("302", chattest.Refuse(http.StatusForbidden, 50001, "Missing Access"))
	server.Lookup("303", chattest.Refuse(http.StatusNotFound, 10003, "Unknown Channel"))
	server.Lookup("304", chattest.Refuse(http.StatusServiceUnavailable, 0, "no"))
	create := func(to, ends string) *apitest.Response {
		t.Helper()
		return s.Do(t, "createGiveaway", quote(map[string]any{"channel_id": to, "prize": "Nitro", "winner_count": 1, "ends_at": ends}))
	}
	for _, to := range []string{"300", "301", "302", "303"} {
		create(to, in(time.Hour)).WantError(t, 422, "channel_not_allowed")
		create(to, in(-time.Hour)).WantError(t, 400, "invalid_request")
	}
	create("304", in(time.Hour)).WantError(t, 502, "discord_send_failed")
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaways`); n != 0 {
		t.Errorf("%d giveaways were stored", n)
	}
	// A refusal of the platform is not cached.
	server.Lookup("304", nil)
	create("304", in(time.Hour)).Want(t, 201, "")
	s.WantEvent(t, "giveaway.created", "")
	s.WantNoEvent(t)
}

// The platform is down for a day in which giveaways end. Nothing is given up, and when it is back,
// each announcement is posted once. RELIABILITY.md, Messages.
func TestADayWithoutThePlatform(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	stop := s.work(discord(t, server.URL))
	id := s.create("Nitro", 1)
	message := s.message(server, id)
	server.React(channel, message, party, "42")
	server.In(channel, chattest.Refuse(http.StatusServiceUnavailable, 0, "away"))
	var list []string
	for i := range 4 {
		other := s.giveaway("active", 1, 3)
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET prize = 'Prize ' || id WHERE id = $1`, other)
		list = append(list, other)
		switch i {
		case 1: // the bot loses its permissions
			server.In(channel, chattest.Refuse(http.StatusForbidden, 50013, "Missing Permissions"))
		case 2:
			server.In(channel, chattest.Refuse(http.StatusForbidden, 50001, "Missing Access"))
		case 3:
			server.In(channel, chattest.HTML(http.StatusBadGateway))
		}
		s.Do(t, "endGiveaway", "", apitest.Path("id", other)).Want(t, 202, "")
		s.WantEvent(t, "giveaway.drawing", "")
		s.untilEnded(other)
		s.WantEvent(t, "giveaway.ended", "")
		testutil.Eventually(s.t, "an attempt to announce", func() bool {
			return dbtest.Value[int](s.t, s.DB(), `
				SELECT count(*)
				FROM chat_intents
				WHERE subject_id = $1 AND state IN ('refused', 'unknown')`, other) == 1
		})
	}
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	// The hours pass, and every 15 minutes everything is retried.
	for range 6 {
		before := dbtest.Value[int](s.t, s.DB(), `SELECT sum(lease_gen) FROM chat_intents`)
		dbtest.Exec(s.t, s.DB(), `
			UPDATE chat_intents
			SET `+dbtest.Earlier(`interval '3 hours 50 minutes'`, "created_at")+`, try_at = now()
			WHERE state IN ('refused', 'unknown')`)
		dbtest.Exec(s.t, s.DB(), `
			UPDATE giveaways
			SET `+dbtest.Earlier(`interval '3 hours 50 minutes'`, "drawing_at")+`, redraw_at = now()
			WHERE status = 'drawing'`)
		testutil.Eventually(s.t, "more attempts", func() bool {
			return dbtest.Value[int](s.t, s.DB(), `SELECT sum(lease_gen) FROM chat_intents`) >= before+2
		})
	}
	server.In(channel, nil)
	server.Forget()
	dbtest.Exec(s.t, s.DB(), `UPDATE chat_intents SET try_at = now() WHERE state IN ('refused', 'unknown')`)
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET redraw_at = now() WHERE status = 'drawing'`)
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", `{"data":{"winners":["42"]}}`)
	testutil.Eventually(s.t, "all announcements", func() bool {
		if dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE state = 'sent'`) == 6 {
			return true
		}
		dbtest.Exec(s.t, s.DB(), `UPDATE chat_intents SET try_at = now() WHERE state IN ('refused', 'unknown')`)
		return false
	})
	for _, other := range list {
		posted := 0
		for _, m := range server.Messages(channel) {
			posted += strings.Count(m.Content, other)
		}
		if posted != 1 {
			t.Errorf("giveaway %s was announced %d times", other, posted)
		}
	}
	if n := len(server.Messages(channel)); n != 6 {
		t.Errorf("%d messages were posted, want 6", n)
	}
	stop()
}
