package work_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/lanes"
	"guildhall/internal/outbound/chat"
	server "guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/tickets"
)

func TestMain(m *testing.M) { apitest.Main(m, "Work") }

// asked is the data of an event that asks the bot for something.
type asked struct {
	WorkID     string `json:"work_id"`
	Kind       string `json:"kind"`
	Deadline   string `json:"deadline"`
	TicketID   string `json:"ticket_id"`
	GiveawayID string `json:"giveaway_id"`
	ChannelID  string `json:"channel_id"`
	MessageID  string `json:"message_id"`
	Content    string `json:"content"`
	Action     string `json:"action"`

	guild string
}

// world is the chat platform as the tests' bot sees it. It does not post a message twice for the
// same nonce.
type world struct {
	mu       sync.Mutex
	first    int                 // the number of the first message
	byNonce  map[string]string   // message ids by nonce
	contents map[string][]string // all contents of each message, in order
	replies  map[string]string
	channels map[string]string // the last action on each channel
}

func newWorld() *world {
	return &world{
		first:    1_000_000,
		byNonce:  map[string]string{},
		contents: map[string][]string{},
		replies:  map[string]string{},
		channels: map[string]string{},
	}
}

// carryOut does what the event asks for and returns the body of the answer.
func (w *world) carryOut(a asked) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch a.Kind {
	case "post_message", "post_giveaway", "announce_giveaway":
		id, there := w.byNonce[a.WorkID]
		if !there {
			id = fmt.Sprint(w.first + len(w.byNonce))
			w.byNonce[a.WorkID], w.contents[id], w.replies[id] = id, []string{a.Content}, a.MessageID
		}
		return `{"done":{"message_id":"` + id + `"}}`
	case "edit_giveaway":
		w.contents[a.MessageID] = append(w.contents[a.MessageID], a.Content)
	case "close_channel", "reopen_channel":
		w.channels[a.ChannelID] = a.Action
	}
	return `{"done":{}}`
}

// said returns the present contents of all messages.
func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, id := range w.byNonce {
		list = append(list, w.contents[id][len(w.contents[id])-1])
	}
	return list
}

// now returns the present content of a message.
func (w *world) now(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.contents[id][len(w.contents[id])-1]
}

// fetch pulls work and waits for it up to `wait` seconds. It checks each event against its schema.
func fetch(t testing.TB, bot *apitest.API, more string) (list []asked) {
	t.Helper()
	var got struct {
		Data []json.RawMessage `json:"data"`
	}
	bot.Do(t, "pullBotEvents", `{"stream":"work"`+more+`}`).Want(t, 200, "").Into(t, &got)
	for _, payload := range got.Data {
		if err := apitest.CheckEvent("work.requested", payload); err != nil {
			t.Error(err)
		}
		var e struct {
			GuildID string `json:"guild_id"`
			Data    asked  `json:"data"`
		}
		if err := json.Unmarshal(payload, &e); err != nil {
			t.Fatal(err)
		}
		e.Data.guild = e.GuildID
		list = append(list, e.Data)
	}
	return list
}

// one fetches one piece of work of a kind.
func one(t testing.TB, bot *apitest.API, kind string) asked {
	t.Helper()
	list := fetch(t, bot, `,"wait":5`)
	if len(list) != 1 || list[0].Kind != kind {
		t.Fatalf("want one piece of work %s, there is %+v", kind, list)
	}
	return list[0]
}

func answer(t testing.TB, bot *apitest.API, a asked, body string) *apitest.Response {
	t.Helper()
	return bot.Do(t, "answerBotWork", body, apitest.Path("id", a.WorkID))
}

// platform returns the workers' chat platform.
func platform(api *apitest.API) *chat.Work {
	return chat.NewWork(api.DB(), slog.New(slog.DiscardHandler), nil)
}

func background(t testing.TB) context.Context {
	t.Helper()
	return chat.Background(t.Context())
}

// ticket creates an open ticket with a channel.
func ticket(t testing.TB, api *apitest.API, id string) string {
	t.Helper()
	dbtest.Exec(t, api.DB(), `
		INSERT INTO tickets (guild_id, id, number, status, opener_id, channel_id)
		SELECT $1, $2, count(*) + 1, 'open', '4000', (7001 + count(*))::text FROM tickets WHERE guild_id = $1`, api.Guild, id)
	return id
}

// node runs the workers of a node until the test ends or the returned function is called.
func node(t testing.TB, api *apitest.API) (stop func()) {
	t.Helper()
	d, p, log := api.DB(), platform(api), slog.New(slog.DiscardHandler)
	every := func(what func(context.Context) error) lanes.Sweep {
		return lanes.Sweep{Name: fmt.Sprintf("%p", what), Interval: 200 * time.Millisecond, Run: what}
	}
	sweeper, err := lanes.NewSweeper(log, nil,
		every(func(ctx context.Context) error { return giveaways.Transitions(ctx, d) }),
		every(func(ctx context.Context) error { return tickets.SweepIntents(chat.Background(ctx), messages(api)) }),
		every(func(ctx context.Context) error { return server.Work().Expire(ctx, d) }),
	)
	if err != nil {
		t.Fatal(err)
	}
	worker := &lanes.Worker{
		DB: d, Log: log, Outcomes: lanes.NewOutcomes(nil, "work", ""),
		Lanes: append(giveaways.Lanes(d, p), giveaways.Announcing(d, p), tickets.Following(d, p)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- sweeper.Run(ctx) }()
	go func() { done <- worker.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// messages returns the configuration of the sweep of messages.
func messages(api *apitest.API) tickets.Config {
	keys := server.TicketKeys{Keys: idempotency.Keys{Sealer: api.Server.Sealer}}
	return tickets.Config{DB: api.DB(), Chat: platform(api), Keys: keys}
}

// live runs the bot until the test ends: it fetches work, does it and answers. For each piece of
// work it calls trouble, which may be nil; if trouble returns true, it has handled the work itself.
func live(t testing.TB, bot *apitest.API, w *world, trouble func(a asked) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, a := range fetch(t, bot, `,"wait":1,"lease":10`) {
				if trouble == nil || !trouble(a) {
					answer(t, bot, a, w.carryOut(a)).Want(t, 200, `{"data":{"work_id":"`+a.WorkID+`"}}`)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// inBackground posts a message for a ticket in a goroutine and returns a channel for the response.
func inBackground(t testing.TB, api *apitest.API, ticket, body string) <-chan *apitest.Response {
	t.Helper()
	done := make(chan *apitest.Response, 1)
	go func() { done <- api.Do(t, "createTicketMessage", body, apitest.Path("id", ticket)) }()
	return done
}
