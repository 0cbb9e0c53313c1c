package giveaways_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/lanes"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

const channel = "381886868708655104"

func discord(t testing.TB, url string) chat.Platform {
	t.Helper()
	p, err := chat.NewDiscord(chat.Config{Token: chattest.Token, URL: url, Log: slog.New(slog.DiscardHandler), Try: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// work starts a node's workers on the API's database and returns a function that stops them.
func (s giveawayAPI) work(p chat.Platform) (stop func()) {
	s.t.Helper()
	return work(s.t, s.DB(), p)
}

func work(t testing.TB, d *db.DB, p chat.Platform) (stop func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	sweeper, err := lanes.NewSweeper(log, nil, lanes.Sweep{
		Name: "transitions", Interval: 100 * time.Millisecond, Run: func(ctx context.Context) error { return giveaways.Transitions(ctx, d) },
	})
	if err != nil {
		t.Fatal(err)
	}
	worker := &lanes.Worker{
		DB: d, Log: log, Outcomes: lanes.NewOutcomes(nil, "work", ""), Lanes: append(giveaways.Lanes(d, p), giveaways.Announcing(d, p)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- sweeper.Run(ctx) }()
	go func() { done <- worker.Run(ctx) }()
	return func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	}
}

// Two nodes run the lanes, on a platform that once posts a message and loses the response, and once
// fails: giveaways that were ended by a call and one whose time is over are drawn and announced
// once each.
func TestTheJobEngineDrawsAndAnnounces(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	server := chattest.New(t)
	server.Home(s.Guild)
	server.Next(chattest.Lose(), chattest.Refuse(http.StatusServiceUnavailable, 0, "try later"))
	defer s.work(discord(t, server.URL))()
	defer s.work(discord(t, server.URL))()

	list := []string{}
	for range 5 {
		id := s.giveaway("active", 2, 6)
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET prize = 'Prize ' || id WHERE id = $1`, id)
		s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, `{"data":{"status":"drawing"}}`)
		list = append(list, id)
	}
	late := s.giveaway("active", 2, 6)
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET prize = 'Prize ' || id, ends_at = now() WHERE id = $1`, late)
	list = append(list, late)
	for _, id := range list {
		s.untilEnded(id)
		testutil.Eventually(s.t, "the announcement", func() bool {
			return dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE subject_id = $1 AND state = 'sent'`, id) == 1
		})
		if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaway_draws WHERE giveaway_id = $1`, id); n != 1 {
			t.Errorf("giveaway %s was drawn %d times", id, n)
		}
		posted := 0
		for _, m := range server.Messages(channel) {
			if strings.Contains(m.Content, id) {
				posted++
				if m.ReplyTo != "912347611830792242" || !m.Enforced || !strings.Contains(string(m.Mentions), `"parse":[]`) ||
					!strings.Contains(string(m.Mentions), `"users":["`) {
					t.Errorf("the announcement was posted as %+v", m)
				}
			}
		}
		if posted != 1 {
			t.Errorf("giveaway %s was announced %d times", id, posted)
		}
	}
	if told := dbtest.Value[string](s.t, s.DB(), `
		SELECT string_agg(n || ' ' || type, ', ' ORDER BY type)
		FROM (SELECT type, count(*) AS n FROM webhook_events GROUP BY type) told`); told != "6 giveaway.drawing, 6 giveaway.ended" {
		t.Errorf("what was told is %s", told)
	}
}

// A node dies while it posts an announcement. When its lease ends, the announcement is due again
// and is posted once, however many nodes poll. RELIABILITY.md, Messages.
func TestAnAnnouncementOfADeadNodeIsPosted(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	server := chattest.New(t)
	server.Home(s.Guild)
	s.ended(1, 3)
	intent := dbtest.Value[string](t, s.DB(), `SELECT id FROM chat_intents`)
	dbtest.Do(t, s.DB(), func(ctx context.Context, tx *db.Tx) error {
		_, err := chat.Take(ctx, tx, s.Guild, intent)
		return err
	})
	due := func(seconds int) int {
		t.Helper()
		return dbtest.Value[int](s.t, s.DB(), `
			SELECT count(*) FROM chat_intents
			WHERE try_at <= now() + make_interval(secs => $1)`, seconds)
	}
	if early, later := due(10), due(15); early != 0 || later != 1 {
		t.Fatalf("%d are due within 10 s and %d within 15 s, want 0 and 1", early, later)
	}
	dbtest.Exec(s.t, s.DB(), `UPDATE chat_intents SET `+dbtest.Earlier(`interval '15 seconds'`, "try_at", "lease_until"))
	defer s.work(discord(t, server.URL))()
	defer s.work(discord(t, server.URL))()
	testutil.Eventually(s.t, "the announcement", func() bool {
		return dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE state = 'sent' AND try_at IS NULL`) == 1
	})
	if n := len(server.Messages(channel)); n != 1 {
		t.Errorf("%d messages were posted, want 1", n)
	}
}

// An announcement is never posted in another guild's channel, wherever the channel's id came from.
func TestAnAnnouncementStaysInItsGuild(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	server := chattest.New(t)
	server.Give(channel, s.Next(t).Guild)
	p := discord(t, server.URL)
	id, _ := s.ended(1, 3)
	s.Do(t, "rerollGiveaway", `{"count":1,"reason":"[Claim](https://evil.example)"}`, apitest.Path("id", id)).Want(t, 200, "")
	var list []string
	if err := s.DB().Reader().SelectContext(context.Background(), &list, `SELECT id FROM chat_intents`); err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, intent := range list {
		err := giveaways.Announce(context.Background(), s.DB(), p, s.Guild, intent)
		if !errors.Is(err, chat.ErrChannelNotAllowed) {
			t.Errorf("got %v", err)
		}
	}
	if n := len(server.Calls()); n != 0 || dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE state = 'refused'`) != 2 {
		t.Errorf("%d calls in another guild's channel: %v", n, server.Calls())
	}
}
