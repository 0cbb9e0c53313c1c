package tickets_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

// TestUnreliablePlatform: however often responses are lost and calls fail, a caller who retries
// with the same key ends with one message and one row. RELIABILITY.md, Messages.
func TestUnreliablePlatform(t *testing.T) {
	t.Parallel()
	const lanes, each = 6, 6
	s := newTicketAPI(t)
	op := apitest.Find(t, "createTicketMessage")
	var group sync.WaitGroup
	ids := make([]string, lanes)
	for lane := range lanes {
		ids[lane] = ticket(t, s.API, lane+1, "open", true)
		s.platform.In(channelOf(lane+1), moody(uint64(lane)))
		group.Go(func() {
			for i := range each {
				key := fmt.Sprintf("%d-%d", lane, i)
				for try := 0; ; try++ {
					response, err := s.Key(key).Try(op, `{"content":"`+key+`"}`, apitest.Path("id", ids[lane]))
					if err != nil {
						t.Error(err)
						return
					}
					if response.Status == http.StatusCreated {
						break
					}
					if response.Code() != "discord_send_failed" || try > 50 {
						t.Errorf("try %d: got %d %s", try, response.Status, response.Body)
						return
					}
				}
			}
		})
	}
	group.Wait()
	for lane, id := range ids {
		posted := s.platform.Messages(channelOf(lane + 1))
		if len(posted) != each {
			t.Errorf("channel %d holds %d messages, want %d", lane, len(posted), each)
		}
		for i, m := range posted {
			if want := fmt.Sprintf("%d-%d", lane, i); m.Content != want {
				t.Errorf("message %d is %q, want %q", i, m.Content, want)
			}
		}
		s.Do(t, "getTicket", "", apitest.Path("id", id)).Want(t, 200, fmt.Sprintf(`{"data":{"message_count":%d}}`, each))
	}
}

// moody loses half of the responses, fails every fifth call, and refuses one in ten.
func moody(seed uint64) chattest.Behaviour {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	lose, fail, refuse := chattest.Lose(), chattest.Refuse(500, 0, "oops"), chattest.Refuse(403, 50013, "No")
	return func(w http.ResponseWriter, r *http.Request, accept func() any) bool {
		mu.Lock()
		n := random.IntN(10)
		mu.Unlock()
		switch {
		case n < 5:
			return lose(w, r, accept)
		case n < 7:
			return fail(w, r, accept)
		case n < 8:
			return refuse(w, r, accept)
		}
		return false
	}
}
