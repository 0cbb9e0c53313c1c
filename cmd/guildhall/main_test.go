package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/guildfile"
)

// asProgram is the environment variable that makes this test program behave as guildhall, so that
// tests can start it, send it signals and see its exit code.
const asProgram = "GUILDHALL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	installedSettings = os.Getenv("GUILDHALL_TEST_SETTINGS")
	if os.Getenv(asProgram) != "" {
		os.Exit(run(untilSignal(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
	}
	os.Exit(m.Run())
}

// result is the outcome of a finished command.
type result struct {
	code     int
	out, err string
}

// call runs one command line to its end.
func call(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, streams{strings.NewReader(stdin), &out, &errs})
	return result{code, out.String(), errs.String()}
}

// ok fails the test unless the command succeeded, and returns its output.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	return r.out
}

// refused fails the test unless the command failed with this exit code and one line that contains
// the text.
func (r result) refused(t *testing.T, code int, text string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d: %s", r.code, code, r.err)
	}
	if !strings.Contains(r.err, text) || strings.Count(r.err, "\n") != 1 || !strings.HasPrefix(r.err, "guildhall: ") {
		t.Errorf("the error is %q, want one line with %q", r.err, text)
	}
}

// process is a running guildhall.
type process struct {
	*exec.Cmd
	ended    chan struct{} // closed when the process has ended and all its output has been read
	out, err stream
}

// stream is an output stream of a process. A test may change how it is read.
type stream struct {
	testutil.Log
	reader atomic.Pointer[func() error] // called before each read; an error stops reading
}

func (s *stream) Write(text []byte) (int, error) {
	if read := s.reader.Load(); read != nil {
		if err := (*read)(); err != nil {
			return 0, err
		}
	}
	return s.Log.Write(text)
}

// begin starts guildhall in dir with further environment variables. It is killed at the end of the
// test if it still runs.
func begin(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	p.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GUILDHALL_") {
			p.Env = append(p.Env, v)
		}
	}
	p.Env = append(append(p.Env, asProgram+"=1"), env...)
	p.Stdout, p.Stderr = &p.out, &p.err
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		if t.Failed() {
			out, log := p.text()
			t.Logf("guildhall %s\n%.2000s\n%s", strings.Join(args, " "), out, log[max(0, len(log)-2000):])
		}
	})
	return p
}

func (p *process) text() (out, errs string) {
	return p.out.String(), p.err.String()
}

// says waits until the process has written the text.
func (p *process) says(t *testing.T, text string) {
	t.Helper()
	testutil.Eventually(t, "guildhall says "+text, func() bool {
		ended := false
		select {
		case <-p.ended:
			ended = true
		default:
		}
		out, errs := p.text()
		said := strings.Contains(out, text) || strings.Contains(errs, text)
		if ended && !said {
			t.Fatalf("guildhall has ended without saying %q: %s", text, errs)
		}
		return said
	})
}

// exits waits for the end and returns the exit code.
func (p *process) exits(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("guildhall still runs after %v", within)
		return 0
	}
}

const guild = "402187554310020096"

// withGuild returns a database with one guild, without members.
func withGuild(t *testing.T) string {
	t.Helper()
	d := dbtest.New(t)
	if _, err := guildfile.Import(t.Context(), d.DB, strings.NewReader(`{"record":"guild","id":"`+guild+`"}`), nil); err != nil {
		t.Fatal(err)
	}
	return d.URL
}

