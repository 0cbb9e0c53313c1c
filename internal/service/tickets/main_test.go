package tickets_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

func TestMain(m *testing.M) { apitest.Main(m, "Tickets") }

// ticketAPI is an API server under test with a simulated chat platform.
type ticketAPI struct {
	*apitest.API
	platform *chattest.Server
	fail     *failing
	cfg      tickets.Config
}

// failing is a platform with a failure after a message was posted: if dies is set, the request
// never continues, as after the process was killed.
type failing struct {
	chat.Platform
	before, after atomic.Bool
	freeze        atomic.Pointer[freeze]
	sent          atomic.Pointer[atomic.Bool] // set once a message was sent, whatever the outcome
}

// freeze stops the process once it has posted a message: begun is closed then, and after thaw the
// call fails.
type freeze struct{ begun, thaw chan struct{} }

var errKilled = errors.New("killed here by the test")

// SendMessage posts m, unless the process dies first.
func (f *failing) SendMessage(ctx context.Context, m chat.Message) (string, error) {
	if f.before.Load() {
		panic(errKilled)
	}
	still := f.freeze.Load()
	id, err := f.Platform.SendMessage(ctx, m)
	if sent := f.sent.Load(); sent != nil {
		sent.Store(true)
	}
	if still != nil {
		close(still.begun)
		<-still.thaw
		return "", &chat.Failure{Message: "no answer in time", Uncertain: true}
	}
	if f.after.Load() {
		panic(errKilled)
	}
	return id, err
}

func newTicketAPI(t *testing.T, options ...apitest.Option) ticketAPI {
	t.Helper()
	s := ticketAPI{platform: chattest.New(t)}
	s.fail = &failing{Platform: chattest.Connect(t, s.platform.URL, chat.Config{
		Budget: 6 * time.Second, Try: time.Second,
		Pause: time.Nanosecond, // tests repair the cause of a refusal at once
	})}
	s.API = apitest.New(t, append(options, apitest.With(func(cfg *api.Config) {
		s.cfg = tickets.Config{DB: cfg.DB, Chat: s.fail, Keys: api.TicketKeys{Keys: idempotency.Keys{Sealer: cfg.Sealer}}}
		service, err := tickets.New(s.cfg)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Tickets = service
	}))...)
	s.platform.Home(s.Guild)
	return s
}

// ticket stores a ticket of the client's guild and returns its id. With channel set, its channel
// has the ticket's number.
func ticket(t *testing.T, a *apitest.API, number int, status string, channel bool) string {
	t.Helper()
	id := fmt.Sprintf("ticket-%s-%d", a.Guild, number)
	var at, ch any
	if status == "closed" {
		at = time.Now()
	}
	if channel {
		ch = channelOf(number)
	}
	dbtest.Exec(t, a.DB(), `
		INSERT INTO tickets (guild_id, id, number, status, opener_id, channel_id, closed_at, created_at)
		VALUES ($1, $2, $3, $5, '4000', $6, $7, now() + make_interval(secs => $4))`,
		a.Guild, id, number, float64(number), status, ch, at)
	return id
}

// syncChannel updates the ticket's channel, as the lane does.
func (s ticketAPI) syncChannel(id string) error {
	return tickets.SyncChannel(context.Background(), s.DB(), s.fail, s.Guild, id)
}

func channelOf(number int) string { return fmt.Sprint(700 + number) }

// elapse is chattest.Elapse and also moves the idempotency keys into the past.
func (s ticketAPI) elapse(t *testing.T, seconds int) {
	t.Helper()
	chattest.Elapse(t, s.DB(), seconds)
	dbtest.Exec(t, s.API.DB(), `UPDATE idempotency_keys SET `+dbtest.Earlier("make_interval(secs => $1)", "lease_until"), seconds)
}

func (s ticketAPI) sweep(t *testing.T) {
	t.Helper()
	err := s.sweepOnce()
	if f := (*chat.Failure)(nil); err != nil && !errors.As(err, &f) {
		t.Error(err)
	}
}

func (s ticketAPI) sweepOnce() error { return tickets.SweepIntents(context.Background(), s.cfg) }

// wantMessages checks the numbers of messages in the channel, the transcript and the outbox.
func (s ticketAPI) wantMessages(t *testing.T, id string, number, posted, stored int) {
	t.Helper()
	if got := len(s.platform.Messages(channelOf(number))); got != posted {
		t.Errorf("the channel holds %d messages, want %d", got, posted)
	}
	var got struct {
		Messages int   `db:"messages"`
		Events   int   `db:"events"`
		Counted  int64 `db:"counted"`
	}
	if err := s.DB().Reader().GetContext(context.Background(), &got, `
		SELECT (SELECT count(*) FROM ticket_messages WHERE ticket_id = $1 AND kind = 'message') AS messages,
		       (SELECT count(*) FROM webhook_events WHERE type = 'ticket.message') AS events,
		       (SELECT message_count FROM tickets WHERE id = $1) AS counted`, id); err != nil {
		t.Fatal(err)
	}
	if got.Messages != stored || got.Events != stored || got.Counted != int64(stored) {
		t.Errorf("%d messages stored, %d events, %d counted, want %d of each", got.Messages, got.Events, got.Counted, stored)
	}
}
