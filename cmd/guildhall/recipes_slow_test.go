//go:build slow

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
)

const leaver = "190320984123768899" // a user id that Discord does not know

// kitchen is a folder with the programs of docs/recipes.md, beside that of guildhall dev.
type kitchen struct {
	dev, dir string
	key      string // of the bot
	discord  *standIn
	env      []string
}

// recipesOf writes the programs of docs/recipes.md by their names.
func recipesOf(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?s)`([a-z-]+\\.mts)`[^`]*(?:`[^`\n]+`[^`]*)?```ts\n(.*?)```")
	all := named.FindAllSubmatch(text, -1)
	if len(all) != strings.Count(string(text), "```ts\n") {
		t.Fatalf("%d programs have a name", len(all))
	}
	for _, m := range all {
		writeFile(t, dir, string(m[1]), string(m[2]))
	}
}

// newKitchen starts guildhall dev, installs what the first program needs, and compiles the
// recipes.
func newKitchen(t *testing.T) *kitchen {
	t.Helper()
	needNode(t)
	k := &kitchen{dev: started(t), discord: newStandIn(t)}
	k.dir = filepath.Join(k.dev, "../recipes")
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	recipesOf(t, k.dir)
	install := strings.Split(one(t, codeOf(t, "docs/integrate/first-program.md", "TypeScript"), "sh"), "\n")
	shell(t, k.dir, append([]string{". '" + k.dev + "/.guildhall/env'"}, append(install[:2],
		"npx tsc --noEmit --strict --module nodenext --target es2022 --skipLibCheck *.mts")...)...)
	k.key = lastLine(shell(t, k.dev, ". .guildhall/env", k.guildhall("bot-key create --name shop --allow-ip 127.0.0.1,::1")+" | head -n 1"))
	k.env = append(os.Environ(), "BOT_KEY="+k.key, "DISCORD_API="+k.discord.URL, "DISCORD_BOT_TOKEN=bot-token", "VIP_ROLE_ID=42",
		"DISCORD_CLIENT_ID=7", "DISCORD_CLIENT_SECRET=hush")
	return k
}

// command is a recipe with its arguments.
func (k *kitchen) command(ctx context.Context, args string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-ec", ". '"+k.dev+"/.guildhall/env'; exec node --import tsx "+args)
	cmd.Dir, cmd.Env, cmd.WaitDelay = k.dir, k.env, time.Second
	return cmd
}

// guildhall is a line for a shell that runs the program.
func (k *kitchen) guildhall(args string) string { return asProgram + "=1 '" + os.Args[0] + "' " + args }

// run runs a recipe and returns what it prints.
func (k *kitchen) run(t *testing.T, args string) string {
	t.Helper()
	out, err := k.command(t.Context(), args).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
	return string(out)
}

// begin runs a recipe that does not end by itself.
func (k *kitchen) begin(t *testing.T, file string) {
	t.Helper()
	cmd := k.command(t.Context(), file)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says %s", file, said.String())
		}
	})
}

// serves runs a recipe that is a website, on a port of its own, and returns its address.
func (k *kitchen) serves(t *testing.T, file, port string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(k.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	own := freePort(t)
	writeFile(t, k.dir, file, strings.ReplaceAll(string(text), port, own))
	k.begin(t, file)
	site := "http://localhost:" + own
	testutil.Eventually(t, file+" listens", func() bool {
		res, err := stays.Get(site)
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil
	})
	return site
}

// stays is a client that follows no redirect.
var stays = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// get asks the API with the token of guildhall dev.
func (k *kitchen) get(t *testing.T, path string) map[string]any {
	t.Helper()
	out := shell(t, k.dev, ". .guildhall/env",
		`curl -sS --cacert "$GUILDHALL_CA" -H "Authorization: Bearer $GUILDHALL_TOKEN" "$GUILDHALL_URL`+path+`"`)
	var body struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(out), &body); err != nil || body.Data == nil {
		t.Fatalf("%s: %v: %s", path, err, out)
	}
	return body.Data
}

// send calls an operation with the bot's key and returns the response.
func (k *kitchen) send(t *testing.T, method, path, body string) string {
	t.Helper()
	return shell(t, k.dev, ". .guildhall/env", `curl -sS --fail-with-body --cacert "$GUILDHALL_CA" -H 'Authorization: Bearer `+k.key+`' `+
		`-H 'Guild-Id: 402187554310020096' -H 'Content-Type: application/json' -X `+method+` -d '`+body+`' "$GUILDHALL_URL`+path+`"`)
}

func (k *kitchen) balance(t *testing.T, user string) float64 {
	t.Helper()
	return k.get(t, "/economy/wallet/"+user)["balance"].(float64)
}

