package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/testutil"
)

// child is the environment variable that makes this test program a parent process, which starts a
// server and waits to be killed.
const child = "EMBEDDED_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(child); dir != "" {
		s, err := embedded.Start(context.Background(), embedded.Config{Dir: dir, Fast: true})
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(s.URL)
		select {}
	}
	os.Exit(m.Run())
}

// folder returns a temporary directory that the server's account can enter.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "guildhall-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "pg")
}

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	if _, err := embedded.Find(t.Context(), 0); err != nil {
		testutil.Without(t, "postgres", err)
	}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query runs a statement and returns its single value as text.
func query(t *testing.T, url, statement string) string {
	t.Helper()
	text, err := ask(url, statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return text
}

func ask(url, statement string) (string, error) {
	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	var text string
	return text, pool.QueryRow(statement).Scan(&text)
}

func TestStart(t *testing.T) {
	t.Parallel()

	t.Run("keeps the data from one start to the next", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		s := start(t, embedded.Config{Dir: dir, Fast: true})
		query(t, s.URL, `CREATE TABLE kept AS SELECT 'here' AS v; SELECT v FROM kept`)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if got := query(t, start(t, embedded.Config{Dir: dir, Fast: true}).URL, `SELECT v FROM kept`); got != "here" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("refuses a folder in use", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		start(t, embedded.Config{Dir: dir, Fast: true})
		if _, err := embedded.Start(t.Context(), embedded.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("got %v", err)
		}
	})

	t.Run("runs two side by side and leaves nothing of temporary ones", func(t *testing.T) {
		t.Parallel()
		a, b := start(t, embedded.Config{Fast: true, TCP: true}), start(t, embedded.Config{Fast: true, TCP: true, Memory: true})
		query(t, a.URL, `SELECT 1`)
		query(t, b.URL, `SELECT 1`)
		for _, s := range []*embedded.Server{a, b} {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.Folder); !os.IsNotExist(err) {
				t.Errorf("%s is still there", s.Folder)
			}
		}
	})

	t.Run("lets nobody in over TCP without the password", func(t *testing.T) {
		t.Parallel()
		s := start(t, embedded.Config{Fast: true, TCP: true})
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsLoopback() {
			t.Errorf("listens on %s", u.Hostname())
		}
		for _, user := range []*url.Userinfo{url.User("postgres"), url.UserPassword("postgres", "wrong")} {
			u.User = user
			if _, err := ask(u.String(), `SELECT 1`); err == nil {
				t.Errorf("%s was let in", user)
			}
		}
	})

	t.Run("keeps its socket from other users", func(t *testing.T) {
		t.Parallel()
		s := start(t, embedded.Config{Fast: true})
		u, err := url.Parse(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(u.Query().Get("host"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("the socket's folder has mode %v", info.Mode())
		}
	})

	t.Run("finds a way around a folder the server cannot enter", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		if err := os.Chmod(filepath.Dir(dir), 0o700); err != nil {
			t.Fatal(err)
		}
		s := start(t, embedded.Config{Dir: dir, Fast: true})
		if elsewhere := s.Folder != dir; elsewhere != (os.Geteuid() == 0) {
			t.Errorf("the data is in %s", s.Folder)
		}
		first := s.Folder
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		again := start(t, embedded.Config{Dir: dir, Fast: true})
		if again.Folder != first {
			t.Errorf("the second start uses %s, not %s", again.Folder, first)
		}
		if first != dir {
			// Once the directory is deleted, no Start can find its data any more.
			if err := again.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			fresh := start(t, embedded.Config{Dir: dir, Fast: true})
			if _, err := os.Stat(first); !os.IsNotExist(err) {
				t.Errorf("%s was left behind", first)
			}
			if err := fresh.Stop(); err != nil {
				t.Error(err)
			}
			_ = os.RemoveAll(fresh.Folder)
		}
	})
}

// parent starts the test program as a parent process and returns it with its server's URL.
func parent(t *testing.T, dir string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.HasPrefix(line, "error") {
		t.Fatalf("the child said %q: %v", line, err)
	}
	return cmd, strings.TrimSpace(line)
}

func postmaster(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestKill(t *testing.T) {
	t.Parallel()
	if _, err := embedded.Find(t.Context(), 0); err != nil {
		testutil.Without(t, "postgres", err)
	}

	t.Run("the server ends with its parent", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		cmd, url := parent(t, dir)
		query(t, url, `CREATE TABLE kept AS SELECT 'here' AS v; SELECT v FROM kept`)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the server has ended", func() bool {
			_, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid"))
			return os.IsNotExist(err)
		})
		if got := query(t, start(t, embedded.Config{Dir: dir, Fast: true}).URL, `SELECT v FROM kept`); got != "here" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("a new start right after the parent's death takes over", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		cmd, url := parent(t, dir)
		query(t, url, `CREATE TABLE kept AS SELECT 'here' AS v; SELECT v FROM kept`)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the lock is released when the process has ended
		if got := query(t, start(t, embedded.Config{Dir: dir, Fast: true}).URL, `SELECT v FROM kept`); got != "here" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("a killed server is noticed and recovers", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		s := start(t, embedded.Config{Dir: dir})
		query(t, s.URL, `CREATE TABLE kept AS SELECT 'here' AS v; SELECT v FROM kept`)
		if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-s.Ended():
		case <-time.After(time.Minute):
			t.Fatal("nobody noticed")
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if got := query(t, start(t, embedded.Config{Dir: dir, Fast: true}).URL, `SELECT v FROM kept`); got != "here" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("a pid file that names another process is cleared", func(t *testing.T) {
		t.Parallel()
		dir := folder(t)
		s := start(t, embedded.Config{Dir: dir, Fast: true})
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		stale := fmt.Sprintf("%d\n%s\n", os.Getpid(), filepath.Join(dir, "data"))
		if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(stale), 0o600); err != nil {
			t.Fatal(err)
		}
		query(t, start(t, embedded.Config{Dir: dir, Fast: true}).URL, `SELECT 1`)
	})
}
