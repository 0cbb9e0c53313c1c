// Package db is the access to Postgres: two connection pools, transactions, migrations, and what
// the program has to know about the driver. It is the only package that imports lib/pq.
package db

import (
	"cmp"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/lib/pq"

	"guildhall/internal/base/fault"
)

// Config is the configuration of a DB.
type Config struct {
	URL     string // of the form postgres://…
	Writers int    // connections of the pool for transactions; 0 means 8
	Readers int    // connections of the read-only pool; 0 means 8
	Name    string // application_name; the schema version is appended; empty means guildhall

	// Distributed says that the tables of guilds are distributed over the nodes of a Citus cluster.
	Distributed bool
}

// DB holds a pool for transactions and a pool whose sessions are read-only.
//
// When a connection breaks outside a transaction, database/sql may send a statement a second time.
// So every write runs inside a transaction, or over a connection that is held for it (Single), and
// everything else goes to the read-only pool.
type DB struct {
	write, read   *sqlx.DB
	writes, reads *Slots // the connection slots of the two pools

	distributed bool
}

// Distributed reports whether the tables of guilds are distributed over several nodes. Then work
// over all guilds cannot jump from guild to guild in an index.
func (d *DB) Distributed() bool { return d.distributed }

// statementTimeout is Postgres' statement_timeout, unless a transaction sets another (TakeTime).
const statementTimeout = 5 * time.Second

// Open prepares both pools and connects at their first use. It returns an error for a malformed
// URL.
func Open(cfg Config) (*DB, error) {
	cfg.Writers = cmp.Or(cfg.Writers, 8)
	cfg.Readers = cmp.Or(cfg.Readers, 8)
	cfg.Name = cmp.Or(cfg.Name, "guildhall")
	limits := map[string]string{
		"application_name":                    cfg.Name,
		"statement_timeout":                   strconv.FormatInt(statementTimeout.Milliseconds(), 10),
		"lock_timeout":                        "2000",
		"idle_in_transaction_session_timeout": "10000",
		"timezone":                            "UTC",
		"default_transaction_read_only":       "off", // overrides the role's setting, since a statement outside a transaction cannot ask for READ WRITE
	}
	write, err := openPool(cfg.URL, limits, cfg.Writers, byIndex, !cfg.Distributed)
	if err != nil {
		return nil, err
	}
	limits["default_transaction_read_only"] = "on"
	read, err := openPool(cfg.URL, limits, cfg.Readers, byIndex, !cfg.Distributed)
	if err != nil {
		write.Close()
		return nil, err
	}
	return &DB{
		write: sqlx.NewDb(write, "postgres"), read: sqlx.NewDb(read, "postgres"),
		writes: connectionSlots(cfg.Writers), reads: connectionSlots(cfg.Readers),
		distributed: cfg.Distributed,
	}, nil
}

// CheckURL returns an error if raw is not a usable database URL. It does not connect, and the error
// repeats nothing of the URL, which may contain a password.
func CheckURL(url string) error {
	pool, err := openPool(url, nil, 1, "", false)
	if err != nil {
		return err
	}
	return pool.Close()
}

// OpenSQL returns a plain pool of at most n connections, for libraries that bring their own
// statements. The pool sets no statement timeout and no lock timeout.
func OpenSQL(url, name string, n int) (*sql.DB, error) {
	return openPool(url, map[string]string{"application_name": name, "timezone": "UTC", "default_transaction_read_only": "off"}, n, "", false)
}

// openPool opens a pool. Each new session runs the statement planning. together says which form of
// statements the pool prepares: the form for tables on one server, or the form for a Citus
// coordinator.
func openPool(raw string, params map[string]string, n int, planning string, together bool) (*sql.DB, error) {
	dsn, err := withParams(raw, params)
	if err != nil {
		return nil, err
	}
	c, err := newConnector(dsn, planning, together)
	if err != nil {
		return nil, fault.Wrap(err, "the database URL cannot be used")
	}
	pool := sql.OpenDB(c)
	pool.SetMaxOpenConns(n)
	pool.SetMaxIdleConns(n)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	// Limited lifetimes make the connections follow when the host name points to another server.
	// The random part spreads the reconnects of several pools, since each new connection has to
	// prepare its statements again.
	pool.SetConnMaxLifetime(connLifetime + rand.N(connLifetime/4)) //nolint:gosec // a guess gains nothing
	return pool, nil
}

// connLifetime is the least time after which a connection is replaced.
const connLifetime = 30 * time.Minute

