package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"guildhall/internal/base/db"
)

// The pooler gives many clients few connections.
const (
	poolerClients = 200
	poolerServers = 20
)

// pooled puts PgBouncer in transaction mode between a node and its database: many
// callers read and write through it, first without the direct line, which is told
// of, then with it.
func pooled(ctx context.Context, p place, r *report, length time.Duration) (err error) {
	if err := p.load(ctx, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, `{"record":"guild","id":"%s"}`+"\n", guildA)
		return err
	}); err != nil {
		return err
	}
	tokens, err := p.tokens(ctx, guildA, 64)
	if err != nil {
		return err
	}
	direct := p.databaseURL
	b, err := startPooler(ctx, direct, r)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	p.databaseURL = b.url
	env := append(drillEnv, "GUILDHALL_DB_CONNECTIONS="+strconv.Itoa(poolerClients))

	out, _ := p.command(ctx, "doctor")
	r.hold(regexp.MustCompile(`(?m)^warn direct_line .*GUILDHALL_LISTEN_URL`).MatchString(out), "doctor warns that the direct line is missing")
	unreachable, err := p.serve(ctx, env...)
	if err != nil {
		return err
	}
	told := awaited(ctx, 30*time.Second, func() bool {
		log, err := unreachable.Log()
		return err == nil && bytes.Contains(log, []byte("GUILDHALL_LISTEN_URL has to name the direct way"))
	})
	r.hold(told, "without it the log says so")
	r.hold(unreachable.metric(ctx, "guildhall_direct_line_missing") == "1", "and a metric")
	if err := unreachable.Stop(); err != nil {
		return err
	}

	s, err := p.serve(ctx, append(env, "GUILDHALL_LISTEN_URL="+direct)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	r.hold(awaited(ctx, 30*time.Second, func() bool { return s.metric(ctx, "guildhall_token_cache_trusted") == "1" }), "with it tokens are found in memory")
	return s.readAndWrite(ctx, direct, r, tokens, length)
}

