package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/output"
)

// fullDisk is a writer without space.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command that cannot write its output fails, but not with the exit code for wrong usage.
func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	for _, line := range []string{
		"", "--help", "token --help", "token list --help", "version", "openapi", "guild list --database-url " + url,
		"token list --json --guild " + guild + " --database-url " + url, "export --guild " + guild + " --database-url " + url,
	} {
		var errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line), streams{strings.NewReader(""), fullDisk{}, &errs})
		result{code, "", errs.String()}.refused(t, 1, syscall.ENOSPC.Error())
		if strings.Contains(errs.String(), "try --help") {
			t.Errorf("%q is called wrong usage: %s", line, errs.String())
		}
	}
}

// Otherwise dev would go on serving, and nobody would know its token. RELIABILITY.md, Operation.
func TestDevEndsWhereItsGreetingCannotBeWritten(t *testing.T) {
	t.Parallel()
	var errs bytes.Buffer
	dir, url := t.TempDir(), dbtest.Empty(t, "")
	code := run(t.Context(), []string{
		"dev", "--https-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		"--dir", dir, "--database-url", url,
	}, streams{strings.NewReader(""), fullDisk{}, &errs})
	if code != 1 || !strings.HasSuffix(errs.String(), "guildhall: "+syscall.ENOSPC.Error()+"\n") {
		t.Errorf("it ends with %d: %s", code, errs.String())
	}
	if n := dbtest.Value[int](t, dbtest.Open(t, url).DB, `
		SELECT count(*) FROM api_tokens WHERE name = $1 AND revoked_at IS NULL`, startedByDev); n != 0 {
		t.Errorf("%d tokens work that nobody has seen", n)
	}
	if _, err := os.Stat(filepath.Join(dir, envFile)); !os.IsNotExist(err) {
		t.Errorf("a revoked token is left for the shell: %v", err)
	}
}

// showsOnce lists commands that show a secret once, on a database with the guild and an endpoint.
func showsOnce(key, endpoint string) map[string]string {
	return map[string]string{
		"token create":          "--guild " + guild + " --name x --all-scopes",
		"bot-key create":        "--name x",
		"webhook add":           "--guild " + guild + " --url https://192.0.2.1/ --webhook-allow 192.0.2.0/24 --all-events --secret-key " + key,
		"webhook rotate-secret": endpoint + " --secret-key " + key,
		"dashboard link":        "--guild " + guild + " --dashboard-url https://desk.example",
	}
}

// secrets is everything that a secret opens, as text.
const secrets = `
	SELECT concat((SELECT string_agg(t::text, ' ') FROM api_tokens t), (SELECT string_agg(k::text, ' ') FROM bot_keys k),
		(SELECT string_agg(e::text, ' ') FROM webhook_endpoints e), (SELECT string_agg(l::text, ' ') FROM dashboard_links l))`

// unreadOutputs returns standard outputs that nobody reads, by what a command says of them.
func unreadOutputs(t *testing.T) map[string]*os.File {
	t.Helper()
	reader, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(pipe.Close(), null.Close()) })
	return map[string]*os.File{"write /dev/stdout: broken pipe": pipe, "standard output is closed or leads to /dev/null": null}
}

// A secret that was not shown does not work: a command that cannot write the secret changes nothing.
// RELIABILITY.md, Operation.
func TestASecretThatCannotBeShownIsNotKept(t *testing.T) {
	t.Parallel()
	raw, key := withGuild(t), someKey(t)
	add := []string{"webhook", "add", "--json", "--database-url", raw}
	add = append(add, strings.Fields(showsOnce(key, "")["webhook add"])...)
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(call(t, "", add...).ok(t)), &e); err != nil {
		t.Fatal(err)
	}
	d := dbtest.Open(t, raw)
	before := dbtest.Value[string](t, d.DB, secrets)
	for command, args := range showsOnce(key, e.ID) {
		line := strings.Fields(command + " " + args + " --database-url " + raw)
		for _, line := range [][]string{line, append(line, "--json")} {
			var errs bytes.Buffer
			code := run(t.Context(), line, streams{strings.NewReader(""), fullDisk{}, &errs})
			result{code, "", errs.String()}.refused(t, 1, "nothing was kept: the secret could not be written: "+syscall.ENOSPC.Error())
		}
		for says, out := range unreadOutputs(t) {
			var errs bytes.Buffer
			p := exec.CommandContext(t.Context(), os.Args[0], line...)
			p.Env, p.Stdout, p.Stderr = append(os.Environ(), asProgram+"=1"), out, &errs
			_ = p.Run() // the exit code is checked below
			result{p.ProcessState.ExitCode(), "", errs.String()}.refused(t, 1, "nothing was kept: the secret could not be written: "+says)
		}
		if after := dbtest.Value[string](t, d.DB, secrets); after != before {
			t.Errorf("%s has kept %s, want %s", command, after, before)
		}
	}
}