// withParams adds session settings to a database URL. If neither the URL nor the environment sets
// sslmode, it is disable for a server on this machine and require for any other.
func withParams(raw string, params map[string]string) (string, error) {
	given := raw
	raw, hosts, ports := splitHosts(raw)
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Fragment != "" || u.User == nil && strings.Contains(u.Path+u.RawQuery, "@") {
		// The parse error itself would repeat the URL.
		return "", mistaken(given)
	}
	q := u.Query()
	if _, err := takeForeign(q); err != nil {
		return "", err
	}
	// Given two hosts, in the URL and in its query, the driver takes the one that sorts last, and
	// it does not understand [::1]. So the host always goes into the query, and a host in the query
	// wins.
	if hosts == "" {
		hosts, ports = u.Hostname(), u.Port()
	}
	for name, value := range map[string]string{"host": hosts, "port": ports} {
		if q.Get(name) == "" && value != "" {
			q.Set(name, value)
		}
	}
	u.Host, u.RawQuery = "", q.Encode()
	u.Path = cmp.Or(u.Path, "/") // a URL without a path would no longer parse
	cfg, err := pq.NewConfig(u.String())
	if err != nil {
		return "", fault.Wrap(err, "the database URL cannot be used")
	}
	if cfg.SSLMode == "" { // sslmode is set neither in the URL nor in the environment
		q.Set("sslmode", defaultTLS(cfg))
	}
	if mode := cmp.Or(q.Get("sslmode"), os.Getenv("PGSSLMODE"), defaultTLS(cfg)); mode != "disable" && mixed(cfg) {
		return "", errors.New("the database URL names a socket and another server: the driver would speak to both with TLS or to both without; " +
			"name servers of one kind, or say sslmode=disable")
	}
	if q.Get("connect_timeout") == "" {
		q.Set("connect_timeout", "5")
		if len(cfg.Multi) > 0 {
			q.Set("connect_timeout", "1") // hosts are tried one after the other, including one that does not respond
		}
	}
	for k, v := range params {
		q.Set(k, v)
	}
	if name := params["application_name"]; strings.HasPrefix(name, "guildhall") && !strings.Contains(name, " ") {
		// With the version in application_name, a migration sees which older programs still run
		// (olderPrograms).
		q.Set("application_name", name+" "+strconv.FormatInt(SchemaVersion(), 10))
	}
	if q.Get("default_transaction_read_only") == "on" && q.Get("target_session_attrs") == "read-write" {
		// The read-only pool sets default_transaction_read_only itself, so for both pools "primary"
		// is the right attribute.
		q.Set("target_session_attrs", "primary")
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// splitHosts cuts the hosts and ports out of a URL that lists several servers, which libpq
// understands and net/url does not: postgres://user@one:5432,two:5433/name. A URL with one server
// is returned unchanged.
func splitHosts(raw string) (without, hosts, ports string) {
	scheme, rest, ok := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	begin := strings.LastIndexByte(rest[:end], '@') + 1
	list := rest[begin:end]
	if !ok || !strings.Contains(list, ",") {
		return raw, "", ""
	}
	var names, numbers []string
	some := false
	for item := range strings.SplitSeq(list, ",") {
		name, number, err := net.SplitHostPort(item)
		if err != nil {
			name, number = strings.Trim(item, "[]"), ""
		}
		some = some || number != ""
		names, numbers = append(names, name), append(numbers, cmp.Or(number, "5432"))
	}
	if some {
		ports = strings.Join(numbers, ",")
	}
	return scheme + "://" + rest[:begin] + rest[end:], strings.Join(names, ","), ports
}

// defaultTLS returns the sslmode to use if none is set. In cfg the driver has already resolved the
// hosts from the URL, its query and the environment.
func defaultTLS(cfg pq.Config) string {
	local := isLocal(cfg.Host, cfg.Hostaddr)
	for _, other := range cfg.Multi {
		local = local && isLocal(other.Host, other.Hostaddr)
	}
	if local {
		return "disable"
	}
	return "require"
}

// mixed reports whether some servers are Unix sockets and others are not. The driver applies one
// sslmode to all, and a Unix socket supports no TLS.
func mixed(cfg pq.Config) bool {
	socket := isSocket(cfg.Host, cfg.Hostaddr)
	for _, other := range cfg.Multi {
		if isSocket(other.Host, other.Hostaddr) != socket {
			return true
		}
	}
	return false
}

// isSocket reports whether a server is a Unix socket.
func isSocket(host string, address netip.Addr) bool {
	return !address.IsValid() && (strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@"))
}

// isLocal reports whether a server is on this machine. If both a host name and an address are
// given, the driver connects to the address.
func isLocal(host string, address netip.Addr) bool {
	if address.IsValid() {
		return address.Unmap().IsLoopback()
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	return host == "" || host == "localhost" || isSocket(host, address)
}

// Close closes both pools.
func (d *DB) Close() error { return errors.Join(d.write.Close(), d.read.Close()) }

// Reader returns the read-only pool.
func (d *DB) Reader() Querier { return reader{d} }

// Stats holds the statistics of both pools and of their connection slots.
type Stats struct {
	Write, Read   sql.DBStats
	Writes, Reads SlotStats
}

// Stats returns the pools' statistics, for metrics.
func (d *DB) Stats() Stats {
	return Stats{Write: d.write.Stats(), Read: d.read.Stats(), Writes: d.writes.Stats(), Reads: d.reads.Stats()}
}
