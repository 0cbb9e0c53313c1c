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

// secretKey is that of all servers: those of one database must have the same.
var secretKey = bytes.Repeat([]byte{7}, seal.KeySize)

// Loopback is where receivers live.
const Loopback = "127.0.0.0/8"

// Place is a database that no other run uses, and the program that serves it.
type Place struct {
	*Run
	Config
	URL string
	DB  *db.DB    // with the bounds that a server has
	SQL *sqlx.DB  // without, for what is not measured
	Box *seal.Box // of the secrets
}

// Config says what a place is.
type Config struct {
	Program    string
	TCP        bool // Postgres listens on the loopback address too
	Fast       bool // durability does not matter, since nothing waits for the disk
	Statements bool // pg_stat_statements is counted
	Foreign    bool // the program is another build: its own commands make and fill its schema
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
		r.Must(secretkey.Check(r, p.DB, p.Box)) // while nothing is there that it does not open
	}
	if cfg.Statements {
		p.Exec(`CREATE EXTENSION pg_stat_statements`)
	}
	return p
}

// Postgres starts one that ends with the run.
func (r *Run) Postgres(cfg embedded.Config) *embedded.Server {
	server, err := embedded.Start(r, cfg)
	r.Must(err)
	r.Cleanup(server.Stop)
	return server
}

// Over is a place over a database that is there.
func (r *Run) Over(databaseURL string, cfg Config) *Place {
	p := &Place{Run: r, Config: cfg, URL: databaseURL}
	var err error
	p.Box, err = seal.New(secretKey)
	r.Must(err)
	pool, err := db.OpenSQL(p.URL, "bench-admin", 4)
	r.Must(err)
	p.SQL = sqlx.NewDb(pool, "postgres")
	r.Cleanup(p.SQL.Close)
	schema, _ := db.CheckSchema(r, p.URL) // fails where there is none yet
	p.DB, err = db.Open(db.Config{URL: p.URL, Name: "bench", Distributed: schema.Distributed})
	r.Must(err)
	r.Cleanup(p.DB.Close)
	return p
}

// At is the place with another database.
func (p *Place) At(databaseURL string) *Place { return p.Over(databaseURL, p.Config) }

// Part does a part of the work at the place, and ends the servers that it has started.
func (p *Place) Part(work func(*Place)) {
	p.Run.Part(func(r *Run) {
		part := *p
		part.Run = r
		work(&part)
	})
}

// Exec runs a statement, or several without arguments, for as long as it takes.
func (p *Place) Exec(statement string, args ...any) {
	_, err := p.SQL.ExecContext(p, statement, args...)
	p.Need(err == nil, "%.80s: %w", statement, err)
}

// Get reads one row.
func (p *Place) Get(into any, query string, args ...any) {
	p.Must(p.SQL.GetContext(p, into, query, args...))
}

// Select reads all rows.
func (p *Place) Select(into any, query string, args ...any) {
	p.Must(p.SQL.SelectContext(p, into, query, args...))
}

// Count reads a number. It is -1 when Postgres does not answer, which may pass.
func (p *Place) Count(query string, args ...any) (n int) {
	if err := p.SQL.GetContext(p, &n, query, args...); err != nil {
		return -1
	}
	return n
}

// Becomes waits until a number is what it is to be, and reports whether it is.
func (p *Place) Becomes(limit time.Duration, n int, query string, args ...any) bool {
	return p.Await(limit, func() bool { return p.Count(query, args...) == n })
}

// Vacuum does what autovacuum would soon do.
func (p *Place) Vacuum() {
	p.Exec(`VACUUM ANALYZE`)
	p.Exec(`CHECKPOINT`)
}

// Load imports the guild file that write produces, and returns how many records it had;
// 0 for a foreign program, which doesn't say.
func (p *Place) Load(write func(io.Writer)) int64 {
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriterSize(w, 64<<10)
		write(out)
		w.CloseWithError(out.Flush())
	}()
	defer p.Vacuum()
	if p.Foreign {
		p.importBy(r)
		return 0
	}
	sum, err := guildfile.Import(p, p.DB, r, nil)
	p.Must(err)
	return sum.Records
}