// readAndWrite has more callers than the pooler has connections, and compares what
// they were told with what is there.
func (s *server) readAndWrite(ctx context.Context, direct string, r *report, tokens []string, length time.Duration) error {
	stage, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var responses tally
	var written sync.Map
	var all sync.WaitGroup
	for i := range 4 * poolerServers {
		all.Go(func() {
			c := &caller{address: s.HTTP}
			defer c.close()
			for n := 0; stage.Err() == nil; n++ {
				token := tokens[i%len(tokens)]
				if n%2 == 0 {
					key := fmt.Sprintf("%d-%d", i, n)
					a := c.send(ctx, request("POST", "/economy/adjust", token, fmt.Appendf(nil, `{"user_id":"%d","delta":1,"reason":"%s"}`, member(i), key), "Idempotency-Key: "+key))
					responses.add(a)
					if ok(a) {
						written.Store(key, true)
					}
					continue
				}
				responses.add(c.send(ctx, request("GET", []string{
					fmt.Sprintf("/economy/wallet/%d", member(i)), "/economy/ledger?per_page=5", "/economy/leaderboard?per_page=5", "/cases",
				}[n/2%4], token, nil)))
			}
		})
	}
	all.Wait()
	r.say("%d calls in %v through %d connections: p50 %.1f ms, p99 %.1f ms %v", len(responses.all), length, poolerServers,
		ms(responses.at(0.5, ok)), ms(responses.at(0.99, ok)), &responses)
	r.hold(responses.count(ok) == len(responses.all) && len(responses.all) > 0, "every read and write succeeds (%d of %d)", responses.count(ok), len(responses.all))
	d, err := db.Open(db.Config{URL: direct, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return err
	}
	defer d.Close()
	var keys []string
	if err := d.Reader().SelectContext(ctx, &keys, `SELECT reason FROM ledger_entries WHERE reason IS NOT NULL`); err != nil {
		return err
	}
	known, told := 0, 0
	for _, k := range keys {
		if _, there := written.Load(k); there {
			known++
		}
	}
	written.Range(func(any, any) bool { told++; return true })
	r.hold(known == told && len(keys) == told, "what was acknowledged is there once (%d acknowledged, %d there)", told, len(keys))
	var backends int
	if err := d.Reader().GetContext(ctx, &backends, `
		SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^guildhall-(api|worker|jobs|vital) '`); err != nil {
		return err
	}
	r.hold(backends <= poolerServers, "over at most %d connections to Postgres (%d)", poolerServers, backends)
	return nil
}

// metric is the value of a metric without labels; empty when there is none.
func (s *server) metric(ctx context.Context, name string) string {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return ""
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
	if found == nil {
		return ""
	}
	return string(found[1])
}

// pooler is a running PgBouncer.
type pooler struct {
	url    string
	cmd    *exec.Cmd
	ended  chan struct{}
	folder string
}

// errNoPooler says what the drill needs.
var errNoPooler = errors.New("this drill needs PgBouncer: apt-get install pgbouncer, and no service has to run")

var poolerVersion = regexp.MustCompile(`PgBouncer (\d+)\.(\d+)`)

// findPooler returns the program, and whether it keeps prepared statements in
// transaction mode, as from 1.21 on.
func findPooler(ctx context.Context) (program string, prepares bool, err error) {
	program, err = exec.LookPath("pgbouncer")
	if err != nil {
		return "", false, errNoPooler
	}
	out, err := exec.CommandContext(ctx, program, "--version").Output()
	v := poolerVersion.FindSubmatch(out)
	if err != nil || v == nil {
		return "", false, fmt.Errorf("%s --version: %w, %q", program, err, out)
	}
	major, _ := strconv.Atoi(string(v[1])) // both are digits
	minor, _ := strconv.Atoi(string(v[2]))
	return program, major > 1 || major == 1 && minor >= 21, nil
}

// startPooler starts PgBouncer as docs/operate/connections.md says, over the database.
func startPooler(ctx context.Context, databaseURL string, r *report) (_ *pooler, err error) {
	program, prepares, err := findPooler(ctx)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil, err
	}
	b := &pooler{ended: make(chan struct{})}
	if b.folder, err = os.MkdirTemp("/tmp", "guildhall-drill-"); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := free.Addr().String()
	free.Close()
	config := filepath.Join(b.folder, "ini")
	q := u.Query()
	if !prepares {
		q.Set("binary_parameters", "yes")
	}
	r.say("%s, which keeps prepared statements: %v", program, prepares)
	if err := os.WriteFile(config, []byte(poolerConfig(u, address, prepares)), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.folder))
	}
	b.cmd = exec.Command(program, config) // it is stopped in order
	if err := b.notAsRoot(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.folder))
	}
	if err := b.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.folder))
	}
	go func() {
		_ = b.cmd.Wait() // how it ends says nothing about the drill
		close(b.ended)
	}()
	if !awaited(ctx, 30*time.Second, func() bool {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		return nil, errors.Join(errors.New("PgBouncer does not start"), b.stop())
	}
	u.Host, u.RawQuery = address, q.Encode()
	b.url = u.String()
	return b, nil
}

// poolerConfig is PgBouncer's configuration: it listens on address, before the
// database at u.
func poolerConfig(u *url.URL, address string, prepares bool) string {
	password := "" // PgBouncer takes none for an error if it is empty
	if secret, ok := u.User.Password(); ok {
		password = " password=" + secret
	}
	_, port, _ := net.SplitHostPort(address) // it is one that was just listened on
	text := fmt.Sprintf(`[databases]
%s = host=%s port=%s user=%s%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = %d
default_pool_size = %d
ignore_startup_parameters = statement_timeout,lock_timeout,idle_in_transaction_session_timeout,default_transaction_read_only
`, u.Path[1:], u.Hostname(), u.Port(), u.User.Username(), password, port, 2*poolerClients, poolerServers)
	if prepares {
		text += "max_prepared_statements = 512\n"
	}
	return text
}

// notAsRoot gives root's PgBouncer another user, as it demands.
func (b *pooler) notAsRoot() error {
	if os.Geteuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
	if err != nil {
		return err
	}
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	for _, path := range []string{b.folder, filepath.Join(b.folder, "ini")} {
		if err := os.Chown(path, int(uid), int(gid)); err != nil {
			return err
		}
	}
	return nil
}

func (b *pooler) stop() error {
	_ = b.cmd.Process.Signal(syscall.SIGQUIT) // at once; it may have ended
	<-b.ended
	return os.RemoveAll(b.folder)
}
