package chat_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
)

const channel = "1100"

func at(channel string) chat.Channel { return chat.Channel{GuildID: guild, ID: channel} }

// connect returns a client with a short timeout for each response, so that tests of missing
// responses are fast.
func connect(t *testing.T, s *chattest.Server) *chat.Discord {
	t.Helper()
	return connectFor(t, s, 6*time.Second)
}

func connectFor(t *testing.T, s *chattest.Server, budget time.Duration) *chat.Discord {
	t.Helper()
	return connectAs(t, s, chat.Config{
		Budget: budget,
		Pause:  time.Nanosecond, // tests repair the cause of a refusal at once
	})
}

func connectAs(t *testing.T, s *chattest.Server, cfg chat.Config) *chat.Discord {
	t.Helper()
	s.Home(guild)
	cfg.Try = time.Second
	return chattest.Connect(t, s.URL, cfg)
}

func failure(t *testing.T, err error) *chat.Failure {
	t.Helper()
	var f *chat.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a *chat.Failure", err)
	}
	return f
}

func TestSendMessage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()

	t.Run("posts the text as it is, with nonce and without mentions", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		text := "Hello @everyone <@&1> <@2> \U0001F44B"
		id, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: text, Nonce: "n1", ReplyTo: "18446744073709551615"})
		if err != nil {
			t.Fatal(err)
		}
		got := s.Messages(channel)
		if len(got) != 1 || got[0].ID != id || got[0].Content != text || got[0].Nonce != "n1" || !got[0].Enforced ||
			got[0].ReplyTo != "18446744073709551615" {
			t.Fatalf("the channel holds %+v, want the message %s", got, id)
		}
		if m := string(got[0].Mentions); m != `{"parse":[]}` {
			t.Errorf("allowed_mentions is %s, want an empty parse list", m)
		}
	})

	t.Run("does not repeat a refusal", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			status, code int
			lasting      bool
		}{{403, 50001, true}, {403, 50013, true}, {404, 10003, true}, {400, 50083, true}, {400, 50035, true}, {401, 0, false}} {
			s := chattest.New(t)
			s.In(channel, chattest.Refuse(tc.status, tc.code, "no"))
			_, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
			f := failure(t, err)
			if f.Status != tc.status || f.Code != tc.code || f.Uncertain || f.Lasting() != tc.lasting {
				t.Errorf("%d/%d: got %+v, lasting %v", tc.status, tc.code, f, f.Lasting())
			}
			if n := len(s.Calls()); n != 1 {
				t.Errorf("%d/%d: %d calls, want 1", tc.status, tc.code, n)
			}
		}
	})

	t.Run("gives up on pages, server errors and silence after three tries", func(t *testing.T) {
		t.Parallel()
		for name, behave := range map[string]func(*chattest.Server) chattest.Behaviour{
			"page":   func(*chattest.Server) chattest.Behaviour { return chattest.HTML(502) },
			"page2":  func(*chattest.Server) chattest.Behaviour { return chattest.HTML(200) },
			"error":  func(*chattest.Server) chattest.Behaviour { return chattest.Refuse(500, 0, "oops") },
			"silent": (*chattest.Server).Silent,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := chattest.New(t)
				s.In(channel, behave(s))
				_, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
				if f := failure(t, err); !f.Uncertain {
					t.Errorf("got %+v, want an unknown outcome", f)
				}
				if n := len(s.Calls()); n != 3 {
					t.Errorf("%d calls, want 3", n)
				}
			})
		}
	})

	t.Run("gets through one server error", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Refuse(503, 0, "busy"))
		if _, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"}); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("posts once when the answer is lost", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Lose(), chattest.Lose())
		id, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Messages(channel); len(got) != 1 || got[0].ID != id {
			t.Fatalf("the channel holds %+v, want one message %s", got, id)
		}
	})

	t.Run("stays uncertain when a refusal follows a lost answer", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Lose(), chattest.Refuse(403, 50013, "no"))
		_, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
		if f := failure(t, err); !f.Uncertain || f.Code != 50013 {
			t.Errorf("got %+v", f)
		}
	})

	t.Run("knows that nothing was sent when nobody listens", func(t *testing.T) {
		t.Parallel()
		d, err := chat.NewDiscord(chat.Config{Token: "t", URL: "http://127.0.0.1:1/api/v10", Budget: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
		if f := failure(t, err); f.Uncertain || strings.Contains(f.Error(), "127.0.0.1") {
			t.Errorf("got %v", f)
		}
	})

	t.Run("takes a posted and deleted message for posted", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Refuse(404, 10008, "Unknown Message"))
		if id, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"}); err != nil || id != "" {
			t.Fatalf("got %q, %v", id, err)
		}
	})

	t.Run("follows no redirect", func(t *testing.T) {
		t.Parallel()
		s, other := chattest.New(t), chattest.New(t)
		s.In(channel, func(w http.ResponseWriter, r *http.Request, _ func() any) bool {
			http.Redirect(w, r, other.URL+"/channels/1/messages", http.StatusTemporaryRedirect)
			return true
		})
		_, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
		if f := failure(t, err); f.Status != 307 || len(other.Calls()) != 0 {
			t.Errorf("got %v and %d calls elsewhere", f, len(other.Calls()))
		}
	})

	t.Run("says nothing of token, address or text in a failure", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.In(channel, chattest.HTML(403))
		_, err := connect(t, s).SendMessage(ctx, chat.Message{Channel: at(channel), Content: "private words", Nonce: "n"})
		for _, secret := range []string{chattest.Token, "private words", "<html>", s.URL} {
			if strings.Contains(failure(t, err).Error(), secret) {
				t.Errorf("%q tells %q", err, secret)
			}
		}
	})
}

