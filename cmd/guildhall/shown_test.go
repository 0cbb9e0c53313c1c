package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/outbound/egress/egresstest"
)

// buyer is the member of the demo guild whom the documents pay.
const buyer = "190320984123768832"

// endless lists commands that a text names and that no test can run to their end, with the reason.
var endless = map[string]string{
	"dev": "it serves", "serve": "it serves", "serve --migrate": "it serves", "listen": "it waits for events",
	"listen --forward-to http://localhost:9000/": "it waits for events",
	"migrate --distribute":                       "the database is no coordinator of Citus: make drill NAME=citus runs it",
}

// runShown runs the commands that the text of the documents shows, for a guild with a token, a bot
// key and an endpoint. A command without an argument that it requires is only mentioned.
func runShown(t *testing.T, node target) {
	t.Helper()
	node.environment += " GUILDHALL_DASHBOARD_URL=https://" + pagesHost
	s := newSandbox(t, node)
	made := func(command string) string {
		t.Helper()
		var thing struct{ ID string }
		out := s.run(t, "", "guildhall "+command+" --json")
		if err := json.Unmarshal([]byte(out), &thing); err != nil || thing.ID == "" {
			t.Fatalf("%s prints %s: %v", command, out, err)
		}
		return thing.ID
	}
	writeFile(t, s.home, "page-0.json", exported(t, "mee6.0.json"))
	receiver := egresstest.NewReceiver(t, egresstest.Respond(204, ""))
	s.run(t, "", theGuild)
	ids := map[string]string{
		"token":   made("token create --guild " + guild + " --name shown --all-scopes"),
		"bot-key": made("bot-key create --name shown"),
		"webhook": made("webhook add --guild " + guild + " --url " + receiver.URL + " --all-events"),
	}
	delivery := made("webhook test " + ids["webhook"])
	shown := map[string]bool{}
	for _, text := range documents(t) {
		_, prose := blocksOf(text)
		for _, m := range quotedCommand.FindAllStringSubmatch(prose, -1) {
			command := strings.Join(strings.Fields(m[1]), " ")
			if _, err := newParser(t).Parse(wordsOf(command)); err == nil && endless[command] == "" {
				shown[command] = true
			}
		}
	}
	if len(shown) < 20 {
		t.Errorf("only %q were found", slices.Sorted(maps.Keys(shown)))
	}
	last := func(command string) int {
		return strings.Count(command, " revoke ") + strings.Count(command, "forget ")
	}
	commands := slices.SortedFunc(maps.Keys(shown), func(a, b string) int { return 2*(last(a)-last(b)) + strings.Compare(a, b) })
	var script string
	for _, command := range commands {
		kind, _, _ := strings.Cut(command, " ")
		fill := strings.NewReplacer("--guild ID", "--guild "+guild, "--user ID", "--user "+buyer, " ID", " "+ids[kind], "DELIVERY", delivery,
			"190320984123768800", guild, "FORMAT FILE...", "mee6 page-0.json")
		script += "guildhall " + fill.Replace(command) + "\n"
	}
	s.run(t, "", script)
}
