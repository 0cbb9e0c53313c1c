package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"guildhall/bench/node"
	"guildhall/bench/proc"
	"guildhall/bench/testbed"
	"guildhall/internal/access/auth"
)

// host is everything that runs while requests are measured.
type host struct {
	requestOptions
	*testbed.Place
	node            *node.Node
	token           string
	tokens          []string // one for each of the further guilds
	plainestAddress string
	resting         int64
	stops           []func() error
}

func (h *host) length() time.Duration { return time.Duration(h.seconds * float64(time.Second)) }

// deepPage is page 4,000, or the last full one where fewer wallets were loaded.
func (h *host) deepPage() int { return min(4000, h.wallets/25) }

// start brings everything up. When it fails, it stops all that it has started.
func start(ctx context.Context, o requestOptions) (_ *host, err error) {
	h := &host{requestOptions: o}
	// Not Fast: what is measured includes waiting for the disk.
	if h.Place, err = testbed.New(ctx, testbed.Config{}); err != nil {
		return nil, err
	}
	h.stops = append(h.stops, h.Close)
	for _, part := range []func(context.Context) error{h.load, h.makeTokens, h.serve, h.servePlainest, h.settle} {
		if err := part(ctx); err != nil {
			return nil, errors.Join(err, h.stop())
		}
	}
	return h, nil
}

// stop ends what was started, the last first.
func (h *host) stop() error {
	var errs []error
	for i := len(h.stops) - 1; i >= 0; i-- {
		errs = append(errs, h.stops[i]())
	}
	return errors.Join(errs...)
}

// load imports two guild files, and makes the plainest program's tables of them.
func (h *host) load(ctx context.Context) error {
	for _, part := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{"wallets", h.wealth}, {"levels, cases, tickets and listings", h.rest},
	} {
		begun := time.Now()
		records, err := testbed.Import(ctx, h.DB, part.write)
		if err != nil {
			return err
		}
		fmt.Printf("imported %d records (%s) in %.1f s\n", records, part.name, time.Since(begun).Seconds())
	}
	return h.Exec(ctx, plainestTables)
}

