//go:build unix

package auth

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/testutil"
)

const nodeVariable = "GUILDHALL_TEST_NODE"

// TestNode is not a test but the node process of TestFrozenNode. For each token on its standard
// input it prints the resulting code and whether it read the cache or the database.
func TestNode(t *testing.T) {
	t.Parallel()
	url := os.Getenv(nodeVariable)
	if url == "" {
		t.SkipNow()
	}
	d, err := db.Open(db.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	n, err := NewTokens(Config{DB: d, URL: url, Env: "test"})
	if err != nil {
		t.Fatal(err)
	}
	run(t, n)
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		hits := testutil.Sample(t, n.met.hits)
		code := authCode(n, in.Text())
		fmt.Printf("answer %q %v\n", code, testutil.Sample(t, n.met.hits) > hits)
	}
}

// A node process is frozen with a token in its cache, and the token is revoked meanwhile. The
// requests that the node handles after waking up are refused. RELIABILITY.md, Tokens.
func TestFrozenNode(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(context.Background(), exe, "-test.run=^TestNode$", "-test.v")
	node.Env = append(os.Environ(), nodeVariable+"="+s.URL)
	node.Stderr = os.Stderr
	stdin, err := node.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := node.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := node.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
		if err := node.Wait(); err != nil {
			t.Errorf("the node ended with %v", err)
		}
	})
	lines := bufio.NewScanner(stdout)
	read := func() string {
		for lines.Scan() {
			if l := lines.Text(); l == "ready" || strings.HasPrefix(l, "answer ") {
				return l
			}
		}
		t.Fatalf("the node said no more: %v", lines.Err())
		return ""
	}
	ask := func(secret string) {
		if _, err := io.WriteString(stdin, secret+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(); got != "ready" {
		t.Fatal(got)
	}
	for range 3 {
		tok := s.token(t)
		testutil.Eventually(t, "the node finds the token in memory", func() bool { ask(tok.Secret); return read() == `answer "" true` })
		if err := node.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		revokeNow(t, s, tok.ID)
		for range 20 {
			ask(tok.Secret)
		}
		if err := node.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if got := read(); !strings.HasPrefix(got, `answer "invalid_token"`) && !strings.HasPrefix(got, `answer "service_unavailable"`) {
				t.Fatalf("the node woke up and said %s", got)
			}
		}
	}
}
