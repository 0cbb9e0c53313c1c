package rig

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/operate/secretkey"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/webhooks"
)

// secretKey is the secret key of all servers, since servers of one database must share it.
var secretKey = bytes.Repeat([]byte{7}, seal.KeySize)

// Loopback is the range of addresses on which receivers listen.
const Loopback = "127.0.0.0/8"

// Place is a private database and the program that serves it.
type Place struct {
	*Run
	Config
	URL string
	DB  *db.DB    // with the timeouts of a server
	SQL *sqlx.DB  // without timeouts, for work that is not measured
	Box *seal.Box // seals secrets
}

// Config is the configuration of a Place.
type Config struct {
	Program    string
	TCP        bool // Postgres also listens on a loopback address
	Fast       bool // do not wait for the disk, where durability does not matter
	Statements bool // install pg_stat_statements
	Foreign    bool // the program is another build; its own commands create and fill the schema
}

// Place starts a Postgres with a migrated, empty database.
func (r *Run) Place(cfg Config) *Place {
	var settings []string
	if cfg.Statements {
		settings = []string{"shared_preload_libraries=pg_stat_statements"}
	}
	p := r.Over(r.Postgres(embedded.Config{TCP: cfg.TCP, Fast: cfg.Fast, Settings: settings}).URL, cfg)
	if cfg.Foreign {
		text, err := p.Output("migrate")
		r.Need(err == nil, "%s migrate: %w: %s", p.Program, err, text)
	} else {
		r.Must(db.Migrate(r, p.URL))
		r.Must(secretkey.Check(r, p.DB, p.Box)) // stores the check value of the secret key while the database is empty
	}
	if cfg.Statements {
		p.Exec(`CREATE EXTENSION pg_stat_statements`)
	}
	return p
}

// Postgres starts a Postgres server that stops at the end of the run.
func (r *Run) Postgres(cfg embedded.Config) *embedded.Server {
	server, err := embedded.Start(r, cfg)
	r.Must(err)
	r.Cleanup(server.Stop)
	return server
}

// Over returns a Place for an existing database.
func (r *Run) Over(databaseURL string, cfg Config) *Place {
	p := &Place{Run: r, Config: cfg, URL: databaseURL}
	var err error
	p.Box, err = seal.New(secretKey)
	r.Must(err)
	pool, err := db.OpenSQL(p.URL, "bench-admin", 4)
	r.Must(err)
	p.SQL = sqlx.NewDb(pool, "postgres")
	r.Cleanup(p.SQL.Close)
	schema, _ := db.CheckSchema(r, p.URL) // fails if there is no schema yet
	p.DB, err = db.Open(db.Config{URL: p.URL, Name: "bench", Distributed: schema.Distributed})
	r.Must(err)
	r.Cleanup(p.DB.Close)
	return p
}

// At returns the place with another database.
func (p *Place) At(databaseURL string) *Place { return p.Over(databaseURL, p.Config) }

// Part runs a part of the work at the place, and stops the servers that it has started.
func (p *Place) Part(work func(*Place)) {
	p.Run.Part(func(r *Run) {
		part := *p
		part.Run = r
		work(&part)
	})
}

// Exec runs a statement, or several without arguments, without a timeout.
func (p *Place) Exec(statement string, args ...any) {
	_, err := p.SQL.ExecContext(p, statement, args...)
	p.Need(err == nil, "%.80s: %w", statement, err)
}

// Get reads one row.
func (p *Place) Get(into any, query string, args ...any) {
	err := p.SQL.GetContext(p, into, query, args...)
	p.Need(err == nil, "%.80s: %w", query, err)
}

// Select reads all rows.
func (p *Place) Select(into any, query string, args ...any) {
	err := p.SQL.SelectContext(p, into, query, args...)
	p.Need(err == nil, "%.80s: %w", query, err)
}

// Count reads a number.
func (p *Place) Count(query string, args ...any) (n int) {
	p.Get(&n, query, args...)
	return n
}

// Becomes polls a query until it returns n, and reports whether it did so within limit.
func (p *Place) Becomes(limit time.Duration, n int, query string, args ...any) bool {
	return p.Await(limit, func() bool { return p.Count(query, args...) == n })
}

// Has reports whether the database has a table.
func (p *Place) Has(table string) bool {
	return p.Count(`SELECT count(to_regclass($1))`, table) == 1
}

// Vacuum does what autovacuum would do soon.
func (p *Place) Vacuum() {
	p.Exec(`VACUUM ANALYZE`)
	p.Exec(`CHECKPOINT`)
}

// Load imports the guild file that write produces.
func (p *Place) Load(write func(io.Writer)) {
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 64<<10)
		write(out)
		w.CloseWithError(out.Flush())
	}()
	defer p.Vacuum()
	if p.Foreign {
		p.Must(p.ImportBy(r))
		return
	}
	_, err := guildfile.Import(p, p.DB, r, nil)
	p.Must(err)
}

