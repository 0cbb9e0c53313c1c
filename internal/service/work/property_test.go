package work_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	server "guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

// impatient is the platform of callers that do not wait for the bot's answer: they get at once the
// error that they would get after ten seconds.
type impatient struct{ *chat.Work }

func (p impatient) SendMessage(ctx context.Context, m chat.Message) (string, error) {
	return p.Work.SendMessage(chat.Background(ctx), m)
}

func (p impatient) FindMessages(ctx context.Context, m chat.Message, since time.Time) ([]string, error) {
	return p.Work.FindMessages(chat.Background(ctx), m, since)
}

// Messages of one ticket are posted again and again under their keys, while the ticket's channel
// follows the ticket. The bot fetches work, answers late, twice, not at all or with a refusal,
// posts and crashes; leases, nonces and deadlines expire. No message is ever posted twice; a
// message that the bot has confirmed is in the transcript once, and its response is stored under
// its key; and in the end the channel matches the ticket. RELIABILITY.md, Messages.
func TestWorkProperty(t *testing.T) {
	t.Parallel()
	platform := &impatient{}
	api := apitest.New(t, apitest.Chat(platform))
	platform.Work = chat.NewWork(api.DB(), slog.New(slog.DiscardHandler), nil)
	bot, n := api.Bot(t), 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		s := &story{r: r, t: t, api: api, bot: bot, world: newWorld(), id: ticket(t, api, fmt.Sprint("ticket-", n)), answers: map[string]string{}}
		s.world.first = 1_000 * n
		for range rapid.IntRange(2, 20).Draw(r, "steps") {
			s.step()
		}
		s.end()
	})
}

// story is one random sequence of operations on a ticket.
type story struct {
	r        *rapid.T
	t        *testing.T
	api, bot *apitest.API
	world    *world
	id       string
	held     []asked           // work that was fetched and perhaps answered
	answers  map[string]string // the answers that counted, by work
	posted   map[string]string // the responses to callers, by key
}

var keys = []string{"a", "b"}

func (s *story) step() {
	pick := func() (asked, bool) {
		if len(s.held) == 0 {
			return asked{}, false
		}
		return rapid.SampledFrom(s.held).Draw(s.r, "work"), true
	}
	switch rapid.IntRange(0, 11).Draw(s.r, "step") {
	case 0, 1, 2:
		s.post(rapid.SampledFrom(keys).Draw(s.r, "key"))
	case 3, 4:
		s.fetch()
	case 5, 6:
		if a, ok := pick(); ok {
			s.answer(a, s.world.carryOut(a))
		}
	case 7:
		if a, ok := pick(); ok {
			if rapid.Bool().Draw(s.r, "dies") {
				s.world.carryOut(a)
			} else {
				s.answer(a, `{"refused":{"reason":"no"}}`)
			}
		}
	case 8:
		dbtest.Exec(s.t, s.api.DB(), `UPDATE stream_deliveries SET due_at = now()`)
		s.elapse(rapid.SampledFrom([]int{16, 130}).Draw(s.r, "seconds"))
		s.sweep()
	case 9:
		if rapid.IntRange(0, 3).Draw(s.r, "over") == 0 {
			dbtest.Exec(s.t, s.api.DB(), `UPDATE bot_work SET `+dbtest.Earlier(`interval '25 hours'`, "deadline")+` WHERE subject_id = $1`, s.id)
			if err := server.Work().Expire(context.Background(), s.api.DB()); err != nil {
				s.r.Fatal(err)
			}
		}
	case 10:
		change := rapid.SampledFrom([]string{"closeTicket", "reopenTicket"}).Draw(s.r, "change")
		s.api.Retry(operation(s.t, change), "", apitest.Path("id", s.id)) // a ticket that is in this state already is refused
	case 11:
		s.sync()
	}
}

// post posts the message of a key and compares the response with earlier responses for the key.
func (s *story) post(key string) int {
	a := s.api.Key(s.id+key).Do(s.t, "createTicketMessage", `{"content":"`+s.id+key+`"}`, apitest.Path("id", s.id))
	if a.Status == 201 {
		if s.posted == nil {
			s.posted = map[string]string{}
		}
		id := a.Str(s.t, "data.channel_message_id")
		if before, told := s.posted[key]; told && before != id {
			s.r.Fatalf("message %s has become %s and then %s", key, before, id)
		}
		s.posted[key] = id
	} else if a.Status != 502 && a.Status != 422 {
		s.r.Fatalf("message %s is answered with %d %s", key, a.Status, a.Body)
	}
	return a.Status
}

func (s *story) fetch() {
	for _, a := range fetch(s.t, s.bot, `,"lease":600`) {
		if a.TicketID == s.id {
			s.held = append(s.held, a)
		}
	}
}

// answer answers work and compares the answer that counts with the one that counted before.
func (s *story) answer(a asked, body string) {
	got := answer(s.t, s.bot, a, body).Want(s.t, 200, "")
	counts := got.Str(s.t, "data.result")
	if before, known := s.answers[a.WorkID]; known && before != counts {
		s.r.Fatalf("of %s first %s counts and then %s", a.WorkID, before, counts)
	}
	s.answers[a.WorkID] = counts
}