func TestUsage(t *testing.T) {
	t.Parallel()

	t.Run("every command answers --help", func(t *testing.T) {
		t.Parallel()
		all := []string{"", "token", "webhook", "restore"}
		for _, command := range commandLine(t).Leaves(true) {
			all = append(all, command.Path())
		}
		for _, command := range all {
			out := call(t, "", append(strings.Fields(command), "--help")...).ok(t)
			if !strings.Contains(out, "Usage: guildhall "+command) {
				t.Errorf("%s --help prints %q", command, out)
			}
			if begins := strings.HasSuffix(out, whereToBegin); begins != (command == "") {
				t.Errorf("%s --help ends with where to begin: %t", command, begins)
			}
		}
	})
	t.Run("wrong usage is exit code 2 and one line", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ line, text string }{
			{"fly", "fly"},
			{"serve --no-such-flag", "no-such-flag"},
			{"token create --name x --all-scopes", "--guild"},
			{"token create --guild 1 --name x", "--scope"},
			{"token create --guild 1 --name x --all-scopes --scope cases:read", "can't be used together"},
			{"token create --guild 1 --name x --all-scopes --expires-in soon", "soon"},
			{"token revoke", "id"},
			{"restore check", "--since"},
			{"restore check --since yesterday", "yesterday"},
			{"restore check --since 2999-01-01T00:00:00Z", "lies ahead"},
			{"token revoke --all", "--guild"},
			{"token revoke --guild 1", "--all"},
			{"token revoke --every-guild", "--all"},
			{"token revoke x --all --guild 1", "not both"},
			{"token revoke --all --guild 1 --every-guild", "can't be used together"},
			{"token revoke --all --guild=", "says nothing"},
			{"webhook add --guild 1 --url https://example.com", "--event"},
			{"webhook deliveries x --status lost", "lost"},
			{"openapi --version 2", "3.0"},
			{"import", "file"},
		} {
			call(t, "", strings.Fields(c.line)...).refused(t, 2, c.text)
		}
	})
	t.Run("without a database the commands say what to do", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for _, line := range []string{
			"migrate", "token list --guild 1", "token revoke x", "token create --guild 1 --name x --all-scopes",
			"webhook list --guild 1", "webhook remove x", "import -", "export --guild 1",
		} {
			call(t, "", append(strings.Fields(line), "--dir", dir)...).refused(t, 1, "GUILDHALL_DATABASE_URL")
		}
	})
	t.Run("an error does not repeat the database's password", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{"postgres://u:hunter2@127.0.0.1:1/x", "mysql://u:hunter2@h/x", "postgres://u:hunter2@h:port/x"} {
			r := call(t, "", "migrate", "--database-url", url)
			if r.code != 1 || strings.Contains(r.err, "hunter2") {
				t.Errorf("%d: %s", r.code, r.err)
			}
		}
	})
	t.Run("a database that cannot be reached is said to be away", func(t *testing.T) {
		t.Parallel()
		for _, command := range [][]string{{"token", "list", "--guild", "1"}, {"serve", "--secret-key", someKey(t), "--discord-url", "off"}} {
			call(t, "", append(command, "--database-url", "postgres://u:p@127.0.0.1:1/x")...).refused(t, 1, "the database does not answer: ")
		}
	})
}

// silent is an input that stays open and never provides data.
type silent struct {
	once  sync.Once
	asked chan struct{}
	ended <-chan struct{}
}

func (s *silent) Read([]byte) (int, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.ended
	return 0, io.EOF
}

