package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"guildhall/bench/rig"
)

// The pooler gives many clients few connections.
const (
	poolerClients = 200
	poolerServers = 20
)

// pooler puts PgBouncer in transaction mode between a node and its database: many
// callers read and write through it, first without the direct line, which is told
// of, then with it.
func pooler(p *place) {
	p.LoadText(`{"record":"guild","id":"%s"}`+"\n", guildA)
	through := *p.Place
	through.URL = p.startPooler()
	connections := "GUILDHALL_DB_CONNECTIONS=" + strconv.Itoa(poolerClients)

	out, _ := through.Output("doctor") // it fails for other reasons
	p.Hold(regexp.MustCompile(`(?m)^warn direct_line .*GUILDHALL_LISTEN_URL`).MatchString(out), "doctor warns that the direct line is missing")
	unreachable := through.Serve(connections)
	told := func() bool {
		return strings.Contains(unreachable.Log(), "GUILDHALL_LISTEN_URL has to name the direct way")
	}
	p.Hold(p.Await(30*time.Second, told), "without it the log says so")
	p.Hold(unreachable.Metric(p, "guildhall_direct_line_missing") == 1, "and a metric")
	p.Must(unreachable.Stop())

	n := through.Serve(connections, "GUILDHALL_LISTEN_URL="+p.URL)
	trusted := func() bool { return n.Metric(p, "guildhall_token_cache_trusted") == 1 }
	p.Hold(p.Await(30*time.Second, trusted), "with it tokens are found in memory")
	p.readAndWrite(n)
}

// readAndWrite has more callers than the pooler has connections, and compares what
// they were told with what is there.
func (p *place) readAndWrite(n *rig.Node) {
	tokens := p.Tokens(guildA, 64)
	var written sync.Map
	responses := rig.Load{
		Address: n.HTTP, Connections: 4 * poolerServers,
		Request: func(i, n int) []byte {
			token := tokens[i%len(tokens)]
			if n%2 == 0 {
				body := fmt.Appendf(nil, `{"user_id":"%d","delta":1,"reason":"%d"}`, member(i), n)
				return rig.Request("POST", "/economy/adjust", token, body, fmt.Sprintf("Idempotency-Key: %d", n))
			}
			paths := []string{
				fmt.Sprintf("/economy/wallet/%d", member(i)), "/economy/ledger?per_page=5", "/economy/leaderboard?per_page=5", "/cases",
			}
			return rig.Request("GET", paths[n/2%4], token, nil)
		},
		Seen: func(n int, a rig.Response) {
			if n%2 == 0 && rig.OK(a) {
				written.Store(strconv.Itoa(n), true)
			}
		},
	}.For(p, sized(p, 10*time.Second, time.Second))
	p.Say("calls through %d connections: %v", poolerServers, responses)
	p.Hold(responses.AllOK(), "every read and write succeeds (%d of %d)", responses.Count(rig.OK), responses.N())
	var keys []string
	p.Select(&keys, `SELECT reason FROM ledger_entries WHERE reason IS NOT NULL`)
	known, told := 0, 0
	for _, k := range keys {
		if _, there := written.Load(k); there {
			known++
		}
	}
	written.Range(func(any, any) bool { told++; return true })
	p.Hold(known == told && len(keys) == told, "what was acknowledged is there once (%d acknowledged, %d there)", told, len(keys))
	backends := p.Count(`
		SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^guildhall-(api|worker|jobs|vital) '`)
	p.Hold(backends <= poolerServers, "over at most %d connections to Postgres (%d)", poolerServers, backends)
}

// findPooler returns the program, and whether it keeps prepared statements in
// transaction mode, as from 1.21 on.
func (p *place) findPooler() (program string, prepares bool) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		p.Must(errors.New("this drill needs PgBouncer: apt-get install pgbouncer, and no service has to run"))
	}
	var major, minor int
	_, err = fmt.Sscanf(p.Tool(program, "--version"), "PgBouncer %d.%d", &major, &minor)
	p.Must(err)
	return program, major > 1 || major == 1 && minor >= 21
}

// startPooler starts PgBouncer as docs/operate/connections.md says, over the database,
// and returns the URL through it.
func (p *place) startPooler() string {
	program, prepares := p.findPooler()
	p.Say("%s, which keeps prepared statements: %v", program, prepares)
	u, err := url.Parse(p.URL)
	p.Must(err)
	folder, address := p.Folder(), p.freeAddress()
	p.Must(os.Chmod(folder, 0o755)) // its user need not be ours
	config := filepath.Join(folder, "ini")
	p.Must(os.WriteFile(config, []byte(poolerConfig(u, address, prepares)), 0o644))
	cmd := exec.Command(program, config)
	if os.Geteuid() == 0 { // which it refuses to be
		cmd = exec.Command(program, "--user", "nobody", config)
	}
	p.Must(cmd.Start())
	p.Cleanup(func() error {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // at once; it may have ended
		_ = cmd.Wait()                          // how it ends says nothing about the drill
		return nil
	})
	if !p.Await(30*time.Second, func() bool {
		c, err := (&net.Dialer{}).DialContext(p, "tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		p.Must(errors.New("PgBouncer does not start"))
	}
	q := u.Query()
	if !prepares {
		q.Set("binary_parameters", "yes")
	}
	u.Host, u.RawQuery = address, q.Encode()
	return u.String()
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