func (s *story) elapse(seconds int) {
	dbtest.Exec(s.t, s.api.DB(), `
		UPDATE chat_intents
		SET `+dbtest.Earlier("make_interval(secs => $2)", "first_sent_at", "lease_until")+`
		WHERE subject_id = $1`, s.id, seconds)
}

func (s *story) sweep() {
	if err := tickets.SweepIntents(chat.Background(context.Background()), messages(s.api)); err != nil {
		s.r.Fatal(err)
	}
}

func (s *story) sync() {
	if err := tickets.SyncChannel(chat.Background(context.Background()), s.api.DB(), platform(s.api), s.api.Guild, s.id); err != nil {
		s.r.Fatal(err)
	}
}

// end lets the bot answer everything and checks the final state.
func (s *story) end() {
	for range 6 {
		s.fetch()
		for _, a := range s.held {
			s.answer(a, s.world.carryOut(a))
		}
		s.elapse(16)
		s.sweep()
		s.sync()
	}
	for _, key := range keys {
		content := s.id + key
		var ids []string
		for id, said := range s.world.contents {
			if said[0] == content {
				ids = append(ids, id)
			}
		}
		if len(ids) > 1 {
			s.r.Fatalf("message %s was posted %d times", key, len(ids))
		}
		stands := dbtest.Value[string](s.t, s.api.DB(), `
			SELECT coalesce(string_agg(channel_message_id, ' '), '') FROM ticket_messages WHERE ticket_id = $1 AND content = $2`, s.id, content)
		counts := ""
		for nonce, id := range s.world.byNonce {
			if slices.Contains(ids, id) && s.answers[nonce] == "done" {
				counts = id
			}
		}
		if stands != counts || s.posted[key] != "" && s.posted[key] != counts {
			s.r.Fatalf("message %s was answered for as %q, callers know %q, and the transcript has %q", key, counts, s.posted[key], stands)
		}
		if status := s.post(key); counts != "" && status != 201 {
			s.r.Fatalf("message %s is answered for, and its caller gets %d", key, status)
		}
	}
	got := dbtest.Value[string](s.t, s.api.DB(), `SELECT concat(status, ' ', channel_due_at) FROM tickets WHERE id = $1`, s.id)
	want := map[string]string{"archive": "closed ", "restore": "open ", "": got}[s.world.channels["7001"]]
	if refused := slices.Contains(values(s.answers), "refused"); got != want && !refused {
		s.r.Fatalf("the ticket is %q, and its channel %s", got, s.world.channels["7001"])
	}
	dbtest.Exec(s.t, s.api.DB(), `DELETE FROM stream_deliveries`)
}

func values(m map[string]string) (list []string) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

func operation(t *testing.T, id string) apitest.Operation {
	t.Helper()
	for _, op := range apitest.Operations() {
		if op.ID == id {
			return op
		}
	}
	t.Fatalf("there is no operation %s", id)
	return apitest.Operation{}
}

// Many callers concurrently post messages under keys and retry until they succeed, while the bot is
// slow, answers twice, or posts and crashes. RELIABILITY.md, Messages.
func TestEachMessageIsPostedOnceByABotInTrouble(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.ByBot())
	bot, there := api.Bot(t), newWorld()
	node(t, api)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	live(t, bot, there, func(a asked) bool {
		mu.Lock()
		what := random.IntN(4)
		mu.Unlock()
		switch what {
		case 0: // crashes, and fetches again when the lease has ended
			there.carryOut(a)
			dbtest.Exec(t, api.DB(), `UPDATE stream_deliveries SET due_at = now() WHERE due_at > now()`)
			return true
		case 1:
			answer(t, bot, a, there.carryOut(a)).Want(t, 200, "")
		case 2:
			time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
		}
		return false
	})
	const callers = 12
	var all sync.WaitGroup
	for n := range callers {
		id := ticket(t, api, fmt.Sprint("t", n))
		all.Go(func() {
			body := fmt.Sprintf(`{"content":"message %d"}`, n)
			for {
				a := api.Key(id).Do(t, "createTicketMessage", body, apitest.Path("id", id))
				if a.Status == 201 {
					return
				}
				if a.Status != 502 && a.Status != 503 && a.Status != 409 {
					t.Errorf("message %d is answered with %d %s", n, a.Status, a.Body)
					return
				}
			}
		})
	}
	all.Wait()
	said := there.said()
	slices.Sort(said)
	if len(said) != callers || len(slices.Compact(said)) != callers {
		t.Errorf("the channel has %s", strings.Join(said, ", "))
	}
	n := dbtest.Value[int](t, api.DB(), `SELECT count(DISTINCT channel_message_id) FROM ticket_messages WHERE kind = 'message'`)
	if n != callers {
		t.Errorf("the transcripts have %d of the messages", n)
	}
}
