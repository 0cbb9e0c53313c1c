package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
)

// readyCommand is for containers that contain only this program, and for scripts that wait for the
// server.
type readyCommand struct {
	OpsListen string        `env:"GUILDHALL_OPS_LISTEN" default:"127.0.0.1:9190" help:"The running server's, on this machine."`
	Wait      time.Duration `help:"Wait so long for it, such as 1m, before that is a failure." placeholder:"TIME"`
}

// Run succeeds when the server on this machine reports that it is ready.
func (c *readyCommand) Run(ctx context.Context, streams streams) error {
	if c.OpsListen == "off" {
		return errors.New("GUILDHALL_OPS_LISTEN is off: there is no listener to ask")
	}
	if _, _, err := net.SplitHostPort(c.OpsListen); err != nil { // waiting would not help
		return fault.Wrap(cmp.Or(address(c.OpsListen), err), "GUILDHALL_OPS_LISTEN")
	}
	end := time.Now().Add(c.Wait)
	err := c.ask(ctx)
	for err != nil && ctx.Err() == nil && time.Now().Before(end) {
		time.Sleep(250 * time.Millisecond)
		err = c.ask(ctx)
	}
	switch {
	case err == nil:
		return output.Say(streams.out, "ready")
	case c.Wait > 0:
		return fmt.Errorf("not ready within %s; the server's log says why (journalctl -u guildhall): %w", c.Wait, err)
	}
	return err
}

// ask sends one request.
func (c *readyCommand) ask(ctx context.Context) error {
	host, port, err := net.SplitHostPort(c.OpsListen)
	if err != nil {
		return fault.Wrap(err, "GUILDHALL_OPS_LISTEN")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, port)+"/readyz", nil)
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	why, err := io.ReadAll(io.LimitReader(res.Body, 1024))
	if err != nil {
		return err
	}
	if res.Header.Get("Server") != opsServer {
		return fmt.Errorf("another program answers at %s (%s): GUILDHALL_OPS_LISTEN has to name the address of the server", c.OpsListen, res.Status)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(why)))
	}
	return nil
}
