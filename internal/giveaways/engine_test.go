package giveaways_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"guildhall/internal/api/apitest"
	"guildhall/internal/chat"
	"guildhall/internal/chat/chattest"
	"guildhall/internal/db"
	"guildhall/internal/giveaways"
	"guildhall/internal/jobs"
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

// work starts a node's workers over the stage's database and returns what stops
// them.
func (s stage) work(p chat.Platform) (stop func()) {
	s.t.Helper()
	queue, err := db.OpenSQL(s.Server.DBURL, "guildhall-test-jobs", 3)
	if err != nil {
		s.t.Fatal(err)
	}
	idle := func(context.Context) error { return nil }
	runner, err := jobs.New(jobs.Config{
		DB: queue, Log: slog.New(slog.DiscardHandler),
		Draw: func(ctx context.Context, guild, giveaway string, _ int) error {
			return giveaways.Draw(ctx, s.DB(), guild, giveaway)
		},
		Announce: func(ctx context.Context, guild, intent string) error {
			return chat.Announce(ctx, s.DB(), p, guild, intent)
		},
		SyncChannel:   func(context.Context, string, string) error { return nil },
		Transitions:   func(ctx context.Context) error { return giveaways.Transitions(ctx, s.DB()) },
		SweepIntents:  func(ctx context.Context) error { return giveaways.SweepAnnouncements(ctx, s.DB(), p) },
		SweepChannels: idle, ExpireCases: idle, Prune: idle,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Error(err)
		}
		if err := queue.Close(); err != nil {
			s.t.Error(err)
		}
	}
}

// Two nodes work the jobs, on a platform that loses an answer after it has
// posted the message and fails another time: giveaways that are ended, and one
// whose time is over, are drawn and announced once each.
func TestTheJobEngineDrawsAndAnnounces(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	server := chattest.New(t)
	server.Next(chattest.Lose(), chattest.Refuse(http.StatusServiceUnavailable, 0, "try later"))
	defer s.work(discord(t, server.URL))()
	defer s.work(discord(t, server.URL))()

	list := []string{}
	for range 5 {
		id := s.giveaway("active", 2, 6)
		s.exec(`UPDATE giveaways SET prize = 'Prize ' || id WHERE id = $1`, id)
		s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, `{"data":{"status":"drawing"}}`)
		list = append(list, id)
	}
	late := s.giveaway("scheduled", 2, 6)
	s.exec(`UPDATE giveaways SET prize = 'Prize ' || id, ends_at = now() WHERE id = $1`, late)
	list = append(list, late)
	for _, id := range list {
		apitest.Eventually(t, "the draw", func() bool {
			return s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, "").Str(t, "data.status") == "ended"
		})
		apitest.Eventually(t, "the announcement", func() bool {
			return s.count(`SELECT count(*) FROM chat_intents WHERE subject_id = $1 AND state = 'sent'`, id) == 1
		})
		if n := s.count(`SELECT count(*) FROM giveaway_draws WHERE giveaway_id = $1`, id); n != 1 {
			t.Errorf("giveaway %s was drawn %d times", id, n)
		}
		posted := 0
		for _, m := range server.Messages(channel) {
			if strings.Contains(m.Content, id) {
				posted++
				if m.ReplyTo != "912347611830792242" || !m.Enforced || !strings.Contains(string(m.Mentions), `"parse":[]`) {
					t.Errorf("the announcement was posted as %+v", m)
				}
			}
		}
		if posted != 1 {
			t.Errorf("giveaway %s was announced %d times", id, posted)
		}
		s.WantEvent(t, "giveaway.ended", "")
	}
	s.WantNoEvent(t)
}

// The job of an announcement is lost. The sweep says it all the same, once,
// however many nodes sweep.
func TestALostAnnouncementIsMadeUpFor(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	server := chattest.New(t)
	p := discord(t, server.URL)
	s.ended(1, 3)
	s.exec(`DELETE FROM river_job`)
	sweep := func() {
		t.Helper()
		failed := make(chan error, 4)
		for range cap(failed) {
			go func() { failed <- giveaways.SweepAnnouncements(context.Background(), s.DB(), p) }()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	}
	sweep()
	if n := len(server.Messages(channel)); n != 0 {
		t.Fatalf("%d messages were posted while the job had its time", n)
	}
	s.exec(`UPDATE chat_intents SET created_at = created_at - interval '61 seconds'`)
	sweep()
	sweep()
	if n := len(server.Messages(channel)); n != 1 {
		t.Errorf("%d messages were posted, want 1", n)
	}
}
