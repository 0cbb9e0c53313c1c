package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guildhall/internal/auth"
	"guildhall/internal/db"
	"guildhall/internal/guildfile"
)

// secretKey is that of all servers: those of one database must have the same.
var secretKey = bytes.Repeat([]byte{7}, 32)

// server is a running `guildhall serve`, behind the one proxy that the drill
// plays.
type server struct {
	http, ops string // addresses
	pid       int

	cmd    *exec.Cmd
	folder string
	ended  chan struct{}
}

// serve starts the server with further environment variables and waits until
// it is ready.
func (p place) serve(ctx context.Context, env ...string) (_ *server, err error) {
	s := &server{ended: make(chan struct{})}
	if s.folder, err = os.MkdirTemp("", "guildhall-drill-"); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(s.folder, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// Without a context: it is stopped in order.
	words := append(append([]string{}, p.front...), p.program, "serve")
	s.cmd = exec.Command(words[0], words[1:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GUILDHALL_") || strings.HasPrefix(v, "GUILDHALL_TEST_") {
			s.cmd.Env = append(s.cmd.Env, v)
		}
	}
	s.cmd.Env = append(append(s.cmd.Env,
		"GUILDHALL_DATABASE_URL="+p.databaseURL,
		"GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(secretKey),
		"GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_OPS_LISTEN=127.0.0.1:0",
		"GUILDHALL_TRUSTED_PROXIES=127.0.0.1/32",
	), env...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	s.pid = s.cmd.Process.Pid
	go func() {
		_ = s.cmd.Wait() // how it ends says nothing about the drill
		close(s.ended)
	}()
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

var readyLine = regexp.MustCompile(`"msg":"ready".*"http":"([^"]+)".*"ops":"([^"]+)"`)

// await finds the addresses in the log.
func (s *server) await(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		log, err := s.log()
		if err != nil {
			return err
		}
		if at := readyLine.FindSubmatch(log); at != nil {
			s.http, s.ops = string(at[1]), string(at[2])
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("the server has ended: %s", log)
		default:
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("the server is not ready: %s", log)
		}
	}
}

// log is what the server has written so far.
func (s *server) log() ([]byte, error) { return os.ReadFile(filepath.Join(s.folder, "log")) }

func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	kill := time.AfterFunc(45*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	<-s.ended
	return os.RemoveAll(s.folder)
}

// peak is the most memory that the server has had resident so far, in bytes; 0
// where there is no /proc.
func (s *server) peak() int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.pid), "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(b, []byte("VmHWM:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kb, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kb << 10
}

// ready reports whether /readyz answers 200.
func (s *server) ready(ctx context.Context) bool {
	_, err := s.get(ctx, "/readyz")
	return err == nil
}

// get asks the operators' listener. Anything but 200 is an error.
func (s *server) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.ops+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s is answered with %s", path, res.Status)
	}
	return text, err
}

// tokens makes n tokens of a guild with every scope.
func (p place) tokens(ctx context.Context, guild string, n int) ([]string, error) {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	made := make([]string, n)
	for i := range made {
		t, err := auth.Create(ctx, d, auth.New{GuildID: guild, Env: "live", Name: "drill " + strconv.Itoa(i), Scopes: auth.Scopes})
		if err != nil {
			return nil, err
		}
		made[i] = t.Secret
	}
	return made, nil
}

// load imports the guild file that write produces.
func (p place) load(ctx context.Context, write func(io.Writer) error) error {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }()
	if _, err = guildfile.Import(ctx, d, r, nil); err != nil {
		return err
	}
	pool, err := db.OpenSQL(p.databaseURL, "drill", 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.ExecContext(ctx, `VACUUM ANALYZE`)
	return err
}
