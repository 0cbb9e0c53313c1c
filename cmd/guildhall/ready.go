package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"guildhall/internal/base/output"
)

// readyCommand is for whoever looks after a container that holds nothing but
// this program.
type readyCommand struct {
	OpsListen string `env:"GUILDHALL_OPS_LISTEN" default:"127.0.0.1:9090" help:"The running server's, on this machine."`
}

// Run succeeds when the server of this machine says that it is ready.
func (c *readyCommand) Run(ctx context.Context, streams streams) error {
	if c.OpsListen == "off" {
		return errors.New("GUILDHALL_OPS_LISTEN is off: nobody can be asked")
	}
	host, port, err := net.SplitHostPort(c.OpsListen)
	if err != nil {
		return fmt.Errorf("GUILDHALL_OPS_LISTEN: %w", err)
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
	res, err := (&http.Client{Transport: &http.Transport{Proxy: nil}}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	why, err := io.ReadAll(io.LimitReader(res.Body, 1024))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(why)))
	}
	return output.Say(streams.out, "ready")
}
