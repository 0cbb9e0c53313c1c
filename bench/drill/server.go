package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"guildhall/bench/node"
	"guildhall/bench/testbed"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
)

// secretKey is that of all servers: those of one database must have the same.
var secretKey = bytes.Repeat([]byte{7}, 32)

// server is a running `guildhall serve`.
type server struct{ *node.Node }

// serve starts the server with further environment variables and waits until
// it is ready.
func (p place) serve(ctx context.Context, env ...string) (*server, error) {
	n, err := node.Start(ctx, node.Config{Words: append(slices.Clone(p.front), p.program), DatabaseURL: p.databaseURL, SecretKey: secretKey, Env: env})
	if err != nil {
		return nil, err
	}
	return &server{n}, nil
}

var complaint = regexp.MustCompile(`(?m)^.*"level":"(WARN|ERROR)".*\n`)

// complaints are the last ten warnings and errors of the server's log.
func (s *server) complaints() []byte {
	log, err := s.Log()
	if err != nil {
		return []byte(err.Error())
	}
	lines := complaint.FindAll(log, -1)
	return bytes.Join(lines[max(0, len(lines)-10):], nil)
}

// peak is the most memory that the server has had resident so far, in bytes; 0
// where there is no /proc.
func (s *server) peak() int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "status"))
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Ops+path, nil)
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

// tokens makes n tokens of a guild with every scope: rows of their own, since a
// drill may need more than a guild is given.
func (p place) tokens(ctx context.Context, guild string, n int) ([]string, error) {
	pool, err := db.OpenSQL(p.databaseURL, "drill", 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	made := make([]string, n)
	for i := range made {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret)
		made[i] = "svc_test_" + base64.RawURLEncoding.EncodeToString(secret)
	}
	_, err = pool.ExecContext(ctx, `
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at)
		SELECT gen_random_uuid()::text, $1, 'drill', 'svc_test_...' || right(secret, 4), sha256(convert_to(secret, 'UTF8')), $3::text[],
		       now() + n * interval '1 us' -- the first is the oldest
		FROM unnest($2::text[]) WITH ORDINALITY AS made (secret, n)`, guild, db.Strings(made), db.Strings(auth.Scopes))
	return made, err
}

// load imports the guild file that write produces.
func (p place) load(ctx context.Context, write func(io.Writer) error) error {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err := testbed.Import(ctx, d, write); err != nil {
		return err
	}
	return testbed.Vacuum(ctx, p.databaseURL)
}
