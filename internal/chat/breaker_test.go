package chat_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"guildhall/internal/chat"
	"guildhall/internal/chat/chattest"
)

// guarded returns a client that believes refusals for as long as in earnest, and
// its log.
func guarded(t *testing.T, s *chattest.Server) (*chat.Discord, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return connectAs(t, s, chat.Config{Log: slog.New(slog.NewTextHandler(&log, nil))}), &log
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	send := func(t *testing.T, d *chat.Discord, to string, code int) {
		t.Helper()
		_, err := d.SendMessage(ctx, chat.Message{ChannelID: to, Content: "x"})
		if code == 0 && err != nil {
			t.Fatal(err)
		}
		if code != 0 {
			if f := failure(t, err); f.Code != code || f.Uncertain {
				t.Fatalf("got %+v, want the code %d", f, code)
			}
		}
	}
	calls := func(t *testing.T, s *chattest.Server, want int) {
		t.Helper()
		if n := len(s.Calls()); n != want {
			t.Fatalf("%d calls, want %d: %v", n, want, s.Calls())
		}
	}

	t.Run("a channel that is gone or shut is left alone, others are not", func(t *testing.T) {
		t.Parallel()
		for _, code := range []int{chat.CodeUnknownChannel, chat.CodeMissingAccess} {
			s := chattest.New(t)
			s.In("1", chattest.Refuse(403, code, "no"))
			d, _ := guarded(t, s)
			send(t, d, "1", code)
			send(t, d, "1", code)
			if f := failure(t, d.ArchiveChannel(ctx, "1")); f.Code != code || !f.Lasting() {
				t.Errorf("got %+v", f)
			}
			calls(t, s, 1)
			send(t, d, "2", 0)
			calls(t, s, 2)
		}
	})

	t.Run("a permission that is missing for one thing is not missing for all", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		d, _ := guarded(t, s)
		send(t, d, "1", 0)
		s.Next(chattest.Refuse(403, chat.CodeMissingPermission, "no"))
		for range 3 {
			if f := failure(t, d.ArchiveChannel(ctx, "1")); f.Code != chat.CodeMissingPermission {
				t.Errorf("got %+v", f)
			}
		}
		calls(t, s, 2)
		send(t, d, "1", 0)
	})

	t.Run("a channel is asked again after a while", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Refuse(403, chat.CodeMissingAccess, "no"))
		d, _ := guarded(t, s)
		send(t, d, "1", chat.CodeMissingAccess)
		d.Later(59 * time.Second)
		send(t, d, "1", chat.CodeMissingAccess)
		d.Later(61 * time.Second)
		send(t, d, "1", 0)
		calls(t, s, 2)
	})

	t.Run("a token that is refused stops everything but one call at a time", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Refuse(401, 0, "401: Unauthorized"), chattest.Refuse(401, 0, "401: Unauthorized"))
		d, log := guarded(t, s)
		for i := range 20 {
			_, err := d.SendMessage(ctx, chat.Message{ChannelID: string(rune('1' + i%9)), Content: "x"})
			if f := failure(t, err); f.Status != 401 || f.Lasting() {
				t.Fatalf("got %+v", f)
			}
		}
		calls(t, s, 1)
		d.Later(61 * time.Second)
		for range 5 {
			if _, err := d.SendMessage(ctx, chat.Message{ChannelID: "1", Content: "x"}); err == nil {
				t.Fatal("the second refusal was overlooked")
			}
		}
		calls(t, s, 2)
		d.Later(122 * time.Second)
		send(t, d, "1", 0)
		send(t, d, "2", 0)
		if n := strings.Count(log.String(), "level=ERROR"); n != 2 || !strings.Contains(log.String(), "again") {
			t.Errorf("the log has %d errors: %s", n, log)
		}
	})

	t.Run("silence and overload say nothing about a channel", func(t *testing.T) {
		t.Parallel()
		s := chattest.New(t)
		s.Next(chattest.Refuse(503, chat.CodeMissingAccess, "busy"))
		d, _ := guarded(t, s)
		send(t, d, "1", 0)
		send(t, d, "1", 0)
	})
}
