package chat

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/disgoorg/disgo/discord"
)

// docs/operate/discord.md lists the same permissions in the same order.
func TestTheBotsRightsAreInTheDocuments(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/operate/discord.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## The bot's rights\n")
	section, _, _ = strings.Cut(section, "\n#")
	var told, want []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z ]+) \|`).FindAllStringSubmatch(section, -1) {
		told = append(told, row[1])
	}
	for _, r := range rights {
		want = append(want, r.name)
	}
	if told = slices.DeleteFunc(told, func(name string) bool { return name == "Right" }); !slices.Equal(told, want) {
		t.Errorf("docs/operate/discord.md has %q, the program looks for %q", told, want)
	}
}

// The platform lets a bot deny only permissions that the bot has.
func TestTheBotMayDoWhatItTakesAway(t *testing.T) {
	t.Parallel()
	var has discord.Permissions
	for _, r := range rights {
		if r.closing != "delete" {
			has |= r.bit
		}
	}
	if !has.Has(discord.Permissions(writing)) {
		t.Errorf("to archive a channel denies %b, and the bot is asked for %b", writing, has)
	}
}