// importBy imports a guild file with the program's own command.
func (p *Place) importBy(file io.Reader) {
	cmd := p.Command("import", "-")
	cmd.Stdin = file
	text, err := cmd.CombinedOutput()
	p.Need(err == nil, "%s import: %w: %s", p.Program, err, text)
}

// LoadText imports a guild file.
func (p *Place) LoadText(format string, args ...any) {
	p.Load(func(w io.Writer) { fmt.Fprintf(w, format, args...) })
}

// Tokens makes tokens of a guild with every scope: rows of their own, since a run may
// need more than a guild is given.
func (p *Place) Tokens(guild string, n int) []string {
	made := make([]string, n)
	for i := range made {
		secret := make([]byte, 32)
		_, _ = rand.Read(secret) // never fails
		made[i] = "svc_test_" + base64.RawURLEncoding.EncodeToString(secret)
	}
	p.Exec(`
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, created_at)
		SELECT gen_random_uuid()::text, $1, 'bench', 'svc_test_...' || right(secret, 4), sha256(convert_to(secret, 'UTF8')), $3::text[],
		       now() + n * interval '1 us' -- the first is the oldest
		FROM unnest($2::text[]) WITH ORDINALITY AS made (secret, n)`, guild, db.Strings(made), db.Strings(auth.Scopes))
	return made
}

// Token makes one.
func (p *Place) Token(guild string) string { return p.Tokens(guild, 1)[0] }

// Key makes a bot's key of every guild.
func (p *Place) Key() string {
	made, err := auth.CreateKey(p, p.DB, auth.NewKey{Env: "test", Name: "bench"})
	p.Must(err)
	return made.Secret
}

// Register makes a URL an endpoint of the guild for every event.
func (p *Place) Register(guild, to string) {
	if p.Foreign {
		cmd := p.Command("webhook", "add", "--guild", guild, "--url", to, "--all-events")
		cmd.Env = append(cmd.Env, "GUILDHALL_WEBHOOK_ALLOW="+Loopback)
		text, err := cmd.CombinedOutput()
		p.Need(err == nil, "%s webhook add: %w: %s", p.Program, err, text)
		return
	}
	guard := egress.NewGuard([]netip.Prefix{netip.MustParsePrefix(Loopback)}, nil)
	_, err := webhooks.Add(p, webhooks.Config{DB: p.DB, Box: p.Box, Guard: guard}, guild, to, "", nil)
	p.Must(err)
}

// Command is the program's command line on the place's database.
func (p *Place) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.Program, args...) // without a context: a server is stopped in order
	others := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GUILDHALL_") && !strings.HasPrefix(v, "GUILDHALL_TEST_")
	})
	cmd.Env = append(others, "GUILDHALL_ENV=test", "GUILDHALL_DATABASE_URL="+p.URL,
		"GUILDHALL_SECRET_KEY="+base64.StdEncoding.EncodeToString(secretKey))
	return cmd
}

// Output is what a command says, and how it ends.
func (p *Place) Output(args ...string) (string, error) {
	text, err := p.Command(args...).CombinedOutput()
	return string(text), err
}

// Through is the place whose servers reach the database by another URL.
func (p *Place) Through(change func(u *url.URL)) *Place {
	u, err := url.Parse(p.URL)
	p.Must(err)
	change(u)
	through := *p
	through.URL = u.String()
	return &through
}

// Statements prints on what Postgres has spent most time since the last reset: for
// one role, or for all when it is empty.
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

// Folder makes a folder that goes with the run.
func (r *Run) Folder() string {
	folder, err := os.MkdirTemp("/tmp", "guildhall-bench-")
	r.Must(err)
	r.Cleanup(func() error { return os.RemoveAll(folder) })
	return folder
}

// FreeAddress is one on which no program listens.
func (r *Run) FreeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
	r.Must(l.Close())
	return l.Addr().String()
}

// Tool runs a program and returns what it says.
func (r *Run) Tool(words ...string) string {
	cmd := exec.CommandContext(r, words[0], words[1:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	r.Need(err == nil, "%.200q: %w: %s", words, err, &stderr)
	return string(bytes.TrimSpace(out))
}
