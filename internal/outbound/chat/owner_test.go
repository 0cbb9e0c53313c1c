package chat_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
)

// TestChannelsOfOthers: however the id of a channel was given, nothing is done in it for a guild
// that it does not belong to. RELIABILITY.md, Guilds.
func TestChannelsOfOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	calls := map[string]func(*chat.Discord) error{
		"check": func(d *chat.Discord) error { return d.CheckChannel(ctx, at(channel)) },
		"send": func(d *chat.Discord) error {
			_, err := d.SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: "n"})
			return err
		},
		"find": func(d *chat.Discord) error {
			_, err := d.FindMessages(ctx, chat.Message{Channel: at(channel), Content: "x"}, time.Now())
			return err
		},
		"archive": func(d *chat.Discord) error { return d.ArchiveChannel(ctx, at(channel), chat.Lock{}) },
		"restore": func(d *chat.Discord) error { return d.RestoreChannel(ctx, at(channel), chat.Lock{}) },
		"lock": func(d *chat.Discord) error {
			_, err := d.LockOf(ctx, at(channel), "1")
			return err
		},
		"delete": func(d *chat.Discord) error { return d.DeleteChannel(ctx, at(channel)) },
	}
	for name, tc := range map[string]struct {
		arrange    func(*chattest.Server)
		notAllowed bool
	}{
		"another guild's":        {func(s *chattest.Server) { s.Give(channel, "78") }, true},
		"nobody's":               {func(s *chattest.Server) { s.Give(channel, "") }, true},
		"one the bot cannot see": {lookup(chattest.Refuse(403, 50001, "Missing Access")), true},
		"one that is no channel": {lookup(chattest.Refuse(400, 50035, "Invalid Form Body")), true},
		"an error":               {lookup(chattest.Refuse(500, 0, "oops")), false},
		"a page":                 {lookup(chattest.HTML(200)), false},
		"a long rate limit":      {lookup(chattest.Limited(time.Hour, "user")), false},
		"the bot's token":        {lookup(chattest.Refuse(401, 0, "401: Unauthorized")), false},
		"silence":                {func(s *chattest.Server) { s.Lookup(channel, s.Silent()) }, false},
	} {
		for call, do := range calls {
			t.Run(name+", "+call, func(t *testing.T) {
				t.Parallel()
				s := chattest.New(t)
				d := connect(t, s)
				tc.arrange(s)
				for range 2 {
					err := do(d)
					if f := failure(t, err); errors.Is(err, chat.ErrChannelNotAllowed) != tc.notAllowed || f.Lasting() != tc.notAllowed || f.Uncertain {
						t.Errorf("got %+v", f)
					}
				}
				if got := s.Calls(); len(got) != 0 || s.State(channel) != "" {
					t.Errorf("the platform was asked for %v", got)
				}
			})
		}
	}

	t.Run("its own is asked about once in ten minutes", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connect(t, s)
		for i := range 5 {
			if err := d.CheckChannel(ctx, at(channel)); err != nil {
				t.Fatal(err)
			}
			if _, err := d.SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x", Nonce: fmt.Sprint(i)}); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Lookups(channel); n != 1 {
			t.Errorf("asked %d times, want 1", n)
		}
		d.Later(11 * time.Minute)
		s.Give(channel, "78")
		if err := d.CheckChannel(ctx, at(channel)); !errors.Is(err, chat.ErrChannelNotAllowed) {
			t.Errorf("the platform has changed its mind: got %v", err)
		}
		d.Later(22 * time.Minute)
		s.Give(channel, guild)
		if err := d.CheckChannel(ctx, at(channel)); err != nil {
			t.Errorf("and changed it back: got %v", err)
		}
	})

	t.Run("a refusal is not remembered", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connect(t, s)
		s.Lookup(channel, chattest.Refuse(403, 50001, "Missing Access"))
		if err := d.CheckChannel(ctx, at(channel)); !errors.Is(err, chat.ErrChannelNotAllowed) {
			t.Fatalf("got %v", err)
		}
		s.Lookup(channel, nil)
		if err := d.CheckChannel(ctx, at(channel)); err != nil {
			t.Errorf("access is back: got %v", err)
		}
	})

	t.Run("a channel that was refused since is asked about again", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d := connect(t, s)
		if err := d.CheckChannel(ctx, at(channel)); err != nil {
			t.Fatal(err)
		}
		s.Give(channel, "78")
		s.Next(chattest.Refuse(403, 50001, "Missing Access"))
		for _, notAllowed := range []bool{false, true} {
			_, err := d.SendMessage(ctx, chat.Message{Channel: at(channel), Content: "x"})
			if errors.Is(err, chat.ErrChannelNotAllowed) != notAllowed {
				t.Errorf("got %v", err)
			}
		}
	})
}

func lookup(b chattest.Behaviour) func(*chattest.Server) {
	return func(s *chattest.Server) { s.Lookup(channel, b) }
}

// TestAnnounceInAnotherGuild: an intent whose channel belongs to another guild is not posted, and
// the refusal is final, for every kind of intent.
func TestAnnounceInAnotherGuild(t *testing.T) {
	t.Parallel()
	s := newIntentDB(t)
	in := s.prepare(t, "[Claim your refund](https://evil.example)")
	s.platform.Give(channel, "78")
	if err := s.announce(t, in); !errors.Is(err, chat.ErrChannelNotAllowed) || !failure(t, err).Lasting() {
		t.Fatalf("got %v", err)
	}
	s.wantState(t, in.ID, chat.Refused, 0)
}
