package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// codeOf returns the code blocks of a document's section in order, or of the whole document.
func codeOf(t *testing.T, file, section string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	blocks, _ := blocksOf(string(text))
	for _, b := range blocks {
		if section == "" || b.section == section {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no blocks in a section %q", file, section)
	}
	return all
}

// one returns the block in a language.
func one(t *testing.T, blocks []block, language string) string {
	t.Helper()
	for _, b := range blocks {
		if b.language == language {
			return b.text
		}
	}
	t.Fatalf("there is no %s", language)
	return ""
}

// shell runs lines in a shell, one after the other.
func shell(t *testing.T, dir string, lines ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute) // downloading packages may be slow on a busy machine
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-ec", strings.Join(lines, "\n"))
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(lines, "\n"), err, out)
	}
	return string(out)
}

// started starts guildhall dev in a new directory with a new database.
func started(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	begin(t, dir, anyPorts, "dev", "--database-url", dbtest.New(t).URL).says(t, "Ctrl-C stops everything")
	return dir
}

func wantMatch(t *testing.T, what, out, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(out) {
		t.Errorf("%s prints %s", what, out)
	}
}

// README's first calls work when copied, line by line, in dev's directory.
func TestTheFirstCallsOfTheReadmeWork(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "curl")
	blocks := codeOf(t, "README.md", "The first call")
	var lines []string
	for _, b := range blocks {
		if b.language == "sh" {
			lines = append(lines, b.text)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("README.md has %d blocks for a shell", len(lines))
	}
	dir := started(t)
	out := shell(t, dir, lines[0])
	ids := regexp.MustCompile(`"\d{15,20}"`) // the demo's members are as old as its guild
	answer := strings.TrimSpace(strings.ReplaceAll(one(t, blocks, "json"), "\n ", ""))
	if !strings.Contains(ids.ReplaceAllString(out, "ID"), ids.ReplaceAllString(answer, "ID")) {
		t.Errorf("the leaderboard is %s, README.md shows %s", out, answer)
	}
	if again := shell(t, dir, lines[0]); again[strings.LastIndex(again, `{"data"`):] != out[strings.LastIndex(out, `{"data"`):] {
		t.Errorf("the write is answered %s, and again %s", out, again)
	}
	t.Run("Python", func(t *testing.T) {
		testutil.Program(t, "python3")
		writeFile(t, dir, "first.py", one(t, blocks, "python"))
		wantMatch(t, "Python", shell(t, dir, ". .guildhall/env", lines[2]), `^balance \d+\n$`)
	})
	t.Run("TypeScript", func(t *testing.T) {
		needNode(t)
		writeFile(t, dir, "first.mts", one(t, blocks, "ts"))
		wantMatch(t, "TypeScript", shell(t, dir, ". .guildhall/env", lines[1]), `\nbalance \d+\n$`)
		shell(t, dir, "npx tsc --noEmit --strict --module nodenext --target es2022 --skipLibCheck first.mts")
	})
}

// The documents' first programs work when copied, in a directory beside dev's. Running them again
// changes nothing.
func TestTheFirstProgramsWork(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "curl")
	const file = "docs/integrate/first-program.md"
	where, dir := one(t, codeOf(t, file, "Where and who"), "sh"), started(t)
	for _, c := range []struct{ section, language, file, again string }{
		{"TypeScript", "ts", "pay.mts", "npx tsx pay.mts"},
		{"Python", "python", "pay.py", ".venv/bin/python pay.py"},
		{"Go", "go", "main.go", "go run ."},
	} {
		t.Run(c.section, func(t *testing.T) {
			t.Parallel()
			if c.language == "ts" {
				needNode(t)
			} else {
				needRegistry(t, c.language)
			}
			blocks := codeOf(t, file, c.section)
			own := strings.Replace(where, "../first", "../"+c.language, 2)
			shell(t, dir, own) // the lines create the directory
			folder := filepath.Join(dir, "..", c.language)
			writeFile(t, folder, c.file, one(t, blocks, c.language))
			if c.language == "go" {
				writeFile(t, folder, "client.yaml", one(t, blocks, "yaml"))
			}
			first := lastLine(shell(t, dir, own, one(t, blocks, "sh")))
			wantMatch(t, c.section, first, `^balance \d+$`)
			if again := lastLine(shell(t, dir, own, c.again)); again != first {
				t.Errorf("it prints %q, and then %q", first, again)
			}
		})
	}
}