// standIn stands in for Discord.
type standIn struct {
	*httptest.Server
	mu    sync.Mutex
	roles []string // whom roles were given, by path
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	s := &standIn{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, r *http.Request) {
		user, secret, _ := r.BasicAuth()
		if user != "7" || secret != "hush" || r.FormValue("code") != "a-code" || r.FormValue("grant_type") != "authorization_code" ||
			!strings.HasSuffix(r.FormValue("redirect_uri"), "/callback") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"of-the-buyer","token_type":"Bearer"}`)
	})
	mux.HandleFunc("GET /users/@me", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of-the-buyer" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"id":"`+buyer+`","username":"mara"}`)
	})
	mux.HandleFunc("PUT /guilds/{guild}/members/{user}/roles/42", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.roles = append(s.roles, r.PathValue("guild")+" "+r.PathValue("user")+" "+r.Header.Get("Authorization"))
		w.WriteHeader(map[bool]int{true: http.StatusNotFound, false: http.StatusNoContent}[r.PathValue("user") == leaver])
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *standIn) gave(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, role := range s.roles {
		if role == "402187554310020096 "+user+" Bot bot-token" {
			return true
		}
	}
	return false
}

// Each recipe does what the page says, in the order of the page, and again where it says so.
func TestTheRecipesWork(t *testing.T) {
	t.Parallel()
	k := newKitchen(t)
	t.Run("a leaderboard", func(t *testing.T) {
		_, page := answerOf(t, http.DefaultClient, k.serves(t, "leaderboard.mts", "3000"))
		wantMatch(t, "the leaderboard", page, `<li value="1">[^<]+: \d+</li>`)
		if strings.Count(page, "<li ") != 25 || strings.Count(page, "somebody") > 20 {
			t.Errorf("the leaderboard is %s", page)
		}
	})
	t.Run("a member's cases", func(t *testing.T) {
		wantMatch(t, "cases.mts", k.run(t, "cases.mts "+buyer), `^(#\d+ [a-z]+, [a-z]+: [^\n]+\n){8}$`)
	})
	t.Run("a week", func(t *testing.T) {
		k.send(t, "PATCH", "/guild/settings", `{"levelling":{"periods":false}}`)
		wantMatch(t, "weekly.mts", k.run(t, "weekly.mts"), `^This guild does not count weeks\.\n$`)
		k.send(t, "PATCH", "/guild/settings", `{"levelling":{"periods":true}}`)
		k.send(t, "POST", "/levelling/adjust", `{"user_id":"`+buyer+`","delta":12}`)
		testutil.Eventually(t, "the gain is counted", func() bool {
			return strings.HasSuffix(k.run(t, "weekly.mts"), ":\n1. "+buyer+": 12 XP\n")
		})
		wantMatch(t, "weekly.mts", k.run(t, "weekly.mts 2026-06-17"), `^From 2026-06-15 until 2026-06-22:\n$`)
	})
	t.Run("who a visitor is", func(t *testing.T) { signsIn(t, k) })
	t.Run("a linked account", func(t *testing.T) {
		for range 2 {
			wantMatch(t, "link.mts", k.run(t, "link.mts C-7001 "+leaver), `^C-7001 is linked\.\n$`)
		}
		out, err := k.command(t.Context(), "link.mts C-7001 "+buyer).CombinedOutput()
		if err == nil || string(out) != "C-7001 is "+leaver+" already.\n" {
			t.Errorf("who links another's number reads %q (%v)", out, err)
		}
	})
	t.Run("a shop", func(t *testing.T) { sells(t, k) })
	t.Run("daily", func(t *testing.T) {
		k.send(t, "PATCH", "/guild/settings", `{"timezone":"`+testutil.MiddayZone()+`"}`)
		wantMatch(t, "daily.mts", k.run(t, "daily.mts "+leaver), `^50 coins: you have \d+\. Day 1 in a row\.\n$`)
		wantMatch(t, "daily.mts", k.run(t, "daily.mts "+leaver), `^You had it today\. Day 1 in a row\.\n$`)
	})
	t.Run("pay", func(t *testing.T) {
		before := k.balance(t, leaver)
		for range 2 {
			wantMatch(t, "pay-member.mts", k.run(t, "pay-member.mts 7001 "+buyer+" "+leaver+" 5"), `^Paid\. You have \d+ coins\.\n$`)
		}
		wantMatch(t, "pay-member.mts", k.run(t, "pay-member.mts 7002 "+leaver+" "+buyer+" 900000"), `^You have too few coins\.\n$`)
		if now := k.balance(t, leaver); now != before+5 {
			t.Errorf("who was paid 5 coins had %v and has %v", before, now)
		}
	})
	t.Run("a new account", func(t *testing.T) {
		const account = "190320984123768999"
		had, xp := k.balance(t, buyer), k.get(t, "/levelling/user/"+buyer)["total_xp"]
		kept := fmt.Sprint(k.get(t, "/members/"+buyer)["metadata"])
		wantMatch(t, "move.mts", k.run(t, "move.mts "+buyer+" "+account), fmt.Sprintf(`^%.0f coins and %.0f XP moved\.\n$`, had, xp))
		wantMatch(t, "move.mts", k.run(t, "move.mts "+buyer+" "+account), `^0 coins and 0 XP moved\.\n$`)
		if k.balance(t, account) != had || k.balance(t, buyer) != 0 || k.get(t, "/levelling/user/"+account)["total_xp"] != xp {
			t.Errorf("%v coins became %v, and %v stayed", had, k.balance(t, account), k.balance(t, buyer))
		}
		if got := fmt.Sprint(k.get(t, "/members/"+account)["metadata"]); got != kept || !strings.Contains(kept, "shop.role.vip:1") {
			t.Errorf("the new account has %s, the old one has %s", got, kept)
		}
	})
	t.Run("a season", func(t *testing.T) {
		for range 2 {
			wantMatch(t, "season.mts", k.run(t, "season.mts spring"), `^Season spring has begun\.\n$`)
		}
		standings, err := os.ReadFile(filepath.Join(k.dir, "season-spring.json"))
		if err != nil || !strings.Contains(string(standings), `"rank": 100`) || k.balance(t, leaver) != 0 {
			t.Errorf("there are %s (%v), and %v coins", standings, err, k.balance(t, leaver))
		}
	})
}

