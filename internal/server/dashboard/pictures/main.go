// Command pictures takes pictures of the dashboard and of the reference, of what
// guildhall dev shows with its own demo, in a real Chromium: every page in light and
// dark, on a desk and a phone, into build/pictures, and those that README shows into
// docs/pictures.
//
//	make pictures
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"guildhall/internal/access/usage"
)

const (
	// allFolder is the folder of all pictures, and readmeFolder that of README's.
	allFolder    = "build/pictures"
	readmeFolder = "docs/pictures"
	// maxShown is how large a picture in readmeFolder may be, in bytes.
	maxShown = 200_000
)

// inREADME are the pictures that README shows.
var inREADME = map[string]bool{"overview-webhook": true, "ledger-entry": true}

func main() {
	program := flag.String("guildhall", "bin/guildhall", "the program")
	https := flag.String("https-listen", "127.0.0.1:8443", "where it answers while the pictures are taken")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *program, *https); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, https string) error {
	dir, err := os.MkdirTemp("", "guildhall-pictures")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d, err := startDev(ctx, program, dir, https)
	if err != nil {
		return err
	}
	defer d.stop()
	r := newReceiver()
	defer r.Close()
	b, err := newBrowser(ctx, d)
	if err != nil {
		return err
	}
	defer b.close()
	return b.story(r)
}

// dev is a running guildhall dev.
type dev struct {
	cmd                          *exec.Cmd
	api, docs, dashboard         string
	guild, token, caFile, folder string
}

// startDev starts guildhall dev and waits until it has said where everything is.
func startDev(ctx context.Context, program, dir, https string) (*dev, error) {
	if err := os.Chmod(dir, 0o755); err != nil { // Postgres may run as somebody else
		return nil, err
	}
	said, err := os.Create(filepath.Join(dir, "said"))
	if err != nil {
		return nil, err
	}
	defer said.Close()
	d := &dev{folder: dir, cmd: exec.Command(program, "dev", "--dir", dir, "--https-listen", https, "--http-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0")}
	d.cmd.Stdout, d.cmd.Stderr = said, said
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	for until := time.Now().Add(5 * time.Minute); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		text, err := os.ReadFile(said.Name())
		if err == nil && bytes.Contains(text, []byte("Ctrl-C stops everything")) {
			d.read(string(text))
			return d, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	d.stop()
	text, _ := os.ReadFile(said.Name())
	return nil, fmt.Errorf("guildhall dev has not started:\n%s", text)
}

// read takes over what dev says of itself.
func (d *dev) read(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		for name, to := range map[string]*string{
			"  API ": &d.api, "  Docs ": &d.docs, "  Dashboard ": &d.dashboard, "  Guild ": &d.guild, "  Token ": &d.token, "  CA file ": &d.caFile,
		} {
			if rest, ok := strings.CutPrefix(line, name); ok {
				*to = strings.TrimSpace(rest)
			}
		}
	}
}

// stop ends dev and its Postgres.
func (d *dev) stop() {
	_ = d.cmd.Process.Signal(os.Interrupt)
	_ = d.cmd.Wait()
}

// page is the address of one of the guild's pages.
func (d *dev) page(parts ...string) string {
	return strings.TrimSuffix(d.dashboard, "/") + "/guilds/" + d.guild + "/" + strings.Join(parts, "/")
}

// call makes a call of the API and returns the status.
func (d *dev) call(method, path, body string) (int, error) {
	req, err := http.NewRequest(method, d.api+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: time.Minute} // a self-signed local server
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// traffic is what a shop and a moderator's desk do in a quarter of an hour; some of
// it is refused.
func (d *dev) traffic() error {
	const member = "190320984123768832"
	var errs []error
	try := func(method, path, body string) {
		_, err := d.call(method, path, body)
		errs = append(errs, err)
	}
	for n := range 14 {
		try(http.MethodPost, "/economy/adjust", fmt.Sprintf(`{"user_id":%q,"delta":%d,"reason":"Quest %d"}`, member, 20+n, n+1))
		try(http.MethodGet, "/economy/wallet/"+member, "")
		try(http.MethodGet, "/economy/leaderboard?per_page=10", "")
	}
	for n := range 5 {
		try(http.MethodPost, "/cases", fmt.Sprintf(`{"user_id":"19032098412376883%d","moderator_id":%q,"type":"warn","reason":"Advertising in #general."}`, n, member))
	}
	for range 3 {
		try(http.MethodPost, "/economy/adjust", `{"user_id":"190320984123768832","delta":-900000000,"reason":"A castle"}`)
		try(http.MethodGet, "/cases/none", "")
	}
	return errors.Join(errs...)
}

// receiver takes the events, until it is told to fail.
type receiver struct {
	*httptest.Server
	fails atomic.Bool
}

func newReceiver() *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r.fails.Load() {
			http.Error(w, "could not store the event: no space left on device", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	return r
}

// untilCounted is how long it takes until requests stand in the numbers.
const untilCounted = usage.FlushInterval + 2*time.Second