// A command whose change is made says so, though its result cannot be written.
func TestAChangeWhoseResultCannotBeWrittenIsReported(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	for _, line := range []string{
		"stream put x --event case.created", "stream delete x", "token revoke --all --every-guild", "dashboard end --all",
		"dashboard link --revoke", "forget --user 1 --every-guild", "guild remove --yes --guild " + guild, "guild restore --guild " + guild,
		"migrate",
	} {
		var errs bytes.Buffer
		code := run(t.Context(), strings.Fields(line+" --database-url "+url), streams{strings.NewReader(""), fullDisk{}, &errs})
		result{code, "", errs.String()}.refused(t, 1, "it is done, but the result could not be written: "+syscall.ENOSPC.Error())
	}
	var errs bytes.Buffer
	file := strings.NewReader(`{"record":"guild","id":"5"}`)
	code := run(t.Context(), []string{"import", "-", "--database-url", url}, streams{file, fullDisk{}, &errs})
	result{code, "", errs.String()}.refused(t, 1, "it is done, but the result could not be written: "+syscall.ENOSPC.Error())
}

// hostile is a text with characters that attack a terminal: escape sequences, a cleared line,
// reversed text, invisible text.
const hostile = "a\x1b[2Jb\u009b31mc\u009d0;x\u202ed\u200be\x7ff\rg\nh\ti\U000e0041\ufeff\u2028"

func printable(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (!unicode.IsPrint(r) || r == 0x34f) {
			t.Errorf("%s prints %U: %q", what, r, text)
			return
		}
	}
}

// RELIABILITY.md, Operation.
func TestNothingPrintedCommandsTheTerminal(t *testing.T) {
	t.Parallel()
	t.Run("in tables, sentences and JSON", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		if err := output.Table(&out, [][]string{{"NAME"}, {hostile}, {"next"}}); err != nil {
			t.Fatal(err)
		}
		if strings.Count(out.String(), "\n") != 3 {
			t.Errorf("a name forges rows: %q", out.String())
		}
		if err := output.Say(&out, "name %s", hostile); err != nil {
			t.Fatal(err)
		}
		printable(t, "a table or a sentence", out.String())
		out.Reset()
		if err := output.JSON(&out, map[string]string{"name": hostile}); err != nil {
			t.Fatal(err)
		}
		printable(t, "JSON", out.String())
		var back map[string]string
		if err := json.Unmarshal(out.Bytes(), &back); err != nil || back["name"] != hostile {
			t.Errorf("JSON says %q (%v), want the text as it was", back["name"], err)
		}
	})
	t.Run("in errors about a file", func(t *testing.T) {
		t.Parallel()
		url := dbtest.New(t).URL
		for _, file := range []string{
			`{"record":"guild","id":"5","x\u001b[2J":1}`,
			`{"record":"gu\u009bild","id":"5"}`,
			"{\"record\":\"guild\",\"id\":\"5\",\"\u202e\":1}",
		} {
			r := call(t, file+"\n", "import", "-", "--database-url", url)
			r.refused(t, 1, "line 1")
			printable(t, "an error", r.err)
		}
		r := call(t, "", "token", "revoke", hostile, "--database-url", url)
		printable(t, "an error", r.err)
	})
	t.Run("in an export that a terminal shows, however it is cut", func(t *testing.T) {
		t.Parallel()
		text := "{\"name\":\"Ä\u009b\"}\n{\"name\":\"\u202e😀\"}\n"
		for size := 1; size < len(text); size++ {
			var out bytes.Buffer
			w := output.NewTerminal(&out)
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if _, err := w.Write(rest[:min(size, len(rest))]); err != nil {
					t.Fatal(err)
				}
			}
			if want := `{"name":"Ä\u009b"}` + "\n" + `{"name":"\u202e😀"}` + "\n"; out.String() != want {
				t.Fatalf("in pieces of %d: %q", size, out.String())
			}
		}
	})
}

