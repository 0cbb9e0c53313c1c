package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/access/audit"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/lanes"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/cases"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/levelling"
	"guildhall/internal/service/tickets"
)

// growthBench shows what requests, sweeps and an idle node cost Postgres in installations of
// different size: with 10, 1,000 and 100,000 guilds, each with the same few rows. No cost may grow
// with the number of guilds. It counts touched blocks, which are the same on every machine; an
// index that is one level deeper adds one block.
func growthBench(flags *flag.FlagSet) func(*rig.Run, string) {
	var all population
	guilds := numbers(flags, "guilds", []int{10, 1000, 100_000}, "numbers of guilds")
	flags.IntVar(&all.requests, "requests", 200, "requests of a kind, one after the other")
	flags.DurationVar(&all.idle, "idle", 20*time.Second, "how long an idle node is watched")
	flags.BoolVar(&all.verbose, "statements", false, "print on which statements an idle node's Postgres spends its time")
	return func(r *rig.Run, server string) {
		found := make([][]line, len(*guilds))
		for i, n := range *guilds {
			r.Part(func(part *rig.Run) {
				p := all
				// Fast: it counts reads, so durability does not matter.
				p.Place = part.Place(rig.Config{Program: server, Fast: true, Statements: true})
				p.fill(n)
				p.sweeps()
				p.Part(func(at *rig.Place) { p.ask(at.Serve("GUILDHALL_ROLES=api")) })
				p.Part(func(at *rig.Place) {
					at.Serve("GUILDHALL_ROLES=api,worker")
					p.rest()
				})
				found[i] = p.lines
			})
		}
		show(r, *guilds, found)
	}
}

// mostIdle is the limit of statements a second for an idle node.
const mostIdle = 30

// line is what Postgres did for one kind of work: for each execution, or for each second of an idle
// node.
type line struct {
	name                   string
	Statements, Blocks, Us float64
}

// show prints a line for each kind of work with a column for each size, and checks that none costs
// more with many guilds than with few. Two exceptions: an index may be deeper, and an idle node,
// which reads a bounded number of endpoints each time, is judged by the number of its statements.
func show(r *rig.Run, guilds []int, found [][]line) {
	head := fmt.Sprintf("\n%-34s", "statements, blocks, us of Postgres")
	for _, n := range guilds {
		head += fmt.Sprintf("  %24s", strconv.Itoa(n)+" guilds")
	}
	r.Say("%s", head)
	for i, few := range found[0] {
		text := fmt.Sprintf("%-34s", few.name)
		for _, lines := range found {
			text += fmt.Sprintf("  %6.1f %8.1f %8.0f", lines[i].Statements, lines[i].Blocks, lines[i].Us)
		}
		r.Say("%s", text)
		many := found[len(found)-1][i]
		if few.name == idleNode {
			r.Hold(many.Statements < mostIdle, "an idle node asks for less than %d statements a second (%.1f)", mostIdle, many.Statements)
		} else if most := 5 + 3*few.Blocks; many.Blocks > most {
			r.Hold(false, "%s grows: %.1f blocks with few guilds, %.1f with many, at most %.1f", few.name, few.Blocks, many.Blocks, most)
		}
	}
}

// population is an installation with a given number of guilds.
type population struct {
	*rig.Place
	requests int
	idle     time.Duration
	verbose  bool
	middle   string // the guild that requests are about, one with a rank index
	lines    []line
}

//go:embed grown.sql
var grownRows string

func (p *population) fill(guilds int) {
	p.middle = strconv.Itoa(1000000 + max(10, guilds/20*10))
	p.Exec(`CREATE TABLE grown (n int)`)
	p.Exec(`INSERT INTO grown SELECT generate_series(1, $1::int)`, guilds)
	p.Exec(grownRows)
	p.Vacuum()
}

// count measures what Postgres does for each of the n executions in work.
func (p *population) count(name string, n float64, work func()) {
	p.Exec(`SELECT pg_stat_statements_reset()`)
	work()
	l := line{name: name}
	p.Get(&l, `
		SELECT coalesce(sum(calls), 0)::float8 / $1 AS statements, coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8 / $1 AS blocks,
		       coalesce(sum(total_exec_time), 0)::float8 * 1000 / $1 AS us
		FROM pg_stat_statements
		WHERE query NOT LIKE '%pg_stat_statements%'`, n)
	p.lines = append(p.lines, l)
}