// answerOf reads a page.
func answerOf(t *testing.T, client *http.Client, address string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return respond(t, client, req)
}

// signsIn goes where a browser goes. Discord's page, where people agree, is left out.
func signsIn(t *testing.T, k *kitchen) {
	t.Helper()
	site := k.serves(t, "signin.mts", "3001")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: stays.CheckRedirect}
	if res, _ := answerOf(t, browser, site); res.Header.Get("Location") != "/login" {
		t.Fatalf("who is not signed in is sent to %q", res.Header.Get("Location"))
	}
	res, _ := answerOf(t, browser, site+"/login")
	there, err := url.Parse(res.Header.Get("Location"))
	if err != nil {
		t.Fatal(err)
	}
	asked := there.Query()
	if there.Host != "discord.com" || asked.Get("scope") != "identify" || asked.Get("redirect_uri") != site+"/callback" {
		t.Fatalf("/login leads to %v", there)
	}
	if res, _ := answerOf(t, browser, site+"/callback?code=a-code&state=forged"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("a forged state is answered %d", res.StatusCode)
	}
	res, _ = answerOf(t, browser, site+"/callback?code=another&state="+asked.Get("state"))
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a code that Discord does not know is answered %d", res.StatusCode)
	}
	answerOf(t, browser, site+"/callback?code=a-code&state="+asked.Get("state"))
	if _, page := answerOf(t, browser, site); page != fmt.Sprintf("You have %.0f coins.\n", k.balance(t, buyer)) {
		t.Errorf("who is signed in reads %q", page)
	}
}

// sells buys a role for a member who gets it, and for one who has left.
func sells(t *testing.T, k *kitchen) {
	t.Helper()
	k.begin(t, "grant.mts")
	testutil.Eventually(t, "the stream has begun", func() bool {
		return strings.Contains(shell(t, k.dev, ". .guildhall/env", k.guildhall("stream list")), "shop-roles")
	})
	testutil.Eventually(t, "the stream has reached the guild", func() bool {
		// Until then complete_since is the moment of the response.
		pull := func() string { return k.send(t, "POST", "/bot/events/pull", `{"stream":"shop-roles"}`) }
		first := pull()
		return first == pull()
	})
	out, err := k.command(t.Context(), "buy.mts 2 "+leaver).CombinedOutput()
	if err == nil || string(out) != "VIP costs 100 coins.\n" {
		t.Errorf("who has no coins reads %q (%v)", out, err)
	}
	before := k.balance(t, buyer)
	for range 2 {
		wantMatch(t, "buy.mts", k.run(t, "buy.mts 1 "+buyer), `^VIP is yours\.\n$`)
	}
	if now := k.balance(t, buyer); now != before-100 {
		t.Errorf("the buyer had %v coins and has %v", before, now)
	}
	testutil.Eventually(t, "the role is given", func() bool { return k.discord.gave(buyer) })
	k.run(t, "pay-member.mts 7000 "+buyer+" "+leaver+" 150")
	k.run(t, "buy.mts 3 "+leaver)
	testutil.Eventually(t, "the coins come back", func() bool { return k.discord.gave(leaver) && k.balance(t, leaver) == 150 })
}
