package giveaways_test

import (
	"net/http"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

const otherChannel = "4001"

// announced waits until no announcement is due.
func (s giveawayAPI) announced() {
	s.t.Helper()
	testutil.Eventually(s.t, "the jobs to end", func() bool {
		return dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE try_at IS NOT NULL`) == 0
	})
}

// The bot moves a giveaway whose message could not be posted yet, or is being posted. In the end
// the giveaway's channel is the one with its message, and members who react there can win.
// RELIABILITY.md, Giveaways.
func TestAGiveawayThatMovesIsWhereItsMessageIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		posting    bool
		where, not string
	}{
		"before":    {false, otherChannel, channel},
		"meanwhile": {true, channel, otherChannel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, server := opened(t)
			release, begun := make(chan struct{}), make(chan struct{}, 100)
			server.In(channel, func(w http.ResponseWriter, r *http.Request, act func() any) bool {
				begun <- struct{}{}
				return chattest.Until(release)(w, r, act)
			})
			id := s.create("A hat", 1)
			if c.posting {
				defer s.work(discord(t, server.URL))()
				<-begun
			}
			s.API.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"`+id+`","channel_id":"`+otherChannel+`"}]}`).
				Want(t, 200, `{"data":[{"result":"updated"}]}`)
			s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["channel_id"]}}`)
			close(release)
			if !c.posting {
				defer s.work(discord(t, server.URL))()
			}
			s.announced()
			testutil.Eventually(t, "the message", func() bool {
				return dbtest.Value[bool](t, s.DB(), `SELECT message_id IS NOT NULL AND react_at IS NULL FROM giveaways WHERE id = $1`, id)
			})
			if here, there := len(server.Messages(c.where)), len(server.Messages(c.not)); here != 1 || there != 0 {
				t.Fatalf("%d messages are where it is to be, %d in the other channel", here, there)
			}
			message := server.Messages(c.where)[0].ID
			s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"channel_id":"`+c.where+`","message_id":"`+message+`"}}`)
			server.React(c.where, message, party, "3000")
			s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
			testutil.Eventually(t, "the winner", func() bool {
				return dbtest.Value[string](t, s.DB(), `SELECT array_to_string(winners, ' ') FROM giveaways WHERE id = $1`, id) == "3000"
			})
		})
	}
}

// The bot itself has posted the message of such a giveaway, in its channel or in another: no second
// message is posted.
func TestAGiveawayThatComesWithItsMessageGetsNoOther(t *testing.T) {
	t.Parallel()
	for _, where := range []string{channel, otherChannel} {
		s, server := opened(t)
		id := s.create("A hat", 1)
		s.API.Bot(t).In(s.Guild).Do(t, "writeRecords",
			`{"records":[{"record":"giveaway","id":"`+id+`","channel_id":"`+where+`","message_id":"77"}]}`).
			Want(t, 200, `{"data":[{"result":"updated"}]}`)
		stop := s.work(discord(t, server.URL))
		s.announced()
		stop()
		if n := len(server.Messages(channel)) + len(server.Messages(otherChannel)); n != 0 {
			t.Errorf("%d messages were posted beside that in %s", n, where)
		}
		s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"channel_id":"`+where+`","message_id":"77"}}`)
	}
}

// The message of a giveaway that becomes active exists already, from the record that creates it or
// from before. RELIABILITY.md, Giveaways.
func TestAGiveawayThatBeginsWithItsMessageGetsNoOther(t *testing.T) {
	t.Parallel()
	for status, starts := range map[string]string{"active": "2026-01-01T00:00:00Z", "scheduled": "2039-01-01T00:00:00Z"} {
		s, server := opened(t)
		s.API.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"`+status+`","source":"api","prize":"A hat",
			"channel_id":"`+channel+`","message_id":"77","status":"`+status+`","starts_at":"`+starts+`","ends_at":"2040-01-01T00:00:00Z"}]}`).
			Want(t, 200, `{"data":[{"result":"created"}]}`)
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET starts_at = '2026-01-01'`)
		stop := s.work(discord(t, server.URL))
		testutil.Eventually(t, "it has begun", func() bool {
			return dbtest.Value[bool](t, s.DB(), `SELECT status = 'active' FROM giveaways`)
		})
		s.announced()
		stop()
		if n := len(server.Messages(channel)); n != 0 {
			t.Errorf("%d messages were posted of one that was %s", n, status)
		}
	}
}

// A message stays where it was posted: a record that moves only its giveaway is refused, and
// members who react to the message can win. A record that also names another message is accepted,
// and so is any record of a giveaway that the bot runs. RELIABILITY.md, Giveaways.
func TestAGiveawayDoesNotLeaveItsMessage(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id := s.create("A hat", 1)
	defer s.work(discord(t, server.URL))()
	testutil.Eventually(t, "the message", func() bool {
		return dbtest.Value[bool](t, s.DB(), `SELECT message_id IS NOT NULL FROM giveaways WHERE id = $1`, id)
	})
	bot := s.API.Bot(t).In(s.Guild)
	moved := func(id, members string) *apitest.Response {
		return bot.Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"`+id+`","channel_id":"`+otherChannel+`"`+members+`}]}`)
	}
	moved(id, "").WantError(t, 422, "record_refused")
	message := server.Messages(channel)[0].ID
	s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"channel_id":"`+channel+`","message_id":"`+message+`"}}`)
	server.React(channel, message, party, "3000")
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	testutil.Eventually(t, "the winner", func() bool {
		return dbtest.Value[string](t, s.DB(), `SELECT array_to_string(winners, ' ') FROM giveaways WHERE id = $1`, id) == "3000"
	})
	moved(id, `,"message_id":"77"`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"channel_id":"`+otherChannel+`","message_id":"77"}}`)

	bot.Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"its","prize":"A hat","channel_id":"5","message_id":"6",
		"ends_at":"2040-01-01T00:00:00Z"}]}`).Want(t, 200, "")
	moved("its", "").Want(t, 200, `{"data":[{"result":"updated"}]}`)
}

// While a giveaway's reactions are being read, the bot posts its message anew: the reactions to the
// new message are read from the beginning.
func TestTheReactionsOfAnotherMessageAreReadFromTheFirst(t *testing.T) {
	t.Parallel()
	s, _ := opened(t)
	id := s.create("A hat", 1)
	dbtest.Exec(t, s.DB(), `
		UPDATE giveaways SET status = 'drawing', pot = 'gathering', drawing_at = now(), message_id = '76', reaction_after = 'super:3000'`)
	for record, want := range map[string]string{`"prize":"A coat"`: "super:3000", `"message_id":"77"`: ""} {
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET message_id = '76', reaction_after = 'super:3000'`)
		s.API.Bot(t).In(s.Guild).Do(t, "writeRecords", `{"records":[{"record":"giveaway","id":"`+id+`",`+record+`}]}`).
			Want(t, 200, `{"data":[{"result":"updated"}]}`)
		if got := dbtest.Value[string](t, s.DB(), `SELECT reaction_after FROM giveaways`); got != want {
			t.Errorf("after %s reading goes on after %q, want %q", record, got, want)
		}
	}
}
