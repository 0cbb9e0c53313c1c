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

// firstCalls returns the blocks of README's section with the first calls, and those for a shell: curl,
// TypeScript and Python.
func firstCalls(t *testing.T) (blocks []block, lines []string) {
	t.Helper()
	blocks = codeOf(t, "README.md", "The first call")
	for _, b := range blocks {
		if b.language == "sh" {
			lines = append(lines, b.text)
		}
	}
	if len(lines) != 3 {
		t.Fatalf("README.md has %d blocks for a shell", len(lines))
	}
	return blocks, lines
}

// README's first calls work when copied, line by line, in dev's directory.
func TestTheFirstCallsOfTheReadmeWork(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "curl")
	blocks, lines := firstCalls(t)
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
	t.Run("Python", func(t *testing.T) {
		t.Parallel()
		testutil.Program(t, "python3")
		receives(t, "python", "receiver.py", "exec python3 receiver.py")
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		main, err := filepath.Abs("../..") // run from this module, which has the library
		if err != nil {
			t.Fatal(err)
		}
		receives(t, "go", "main.go", `file=$PWD/main.go; (cd '`+main+`' && go build -o "${file%.go}" "$file"); exec ./main`)
	})
}

// receives runs a receiver of the documents and checks what it accepts.
func receives(t *testing.T, language, file, run string) {
	t.Helper()
	dir, port := t.TempDir(), freePort(t)
	text := one(t, codeOf(t, "docs/integrate/webhooks.md", ""), language)
	if strings.Count(text, "9000") != 1 {
		t.Fatalf("the receiver names its port %d times", strings.Count(text, "9000"))
	}
	writeFile(t, dir, file, strings.Replace(text, "9000", port, 1))
	verifies(t, dir, run, "http://127.0.0.1:"+port)
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
