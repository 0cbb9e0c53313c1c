package tickets_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

func TestInternalNote(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := apitest.Path("id", ticket(t, s.API, 1, "closed", false))
	note := `{"content":"The role was missing.","internal":true,"author_id":"55"}`
	first := s.Key("n").Do(t, "createTicketMessage", note, id).Want(t, 201, `{"data":{"kind":"note","internal":true,"author_id":"55",
		"author_type":"staff","content":"The role was missing.","channel_message_id":null}}`)
	s.WantEvent(t, "ticket.message", `{"data":{"internal":true,"kind":"note"}}`)
	s.Key("n").Do(t, "createTicketMessage", note, id).WantReplayOf(t, first)
	s.WantNoEvent(t)
	s.Do(t, "getTicket", "", id).Want(t, 200, `{"data":{"message_count":0,"last_message_at":null}}`)
	s.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{"kind":"note"}]}`)
	if calls := s.platform.Calls(); len(calls) != 0 {
		t.Errorf("a note left the database: %v", calls)
	}
}

// A ticket whose last change has the last instant that can be written gets a note with that
// instant.
func TestNoNoteIsWrittenInTheYear10000(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := apitest.Path("id", ticket(t, s.API, 1, "open", false))
	dbtest.Exec(t, s.DB(), `UPDATE tickets SET updated_at = '9999-12-31 23:59:59.999+00'`)
	last := `"created_at":"9999-12-31T23:59:59.999Z"`
	s.Do(t, "createTicketMessage", `{"content":"x","internal":true}`, id).Want(t, 201, `{"data":{`+last+`}}`)
	s.Do(t, "listTicketMessages", "", id).Want(t, 200, `{"data":[{`+last+`}]}`)
	s.Do(t, "getTicket", "", id).Want(t, 200, `{"data":{"updated_at":"9999-12-31T23:59:59.999Z"}}`)
}

func TestMessage(t *testing.T) {
	t.Parallel()

	t.Run("is posted, mirrored and told", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		text := `@everyone look <@&1> <@2>`
		first := s.Key("k").Do(t, "createTicketMessage", `{"content":"`+text+`","author_id":"55"}`, apitest.Path("id", id))
		first.Want(t, 201, `{"data":{"ticket_id":"`+id+`","kind":"message","internal":false,`+
			`"author_id":"55","author_type":"staff","content":"`+text+`"}}`)
		posted := s.platform.Messages(channelOf(1))
		if len(posted) != 1 || posted[0].Content != text || posted[0].ID != first.Str(t, "data.channel_message_id") ||
			!posted[0].Enforced || len(posted[0].Nonce) != 22 || !strings.Contains(string(posted[0].Mentions), `"parse":[]`) {
			t.Fatalf("the channel holds %+v", posted)
		}
		s.WantEvent(t, "ticket.message", `{"origin":{"type":"api"},"data":{"kind":"message","author_id":"55"}}`)
		s.Do(t, "getTicket", "", apitest.Path("id", id)).
			Want(t, 200, `{"data":{"message_count":1,"last_message_at":"`+first.Str(t, "data.created_at")+`"}}`)

		s.Key("k").Do(t, "createTicketMessage", `{"content":"`+text+`","author_id":"55"}`, apitest.Path("id", id)).WantReplayOf(t, first)
		s.Key("k").Do(t, "createTicketMessage", `{"content":"other"}`, apitest.Path("id", id)).WantError(t, 409, "idempotency_key_reused")
		s.Do(t, "createTicketMessage", `{"content":"without a key","internal":false}`, apitest.Path("id", id)).
			Want(t, 201, `{"data":{"author_id":null,"kind":"message"}}`)
		s.wantMessages(t, id, 1, 2, 2)
	})

	t.Run("needs an open ticket before it needs a channel", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		closed := apitest.Path("id", ticket(t, s.API, 1, "closed", false))
		mute := ticket(t, s.API, 2, "open", false)
		refused := s.Key("c").Do(t, "createTicketMessage", `{"content":"x"}`, closed).WantError(t, 422, "ticket_not_open")
		s.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", mute)).WantError(t, 422, "no_ticket_channel")
		invalid := s.Key("i").Do(t, "createTicketMessage", `{"content":" "}`, apitest.Path("id", mute)).WantError(t, 400, "invalid_request")
		absent := s.Key("a").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", "gone")).WantError(t, 404, "not_found")
		s.Do(t, "createTicketMessage", `{"content":"`+strings.Repeat("\U0001F44B", 2001)+`"}`, apitest.Path("id", mute)).
			WantError(t, 400, "invalid_request")

		// All these refusals are stored under their keys, whatever happens later.
		dbtest.Exec(t, s.API.DB(), `UPDATE tickets SET status = 'open', closed_at = NULL, channel_id = (700 + number)::text`)
		s.Key("c").Do(t, "createTicketMessage", `{"content":"x"}`, closed).WantReplayOf(t, refused)
		s.Key("i").Do(t, "createTicketMessage", `{"content":" "}`, apitest.Path("id", mute)).WantReplayOf(t, invalid)
		s.Key("a").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", "gone")).WantReplayOf(t, absent)
		s.WantNoEvent(t)
		if calls := s.platform.Calls(); len(calls) != 0 {
			t.Errorf("calls: %v", calls)
		}
	})

	t.Run("holds 2000 characters of any kind", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := apitest.Path("id", ticket(t, s.API, 1, "open", true))
		s.Do(t, "createTicketMessage", `{"content":"`+strings.Repeat("\U0001F44B", 2000)+`"}`, id).Want(t, 201, "")
	})
}

// TestRefused: however the platform fails to accept the message, the caller gets 502 and nothing is
// left behind, not even under the key. RELIABILITY.md, Messages.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, behave := range map[string]func(*chattest.Server) chattest.Behaviour{
		"missing access":     refuse(403, 50001),
		"missing permission": refuse(403, 50013),
		"unknown channel":    refuse(404, 10003),
		"archived thread":    refuse(400, 50083),
		"invalid form":       refuse(400, 50035),
		"bad token":          refuse(401, 0),
		"server error":       refuse(500, 0),
		"page":               func(*chattest.Server) chattest.Behaviour { return chattest.HTML(503) },
		"page with 200":      func(*chattest.Server) chattest.Behaviour { return chattest.HTML(200) },
		"silence":            (*chattest.Server).Silent,
		"long rate limit":    func(*chattest.Server) chattest.Behaviour { return chattest.Limited(time.Hour, "user") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			other := ticket(t, s.API, 2, "open", true)
			s.platform.In(channelOf(1), behave(s.platform))
			response := s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
			if strings.Contains(string(response.Body), "5001") {
				t.Errorf("the answer tells internals: %s", response.Body)
			}
			s.wantMessages(t, id, 1, 0, 0)
			s.WantNoEvent(t)
			s.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", other)).Want(t, 201, "")
			s.WantEvent(t, "ticket.message", "")
			if name == "long rate limit" {
				return
			}
			s.platform.In(channelOf(1), nil)
			again := s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).Want(t, 201, "")
			if again.Header.Get("Idempotent-Replay") != "" {
				t.Error("the refusal was kept")
			}
			s.WantEvent(t, "ticket.message", "")
			if n := len(s.platform.Messages(channelOf(1))); n != 1 {
				t.Errorf("the channel holds %d messages, want 1", n)
			}
			s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantReplayOf(t, again)
		})
	}
}

func refuse(status, code int) func(*chattest.Server) chattest.Behaviour {
	return func(*chattest.Server) chattest.Behaviour { return chattest.Refuse(status, code, "No") }
}

// TestAnswerLost: the platform posts the message and its response never arrives. RELIABILITY.md,
// Messages.
func TestAnswerLost(t *testing.T) {
	t.Parallel()

	t.Run("within one request", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		s.platform.Next(chattest.Lose())
		s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).Want(t, 201, "")
		s.wantMessages(t, id, 1, 1, 1)
	})

	t.Run("so often that the caller is told it failed", func(t *testing.T) {
		t.Parallel()
		for _, forgotten := range []bool{false, true} {
			s := newTicketAPI(t)
			id := ticket(t, s.API, 1, "open", true)
			s.platform.Next(chattest.Lose(), chattest.Lose(), chattest.Lose())
			s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
			s.wantMessages(t, id, 1, 1, 0)
			if forgotten { // the nonce is forgotten, since the retry comes ten minutes later
				s.platform.Forget()
				s.elapse(t, 600)
			}
			response := s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).Want(t, 201, "")
			if posted := s.platform.Messages(channelOf(1)); response.Str(t, "data.channel_message_id") != posted[0].ID {
				t.Errorf("the transcript names another message than %s", posted[0].ID)
			}
			s.wantMessages(t, id, 1, 1, 1)
		}
	})

	t.Run("and another request with the same words is another message", func(t *testing.T) {
		t.Parallel()
		s := newTicketAPI(t)
		id := ticket(t, s.API, 1, "open", true)
		for _, key := range []string{"a", "b", "c"} {
			s.platform.Next(chattest.Lose(), chattest.Lose(), chattest.Lose())
			s.Key(key).Do(t, "createTicketMessage", `{"content":"same"}`, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
		}
		s.platform.Forget()
		s.elapse(t, 600)
		for _, key := range []string{"c", "a", "b"} {
			s.Key(key).Do(t, "createTicketMessage", `{"content":"same"}`, apitest.Path("id", id)).Want(t, 201, "")
		}
		s.wantMessages(t, id, 1, 3, 3)
	})
}

// TestDuplicates: fifty requests with one key post one message.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	s.platform.In(channelOf(1), chattest.Slow(200*time.Millisecond))
	op := apitest.Find(t, "createTicketMessage")
	var group sync.WaitGroup
	var mu sync.Mutex
	bodies := map[string]int{}
	for range 50 {
		group.Go(func() {
			response, err := s.Key("k").Retry(op, `{"content":"x"}`, apitest.Path("id", id))
			switch {
			case err != nil:
				t.Error(err)
			case response.Status == 201:
				mu.Lock()
				bodies[string(response.Body)]++
				mu.Unlock()
			case response.Code() != "idempotency_key_in_use":
				t.Errorf("got %d %s", response.Status, response.Body)
			}
		})
	}
	group.Wait()
	if len(bodies) != 1 {
		t.Errorf("%d different answers", len(bodies))
	}
	s.wantMessages(t, id, 1, 1, 1)
}

// TestHangingPlatform: while more calls of the platform hang than there are connections, all other
// requests work. RELIABILITY.md, Messages.
func TestHangingPlatform(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	const hanging = 25
	release := make(chan struct{})
	var group sync.WaitGroup
	op := apitest.Find(t, "createTicketMessage")
	begun := make(chan struct{}, hanging)
	free := ticket(t, s.API, 99, "open", true)
	ids := make([]string, hanging)
	for i := range ids {
		ids[i] = ticket(t, s.API, i+1, "open", true)
		s.platform.In(channelOf(i+1), notify(begun, chattest.Until(release)))
	}
	for _, id := range ids {
		group.Go(func() {
			if response, err := s.Retry(op, `{"content":"x"}`, apitest.Path("id", id)); err != nil {
				t.Error(err)
			} else if response.Status != 201 {
				t.Errorf("a message that hung is answered %d %s", response.Status, response.Body)
			}
		})
	}
	for range hanging {
		<-begun
	}
	for range 5 { // the platform may take eight seconds, so other requests must be faster
		s.Do(t, "getTicket", "", apitest.Path("id", free)).Want(t, 200, "")
		s.Do(t, "createTicketMessage", `{"content":"x","internal":true}`, apitest.Path("id", free)).Want(t, 201, "")
	}
	if stats := s.DB().Stats(); stats.Write.InUse+stats.Read.InUse > 2 {
		t.Errorf("%d connections are in use while nothing but the platform is waited for", stats.Write.InUse+stats.Read.InUse)
	}
	close(release)
	group.Wait()
}

func notify(begun chan<- struct{}, b chattest.Behaviour) chattest.Behaviour {
	return func(w http.ResponseWriter, r *http.Request, accept func() any) bool {
		select {
		case begun <- struct{}{}:
		default: // a retry of a message that was begun already
		}
		return b(w, r, accept)
	}
}

// TestMessageToAnotherGuildsChannel: messages are posted only in the guild's own channels. Closing
// a ticket succeeds and does not change another guild's channel. RELIABILITY.md, Guilds.
func TestMessageToAnotherGuildsChannel(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	s.platform.Give(channelOf(1), s.Next(t).Guild)
	s.Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id)).WantError(t, 502, "discord_send_failed")
	s.wantMessages(t, id, 1, 0, 0)
	s.Do(t, "closeTicket", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"closed","channel_id":"701"}}`)
	if err := s.syncChannel(id); !errors.Is(err, chat.ErrChannelNotAllowed) {
		t.Errorf("got %v", err)
	}
	if calls := s.platform.Calls(); len(calls) != 0 || s.platform.State(channelOf(1)) != "" {
		t.Errorf("calls in another guild's channel: %v", calls)
	}
}

// timed is a platform that records the timeout of a post.
type timed struct {
	chat.Platform
	look func(left time.Duration, bounded bool)
}

func (p timed) SendMessage(ctx context.Context, m chat.Message) (string, error) {
	deadline, bounded := ctx.Deadline()
	p.look(time.Until(deadline), bounded)
	return p.Platform.SendMessage(ctx, m)
}

// If the platform does not respond, the caller gets a response within ten seconds.
func TestAPostMayTakeTenSecondsAtMost(t *testing.T) {
	t.Parallel()
	s := newTicketAPI(t)
	id := ticket(t, s.API, 1, "open", true)
	posts := 0
	s.fail.Platform = timed{s.fail.Platform, func(left time.Duration, bounded bool) {
		if posts++; !bounded || left > 10*time.Second {
			t.Errorf("a post has a deadline: %v, in %v", bounded, left)
		}
	}}
	s.Do(t, "createTicketMessage", `{"content":"Hello"}`, apitest.Path("id", id)).Want(t, 201, "")
	if posts != 1 {
		t.Errorf("%d posts", posts)
	}
}
