// Package node runs a `guildhall serve` of a bench's own.
package node

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Node is a running server, behind the one proxy that the bench plays.
type Node struct {
	HTTPS, HTTP, Ops string // addresses
	PID              int

	cmd    *exec.Cmd
	folder string
	ended  chan struct{} // closed when it has ended
}

// Config says what runs.
type Config struct {
	Words       []string // the program, with words in front of it or without
	DatabaseURL string
	SecretKey   []byte   // servers of one database must have the same
	Env         []string // further settings; those of the environment do not count
}

// Start starts a server and waits until it is ready. Its log goes to a file, as it
// would.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	n := &Node{ended: make(chan struct{})}
	if n.folder, err = os.MkdirTemp("", "guildhall-node-"); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(n.folder, "log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(n.folder))
	}
	defer log.Close()
	// Without a context: it is stopped in order.
	words := append(append([]string{}, cfg.Words...), "serve")
	n.cmd = exec.Command(words[0], words[1:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GUILDHALL_") || strings.HasPrefix(v, "GUILDHALL_TEST_") {
			n.cmd.Env = append(n.cmd.Env, v)
		}
	}
	n.cmd.Env = append(append(n.cmd.Env,
		"GUILDHALL_DATABASE_URL="+cfg.DatabaseURL,
		"GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(cfg.SecretKey),
		"GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_OPS_LISTEN=127.0.0.1:0",
		"GUILDHALL_TRUSTED_PROXIES=127.0.0.1/32",
		"GUILDHALL_ENV=test", // with a stand-in for the chat platform
	), cfg.Env...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(n.folder))
	}
	n.PID = n.cmd.Process.Pid
	go func() {
		_ = n.cmd.Wait() // how it ends says nothing about what is measured
		close(n.ended)
	}()
	if err := n.await(ctx); err != nil {
		return nil, errors.Join(err, n.Stop())
	}
	return n, nil
}

var readyLine = regexp.MustCompile(`"msg":"ready","https":"([^"]*)","http":"([^"]+)","ops":"([^"]+)"`)

// await finds the addresses in the log.
func (n *Node) await(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		log, err := n.Log()
		if err != nil {
			return err
		}
		if at := readyLine.FindSubmatch(log); at != nil {
			n.HTTPS, n.HTTP, n.Ops = string(at[1]), string(at[2]), string(at[3])
			return nil
		}
		select {
		case <-n.ended:
			return fmt.Errorf("the server has ended: %s", log)
		default:
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("the server is not ready: %s", log)
		}
	}
}

// Log is what the server has written so far.
func (n *Node) Log() ([]byte, error) { return os.ReadFile(filepath.Join(n.folder, "log")) }

// Kill ends the server at once, as kill -9 does. Stop then has only to tidy up.
func (n *Node) Kill() error { return n.cmd.Process.Kill() }

// Stop ends the server as an operator would, and after 45 s by force.
func (n *Node) Stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(45*time.Second, func() { _ = n.cmd.Process.Kill() })
	defer kill.Stop()
	<-n.ended
	return os.RemoveAll(n.folder)
}
