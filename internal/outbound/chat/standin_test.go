package chat_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"guildhall/internal/outbound/chat"
)

// The stand-in's members have reacted to every message in one of the two ways.
func TestMembersOfTheStandInReact(t *testing.T) {
	t.Parallel()
	s := chat.NewStandIn(slog.New(slog.DiscardHandler), "9", "10", "100")
	for _, c := range []struct {
		way   chat.Reaction
		after string
		want  []chat.Reactor
	}{
		{chat.Normal, "", []chat.Reactor{{UserID: "9"}, {UserID: "10"}, {UserID: "100"}}},
		{chat.Normal, "10", []chat.Reactor{{UserID: "100"}}},
		{chat.Normal, "100", nil},
		{chat.Super, "", nil},
	} {
		got, err := s.Reactors(context.Background(), chat.Channel{}, "1", "🎉", c.way, c.after)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%v after %q: %v\n%s", c.way, c.after, err, diff)
		}
	}
}