// A command that waits for input ends at the first signal, with an error that says so.
func TestACommandThatWaitsForItsInputEndsWhenItIsTold(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	for _, args := range [][]string{
		{"import", "-", "--database-url", url},
		{"import", "--update", "-", "--database-url", url},
		{"guild", "remove", "--guild", guild, "--database-url", url},
		{"convert", "--from", "mee6", "--guild", guild, "-"},
	} {
		ctx, tell := context.WithCancelCause(t.Context())
		in := &silent{asked: make(chan struct{}), ended: t.Context().Done()}
		done := make(chan result, 1)
		go func() {
			var out, errs bytes.Buffer
			code := run(ctx, args, streams{in, &out, &errs})
			done <- result{code, out.String(), errs.String()}
		}()
		<-in.asked
		tell(errors.New("interrupt signal received"))
		select {
		case r := <-done:
			if r.code != 1 || r.out != "" || !strings.Contains(r.err, "interrupt signal received") {
				t.Errorf("guildhall %q: exit code %d: %s", args, r.code, r.err)
			}
		case <-time.After(time.Minute):
			t.Errorf("guildhall %q goes on waiting", args)
		}
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	if out := call(t, "", "openapi").ok(t); !strings.Contains(out, "\nopenapi: 3.0.3\n") {
		t.Errorf("openapi prints %.40q", out)
	}
	if out := call(t, "", "openapi", "--version", "3.1").ok(t); !strings.Contains(out, "\nopenapi: 3.1.") {
		t.Errorf("openapi --version 3.1 prints %.40q", out)
	}
	var v map[string]string
	if err := json.Unmarshal([]byte(call(t, "", "version", "--json").ok(t)), &v); err != nil || v["commit"] == "" {
		t.Errorf("version prints %v: %v", v, err)
	}
	line := "guildhall " + v["version"] + " (contract " + v["contract"] + ", commit "
	out := call(t, "", "version").ok(t)
	if !strings.HasPrefix(out, line) || strings.Count(out, "\n") != 1 || !strings.HasSuffix(out, v["go"]+")\n") {
		t.Errorf("version prints %q", out)
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "template0")
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--database-url", url, "--secret-key", key, "--discord-url", "off"}
	call(t, "", serve...).refused(t, 1, "guildhall migrate")
	call(t, "", "token", "list", "--guild", "1", "--database-url", url).refused(t, 1, "guildhall migrate")

	call(t, "", "migrate", "--database-url", url).ok(t)
	call(t, "", "migrate", "--database-url", url).ok(t)
	if _, err := db.CheckSchema(t.Context(), url); err != nil {
		t.Error(err)
	}

	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.ExecContext(t.Context(), `
		INSERT INTO goose_db_version (version_id, is_applied, sha256) VALUES (999999, true, '')`); err != nil {
		t.Fatal(err)
	}
	// A program that is rolled back, or restarted during a rollout, serves on the newer schema and
	// logs that once.
	p := begin(t, t.TempDir(), nil, append(serve, "--http-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")...)
	p.says(t, `"msg":"ready"`)
	if _, log := p.text(); strings.Count(log, "newer schema") != 1 {
		t.Errorf("about the newer schema it says %s", log)
	}
}

// Commands that write, such as import, find out whether the tables are distributed and use the
// right form of statements.
func TestCommandsFindOutWhereTablesLie(t *testing.T) {
	t.Parallel()
	d, _, err := connection{databaseURL: databaseURL{dbtest.New(t).URL}}.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Distributed() != dbtest.Coordinator(t) {
		t.Errorf("the tables count as distributed: %t", d.Distributed())
	}
}

// A migration holds a session-level lock, which a pooler could hand to another client, so migrate
// uses the direct connection.
func TestOnlyACoordinatorDistributes(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "template0")
	call(t, "", "migrate", "--distribute", "--database-url", url).refused(t, 1, "distribute the tables: this is plain Postgres")
	if _, err := db.CheckSchema(t.Context(), url); err == nil {
		t.Error("it has migrated the database all the same")
	}
}

func TestDistributedTablesAreFoundOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set         string
		distributed bool
		want, says  string
	}{
		{"", false, "", ""},
		{"", true, "on", ""},
		{"on", true, "on", ""},
		{"off", false, "off", ""},
		{"off", true, "off", "is off, but the tables"},
		{"on", false, "on", "are not distributed"},
	} {
		s := Settings{DBDistributed: c.set}
		note, err := s.distribution(c.distributed)
		if err != nil {
			note = err.Error()
		}
		if s.DBDistributed != c.want || !strings.Contains(note, c.says) || (note != "") != (c.says != "") ||
			(err != nil) != (c.distributed && c.set == "off") {
			t.Errorf("%q, distributed %t: %q, %q, %v", c.set, c.distributed, s.DBDistributed, note, err)
		}
	}
}

func TestMigrateGoesTheDirectWay(t *testing.T) {
	t.Parallel()
	direct := dbtest.Empty(t, "template0")
	call(t, "", "migrate", "--database-url", "postgres://u@127.0.0.1:1/x", "--listen-url", direct).ok(t)
	if _, err := db.CheckSchema(t.Context(), direct); err != nil {
		t.Error(err)
	}
	gone := "postgres://u@" + testutil.Refusing(t) + "/x"
	call(t, "", "migrate", "--database-url", direct, "--listen-url", gone).refused(t, 1, "over GUILDHALL_LISTEN_URL: ")
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	call(t, "", "serve", "--migrate", "--secret-key", key, "--discord-url", "off", "--database-url", direct, "--listen-url", gone).
		refused(t, 1, "over GUILDHALL_LISTEN_URL: ")
}

