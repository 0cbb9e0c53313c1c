package main

import (
	_ "embed"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guildhall/bench/rig"
)

// The pooler offers many client connections over few server connections.
const (
	poolerClients = 200
	poolerServers = 20
)

// pooler puts PgBouncer in transaction mode between a node and its database. Many callers read and
// write through it: first with the listener's connection through the pooler as well, which must be
// reported, then with a direct one.
func pooler(p *place) {
	p.LoadText(oneTicket, guildA)
	through := p.startPooler()
	connections := "GUILDHALL_DB_CONNECTIONS=" + strconv.Itoa(poolerClients)
	warning := regexp.MustCompile(`(?m)^warn listener .*GUILDHALL_LISTEN_URL`)
	p.Hold(p.Await(time.Minute, func() bool {
		out, _ := through.Output("doctor") // it fails for other reasons, and while the pooler is starting
		return warning.MatchString(out)
	}), "doctor warns that the listener hears nothing")
	unreachable := through.Serve(connections)
	logged := func() bool {
		return strings.Contains(unreachable.Log(), "GUILDHALL_LISTEN_URL has to name a direct connection")
	}
	p.Hold(p.Await(30*time.Second, logged), "without it the log says so")
	p.Hold(unreachable.Metric(p.Run, "guildhall_listener_down") == 1, "and a metric")
	p.Must(unreachable.Stop())

	n := through.Serve(connections, "GUILDHALL_LISTEN_URL="+p.URL)
	trusted := func() bool { return n.Metric(p.Run, "guildhall_token_cache_in_sync") == 1 }
	p.Hold(p.Await(30*time.Second, trusted), "with it tokens are found in memory")
	p.readAndWrite(n)
}

// readAndWrite runs more callers than the pooler has server connections, and compares their
// responses with the database.
func (p *place) readAndWrite(n *rig.Node) {
	hook := p.Receiver()
	p.Register(guildA, hook.URL)
	w := &writers{addresses: []string{n.HTTP, n.HTTP}, token: p.Token(guildA), request: paysAndPosts}
	paths := []string{"/economy/wallet/72", "/economy/ledger?per_page=5", "/economy/leaderboard?per_page=5", "/cases"}
	stop := w.begin(p, 2*poolerServers)
	reads := new(rig.Tally).Run(p, rig.Load{
		Address: n.HTTP, Connections: 2 * poolerServers, For: sized(p, 10*time.Second, time.Second),
		Request: func(_, n int) []byte { return rig.Request("GET", paths[n%4], w.token, nil) },
	})
	backends := p.Count(`
		SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name ~ '^guildhall-(api|worker|jobs|vital) '`)
	stop()
	p.Say("reads: %v", reads)
	p.checkWrites(w)
	p.Hold(reads.AllOK() && w.responses.AllOK(), "every read and write succeeds (%d of %d, %d of %d)",
		reads.Count(rig.OK), reads.N(), w.responses.Count(rig.OK), w.responses.N())
	p.compare(w, hook)
	p.Hold(backends <= poolerServers, "over at most %d connections to Postgres (%d)", poolerServers, backends)
}

//go:embed pgbouncer.ini
var poolerConfig string

// startPooler starts PgBouncer for the database as docs/operate/connections.md describes, and
// returns the place behind it.
func (p *place) startPooler() *rig.Place {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		p.Must(missing{"pgbouncer", "PgBouncer: apt-get install pgbouncer, and no service has to run"})
	}
	var major, minor int
	_, err = fmt.Sscanf(p.Tool(program, "--version"), "PgBouncer %d.%d", &major, &minor)
	p.Must(err)
	prepares := major > 1 || minor >= 21 // this version supports prepared statements in transaction mode
	p.Say("PgBouncer %d.%d, which keeps prepared statements: %v", major, minor, prepares)
	return p.Through(func(u *url.URL) {
		password := ""
		if secret, ok := u.User.Password(); ok { // PgBouncer refuses an empty password
			password = "password=" + secret
		}
		address := p.FreeAddress()
		_, port, _ := net.SplitHostPort(address)
		config := fmt.Sprintf(poolerConfig, u.Path[1:], u.Hostname(), u.Port(), u.User.Username(), password, port, 2*poolerClients, poolerServers)
		if prepares {
			config += "max_prepared_statements = 512\n"
		} else {
			u.RawQuery += "&binary_parameters=yes"
		}
		u.Host = address
		p.beginPooler(program, config)
	})
}

func (p *place) beginPooler(program, config string) {
	file := filepath.Join(p.Folder(), "ini")
	p.Must(os.Chmod(filepath.Dir(file), 0o755)) // PgBouncer may run as another user
	p.Must(os.WriteFile(file, []byte(config), 0o644))
	cmd := exec.Command(program, file)
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root
		cmd = exec.Command(program, "--user", "nobody", file)
	}
	p.Must(cmd.Start())
	p.Cleanup(func() error {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // stops at once; it may have ended already
		_ = cmd.Wait()                          // the exit status does not matter
		return nil
	})
}