// RELIABILITY.md, Messages.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	send := func(d *chat.Discord, channel string) error {
		_, err := d.SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: chat.Nonce(channel)})
		return err
	}

	t.Run("waits out a short one", func(t *testing.T) {
		t.Parallel()
		for _, scope := range []string{"user", "shared", "global"} {
			s := chattest.New(t)
			s.Next(chattest.Limited(900*time.Millisecond, scope))
			if err := send(connect(t, s), channel); err != nil {
				t.Errorf("%s: %v", scope, err)
			}
			if n := len(s.Calls()); n != 2 {
				t.Errorf("%s: %d calls, want 2", scope, n)
			}
		}
	})

	t.Run("does not wait for a long one, and hinders no other channel", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connect(t, s)
		s.In(channel, chattest.Limited(time.Minute, "user"))
		if f := failure(t, send(d, channel)); f.Status != 429 || f.Uncertain || f.RetryAfter != time.Minute {
			t.Errorf("got %+v", f)
		}
		if f := failure(t, send(d, channel)); f.Status != 0 || f.Uncertain {
			t.Errorf("second: got %+v", f)
		}
		if n := len(s.Calls()); n != 1 {
			t.Errorf("%d calls, want 1: the limit is not over", n)
		}
		if err := send(d, "1101"); err != nil {
			t.Errorf("another channel: %v", err)
		}
	})

	t.Run("leaves the route free when it is over", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connectFor(t, s, 2*time.Second)
		s.Next(chattest.Limited(3*time.Second, "user"))
		if f := failure(t, send(d, channel)); f.Status != 429 {
			t.Errorf("got %+v", f)
		}
		// The library's rate limiter would keep a route locked after its caller has timed out.
		testutil.Eventually(t, "the channel takes messages again", func() bool { return send(d, channel) == nil })
	})

	t.Run("reads it from the body where the headers are poor", func(t *testing.T) {
		t.Parallel()
		bare := func(body string) chattest.Behaviour {
			return func(w http.ResponseWriter, _ *http.Request, _ func() any) bool {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, body)
				return true
			}
		}
		s := chattest.New(t)
		d := connect(t, s)
		s.Next(bare(`{"message":"slow down","retry_after":0.2,"global":false}`))
		if err := send(d, channel); err != nil {
			t.Errorf("a short one: %v", err)
		}
		s.In(channel, bare(`{"message":"slow down","retry_after":30,"global":false}`))
		if f := failure(t, send(d, channel)); f.RetryAfter != 30*time.Second {
			t.Errorf("a long one: %+v", f)
		}
		if err := send(d, "1101"); err != nil {
			t.Errorf("another channel: %v", err)
		}
		s.In("1102", bare(`{"message":"slow down","retry_after":30,"global":true}`))
		if f := failure(t, send(d, "1102")); f.RetryAfter != 30*time.Second {
			t.Errorf("a global one: %+v", f)
		}
		if err := send(d, "1101"); err == nil {
			t.Error("another channel did not wait for the global limit")
		}
	})

	t.Run("keeps all channels quiet during a global one", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connect(t, s)
		s.Next(chattest.Limited(time.Minute, "global"))
		if f := failure(t, send(d, channel)); f.Status != 429 {
			t.Errorf("got %+v", f)
		}
		if f := failure(t, send(d, "1101")); f.Status != 0 || f.Uncertain {
			t.Errorf("another channel: got %+v", f)
		}
		if n := len(s.Calls()); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})

	t.Run("never sends more than the bot's share", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connectFor(t, s, 30*time.Second)
		start := time.Now()
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				if err := send(d, "12"+strings.Repeat("0", i%7)+string(rune('1'+i%9))); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if took := time.Since(start); took < 2*time.Second {
			t.Errorf("100 calls left within %s, want 45 a second", took)
		}
	})
}

