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

// asked is the data of an event by which the bot is asked for something.
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

// world is the platform as the bot of the tests sees it. It posts nothing twice that has
// the same nonce.
type world struct {
	mu       sync.Mutex
	first    int                 // number of the first message
	byNonce  map[string]string   // the message
	contents map[string][]string // by message, all that it has said, in order
	replies  map[string]string
	channels map[string]string // what was done with a channel last
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

// carryOut does what is asked for and returns the body of the answer.
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

// said is what the messages of the platform say now.
func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, id := range w.byNonce {
		list = append(list, w.contents[id][len(w.contents[id])-1])
	}
	return list
}

// now is what a message says now.
func (w *world) now(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.contents[id][len(w.contents[id])-1]
}

// fetch fetches work, for up to wait seconds until there is some. Each event is held
// against its schema.
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

// platform is the chat platform of the workers.
func platform(api *apitest.API) *chat.Work {
	return chat.NewWork(api.DB(), slog.New(slog.DiscardHandler), nil)
}

func background(t testing.TB) context.Context {
	t.Helper()
	return chat.Background(t.Context())
}

// ticket is an open ticket with a channel.
func ticket(t testing.TB, api *apitest.API, id string) string {
	t.Helper()
	dbtest.Exec(t, api.DB(), `
		INSERT INTO tickets (guild_id, id, number, status, opener_id, channel_id)
		SELECT $1, $2, count(*) + 1, 'open', '4000', (7001 + count(*))::text FROM tickets WHERE guild_id = $1`, api.Guild, id)
	return id
}

// node has the workers of a node run until the test ends, or the function that it returns
// is called.
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

// messages is what the sweep of messages needs.
func messages(api *apitest.API) tickets.Config {
	keys := server.TicketKeys{Keys: idempotency.Keys{Sealer: api.Server.Sealer}}
	return tickets.Config{DB: api.DB(), Chat: platform(api), Keys: keys}
}

// live has the bot work until the test ends: it fetches, does what it is asked for, and
// answers. trouble, which may be nil, is asked for each piece of work what to do: it does
// the rest itself where it returns true.
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

// inBackground posts a message for a ticket, and returns where the response will be.
func inBackground(t testing.TB, api *apitest.API, ticket, body string) <-chan *apitest.Response {
	t.Helper()
	done := make(chan *apitest.Response, 1)
	go func() { done <- api.Do(t, "createTicketMessage", body, apitest.Path("id", ticket)) }()
	return done
}
