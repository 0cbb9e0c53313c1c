package giveaways

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"guildhall/internal/base/wire"
)

func ptr[T any](v T) *T { return &v }

func TestAnnouncements(t *testing.T) {
	t.Parallel()
	g, made := row{Prize: "Nitro"}, row{Prize: "Nitro", Source: fromAPI, ReactionCount: 250}
	ends := wire.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		name, want string
		got        []notice
	}{
		{"nobody", "🎉 **Nitro**: nobody entered, so nobody wins.", endedTexts(g, nil)},
		{"one winner", "🎉 **Nitro**: the winner is <@1>.", endedTexts(g, []string{"1"})},
		{"several winners", "🎉 **Nitro**: the winners are <@1>, <@2>, <@3>.", endedTexts(g, []string{"1", "2", "3"})},
		{"entered by reaction", "🎉 **Nitro**: the winner is <@1>. Entered by reaction: 250.", endedTexts(made, []string{"1"})},
		{
			"nobody has reacted", "🎉 **Nitro**: nobody entered, so nobody wins. Entered by reaction: 0.",
			endedTexts(row{Prize: "Nitro", Source: fromAPI}, nil),
		},
		{
			"entered in another way", "🎉 **Nitro**: the winner is <@1>.",
			endedTexts(row{Prize: "Nitro", Source: fromAPI, EntrantCount: 5}, []string{"1"}),
		},
		{
			"reactions that could not be read",
			"🎉 **Nitro**: nobody entered, so nobody wins. The reactions could not be read, so only the entries that were known took part.",
			endedTexts(row{Prize: "Nitro", ReactionsMissed: true}, nil),
		},
		{"one replaced", "🎉 **Nitro** was rerolled. The new winner is <@1>.", rerolledTexts(g, []string{"1"}, nil)},
		{
			"two replaced for a reason", "🎉 **Nitro** was rerolled. The new winners are <@1>, <@2>. Reason: They left",
			rerolledTexts(g, []string{"1", "2"}, ptr("They left")),
		},
		{
			"what people write stands as it was written",
			`🎉 **\\\[Claim](https://evil.example/a_b) \<@9> \*\***: the winner is <@1>.`,
			endedTexts(row{Prize: `\[Claim](https://evil.example/a_b) <@9> **`}, []string{"1"}),
		},
		{
			"the start", "🎉 **Nitro**\n\nReact with 🎉 to enter. One winner is drawn <t:1893456000:R> (<t:1893456000:f>).",
			[]notice{{text: startedText(row{Prize: "Nitro", WinnerCount: 1, EndsAt: ends, Description: ptr(" \n")})}},
		},
		{
			"the start with all that can be said",
			"🎉 **Nitro**\nFor \\[all](x)\n\nReact with 🎉 to enter. 3 winners are drawn <t:1893456000:R> (<t:1893456000:f>). Hosted by <@5>.",
			[]notice{{text: startedText(row{Prize: "Nitro", Description: ptr("For [all](x)"), WinnerCount: 3, EndsAt: ends, HostID: ptr("5")})}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if len(c.got) != 1 || c.got[0].text != c.want {
				t.Errorf("the bot says\n%q, want\n%q", c.got, c.want)
			}
			if named := strings.Count(c.got[0].text, " <@") - strings.Count(c.want, "by <@"); len(c.got[0].mentions) != named {
				t.Errorf("%d users are notified, %d named", len(c.got[0].mentions), named)
			}
		})
	}
}

