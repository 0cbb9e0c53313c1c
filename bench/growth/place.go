package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"guildhall/bench/node"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/operate/installation"
)

// place is an installation.
type place struct {
	guilds   int
	postgres *embedded.Server
	watch    *sql.DB // looks at Postgres' own numbers
	db       *db.DB
	token    string // of the guild in the middle
}

var secretKey = make([]byte, seal.KeySize)

// load fills the tables: $1 guilds, of which each tenth has a map of its
// leaderboard, as large ones have. Nothing is due.
var load = []string{
	`INSERT INTO guilds (id, name, owner_id, last_case, last_ticket) SELECT (1000000 + n)::text, 'Growth', '1', 1, 1 FROM generate_series(1, $1::int) n`,
	`INSERT INTO wallets (guild_id, user_id, balance) SELECT (1000000 + n)::text, u::text, 1000 FROM generate_series(1, $1::int) n, generate_series(1, 2) u`,
	`INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
	 SELECT (1000000 + n)::text, 'e' || u, u::text, 1000, 1000, 'import' FROM generate_series(1, $1::int) n, generate_series(1, 2) u`,
	`INSERT INTO levels (guild_id, user_id, total_xp) SELECT (1000000 + n)::text, u::text, 1000 FROM generate_series(1, $1::int) n, generate_series(1, 2) u`,
	`INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, source, expires_at)
	 SELECT (1000000 + n)::text, 'c', 1, '1', '2', 'mute', 'bot', now() + interval '1 day' FROM generate_series(1, $1::int) n`,
	`INSERT INTO tickets (guild_id, id, number, opener_id, channel_id) SELECT (1000000 + n)::text, 't', 1, '1', n::text FROM generate_series(1, $1::int) n`,
	`INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at)
	 SELECT (1000000 + n)::text, 'g', 'active', 'A prize', 1, n::text, n::text, now(), now() + interval '1 day' FROM generate_series(1, $1::int) n`,
	`INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
	 SELECT (1000000 + n)::text, 'w', 'https://example.com', '{ticket.closed}', '', '' FROM generate_series(1, $1::int) n`,
	`INSERT INTO webhook_schedule (guild_id, endpoint_id) SELECT (1000000 + n)::text, 'w' FROM generate_series(1, $1::int) n`,
	`INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes)
	 SELECT 'tok' || n, (1000000 + n)::text, 'x', 'x', sha256(('tok' || n)::bytea), '{economy:read}' FROM generate_series(1, $1::int) n`,
	`INSERT INTO rank_maps (guild_id, board, version, state, ahead) SELECT (1000000 + n)::text, 'wallets', 1, 'live', '{0}' FROM generate_series(10, $1::int, 10) n`,
	`INSERT INTO rank_marks (guild_id, board, version, number, depth, length, user_id)
	 SELECT (1000000 + n)::text, 'wallets', 1, 1, -1000, 1, '1' FROM generate_series(10, $1::int, 10) n`,
}

func newPlace(ctx context.Context, guilds int) (_ *place, err error) {
	p := &place{guilds: guilds}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	// Durability is no matter here: what is counted is what is read.
	p.postgres, err = embedded.Start(ctx, embedded.Config{Fast: true, Settings: []string{"shared_preload_libraries=pg_stat_statements"}})
	if err != nil {
		return nil, fmt.Errorf("(pg_stat_statements is needed; it comes with Postgres, on some systems in a package of extras): %w", err)
	}
	if err := db.Migrate(ctx, p.postgres.URL); err != nil {
		return nil, err
	}
	if p.watch, err = db.OpenSQL(p.postgres.URL, "bench-growth", 1); err != nil {
		return nil, err
	}
	if p.db, err = db.Open(db.Config{URL: p.postgres.URL, Writers: 2, Readers: 2, Name: "bench-growth"}); err != nil {
		return nil, err
	}
	box, err := seal.New(secretKey)
	if err != nil {
		return nil, err
	}
	if err := installation.CheckKey(ctx, p.db, box); err != nil { // while nothing is there that it does not open
		return nil, err
	}
	for _, statement := range load {
		if _, err := p.watch.ExecContext(ctx, statement, guilds); err != nil {
			return nil, err
		}
	}
	for _, statement := range []string{`VACUUM ANALYZE`, `CREATE EXTENSION pg_stat_statements`} {
		if _, err := p.watch.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	made, err := auth.Create(ctx, p.db, auth.New{
		GuildID: p.middle(), Env: "test", Name: "bench",
		Scopes: []string{"guild:read", "cases:read", "cases:write", "economy:read", "economy:write", "levelling:read", "levelling:write", "tickets:read", "giveaways:read"},
	})
	p.token = made.Secret
	return p, err
}

// middle is the guild that is asked about: one with a map of its leaderboard.
func (p *place) middle() string { return strconv.Itoa(1000000 + max(10, p.guilds/20*10)) }

func (p *place) close() error {
	var errs []error
	if p.db != nil {
		errs = append(errs, p.db.Close())
	}
	if p.watch != nil {
		errs = append(errs, p.watch.Close())
	}
	if p.postgres != nil {
		errs = append(errs, p.postgres.Stop())
	}
	return errors.Join(errs...)
}

// spent is what Postgres has done while work was under way.
func (p *place) spent(ctx context.Context, work func() error) (c cost, err error) {
	if _, err := p.watch.ExecContext(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return c, err
	}
	if err := work(); err != nil {
		return c, err
	}
	return c, p.watch.QueryRowContext(ctx, `
		SELECT coalesce(sum(calls), 0)::float8, coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8, coalesce(sum(total_exec_time), 0)::float8 * 1000
		FROM pg_stat_statements
		WHERE query NOT LIKE '%pg_stat_statements%'`).Scan(&c.statements, &c.blocks, &c.us)
}

// serve runs the real server with the given roles while work is under way.
func (p *place) serve(ctx context.Context, program, roles string, work func(address string) error) error {
	n, err := node.Start(ctx, node.Config{Words: []string{program}, DatabaseURL: p.postgres.URL, SecretKey: secretKey, Env: []string{
		"GUILDHALL_ROLES=" + roles, "GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off", "GUILDHALL_RATE_LOGIN=off",
	}})
	if err != nil {
		return err
	}
	return errors.Join(work(n.HTTP), n.Stop())
}

// send takes anything but a success for an error.
func send(req *http.Request) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= 300 {
		err = fmt.Errorf("%s %s answered %s %s", req.Method, req.URL.Path, resp.Status, text)
	}
	return err
}
