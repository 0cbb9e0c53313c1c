package giveaways

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestAnnouncements(t *testing.T) {
	t.Parallel()
	reason := "They left"
	for _, c := range []struct{ name, got, want string }{
		{"nobody", endedText("Nitro", nil), "🎉 **Nitro**: nobody entered, so nobody wins."},
		{"one winner", endedText("Nitro", []string{"1"}), "🎉 **Nitro**: the winner is <@1>."},
		{"several winners", endedText("Nitro", []string{"1", "2", "3"}), "🎉 **Nitro**: the winners are <@1>, <@2>, <@3>."},
		{"one replaced", rerolledText("Nitro", []string{"1"}, nil), "🎉 **Nitro** was rerolled. The new winner is <@1>."},
		{"two replaced for a reason", rerolledText("Nitro", []string{"1", "2"}, &reason), "🎉 **Nitro** was rerolled. The new winners are <@1>, <@2>. Reason: They left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.got != c.want {
				t.Errorf("the bot says %q, want %q", c.got, c.want)
			}
		})
	}
}

// However long prize, reason and list are, the message fits, and the number of
// those it names and of those it only counts is that of the winners.
func TestAnnouncementsFitOneMessage(t *testing.T) {
	t.Parallel()
	for _, reasonLength := range []int{1, 500, 1000} {
		for n := 1; n <= 100; n++ {
			users := make([]string, n)
			for i := range users {
				users[i] = fmt.Sprint(uint64(10_000_000_000_000_000_000) + uint64(i))
			}
			reason := strings.Repeat("ü", reasonLength)
			text := rerolledText(strings.Repeat("ü", 200), users, &reason)
			if got := utf8.RuneCountInString(text); got > maxMessage {
				t.Fatalf("%d winners and a reason of %d make a message of %d characters", n, reasonLength, got)
			}
			named, rest := strings.Count(text, "<@"), 0
			if i := strings.Index(text, " and "); i > 0 {
				fmt.Sscanf(text[i:], " and %d more", &rest)
			}
			if named+rest != n || named < min(n, 20) {
				t.Fatalf("of %d winners %d are named and %d counted", n, named, rest)
			}
		}
	}
}
