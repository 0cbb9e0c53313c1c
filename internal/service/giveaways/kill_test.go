package giveaways_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
)

const childDB, childPlatform, childDistributed = "GUILDHALL_TEST_CHILD_DB", "GUILDHALL_TEST_CHILD_PLATFORM",
	"GUILDHALL_TEST_CHILD_DISTRIBUTED"

// TestWorkForKill is not a test but the process that TestKill kills: it runs a node's workers until
// its input ends.
func TestWorkForKill(t *testing.T) {
	t.Parallel()
	url := os.Getenv(childDB)
	if url == "" {
		t.Skip("only as a child of TestKill")
	}
	d, err := db.Open(db.Config{URL: url, Writers: 4, Readers: 2, Distributed: os.Getenv(childDistributed) == "true"})
	if err != nil {
		t.Fatal(err)
	}
	stop := work(t, d, discord(t, os.Getenv(childPlatform)))
	fmt.Fprintln(os.Stdout, "at work")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	_ = d.Close()
}

// child starts that process on the API's database.
func (s giveawayAPI) child(platform *chattest.Server) *os.Process {
	s.t.Helper()
	cmd := osexec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestWorkForKill$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), childDB+"="+s.Server.DBURL, childPlatform+"="+platform.URL,
		fmt.Sprintf("%s=%t", childDistributed, s.DB().Distributed()))
	in, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "at work" {
			return cmd.Process
		}
	}
	s.t.Fatal("the child does not work")
	return nil
}

// TestKill kills the process with SIGKILL at each of its calls of the platform, from the message by
// which members enter to the announcement, before and after the platform has carried out the call.
// Another process finishes the giveaway: one message, everybody's entry, one draw, one
// announcement.
func TestKill(t *testing.T) {
	t.Parallel()
	posts := func(n int) func(*http.Request, int) bool {
		return func(r *http.Request, before int) bool { return r.Method == http.MethodPost && before == n }
	}
	for name, at := range map[string]func(r *http.Request, posts int) bool{
		"at the message":  posts(0),
		"at the reaction": func(r *http.Request, _ int) bool { return r.Method == http.MethodPut },
		"at the second page": func(r *http.Request, _ int) bool {
			return strings.Contains(r.URL.Path, "/reactions/") && r.URL.Query().Get("after") != ""
		},
		"at the announcement": posts(1),
	} {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, done %t", name, done), func(t *testing.T) {
				t.Parallel()
				s, server := opened(t)
				s.killed(server, at, done)
			})
		}
	}
}

// killed runs a giveaway with a child process that is killed at the first call for which at returns
// true.
func (s giveawayAPI) killed(server *chattest.Server, at func(r *http.Request, posts int) bool, done bool) {
	s.t.Helper()
	node := s.child(server)
	var mu sync.Mutex
	seen, dead := 0, make(chan struct{})
	kill := sync.OnceFunc(func() {
		if err := node.Kill(); err != nil {
			s.t.Error(err)
		}
		close(dead)
	})
	server.In(channel, func(_ http.ResponseWriter, r *http.Request, accept func() any) bool {
		mu.Lock()
		hit := at(r, seen)
		if r.Method == http.MethodPost {
			seen++
		}
		mu.Unlock()
		select {
		case <-dead:
			return false // a call of the other node
		default:
		}
		if !hit {
			return false
		}
		if done {
			accept()
		}
		kill()
		panic(http.ErrAbortHandler)
	})
	id := s.create("Nitro", 2)
	// After the kill another node works, and the leases of the dead one have ended.
	finished := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		select {
		case <-finished:
			return
		case <-dead:
		}
		dbtest.Exec(s.t, s.DB(), `UPDATE chat_intents SET lease_until = now(), try_at = now() WHERE state = 'sending'`)
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET redraw_at = now()`)
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET react_at = now() WHERE react_at IS NOT NULL`)
		dbtest.Exec(s.t, s.DB(), `UPDATE chat_intents SET try_at = now() WHERE try_at IS NOT NULL`)
		stop := s.work(discord(s.t, server.URL))
		<-finished
		stop()
	})
	defer other.Wait()
	defer close(finished)
	message := s.message(server, id)
	server.React(channel, message, party, members(2000, 150)...)
	s.Do(s.t, "endGiveaway", "", apitest.Path("id", id)).Want(s.t, 202, "")
	s.WantEvent(s.t, "giveaway.drawing", "")
	s.untilEnded(id)
	s.WantEvent(s.t, "giveaway.ended", `{"data":{"entrant_count":150,"entry_count":150}}`)
	testutil.Eventually(s.t, "both messages", func() bool {
		return dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE state = 'sent'`) == 2
	})
	s.WantNoEvent(s.t)
	if n := len(server.Messages(channel)); n != 2 {
		s.t.Errorf("%d messages were posted, want 2", n)
	}
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaway_draws`); n != 1 {
		s.t.Errorf("%d draws, want 1", n)
	}
}