func TestTokens(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	create := func(args ...string) result {
		return call(t, "", append([]string{"token", "create", "--database-url", url, "--guild", guild, "--name", "bot", "--json"}, args...)...)
	}
	object := func(t *testing.T, text string) (o map[string]any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return o
	}

	t.Run("create prints one object with the token", func(t *testing.T) {
		t.Parallel()
		o := object(t, create("--scope", "cases:read, economy:write", "--scope", "cases:read", "--allow-ip", "10.0.0.0/8 192.0.2.1",
			"--expires-in", "90d").ok(t))
		for _, name := range []string{"id", "token", "preview", "guild_id", "name", "scopes", "ip_allowlist", "expires_at", "created_at"} {
			if o[name] == nil {
				t.Errorf("%s is missing", name)
			}
		}
		if len(o) != 11 { // nine members and two limits that are null
			t.Errorf("members: %v", o)
		}
		token, _ := o["token"].(string)
		if !strings.HasPrefix(token, "svc_live_") || len(token) != len("svc_live_")+43 {
			t.Errorf("token %q", token)
		}
		if scopes, _ := json.Marshal(o["scopes"]); string(scopes) != `["cases:read","economy:write"]` {
			t.Errorf("scopes %s", scopes)
		}
		if allow, _ := json.Marshal(o["ip_allowlist"]); string(allow) != `["10.0.0.0/8","192.0.2.1"]` {
			t.Errorf("allowlist %s", allow)
		}
	})
	t.Run("create takes the environment", func(t *testing.T) {
		t.Parallel()
		o := object(t, create("--all-scopes", "--env", "test").ok(t))
		if token, _ := o["token"].(string); !strings.HasPrefix(token, "svc_test_") {
			t.Errorf("token %q", token)
		}
		if o["expires_at"] != nil {
			t.Errorf("expires at %v", o["expires_at"])
		}
		if allow, _ := json.Marshal(o["ip_allowlist"]); string(allow) != `[]` {
			t.Errorf("allowlist %s", allow)
		}
	})
	t.Run("create refuses what cannot be", func(t *testing.T) {
		t.Parallel()
		create("--scope", "cases:fly").refused(t, 2, "cases:fly")
		create("--all-scopes", "--allow-ip", "somewhere").refused(t, 2, "somewhere")
		create("--all-scopes", "--guild", "404").refused(t, 1, "404")
	})
	t.Run("revoke is final and seen in the list, which shows no token", func(t *testing.T) {
		t.Parallel()
		o := object(t, create("--all-scopes", "--name", "to revoke").ok(t))
		id, _ := o["id"].(string)
		token, _ := o["token"].(string)
		call(t, "", "token", "revoke", "--database-url", url, id).ok(t)
		call(t, "", "token", "revoke", "--database-url", url, "unknown").refused(t, 1, "No such token.")
		for _, args := range [][]string{{}, {"--json"}} {
			out := call(t, "", append([]string{"token", "list", "--database-url", url, "--guild", guild}, args...)...).ok(t)
			if !strings.Contains(out, id) || strings.Contains(out, token) {
				t.Errorf("list prints %s", out)
			}
		}
		var all []map[string]any
		list := call(t, "", "token", "list", "--json", "--database-url", url, "--guild", guild).ok(t)
		if err := json.Unmarshal([]byte(list), &all); err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if revoked := l["revoked_at"] != nil; revoked != (l["id"] == id) {
				t.Errorf("revoked: %v", l)
			}
		}
	})
}

// A token's limits are set when it is created, are printed, and can be changed without a new
// secret.
func TestTokenLimits(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	var made created
	out := call(t, "", "token", "create", "--database-url", url, "--guild", guild, "--name", "n", "--all-scopes",
		"--rate-read", "1200/60s", "--json").ok(t)
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.RateRead == nil || *made.RateRead != "1200/1m" || made.RateWrite != nil {
		t.Fatalf("made %s, %v", out, err)
	}
	limit := func(args ...string) string {
		return call(t, "", append([]string{"token", "limit", made.ID, "--database-url", url, "--json"}, args...)...).ok(t)
	}
	for _, c := range []struct{ args, want string }{
		{"", `"rate_read": "1200/1m"` + ",\n  " + `"rate_write": null`},
		{"--rate-write=off", `"rate_read": "1200/1m"` + ",\n  " + `"rate_write": "off"`},
		{"--rate-read=default", `"rate_read": null` + ",\n  " + `"rate_write": "off"`},
	} {
		var args []string
		if c.args != "" {
			args = append(args, c.args)
		}
		for _, a := range [][]string{args, nil} { // the changed limits, and the limits as read afterwards
			if out := limit(a...); !strings.Contains(out, c.want) {
				t.Errorf("token limit %v prints %s, want %s", a, out, c.want)
			}
		}
	}
	call(t, "", "token", "limit", made.ID, "--database-url", url, "--rate-read", "many").refused(t, 2, "is not a rate limit")
}