func TestAFlagThatSaysNothingIsWrongUsage(t *testing.T) {
	t.Parallel()
	for _, line := range [][]string{
		{"token", "create", "--guild", "1", "--name", "x", "--all-scopes", "--allow-ip", ""},
		{"token", "create", "--guild", "1", "--name", "x", "--all-scopes", "--allow-ip", " , "},
		{"token", "create", "--guild", "1", "--name", "x", "--all-scopes", "--allow-ip="},
		{"token", "create", "--guild", "1", "--name", "x", "--all-scopes", "--allow-ip", "10.0.0.1", "--allow-ip", ""},
		{"token", "create", "--guild", "1", "--name", "x", "--all-scopes", "--expires-in", ""},
		{"token", "create", "--guild", "1", "--name", "x", "--scope", ""},
		{"token", "create", "--guild", "1", "--name", "x", "--scope", ",", "--scope", "cases:read"},
		{"token", "create", "--guild", "1", "--name", "", "--all-scopes"},
		{"token", "create", "--guild", "", "--name", "x", "--all-scopes"},
		{"token", "create", "--guild", "1", "--name", "x", "--all-scopes", "--env", ""},
		{"token", "list", "--guild", ""},
		{"token", "revoke", ""},
		{"webhook", "add", "--guild", "1", "--url", "https://example.com", "--event", ""},
		{"webhook", "add", "--guild", "1", "--url", "https://example.com", "--event", " ,\n"},
		{"webhook", "add", "--guild", "1", "--url", "https://example.com", "--all-events", "--webhook-allow", ""},
		{"webhook", "deliveries", "x", "--status", ""},
		{"serve", "--trusted-proxies", ""},
		{"serve", "--webhook-allow", ","},
		{"serve", "--database-url", ""},
		{"serve", "--roles", ""},
		{"serve", "--ops-listen", ""},
		{"dev", "--dir", ""},
		{"export", "--guild", "1", ""},
		{"import", ""},
	} {
		r := call(t, "", line...)
		r.refused(t, 2, "")
		if t.Failed() {
			t.Fatalf("guildhall %q", line)
		}
	}
}

func TestNamesHoldNoControlCharacters(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	for _, name := range []string{"a\x1b[2J", "two\nlines", "tab\there", "\u009b", "del\x7f", "line\u2028separator"} {
		call(t, "", "token", "create", "--database-url", url, "--guild", guild, "--all-scopes", "--name", name).refused(t, 2, "control character")
		record, err := json.Marshal(map[string]string{"record": "guild", "id": "5", "name": name})
		if err != nil {
			t.Fatal(err)
		}
		call(t, "\n"+string(record)+"\n", "import", "-", "--database-url", url).
			refused(t, 1, "line 2: guild: name must not hold control characters")
	}
}

// RELIABILITY.md, Operation.
func TestAnExportIsItsOwnersAlone(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/guild.ndjson"
	call(t, "", "export", "--guild", guild, path, "--database-url", withGuild(t)).ok(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the export has mode %v, %v", info.Mode(), err)
	}
}

// An export to a symbolic link writes the target and keeps the link. A link whose target directory
// does not exist is reported.
func TestAnExportFollowsALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link, target, nowhere := filepath.Join(dir, "newest"), filepath.Join(dir, "guild.ndjson"), filepath.Join(dir, "nowhere")
	for path, text := range map[string]string{link: filepath.Base(target), nowhere: filepath.Join(dir, "none", "guild.ndjson")} {
		if err := os.Symlink(text, path); err != nil {
			t.Fatal(err)
		}
	}
	url := withGuild(t)
	for range 2 { // once into a new file, once into an existing one
		call(t, "", "export", "--guild", guild, link, "--database-url", url).ok(t)
		text, err := os.ReadFile(target)
		is, notLink := os.Readlink(link)
		if err != nil || notLink != nil || is != filepath.Base(target) || !strings.HasPrefix(string(text), `{"record":"guild"`) {
			t.Errorf("%q, %v; the link leads to %q, %v", text, err, is, notLink)
		}
		if err := os.WriteFile(target, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	call(t, "", "export", "--guild", guild, nowhere, "--database-url", url).refused(t, 1, "none")
}

// againDoer calls the function of a unit a second time, as DB.Do does after a deadlock.
type againDoer struct{}

func (againDoer) Do(ctx context.Context, fn func(ctx context.Context, tx *db.Tx) error) error {
	if err := fn(ctx, nil); err != nil {
		return err
	}
	return fn(ctx, nil)
}

// A secret is printed once at most, and the error says that the printed secret does not work.
// RELIABILITY.md, Operation.
func TestASecretIsNotPrintedTwice(t *testing.T) {
	t.Parallel()
	printed := 0
	err := showOnce(t.Context(), againDoer{}, func(context.Context, db.Doer) error {
		printed++
		return nil
	})
	if printed != 1 || err == nil || !strings.HasPrefix(err.Error(), "the printed secret does not work") {
		t.Errorf("printed %d times, %v", printed, err)
	}
}