// However long prize, reason and list are, each message fits the limit, every winner is named and
// notified once, and no other user is notified.
func TestAnnouncementsFitTheirMessages(t *testing.T) {
	t.Parallel()
	for _, letter := range []string{"ü", "[", "🎉"} {
		for _, reasonLength := range []int{1, 500, 1000} {
			for n := 1; n <= 100; n++ {
				users := make([]string, n)
				for i := range users {
					users[i] = fmt.Sprint(uint64(10_000_000_000_000_000_000) + uint64(i))
				}
				var told []string
				list := rerolledTexts(row{Prize: strings.Repeat(letter, 200)}, users, ptr(strings.Repeat(letter, reasonLength)))
				for _, m := range list {
					if got := utf8.RuneCountInString(m.text); got > maxMessage {
						t.Fatalf("%d winners and a reason of %d make a message of %d characters", n, reasonLength, got)
					}
					for _, u := range m.mentions {
						if strings.Count(m.text, "<@"+u+">") != 1 {
							t.Fatalf("user %s is notified and not named", u)
						}
					}
					told = append(told, m.mentions...)
				}
				if fmt.Sprint(told) != fmt.Sprint(users) {
					t.Fatalf("of %d winners %v are notified", n, told)
				}
			}
		}
	}
	if cut := plain(strings.Repeat("ü", 500), maxPrize); utf8.RuneCountInString(cut) != maxPrize || !strings.HasSuffix(cut, "ü…") {
		t.Errorf("a text that is cut has %d characters", utf8.RuneCountInString(cut))
	}
	long := startedText(row{
		Prize: strings.Repeat("*", 200), Description: ptr(strings.Repeat("<", 1000)), WinnerCount: 100,
		HostID: ptr("18446744073709551615"),
	})
	if got := utf8.RuneCountInString(long); got > maxMessage || !strings.Contains(long, "…\n\nReact") ||
		!strings.Contains(long, "**"+strings.Repeat(`\*`, 200)+"**") {
		t.Errorf("the start is a message of %d characters: %s", got, long)
	}
	if ordinary := strings.Repeat("ü", 1000); !strings.Contains(startedText(row{Description: &ordinary}), ordinary) {
		t.Error("a description of 1,000 letters is cut")
	}
}

// Custom emoji are posted unchanged and never cut; text that only resembles one is escaped.
func TestCustomEmojiArePostedAsTheyAre(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"A <:hat:381886868708655104>!":               "A <:hat:381886868708655104>!",
		"<a:party_blob:1><:ab:12345678901234567890>": "<a:party_blob:1><:ab:12345678901234567890>",
		`\<:hat:1>`:                            `\\<:hat:1>`,
		"<<:hat:1>":                            `\<<:hat:1>`,
		"<:h:1>":                               `\<:h:1>`,
		"<:" + strings.Repeat("h", 33) + ":1>": `\<:` + strings.Repeat("h", 33) + ":1>",
		"<:hat:>":                              `\<:hat:>`,
		"<:hat:123456789012345678901>":         `\<:hat:123456789012345678901>`,
		"<b:hat:1>":                            `\<b:hat:1>`,
		"<:h-t:1>":                             `\<:h-t:1>`,
		"<:hat:1":                              `\<:hat:1`,
		"<@1> <@&2> <#3>":                      `\<@1> \<@&2> \<#3>`,
		"1234567890 <:hat:1>":                  "1234567890 <:hat:1>",
		"123456789012345 <:hat:1>":             "123456789012345 …",
		"<:hat:12345678901234567890>":          "…",
	} {
		limit := 100
		if strings.HasSuffix(want, "…") {
			limit = 20
		}
		if got := plain(text, limit); got != want {
			t.Errorf("%q is posted as %q, want %q", text, got, want)
		}
	}
	text := startedText(row{Prize: "<:hat:1>", Description: ptr("<a:hat:2> and <:h:1>")})
	if !strings.Contains(text, "**<:hat:1>**\n<a:hat:2> and \\<:h:1>\n") {
		t.Errorf("the bot says %q", text)
	}
}

// The message still contains the giveaway's description when it says that the giveaway is over.
func TestAMessageThatSaysItIsOverKeepsTheDescription(t *testing.T) {
	t.Parallel()
	for description, want := range map[string]string{
		"For *all*": "**A hat**\nFor \\*all\\*\n\nEnded.", "": "**A hat**\n\nEnded.", " \n": "**A hat**\n\nEnded.", "none": "**A hat**\n\nEnded.",
	} {
		g := row{Prize: "A hat", Status: ended}
		if description != "none" {
			g.Description = &description
		}
		if got := overText(g); !strings.Contains(got, want) {
			t.Errorf("with the description %q it says %q, want %q", description, got, want)
		}
	}
}