// ImportBy imports a guild file by the program's own command.
func (p *Place) ImportBy(file io.Reader, flags ...string) error {
	cmd := p.Command(append([]string{"import", "-"}, flags...)...)
	cmd.Stdin = file
	text, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s import: %w: %s", p.Program, err, text)
	}
	return nil
}

// LoadText imports a guild file given as a format.
func (p *Place) LoadText(format string, args ...any) {
	p.Load(func(w io.Writer) { fmt.Fprintf(w, format, args...) })
}

// Tokens creates n tokens of a guild with all scopes. It inserts the rows itself, since a run may
// need more tokens than a guild can have.
func (p *Place) Tokens(guild string, n int) []string {
	made := make([]string, n)
	for i := range made {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // cannot fail
		made[i] = "svc_test_" + base64.RawURLEncoding.EncodeToString(secret)
	}
	p.Exec(`
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at)
		SELECT gen_random_uuid()::text, $1, 'bench', 'svc_test_...' || right(secret, 4), sha256(convert_to(secret, 'UTF8')), $3::text[],
		       now() + n * interval '1 us' -- the first is the oldest
		FROM unnest($2::text[]) WITH ORDINALITY AS made (secret, n)`, guild, db.Strings(made), db.Strings(auth.Scopes))
	return made
}

// Token creates one token of a guild.
func (p *Place) Token(guild string) string { return p.Tokens(guild, 1)[0] }

// Key creates a bot key of every guild.
func (p *Place) Key() string {
	made, err := auth.CreateKey(p, p.DB, auth.NewKey{Env: "test", Name: "bench"})
	p.Must(err)
	return made.Secret
}

// Register registers a URL as an endpoint of the guild for all events.
func (p *Place) Register(guild, to string) {
	if p.Foreign {
		cmd := p.Command("webhook", "add", "--guild", guild, "--url", to, "--all-events")
		cmd.Env = append(cmd.Env, "GUILDHALL_WEBHOOK_ALLOW="+Loopback)
		text, err := cmd.CombinedOutput()
		p.Need(err == nil, "%s webhook add: %w: %s", p.Program, err, text)
		return
	}
	guard := egress.NewGuard([]netip.Prefix{netip.MustParsePrefix(Loopback)}, nil)
	_, err := webhooks.Add(p, webhooks.Config{DB: p.DB, Box: p.Box, Guard: guard}, p.DB, guild, to, "", nil)
	p.Must(err)
}

// Command returns a command of the program on the place's database.
func (p *Place) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.Program, args...) // without a context, which would kill a server instead of stopping it
	others := slices.DeleteFunc(os.Environ(), func(v string) bool {
		// The program sets GOGC itself when the environment does not, as in production.
		return strings.HasPrefix(v, "GOGC=") || strings.HasPrefix(v, "GUILDHALL_") && !strings.HasPrefix(v, "GUILDHALL_TEST_")
	})
	cmd.Env = append(others, "GUILDHALL_ENV=test", "GUILDHALL_DATABASE_URL="+p.URL,
		"GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(secretKey))
	return cmd
}

// Output runs a command and returns its output.
func (p *Place) Output(args ...string) (string, error) {
	text, err := p.Command(args...).CombinedOutput()
	return string(text), err
}

// Through returns the place with another database URL for its servers. The URL has a host, for which
// change can put a proxy.
func (p *Place) Through(change func(u *url.URL)) *Place {
	u, err := url.Parse(p.URL)
	p.Must(err)
	p.Need(u.Host != "", "the database is reached over a socket, where no proxy would be used")
	change(u)
	through := *p
	through.URL = u.String()
	return &through
}

// Statements prints the statements on which Postgres has spent the most time since the last reset,
// of one role or of all.
func (p *Place) Statements(role string) {
	var rows []struct {
		Calls      int
		Us, Blocks float64
		Query      string
	}
	p.Select(&rows, `
		SELECT calls, (total_exec_time + total_plan_time) * 1000 / calls AS us, (shared_blks_hit + shared_blks_read)::float8 / calls AS blocks,
		       left(regexp_replace(query, '\s+', ' ', 'g'), 110) AS query
		FROM pg_stat_statements s
		JOIN pg_roles r ON r.oid = s.userid
		WHERE r.rolname = $1 OR $1 = ''
		ORDER BY total_exec_time + total_plan_time DESC
		LIMIT 12`, role)
	for _, row := range rows {
		p.Say("    %6d x %8.0f us %8.1f blocks  %s", row.Calls, row.Us, row.Blocks, row.Query)
	}
}

// Folder creates a directory that is deleted at the end of the run.
func (r *Run) Folder() string {
	folder, err := os.MkdirTemp("/tmp", "guildhall-bench-")
	r.Must(err)
	r.Cleanup(func() error { return os.RemoveAll(folder) })
	return folder
}

// FreeAddress returns an address on which no program listens.
func (r *Run) FreeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
	r.Must(l.Close())
	return l.Addr().String()
}

// Tool runs a program and returns its output.
func (r *Run) Tool(words ...string) string {
	cmd := exec.CommandContext(r, words[0], words[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	r.Need(err == nil, "%.200q: %w: %s", words, err, &stderr)
	return string(bytes.TrimSpace(out))
}