func lastLine(out string) string {
	out = strings.TrimSpace(out)
	return out[strings.LastIndex(out, "\n")+1:]
}

// needRegistry skips a test if the package registry of a language cannot be used.
func needRegistry(t *testing.T, language string) {
	t.Helper()
	ask := map[string][]string{
		"python": {"python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", t.TempDir(), "openapi-python-client==0.29.1"},
		"go":     {"go", "list", "-m", "github.com/oapi-codegen/oapi-codegen/v2@v2.8.2"},
	}[language]
	if out, err := exec.CommandContext(t.Context(), testutil.Program(t, ask[0]), ask[1:]...).CombinedOutput(); err != nil {
		testutil.Without(t, ask[0], string(out))
	}
}

// npmPing asks npm's registry once for all tests.
var npmPing = sync.OnceValues(func() ([]byte, error) {
	return exec.CommandContext(context.Background(), "npm", "ping").CombinedOutput()
})

// needNode skips a test without Node or its package registry.
func needNode(t *testing.T) {
	t.Helper()
	testutil.Program(t, "node")
	testutil.Program(t, "npm")
	if out, err := npmPing(); err != nil {
		testutil.Without(t, "npm", string(out))
	}
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The receivers in the documents accept signed requests and no others.
func TestTheReceiversOfTheDocumentsVerify(t *testing.T) {
	t.Parallel()
	blocks := codeOf(t, "docs/integrate/webhooks.md", "")
	for language, c := range map[string]struct{ file, run string }{
		"python": {"receiver.py", "exec python3 receiver.py"},
		"ts":     {"receiver.mts", "npm install --no-audit --no-fund tsx@4 >&2; exec node --import tsx receiver.mts"},
		"go":     {"main.go", "exec ./receiver"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir, port := t.TempDir(), freePort(t)
			text := one(t, blocks, language)
			if strings.Count(text, "9000") != 1 {
				t.Fatalf("the receiver names its port %d times", strings.Count(text, "9000"))
			}
			writeFile(t, dir, c.file, strings.Replace(text, "9000", port, 1))
			switch language {
			case "python":
				testutil.Program(t, "python3")
			case "ts":
				needNode(t)
			case "go": // run from this module, which has the library
				build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "receiver"), filepath.Join(dir, c.file))
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			verifies(t, dir, c.run, "http://127.0.0.1:"+port)
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// verifies sends a receiver signed, forged and outdated requests.
func verifies(t *testing.T, dir, run, url string) {
	t.Helper()
	const secret, body = "whsec_c2VjcmV0LW9mLXRoZS1kb2N1bWVudHMh", `{"id":"1","type":"ping"}`
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", run)
	var said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), "WEBHOOK_SECRET="+secret), &said, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	}()
	testutil.Eventually(t, "the receiver listens", func() bool {
		res, err := http.Get(url)
		if err == nil {
			_ = res.Body.Close()
		}
		return err == nil
	})
	now := time.Now()
	for _, c := range []struct {
		name, body, secret string
		at                 time.Time
		status             string
	}{
		{"signed", body, secret, now, "2"},
		{"forged", body, "whsec_YW5vdGhlci1zZWNyZXQ=", now, "4"},
		{"of another body", body + " ", secret, now, "4"},
		{"stale", body, secret, now.Add(-10 * time.Minute), "4"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		sign(req, c.secret, body, c.at)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if !strings.HasPrefix(strconv.Itoa(res.StatusCode), c.status) {
			t.Errorf("what is %s is answered %d", c.name, res.StatusCode)
		}
	}
}

// sign adds both signatures to a request, as the documents describe them.
func sign(req *http.Request, secret, body string, at time.Time) {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%s.%s", t, body)
	req.Header.Set("Service-Signature", "t="+t+",v1="+hex.EncodeToString(mac.Sum(nil)))
	signStandard(req, secret, body, at)
}

// signStandard signs in the Standard Webhooks scheme.
func signStandard(req *http.Request, secret, body string, at time.Time) {
	hook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(err) // cannot happen with this test's secret
	}
	signature, err := hook.Sign("msg_1", at, []byte(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("webhook-id", "msg_1")
	req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
}