func (h *host) makeTokens(ctx context.Context) (err error) {
	if h.token, err = h.Token(ctx, guildID, auth.Scopes...); err != nil {
		return err
	}
	h.tokens = make([]string, manyGuilds)
	for n := range h.tokens {
		if h.tokens[n], err = h.Token(ctx, guild(n+1), "economy:write"); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) wealth(w io.Writer) error {
	fmt.Fprintf(w, `{"record":"guild","id":"%s","name":"Bench"}`+"\n", guildID)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	for i := range h.wallets {
		balance := int64(math.Exp(6 + 1.4*random.NormFloat64()))
		if random.IntN(12) == 0 {
			balance = 0
		}
		if _, err := fmt.Fprintf(w, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":%d}`+"\n", guildID, member(i+1), balance); err != nil {
			return err
		}
	}
	for n := range manyGuilds {
		fmt.Fprintf(w, `{"record":"guild","id":"%s","name":"Bench"}`+"\n", guild(n+1))
		for m := range guildMembers {
			if _, err := fmt.Fprintf(w, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":1000}`+"\n", guild(n+1), member(m+1)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *host) rest(w io.Writer) error {
	random := mathrand.New(mathrand.NewPCG(3, 4))
	begun := time.Now().AddDate(-2, 0, 0)
	for i := range h.wallets {
		if _, err := fmt.Fprintf(w, `{"record":"level","guild_id":"%s","user_id":"%d","total_xp":%d}`+"\n",
			guildID, member(i+1), int64(math.Exp(6+1.6*random.NormFloat64()))); err != nil {
			return err
		}
		if i%20 == 0 {
			kind := []string{"note", "warn", "mute", "ban"}[random.IntN(4)]
			fmt.Fprintf(w, `{"record":"case","guild_id":"%s","user_id":"%d","moderator_id":"7","type":"%s","reason":"loaded","created_at":"%s"}`+"\n",
				guildID, member(i+1), kind, begun.Add(time.Duration(i)*time.Second).Format(time.RFC3339))
		}
		if i%50 == 0 {
			fmt.Fprintf(w, `{"record":"ticket","guild_id":"%s","id":"ticket-%d","number":%d,"opener_id":"%d","subject":"Loaded","status":"open","created_at":"%s"}`+"\n",
				guildID, i, 1+i/50, member(i+1), begun.Add(time.Duration(i)*time.Second).Format(time.RFC3339))
		}
		if i%100 == 0 {
			fmt.Fprintf(w, `{"record":"network_listing","user_id":"%d","trust_score":%d,"report_count":3,"category":"spam","severity":"low","first_reported_at":"2025-01-01T00:00:00Z","last_reported_at":"2025-06-01T00:00:00Z"}`+"\n",
				member(i+1), random.IntN(100))
		}
	}
	return nil
}

// serve starts the real server.
func (h *host) serve(ctx context.Context) (err error) {
	if h.node, err = h.Serve(ctx, h.server, "GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8"); err != nil {
		return err
	}
	h.stops = append(h.stops, h.node.Stop)
	return nil
}

// servePlainest starts the plainest program, which knows the same tokens.
func (h *host) servePlainest(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	tokens := map[string]string{h.token: guildID}
	for n, token := range h.tokens {
		tokens[token] = guild(n + 1)
	}
	known, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "guildhall-bench-")
	if err != nil {
		return err
	}
	h.stops = append(h.stops, func() error { return os.RemoveAll(folder) })
	file := filepath.Join(folder, "tokens.json")
	if err := os.WriteFile(file, known, 0o600); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	h.plainestAddress = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	// Without a context: it is stopped in order, after the measurements.
	cmd := exec.Command(self, "-plainest", h.plainestAddress, "-tokens", file)
	cmd.Env = append(os.Environ(), "GUILDHALL_DATABASE_URL="+h.URL)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	h.stops = append(h.stops, func() error {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // how it ends says nothing about the measurements
		return nil
	})
	return await(ctx, "http://"+h.plainestAddress+"/api/v1/economy/leaderboard")
}

// listen registers a receiver that hears of every change of a balance.
func (h *host) listen(ctx context.Context) (undo func() error, err error) {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a sender that is gone is no matter
	}))
	var made struct{ Data struct{ ID string } }
	err = h.call(ctx, http.MethodPost, "/webhooks", `{"url":"`+receiver.URL+`","events":["economy.balance_changed"]}`, &made)
	if err != nil {
		receiver.Close()
		return nil, err
	}
	return func() error {
		defer receiver.Close()
		return h.call(ctx, http.MethodDelete, "/webhooks/"+made.Data.ID, "", nil)
	}, nil
}

// call asks the server for something that is not measured.
func (h *host) call(ctx context.Context, method, path, body string, into any) error {
	return call(ctx, h.node.HTTP, h.token, "", method, path, body, into)
}

// call sends one request, with an idempotency key unless that is empty. It takes
// anything but a success for an error.
func call(ctx context.Context, address, token, key, method, path, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Forwarded-Proto", "https")
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s answered %s %s", method, path, resp.Status, text)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// await waits until a url answers, with whatever.
func await(ctx context.Context, url string) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Timeout: time.Second}).Do(req)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode < http.StatusInternalServerError {
				return nil
			}
			err = errors.New(resp.Status)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", url, err)
		}
	}
}

// settle waits until what a running installation has anyway is there: the
// leaderboards' maps, fresh statistics, a vacuumed table, a checkpoint.
func (h *host) settle(ctx context.Context) error {
	h.resting = proc.RSS(h.node.PID)
	begun := time.Now()
	if err := testbed.Vacuum(ctx, h.URL); err != nil {
		return err
	}
	for live := 0; h.wallets >= 512 && live < 2; time.Sleep(200 * time.Millisecond) {
		if err := h.Admin.QueryRowContext(ctx, `SELECT count(*) FROM rank_maps WHERE state = 'live'`).Scan(&live); err != nil {
			return err
		}
		if time.Since(begun) > 3*time.Minute {
			return errors.New("the server has made no maps of the leaderboards")
		}
	}
	fmt.Printf("maps of the leaderboards and the rest ready after %.1f s\n", time.Since(begun).Seconds())
	return nil
}
