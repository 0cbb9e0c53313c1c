package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"guildhall/bench/testbed"
	"guildhall/internal/operate/installation"
)

type growthOptions struct {
	server   string
	requests int
	idle     time.Duration
	verbose  bool
}

// growthBench shows what requests, sweeps and an idle node cost Postgres in
// installations of different size: with 10, 1,000 and 100,000 guilds, each of the
// same few rows. None of it may grow with the number of guilds. Blocks that were
// touched are what counts, since they are the same on every machine; an index that
// is one level deeper is one more.
func growthBench(flags *flag.FlagSet) func(context.Context) error {
	var o growthOptions
	guilds := numbers(flags, "guilds", 10, []int{10, 1000, 100_000}, "numbers of guilds")
	flags.StringVar(&o.server, "server", "bin/guildhall", "the server `program`")
	flags.IntVar(&o.requests, "requests", 200, "requests of a kind, one after the other")
	flags.DurationVar(&o.idle, "idle", 20*time.Second, "how long an idle node is watched")
	flags.BoolVar(&o.verbose, "statements", false, "print on which statements an idle node's Postgres spends its time")
	return func(ctx context.Context) error {
		found := make([][]line, len(*guilds))
		for i, n := range *guilds {
			var err error
			if found[i], err = growth(ctx, o, n); err != nil {
				return fmt.Errorf("with %d guilds: %w", n, err)
			}
		}
		show(*guilds, found)
		return grown(found[0], found[len(found)-1])
	}
}

// mostIdle is how many statements a second an idle node may ask for.
const mostIdle = 30

// grown says what costs more with many guilds than with few. An index may be
// deeper; an idle node looks through a bounded number of endpoints each time, and
// is held to the number of its statements.
func grown(few, many []line) error {
	var errs []error
	for i, l := range many {
		switch {
		case l.name == idleNode && l.cost.statements >= mostIdle:
			errs = append(errs, fmt.Errorf("an idle node asks for %.1f statements a second, and may for %d", l.cost.statements, mostIdle))
		case l.name != idleNode && l.cost.blocks > 5+3*few[i].cost.blocks:
			errs = append(errs, fmt.Errorf("%s grows: %.1f blocks with few guilds, %.1f with many", l.name, few[i].cost.blocks, l.cost.blocks))
		}
	}
	return errors.Join(errs...)
}

// line is what one kind of work costs.
type line struct {
	name string
	cost cost
}

// cost is what Postgres has done, for each time that the work was done, or for
// each second of an idle node.
type cost struct{ statements, blocks, us float64 }

func (c cost) each(n float64) cost { return cost{c.statements / n, c.blocks / n, c.us / n} }

// show prints a line for each kind of work and a column for each size.
func show(guilds []int, found [][]line) {
	fmt.Printf("\n%-32s", "statements, blocks, us of Postgres")
	for _, n := range guilds {
		fmt.Printf("  %24s", strconv.Itoa(n)+" guilds")
	}
	fmt.Println()
	for i := range found[0] {
		fmt.Printf("%-34s", found[0][i].name)
		for _, lines := range found {
			c := lines[i].cost
			fmt.Printf("  %6.1f %8.1f %8.0f", c.statements, c.blocks, c.us)
		}
		fmt.Println()
	}
}

// growth makes an installation with so many guilds and measures everything.
func growth(ctx context.Context, o growthOptions, guilds int) (lines []line, err error) {
	p, err := newPopulation(ctx, guilds)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	for _, part := range []func(context.Context, growthOptions) ([]line, error){p.sweeps, p.requests, p.idle} {
		found, err := part(ctx, o)
		if err != nil {
			return nil, err
		}
		lines = append(lines, found...)
	}
	return lines, nil
}

// population is an installation with so many guilds.
type population struct {
	*testbed.Place
	guilds int
	token  string // of the guild in the middle
}

// grownLoad fills the tables: $1 guilds, of which each tenth has a map of its
// leaderboard, as large ones have. Nothing is due.
var grownLoad = []string{
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

func newPopulation(ctx context.Context, guilds int) (_ *population, err error) {
	// Durability is no matter here: what is counted is what is read.
	place, err := testbed.New(ctx, testbed.Config{Fast: true, Statements: true})
	if err != nil {
		return nil, err
	}
	p := &population{Place: place, guilds: guilds}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if err := installation.CheckKey(ctx, p.DB, p.Box); err != nil { // while nothing is there that it does not open
		return nil, err
	}
	if err := p.Exec(ctx, grownLoad, guilds); err != nil {
		return nil, err
	}
	if err := testbed.Vacuum(ctx, p.URL); err != nil {
		return nil, err
	}
	p.token, err = p.Token(ctx, p.middle(),
		"guild:read", "cases:read", "cases:write", "economy:read", "economy:write", "levelling:read", "levelling:write", "tickets:read", "giveaways:read")
	return p, err
}

// middle is the guild that is asked about: one with a map of its leaderboard.
func (p *population) middle() string { return strconv.Itoa(1000000 + max(10, p.guilds/20*10)) }

// spent is what Postgres has done while work was under way.
func (p *population) spent(ctx context.Context, work func() error) (c cost, err error) {
	if err := p.Exec(ctx, []string{`SELECT pg_stat_statements_reset()`}); err != nil {
		return c, err
	}
	if err := work(); err != nil {
		return c, err
	}
	return c, p.Admin.QueryRowContext(ctx, `
		SELECT coalesce(sum(calls), 0)::float8, coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8, coalesce(sum(total_exec_time), 0)::float8 * 1000
		FROM pg_stat_statements
		WHERE query NOT LIKE '%pg_stat_statements%'`).Scan(&c.statements, &c.blocks, &c.us)
}

// serve runs the real server with the given roles while work is under way.
func (p *population) serve(ctx context.Context, program, roles string, work func(address string) error) error {
	n, err := p.Serve(ctx, program, "GUILDHALL_ROLES="+roles)
	if err != nil {
		return err
	}
	return errors.Join(work(n.HTTP), n.Stop())
}
