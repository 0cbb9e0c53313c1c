package chat_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
)

func TestThePlatformSaysWhatAGuildIs(t *testing.T) {
	t.Parallel()
	srv := chattest.New(t)
	d := chattest.Connect(t, srv.URL, chat.Config{})
	turns := 0
	turn := func(context.Context) error {
		turns++
		return nil
	}
	srv.Admit("5", 0)
	srv.Describe(
		"5",
		chattest.About{Name: "Ravens", Icon: "a_f00", OwnerID: "7", Locale: "de", Members: 4711, JoinedAt: "2026-02-03T04:05:06.123456+00:00"},
	)
	want := chat.About{
		Name: "Ravens", IconURL: "https://cdn.discordapp.com/icons/5/a_f00.png", OwnerID: "7", Members: 4711, Locale: "de",
		JoinedAt: time.Date(2026, 2, 3, 4, 5, 6, 123456000, time.UTC),
	}
	for _, calls := range []int{3, 2} { // the client asks for its own id only once
		turns = 0
		is, err := d.About(t.Context(), "5", turn)
		is.JoinedAt = is.JoinedAt.UTC()
		if err != nil || is != want || turns != calls {
			t.Errorf("%+v, %v after %d turns, want %d", is, err, turns, calls)
		}
	}
	srv.Describe("5", chattest.About{Name: "Ravens", OwnerID: "7", Locale: "de", Members: 1})
	if is, err := d.About(t.Context(), "5", turn); err != nil || is.IconURL != "" {
		t.Errorf("without an icon: %+v, %v", is, err)
	}
	turns = 0
	if _, err := d.About(t.Context(), "6", turn); !errors.Is(err, chat.ErrNotInGuild) || turns != 1 {
		t.Errorf("where the bot is not: %v after %d turns", err, turns)
	}
	late := errors.New("no turn")
	before := len(srv.Calls())
	if _, err := d.About(t.Context(), "5", func(context.Context) error { return late }); !errors.Is(err, late) || len(srv.Calls()) != before {
		t.Errorf("without a turn: %v", err)
	}
}

func TestWhatAGuildIsIsAskedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		forAll bool
	}{{500, false}, {401, true}, {429, true}, {400, false}} {
		calls := 0
		d, _ := people(t, func(w http.ResponseWriter, _ *http.Request) bool {
			calls++
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(`{}`))
			return false
		})
		_, err := d.About(t.Context(), "5", func(context.Context) error { return nil })
		if err == nil || calls != 1 || chat.ForAll(err) != c.forAll {
			t.Errorf("%d: %v after %d calls, for all %t", c.status, err, calls, chat.ForAll(err))
		}
		if c.status == 401 {
			if _, err := d.About(t.Context(), "5", func(context.Context) error { return nil }); !chat.ForAll(err) || calls != 1 {
				t.Errorf("a refused token is used: %v after %d calls", err, calls)
			}
		}
	}
	if chat.ForAll(chat.ErrNotInGuild) || chat.ForAll(nil) {
		t.Error("one guild's failure is taken for all's")
	}
}
