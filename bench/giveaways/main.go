// Command giveaways measures how long it takes until the last of many giveaways
// that end in the same second is in drawing and drawn, on one machine with a
// Postgres whose fsync is on; and how long other guilds wait for their draws
// while one guild draws from very many entries.
//
//	go run ./bench/giveaways -giveaways 10000 -guilds 1000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/jobs"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/giveaways"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench/giveaways:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	count := flag.Int("giveaways", 10_000, "giveaways that end in the same second")
	guilds := flag.Int("guilds", 1_000, "guilds that they belong to")
	entries := flag.Int("entries", 100_000, "entries of the large giveaway")
	flag.Parse()

	server, err := embedded.Start(ctx, embedded.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := db.Migrate(ctx, server.URL); err != nil {
		return err
	}
	d, err := db.Open(db.Config{URL: server.URL, Writers: 6, Readers: 3, Name: "bench-giveaways"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	b := bench{d}
	stop, err := b.work(ctx, server.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := b.together(ctx, *count, *guilds); err != nil {
		return err
	}
	return b.beside(ctx, *entries)
}

type bench struct{ db *db.DB }

// work starts what a node's workers do for giveaways. The chat platform is a
// stand-in.
func (b bench) work(ctx context.Context, url string) (stop func() error, err error) {
	queue, err := db.OpenSQL(url, "bench-jobs", 3)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	platform := chat.NewStandIn(slog.New(slog.DiscardHandler))
	runner, err := jobs.New(jobs.Config{
		DB: queue, Log: log,
		Work: []jobs.Work{jobs.Do(func(ctx context.Context, a giveaways.Announcement) error {
			return giveaways.Announce(ctx, b.db, platform, a)
		})},
		Sweeps: []jobs.Sweep{{Name: "giveaway transitions", Interval: time.Second, Run: func(ctx context.Context) error {
			return giveaways.Transitions(ctx, b.db)
		}}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 2)
	go func() { done <- runner.Run(ctx) }()
	go func() { done <- (&giveaways.Worker{DB: b.db, Chat: platform, Log: log}).Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-done, <-done, queue.Close())
	}, nil
}

// together lets many giveaways end at once.
func (b bench) together(ctx context.Context, count, guilds int) error {
	if err := b.exec(ctx, `
		INSERT INTO guilds (id, name, owner_id) SELECT (1000 + i)::text, 'Guild', '1' FROM generate_series(0, $1::integer - 1) i`, guilds); err != nil {
		return err
	}
	if err := b.inParts(ctx, count, 1000, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, entrant_count, entry_count)
		SELECT (1000 + i % $3::integer)::text, 'g' || i, 'active', 'A prize', 3, '1', '2', now() - interval '1 hour', now() + interval '1 day', 10, 10
		FROM generate_series($1::integer, $2::integer) i`, guilds); err != nil {
		return err
	}
	if err := b.inParts(ctx, count, 1000, `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
		SELECT (1000 + g % $3::integer)::text, 'g' || g, (5000 + u)::text
		FROM generate_series($1::integer, $2::integer) g, generate_series(1, 10) u`, guilds); err != nil {
		return err
	}
	ends := time.Now().Add(2 * time.Second)
	if err := b.exec(ctx, `UPDATE giveaways SET ends_at = $1::timestamptz`, ends); err != nil {
		return err
	}
	inDrawing, err := b.until(ctx, `status = 'active'`)
	if err != nil {
		return err
	}
	drawn, err := b.until(ctx, `status <> 'ended'`)
	if err != nil {
		return err
	}
	fmt.Printf("%d giveaways of %d guilds end in the same second: the last is in drawing after %.1f s (at most 5), drawn after %.1f s (at most 30)\n",
		count, guilds, inDrawing.Sub(ends).Seconds(), drawn.Sub(ends).Seconds())
	return nil
}

// beside lets one guild draw from very many entries while others end.
func (b bench) beside(ctx context.Context, entries int) error {
	if err := b.exec(ctx, `INSERT INTO guilds (id, name, owner_id) VALUES ('999', 'A large guild', '1')`); err != nil {
		return err
	}
	const large = 8
	if err := b.exec(ctx, `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, entrant_count, entry_count)
		SELECT '999', 'large' || i, 'active', 'A prize', 100, '1', '2', now() - interval '1 hour', now() + interval '1 day', $2, $2
		FROM generate_series(1, $1::integer) i`, large, entries); err != nil {
		return err
	}
	for i := range large {
		if err := b.inParts(ctx, entries, 10_000, `
			INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
			SELECT '999', 'large' || $3::integer, (5000000 + u)::text FROM generate_series($1::integer, $2::integer) u`, i+1); err != nil {
			return err
		}
	}
	if err := b.exec(ctx, `UPDATE giveaways SET status = 'active', ends_at = now() WHERE guild_id = '999'`); err != nil {
		return err
	}
	begin := time.Now()
	var worst time.Duration
	for n := 0; ; n++ {
		id := fmt.Sprint("small", n)
		if err := b.exec(ctx, `
			INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, pot)
			VALUES ('1000', $1, 'drawing', 'A prize', 1, '1', '2', now() - interval '1 hour', now(), 'frozen')`, id); err != nil {
			return err
		}
		asked := time.Now()
		if _, err := b.until(ctx, `id = '`+id+`' AND status <> 'ended'`); err != nil {
			return err
		}
		worst = max(worst, time.Since(asked))
		var left int
		if err := b.db.Reader().GetContext(ctx, &left, `SELECT count(*) FROM giveaways WHERE guild_id = '999' AND status <> 'ended'`); err != nil {
			return err
		}
		if left == 0 {
			fmt.Printf("one guild draws %d times from %d entries in %.1f s; meanwhile another guild's draws took at most %.2f s, of %d\n",
				large, entries, time.Since(begin).Seconds(), worst.Seconds(), n+1)
			return nil
		}
	}
}

// until waits until no giveaway meets the condition any more.
func (b bench) until(ctx context.Context, condition string) (time.Time, error) {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		var left int
		if err := b.db.Reader().GetContext(ctx, &left, `SELECT count(*) FROM (SELECT 1 FROM giveaways WHERE `+condition+` LIMIT 1) AS one`); err != nil {
			return time.Time{}, err
		}
		if left == 0 {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return time.Time{}, errors.New("waited five minutes in vain")
}

// inParts runs a statement that makes the rows $1 to $2, up to n, a part at a
// time: all at once would take longer than a statement may.
func (b bench) inParts(ctx context.Context, n, part int, query string, args ...any) error {
	for from := 1; from <= n; from += part {
		if err := b.exec(ctx, query, append([]any{from, min(from+part-1, n)}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func (b bench) exec(ctx context.Context, query string, args ...any) error {
	return b.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}