// again measures n executions of work, after enough executions for Postgres to use generic plans.
func (p *population) again(name string, n int, work func()) {
	for range 10 {
		work()
	}
	p.count(name, float64(n), func() {
		for range n {
			work()
		}
	})
}

// poll scans a queue once, as a lane does.
func (p *population) poll(ctx context.Context, q lanes.Queue) error {
	_, err := db.Select[db.Found](ctx, p.DB.Reader(), q.Scan(p.DB.Distributed()), "", 500, 16)
	return err
}

// sweeps runs each sweep in turn with nothing due, and the maintainer of leaderboards with one
// request. Sweeps and polls of the delivery engine are measured as part of the idle node.
func (p *population) sweeps() {
	log := slog.New(slog.DiscardHandler)
	maintainer := &leaderboard.Maintainer{DB: p.DB, Log: log}
	expired := slices.Concat(idempotency.Expired(), chat.Expired(), audit.Expired(), usage.Expired(), levelling.Expired(), dashboard.Expired())
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"giveaway transitions", func(ctx context.Context) error { return giveaways.Transitions(ctx, p.DB) }},
		{"poll for announcements", func(ctx context.Context) error { return p.poll(ctx, chat.Announcements) }},
		{"ticket messages", func(ctx context.Context) error {
			return tickets.SweepIntents(ctx, tickets.Config{DB: p.DB, Chat: chat.NewStandIn(log)})
		}},
		{"poll for ticket channels", func(ctx context.Context) error { return p.poll(ctx, tickets.Channels) }},
		{"moves of XP", func(ctx context.Context) error { return levelling.FoldMoves(ctx, p.DB) }},
		{"case expiry", func(ctx context.Context) error { return cases.Expire(ctx, p.DB) }},
		{"pruning of all kinds", func(ctx context.Context) (err error) {
			for _, o := range expired {
				_, failed := db.PruneOf(ctx, p.DB, o, 1000)
				err = errors.Join(err, failed)
			}
			return err
		}},
		{"maintainer, nothing asked for", maintainer.Maintain},
		{"maintainer, one leaderboard asked for", func(ctx context.Context) error {
			p.Exec(`INSERT INTO rank_requests (guild_id, board) SELECT $1, 'levels' FROM generate_series(1, 32)`, p.middle)
			return maintainer.Maintain(ctx)
		}},
	} {
		p.again(s.name, 30, func() { p.Must(s.run(p)) })
	}
}

// ask sends requests about one guild to an otherwise idle node.
func (p *population) ask(n *rig.Node) {
	const change = `{"user_id":"1","delta":1}`
	token := p.Token(p.middle)
	for _, r := range []struct{ name, path, body string }{
		{"getGuild", "/guild", ""},
		{"getWallet", "/economy/wallet/1", ""},
		{"getEconomyRank", "/economy/rank/1", ""},
		{"leaderboard", "/economy/leaderboard", ""},
		{"listLedgerEntries", "/economy/ledger", ""},
		{"listCases", "/cases?status=active&type=warn", ""},
		{"listTickets", "/tickets", ""},
		{"listGiveaways", "/giveaways", ""},
		{"adjustBalance", "/economy/adjust", change},
		{"adjustBalance with a key", "/economy/adjust", change},
		{"adjustXp", "/levelling/adjust", change},
		{"createCase", "/cases", `{"user_id":"1","moderator_id":"2","type":"warn","reason":"measured"}`},
	} {
		sent := 0
		p.again(r.name, p.requests, func() {
			sent++
			method, headers := "GET", []string(nil)
			if r.body != "" {
				method = "POST"
			}
			if strings.HasSuffix(r.name, "key") {
				headers = []string{"Idempotency-Key: growth-" + strconv.Itoa(sent)}
			}
			p.Ask(n.HTTP, rig.Request(method, r.path, token, []byte(r.body), headers...), nil)
		})
	}
}

// idleNode is the name of what rest measures.
const idleNode = "a second of an idle node"

// rest measures a node without requests.
func (p *population) rest() {
	rig.Pause(p, 5*time.Second)
	p.count(idleNode, p.idle.Seconds(), func() { rig.Pause(p, p.idle) })
	if p.verbose {
		p.Statements("")
	}
}
