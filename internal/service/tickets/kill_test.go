package tickets_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	osexec "os/exec"
	"strings"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

const (
	childPlatform = "GUILDHALL_TEST_CHILD_PLATFORM"
	childDatabase = "GUILDHALL_TEST_CHILD_DATABASE"
)

// child is what the process that will be killed reports about itself.
type child struct {
	URL, Guild, Token, Ticket string
	process                   *os.Process
}

// TestServeForKill is not a test but the process that TestKill kills: it serves until its input
// ends.
func TestServeForKill(t *testing.T) {
	t.Parallel()
	platform := os.Getenv(childPlatform)
	if platform == "" {
		t.Skip("only as a child of TestKill")
	}
	client := chattest.Connect(t, platform, chat.Config{})
	a := apitest.New(t, apitest.On(os.Getenv(childDatabase)), apitest.With(func(cfg *api.Config) {
		var err error
		cfg.Tickets, err = tickets.New(tickets.Config{DB: cfg.DB, Chat: client, Keys: api.TicketKeys{Keys: idempotency.Keys{Sealer: cfg.Sealer}}})
		if err != nil {
			t.Fatal(err)
		}
	}))
	about, err := json.Marshal(child{URL: a.URL, Guild: a.Guild, Token: a.Token, Ticket: ticket(t, a, 1, "open", true)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(os.Stdout, "child %s\n", about); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		t.Error(err)
	}
}

// serve starts that process on the database.
func serve(t *testing.T, platform *chattest.Server, database string) child {
	t.Helper()
	cmd := osexec.CommandContext(context.Background(), os.Args[0], "-test.run=^TestServeForKill$", "-test.timeout=2m")
	cmd.Env = append(os.Environ(), childPlatform+"="+platform.URL, childDatabase+"="+database)
	if os.Getenv(dbtest.Variable) == "" { // the child uses this process's Postgres, which outlives the child
		cmd.Env = append(cmd.Env, dbtest.Variable+"="+serverOf(t, database))
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if about, ok := strings.CutPrefix(lines.Text(), "child "); ok {
			c := child{process: cmd.Process}
			if err := json.Unmarshal([]byte(about), &c); err != nil {
				t.Fatal(err)
			}
			platform.Home(c.Guild)
			return c
		}
	}
	t.Fatalf("the child said nothing of itself: %v", lines.Err())
	return child{}
}

// TestKill kills the process with SIGKILL while a message is being posted. Another process finishes
// it: one message, one row, one event, one response.
func TestKill(t *testing.T) {
	t.Parallel()
	for name, accepted := range map[string]bool{"before the platform accepts": false, "after the platform has accepted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			platform := chattest.New(t)
			database := dbtest.Empty(t, "")
			c := serve(t, platform, database)
			begun := make(chan struct{}, 1)
			behave := platform.Silent()
			if accepted {
				behave = chattest.Until(make(chan struct{}))
			}
			platform.In(channelOf(1), notify(begun, behave))
			cut := make(chan struct{})
			go func() {
				defer close(cut)
				_, _ = c.post() // ends when the process is killed
			}()
			<-begun
			if accepted {
				testutil.Eventually(t, "the message", func() bool { return len(platform.Messages(channelOf(1))) == 1 })
			}
			if err := c.process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-cut
			platform.In(channelOf(1), nil)
			finish(t, platform, database)
		})
	}
}

// post sends the message to the child.
func (c child) post() (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.URL+"/tickets/"+c.Ticket+"/message",
		strings.NewReader(`{"content":"x"}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "k")
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return res, res.Body.Close()
}

// finish does what another node does when the leases have ended.
func finish(t *testing.T, platform *chattest.Server, database string) {
	t.Helper()
	ctx := context.Background()
	d := dbtest.Open(t, database).DB
	client := chattest.Connect(t, platform.URL, chat.Config{})
	box := sealtest.Box(t, apitest.SecretKey)
	keys := api.TicketKeys{Keys: idempotency.Keys{Sealer: box}}
	dbtest.Exec(t, d, `UPDATE chat_intents SET lease_until = now() WHERE state = 'sending'`)
	if err := tickets.SweepIntents(ctx, tickets.Config{DB: d, Chat: client, Keys: keys}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Messages int    `db:"messages"`
		Events   int    `db:"events"`
		Answers  int    `db:"answers"`
		Posted   string `db:"posted"`
	}
	if err := d.Reader().GetContext(ctx, &got, `
		SELECT (SELECT count(*) FROM ticket_messages) AS messages, (SELECT count(*) FROM webhook_events) AS events,
		       (SELECT count(*) FROM idempotency_keys WHERE state = 'done' AND status = 201) AS answers,
		       coalesce((SELECT max(channel_message_id) FROM ticket_messages), '') AS posted`); err != nil {
		t.Fatal(err)
	}
	posted := platform.Messages(channelOf(1))
	if len(posted) != 1 || got.Messages != 1 || got.Events != 1 || got.Answers != 1 || got.Posted != posted[0].ID {
		t.Errorf("posted %+v, stored %+v, want one of each", posted, got)
	}
}

// serverOf returns the URL of a database's server.
func serverOf(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/postgres"
	return u.String()
}
