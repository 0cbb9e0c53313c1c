package tickets_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

// The connection breaks at a commit of a message, before or after Postgres receives it. The caller
// still gets a response, or may retry at once, and no message is posted twice. RELIABILITY.md,
// Messages.
func TestAMessageIsAnsweredThoughACommitIsLost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		commit int64
		fate   dbtest.Fate
		away   bool // the platform is down
		status int
	}{
		{1, dbtest.Lose, false, 201},
		{1, dbtest.Break, false, 503},
		{1, dbtest.Lose, true, 502},
		{2, dbtest.Lose, false, 201},
		{2, dbtest.Break, false, 201},
		{2, dbtest.Lose, true, 502},
		{2, dbtest.Break, true, 502},
	} {
		t.Run(fmt.Sprintf("commit %d, fate %d, away %v", tt.commit, tt.fate, tt.away), func(t *testing.T) {
			t.Parallel()
			var commits atomic.Int64
			commits.Store(1000)
			s := newTicketAPI(t, apitest.Reach(func(raw string) string {
				return dbtest.NewJudgedLink(t, raw, func(sent []byte) dbtest.Fate {
					if bytes.Contains(sent, []byte("COMMIT")) && commits.Add(1) == tt.commit {
						return tt.fate
					}
					return dbtest.Pass
				}).URL
			}))
			id := ticket(t, s.API, 1, "open", true)
			if tt.away {
				s.platform.In(channelOf(1), chattest.Refuse(500, 0, "away"))
			}
			send := func() *apitest.Response {
				t.Helper()
				return s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id))
			}
			commits.Store(0)
			if got := send(); got.Status != tt.status {
				t.Errorf("got %d, want %d: %s", got.Status, tt.status, got.Body)
			}
			if n := commits.Load(); n < tt.commit {
				t.Fatalf("%d commits: none was lost", n)
			}
			s.platform.In(channelOf(1), nil)
			if got := send(); got.Status != 201 {
				t.Errorf("the same request again is %d, want 201: %s", got.Status, got.Body)
			}
			s.wantMessages(t, id, 1, 1, 1)
		})
	}
}

// The connection breaks at the BEGIN or a statement of the transaction that records a posted
// message. The transaction is retried, and neither the message nor the key has to wait for the end
// of a lease.
func TestAMessageIsAnsweredThoughItsLastUnitBreaks(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"BEGIN", "chat_intents", "ticket_messages"} {
		for _, away := range []bool{false, true} {
			if away && at == "ticket_messages" {
				continue // these statements write nothing
			}
			t.Run(fmt.Sprintf("%s, away %v", at, away), func(t *testing.T) {
				t.Parallel()
				var posted, broken atomic.Bool
				s := newTicketAPI(t, apitest.Reach(func(raw string) string {
					return dbtest.NewJudgedLink(t, raw, func(sent []byte) dbtest.Fate {
						if posted.Load() && bytes.Contains(sent, []byte(at)) && broken.CompareAndSwap(false, true) {
							return dbtest.Break
						}
						return dbtest.Pass
					}).URL
				}))
				id := ticket(t, s.API, 1, "open", true)
				status := 201
				s.fail.sent.Store(&posted)
				if away {
					status = 502
					s.platform.In(channelOf(1), chattest.Refuse(500, 0, "away"))
				}
				send := func() *apitest.Response {
					t.Helper()
					return s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, apitest.Path("id", id))
				}
				if got := send(); got.Status != status || !broken.Load() {
					t.Errorf("got %d, want %d; a connection broke: %t: %s", got.Status, status, broken.Load(), got.Body)
				}
				s.platform.In(channelOf(1), nil)
				if got := send(); got.Status != 201 {
					t.Errorf("the same request again is %d, want 201: %s", got.Status, got.Body)
				}
				s.wantMessages(t, id, 1, 1, 1)
			})
		}
	}
}

// The same for a request whose ticket was closed after the first attempt: once it is known that
// nothing was posted, the request is refused.
func TestAMessageIsRefusedThoughACommitIsLost(t *testing.T) {
	t.Parallel()
	var commits atomic.Int64
	commits.Store(1000)
	s := newTicketAPI(t, apitest.Reach(func(raw string) string {
		return dbtest.NewJudgedLink(t, raw, func(sent []byte) dbtest.Fate {
			if bytes.Contains(sent, []byte("COMMIT")) && commits.Add(1) == 2 {
				return dbtest.Lose
			}
			return dbtest.Pass
		}).URL
	}))
	id := apitest.Path("id", ticket(t, s.API, 1, "open", true))
	s.platform.In(channelOf(1), chattest.Refuse(500, 0, "away"))
	s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, id).WantError(t, 502, "discord_send_failed")
	s.platform.In(channelOf(1), nil)
	s.Do(t, "closeTicket", "", id).Want(t, 200, "")
	commits.Store(0)
	s.Key("k").Do(t, "createTicketMessage", `{"content":"x"}`, id).WantError(t, 422, "ticket_not_open")
	if n := commits.Load(); n < 2 {
		t.Errorf("%d commits: none was lost", n)
	}
}