func TestFindMessages(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := chattest.New(t)
	d := connect(t, s)
	send := func(content, nonce string) string {
		id, err := d.SendMessage(ctx, chat.Message{Channel: at(channel), Content: content, Nonce: nonce})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	start := time.Now()
	first := send(" wanted ", "a")
	for range 130 {
		s.Say(channel, "5", "wanted")
	}
	second := send(" wanted ", "b")
	send("other", "c")

	got, err := d.FindMessages(ctx, chat.Message{Channel: at(channel), Content: " wanted "}, start.Add(-5*time.Second))
	if err != nil || len(got) != 2 || got[0] != first || got[1] != second {
		t.Fatalf("got %v, %v, want [%s %s]", got, err, first, second)
	}
	if got, err := d.FindMessages(ctx, chat.Message{Channel: at(channel), Content: " wanted "}, time.Now().Add(time.Minute)); err != nil ||
		len(got) != 0 {
		t.Errorf("messages from before: got %v, %v", got, err)
	}
	s.In(channel, chattest.Refuse(403, 50001, "Missing Access"))
	if _, err := d.FindMessages(ctx, chat.Message{Channel: at(channel), Content: "wanted"}, start); failure(t, err).Code != 50001 {
		t.Errorf("got %v", err)
	}
}

func TestThreads(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := chattest.New(t)
	d := connect(t, s)
	lock, err := d.LockOf(ctx, at(channel), "4000")
	if err != nil || !lock.Thread || len(lock.Before) != 0 {
		t.Fatalf("got %+v, %v", lock, err)
	}
	step := func(err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if got := s.State(channel); got != want {
			t.Errorf("the channel is %q, want %q", got, want)
		}
	}
	step(d.ArchiveChannel(ctx, at(channel), lock), "archived")
	step(d.RestoreChannel(ctx, at(channel), lock), "")
	step(d.DeleteChannel(ctx, at(channel)), "deleted")
	step(d.DeleteChannel(ctx, at(channel)), "deleted")
	if f := failure(t, d.ArchiveChannel(ctx, at(channel), lock)); f.Code != 10003 || !f.Lasting() {
		t.Errorf("got %+v", f)
	}
}

// TestTextChannels: archiving denies writing to everyone, the user and other members, and to no
// role. Restoring gives back the denied permissions and keeps other changes made meanwhile.
func TestTextChannels(t *testing.T) {
	t.Parallel()
	const (
		view, write  = 1 << 10, 1 << 11
		writing      = write | 1<<35 | 1<<36 | 1<<38
		user, friend = "4000", "4001"
		staff        = "500"
	)
	ctx := context.Background()
	s := chattest.New(t)
	d := connect(t, s)
	before := []chattest.Overwrite{
		{ID: guild, Type: 0, Deny: view},
		{ID: staff, Type: 0, Allow: view | write},
		{ID: friend, Type: 1, Allow: view | write},
		{ID: chattest.Self, Type: 1, Allow: view | write},
	}
	s.Text(channel, before...)
	lock, err := d.LockOf(ctx, at(channel), user)
	if err != nil {
		t.Fatal(err)
	}
	wantOverwrite := func(id string, want chattest.Overwrite) {
		t.Helper()
		want.ID = id
		if got := s.Overwrites(channel)[id]; got != want {
			t.Errorf("%s has %+v, want %+v", id, got, want)
		}
	}
	for range 2 { // the call may be repeated
		if err := d.ArchiveChannel(ctx, at(channel), lock); err != nil {
			t.Fatal(err)
		}
		wantOverwrite(guild, chattest.Overwrite{Deny: view | writing})
		wantOverwrite(user, chattest.Overwrite{Type: 1, Deny: writing})
		wantOverwrite(friend, chattest.Overwrite{Type: 1, Allow: view, Deny: writing})
		wantOverwrite(staff, before[1])
		wantOverwrite(chattest.Self, before[3])
	}
	s.Text(channel, append(before[:2:2], chattest.Overwrite{ID: user, Type: 1, Deny: writing},
		chattest.Overwrite{ID: friend, Type: 1, Deny: writing})...)
	for range 2 {
		if err := d.RestoreChannel(ctx, at(channel), lock); err != nil {
			t.Fatal(err)
		}
		wantOverwrite(guild, before[0])
		wantOverwrite(staff, before[1])
		wantOverwrite(friend, chattest.Overwrite{Type: 1, Allow: write}) // the permission to view was removed meanwhile
		if _, there := s.Overwrites(channel)[user]; there {
			t.Error("an overwrite that was none before is left")
		}
	}
}

// A message of unknown outcome was posted in the first minutes or not at all. However many messages
// follow, the search finds it, or finds that it is missing. If too many messages were posted in
// those minutes, the search fails and does not report it missing. RELIABILITY.md, Messages.
func TestABusyChannelIsSearchedWhereTheMessageMayStand(t *testing.T) {
	t.Parallel()
	s := chattest.New(t)
	d := connect(t, s)
	start := time.Now().Add(-5 * time.Second)
	id, err := d.SendMessage(t.Context(), chat.Message{Channel: at(channel), Content: "wanted", Nonce: "a"})
	if err != nil {
		t.Fatal(err)
	}
	s.Wait(6 * time.Minute)
	for range 1100 {
		s.Say(channel, "5", "wanted")
	}
	for content, want := range map[string]string{"wanted": "[" + id + "]", "another": "[]"} {
		if got, err := d.FindMessages(t.Context(), chat.Message{Channel: at(channel), Content: content}, start); err != nil ||
			fmt.Sprint(got) != want {
			t.Errorf("%s: got %v, %v, want %s", content, got, err, want)
		}
	}
	if _, err := d.FindMessages(t.Context(), chat.Message{Channel: at(channel), Content: "wanted"}, start.Add(6*time.Minute)); !failure(
		t,
		err,
	).Uncertain {
		t.Errorf("of a channel with 1,100 messages in a minute: %v", err)
	}
}
