package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// The white space that a file of secrets adds to the bot's token goes; what else people
// copy along with it is named at the start, without the token.
func TestASecretOfDiscordIsTakenAsItWasPasted(t *testing.T) {
	t.Parallel()
	const token = "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"
	for pasted, wrong := range map[string]string{
		token: "", token + "\n": "", " " + token + "\r\n": "",
		`"` + token + `"`: "quotation mark", "'" + token: "quotation mark",
		"Bot " + token: "begins with Bot", "bot " + token + "\n": "begins with Bot",
		token[:9] + "\n" + token[9:]: "white space", token + "\u200b": "white space",
	} {
		s := Settings{Env: "test", DiscordToken: pasted, ClientSecret: pasted}
		_, err := s.check(bothRoles)
		for _, name := range []string{"GUILDHALL_DISCORD_TOKEN: ", "GUILDHALL_DISCORD_CLIENT_SECRET: "} {
			said := wrong != "" && strings.Contains(fmt.Sprint(err), name) && strings.Contains(fmt.Sprint(err), wrong)
			if said != (wrong != "") || strings.Contains(fmt.Sprint(err), name) != said || strings.Contains(fmt.Sprint(err), token[20:]) {
				t.Errorf("%q: %v, want %s%s", pasted, err, name, wrong)
			}
		}
	}
	url, key := dbtest.New(t).URL, someKey(t)
	asked := make(chan string, 1)
	discord := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("Authorization"):
		default:
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer discord.Close()
	_ = call(t, "", "doctor", "--database-url", url, "--secret-key", key, "--discord-token", token+"\n", "--discord-url", discord.URL)
	select {
	case sent := <-asked:
		if sent != "Bot "+token {
			t.Errorf("doctor sends %q", sent)
		}
	default:
		t.Error("doctor does not ask")
	}
}
