// Package db is the way to Postgres: two pools, transactions, and the few
// facts about the driver that the rest of the program needs. It is the only
// package that knows lib/pq.
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

// Config says how to reach Postgres and how many connections to use.
type Config struct {
	URL     string // postgres://…
	Writers int    // connections for transactions; 0 means 8
	Readers int    // connections for reads, whose sessions are read-only; 0 means 8
	Name    string // application_name, to which ours add the schema version; empty means guildhall

	// Distributed says that the tables of guilds are spread over several nodes.
	Distributed bool
}

// DB holds a pool for transactions and a pool whose sessions cannot write.
//
// database/sql may run a statement twice when a connection breaks outside a
// transaction. So every write runs inside one, or over a connection that is held
// for it (Single), and what runs otherwise can only read.
type DB struct {
	write, read   *sqlx.DB
	writes, reads *Slots // of their connections

	distributed bool
}

// Distributed reports whether the tables of guilds are spread over several nodes:
// then work over all guilds cannot hop through an index from guild to guild.
func (d *DB) Distributed() bool { return d.distributed }

// statementTimeout is when Postgres gives a statement up, unless the unit has
// said otherwise.
const statementTimeout = 5 * time.Second

// Open prepares both pools; the first use connects. It fails on a malformed URL.
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
		"default_transaction_read_only":       "off", // whatever the role's own is: a statement that stands alone begins no transaction
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

// CheckURL returns why no database could be opened by a URL, and connects to none. It
// repeats nothing of the URL, which may hold a password.
func CheckURL(url string) error {
	pool, err := openPool(url, nil, 1, "", false)
	if err != nil {
		return err
	}
	return pool.Close()
}

// OpenSQL returns a plain pool of at most n connections, for libraries that
// bring their own statements. It has no statement or lock timeout.
func OpenSQL(url, name string, n int) (*sql.DB, error) {
	return openPool(url, map[string]string{"application_name": name, "timezone": "UTC", "default_transaction_read_only": "off"}, n, "", false)
}

// openPool opens a pool whose sessions plan as the statement planning says, and
// prepare statements for tables that lie together, or as they are written.
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
	// After a change of the server behind a name the connections follow. Not all
	// pools at the same moment: each new connection prepares its statements anew.
	pool.SetConnMaxLifetime(connLifetime + rand.N(connLifetime/4)) //nolint:gosec // a guess gains nothing
	return pool, nil
}

// connLifetime is how long a connection is used.
const connLifetime = 30 * time.Minute

// withParams adds session settings to a database URL. Where nobody says how
// much TLS there has to be, it is none for a server on this machine and require
// for any other.
func withParams(raw string, params map[string]string) (string, error) {
	given := raw
	raw, hosts, ports := splitHosts(raw)
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Fragment != "" || u.User == nil && strings.Contains(u.Path+u.RawQuery, "@") {
		// Not the parse error, which would repeat the URL.
		return "", mistaken(given)
	}
	q := u.Query()
	if _, err := takeForeign(q); err != nil {
		return "", err
	}
	// Of two hosts the driver takes the one that sorts last, and it does not know
	// [::1]. So there is one, the query's where there are two, and it stands there.
	if hosts == "" {
		hosts, ports = u.Hostname(), u.Port()
	}
	for name, value := range map[string]string{"host": hosts, "port": ports} {
		if q.Get(name) == "" && value != "" {
			q.Set(name, value)
		}
	}
	u.Host, u.RawQuery = "", q.Encode()
	u.Path = cmp.Or(u.Path, "/") // without it the text would be no URL any more
	cfg, err := pq.NewConfig(u.String())
	if err != nil {
		return "", fault.Wrap(err, "the database URL cannot be used")
	}
	if cfg.SSLMode == "" { // said neither here nor in the environment
		q.Set("sslmode", defaultTLS(cfg))
	}
	if mode := cmp.Or(q.Get("sslmode"), os.Getenv("PGSSLMODE"), defaultTLS(cfg)); mode != "disable" && mixed(cfg) {
		return "", errors.New("the database URL names a socket and another server: the driver would speak to both with TLS or to both without; " +
			"name servers of one kind, or say sslmode=disable")
	}
	if q.Get("connect_timeout") == "" {
		q.Set("connect_timeout", "5")
		if len(cfg.Multi) > 0 {
			q.Set("connect_timeout", "1") // they are tried one after the other, a machine that is gone too
		}
	}
	for k, v := range params {
		q.Set(k, v)
	}
	if name := params["application_name"]; strings.HasPrefix(name, "guildhall") && !strings.Contains(name, " ") {
		// So that a migration sees which programs still run (olderPrograms).
		q.Set("application_name", name+" "+strconv.FormatInt(SchemaVersion(), 10))
	}
	if q.Get("default_transaction_read_only") == "on" && q.Get("target_session_attrs") == "read-write" {
		// The sessions of this pool only read, by our own doing. They want the server that
		// takes writes.
		q.Set("target_session_attrs", "primary")
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// splitHosts takes the servers out of a URL that names several, as libpq does and
// net/url cannot: postgres://user@one:5432,two:5433/name. Where there is one, the
// URL stays as it is.
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

// defaultTLS is the sslmode where none is said. The driver has found out which hosts
// are meant: those of the URL, of its query, of the environment.
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

// mixed reports whether servers are sockets and others are not. The driver takes
// sslmode for all from the first, and a socket knows no TLS.
func mixed(cfg pq.Config) bool {
	socket := isSocket(cfg.Host, cfg.Hostaddr)
	for _, other := range cfg.Multi {
		if isSocket(other.Host, other.Hostaddr) != socket {
			return true
		}
	}
	return false
}

// isSocket reports whether a server is a file on this machine.
func isSocket(host string, address netip.Addr) bool {
	return !address.IsValid() && (strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@"))
}

// isLocal reports whether a server is on this machine. Where an address is
// given besides a name, the address is what is connected to.
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

// Stats is the state of both pools and of their connection slots.
type Stats struct {
	Write, Read   sql.DBStats
	Writes, Reads SlotStats
}

// Stats returns the pools' statistics, for metrics.
func (d *DB) Stats() Stats {
	return Stats{Write: d.write.Stats(), Read: d.read.Stats(), Writes: d.writes.Stats(), Reads: d.reads.Stats()}
}