// After a break-in or a restored backup, every token and key can be revoked.
func TestAllTokensAreRevoked(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url)
	others := []string{s.token, token(t, url)}
	for _, secret := range others {
		if res, body := s.pay(t, secret); res.StatusCode != 200 {
			t.Fatalf("%d %s", res.StatusCode, body)
		}
	}
	revoke := func(args ...string) result {
		return call(t, "", append([]string{"token", "revoke", "--all", "--database-url", url}, args...)...)
	}
	revoke("--guild", "404").refused(t, 1, "no guild 404")
	if out := revoke("--guild", guild).ok(t); !strings.Contains(out, "Revoked 2 tokens.") {
		t.Error(out)
	}
	for _, secret := range others {
		if res, body := s.pay(t, secret); res.StatusCode != 401 || !strings.Contains(body, "invalid_token") {
			t.Errorf("%d %s", res.StatusCode, body)
		}
	}
	var one struct{ ID, Token string }
	if err := json.Unmarshal([]byte(call(t, "", "token", "create", "--database-url", url, "--guild", guild, "--name", "one",
		"--all-scopes", "--json").ok(t)), &one); err != nil {
		t.Fatal(err)
	}
	alone := []string{"token", "revoke", one.ID, "--database-url", url, "--guild"}
	call(t, "", append(alone, "404")...).refused(t, 1, "No such token.")
	call(t, "", append(alone, guild)...).ok(t)
	token(t, url)
	if out := revoke("--every-guild", "--json").ok(t); strings.Join(strings.Fields(out), "") != `{"revoked":1}` {
		t.Error(out)
	}
}

func TestPort(t *testing.T) {
	t.Parallel()
	const file = `{"record":"guild","id":"77","name":"Port"}
{"record":"wallet","guild_id":"77","user_id":"1","balance":5}
{"record":"level","guild_id":"77","user_id":"1","total_xp":255}
`
	url, other := dbtest.New(t).URL, dbtest.New(t).URL

	t.Run("an error names the line and nothing is kept", func(t *testing.T) {
		t.Parallel()
		empty := dbtest.New(t).URL
		call(t, file+`{"record":"wallet","guild_id":"77","user_id":"2","balance":-1}`+"\n", "import", "-", "--database-url", empty).
			refused(t, 1, "line 4")
		call(t, "", "export", "--guild", "77", "--database-url", empty).refused(t, 1, "77")
	})
	t.Run("an export imports to the same export", func(t *testing.T) {
		t.Parallel()
		call(t, file, "import", "-", "--database-url", url).ok(t)
		path := t.TempDir() + "/guild.ndjson"
		call(t, "", "export", "--guild", "77", path, "--database-url", url).ok(t)
		first, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		call(t, "", "import", path, "--database-url", other).ok(t)
		second := call(t, "", "export", "--guild", "77", "--database-url", other).ok(t)
		changed := regexp.MustCompile(`"updated_at":"[^"]*"`) // the import sets updated_at
		if a, b := changed.ReplaceAllString(string(first), ""), changed.ReplaceAllString(second, ""); a != b || len(a) == len(first) {
			t.Errorf("the second export differs:\n%s\n%s", first, second)
		}
	})
	t.Run("a failed export leaves no file", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		call(t, "", "export", "--guild", "404", dir+"/x", "--database-url", dbtest.New(t).URL).refused(t, 1, "404")
		left, err := os.ReadDir(dir)
		if err != nil || len(left) != 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	t.Run("a missing file is said to be missing", func(t *testing.T) {
		t.Parallel()
		call(t, "", "import", "/no/such/file", "--database-url", url).refused(t, 1, "/no/such/file")
	})
}

// RELIABILITY.md, Operation.
func TestRedact(t *testing.T) {
	t.Parallel()
	secret := "svc_live_" + strings.Repeat("aB3_-", 9)[:43]
	key := "bot_test_" + strings.Repeat("cD4-_", 9)[:43]
	var out bytes.Buffer
	for _, format := range []string{"debug,json", "debug,text"} {
		log, err := logging.New(&out, format)
		if err != nil {
			t.Fatal(err)
		}
		log.Error("failed", "path", "/x/"+secret, "error", errors.New("dial postgres://u:hunter2@h/x: whsec_c2VjcmV0c2VjcmV0"))
		log.WithGroup("g").With("header", "Bearer "+secret).Info("x")
		log.Info("x", "path", "/x/"+key)
	}
	for _, s := range []string{secret, key, "hunter2", "c2VjcmV0"} {
		if strings.Contains(out.String(), s) {
			t.Errorf("the log holds %s: %s", s, out.String())
		}
	}
	for _, wrong := range []string{"", "info", "loud,json", "info,xml"} {
		if _, err := logging.New(&out, wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
