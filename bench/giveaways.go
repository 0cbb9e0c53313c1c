package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"guildhall/bench/testbed"
	"guildhall/internal/base/db"
	"guildhall/internal/base/jobs"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/giveaways"
)

// giveawayBench measures how long it takes until the last of many giveaways that
// end in the same second is in drawing and drawn, and how long other guilds wait
// for their draws while one guild draws from very many entries.
func giveawayBench(flags *flag.FlagSet) func(context.Context) error {
	count := flags.Int("giveaways", 10_000, "giveaways that end in the same second")
	guilds := flags.Int("guilds", 1_000, "guilds that they belong to")
	entries := flags.Int("entries", 100_000, "entries of the large giveaway")
	return func(ctx context.Context) (err error) {
		p, err := testbed.New(ctx, testbed.Config{Writers: 6, Readers: 3})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		d := draws{p}
		stop, err := d.work(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := d.together(ctx, *count, *guilds); err != nil {
			return err
		}
		return d.beside(ctx, *entries)
	}
}

type draws struct{ *testbed.Place }

// work starts what a node's workers do for giveaways. The chat platform is a
// stand-in.
func (d draws) work(ctx context.Context) (stop func() error, err error) {
	queue, err := db.OpenSQL(d.URL, "bench-jobs", 3)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	platform := chat.NewStandIn(slog.New(slog.DiscardHandler))
	runner, err := jobs.New(jobs.Config{
		DB: queue, Log: log,
		Work: []jobs.Work{jobs.Do(func(ctx context.Context, a giveaways.Announcement) error {
			return giveaways.Announce(ctx, d.DB, platform, a)
		})},
		Sweeps: []jobs.Sweep{{Name: "giveaway transitions", Interval: time.Second, Run: func(ctx context.Context) error {
			return giveaways.Transitions(ctx, d.DB)
		}}},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 2)
	go func() { done <- runner.Run(ctx) }()
	go func() { done <- (&giveaways.Worker{DB: d.DB, Chat: platform, Log: log}).Run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-done, <-done, queue.Close())
	}, nil
}

// together lets many giveaways end at once.
func (d draws) together(ctx context.Context, count, guilds int) error {
	if err := d.Exec(ctx, []string{
		`INSERT INTO guilds (id, name, owner_id) SELECT (1000 + i)::text, 'Guild', '1' FROM generate_series(0, $2::int - 1) i WHERE $1::int > 0`,
		`INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, entrant_count, entry_count)
		 SELECT (1000 + i % $2::int)::text, 'g' || i, 'active', 'A prize', 3, '1', '2', now() - interval '1 hour', now() + interval '1 day', 10, 10
		 FROM generate_series(1, $1::int) i`,
		`INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
		 SELECT (1000 + g % $2::int)::text, 'g' || g, (5000 + u)::text FROM generate_series(1, $1::int) g, generate_series(1, 10) u`,
	}, count, guilds); err != nil {
		return err
	}
	ends := time.Now().Add(2 * time.Second)
	if err := d.Exec(ctx, []string{`UPDATE giveaways SET ends_at = $1::timestamptz`}, ends); err != nil {
		return err
	}
	inDrawing, err := d.until(ctx, `status = 'active'`)
	if err != nil {
		return err
	}
	drawn, err := d.until(ctx, `status <> 'ended'`)
	if err != nil {
		return err
	}
	fmt.Printf("%d giveaways of %d guilds end in the same second: the last is in drawing after %.1f s (at most 5), drawn after %.1f s (at most 30)\n",
		count, guilds, inDrawing.Sub(ends).Seconds(), drawn.Sub(ends).Seconds())
	return nil
}

// beside lets one guild draw from very many entries while others end.
func (d draws) beside(ctx context.Context, entries int) error {
	const large = 8
	if err := d.Exec(ctx, []string{
		`INSERT INTO guilds (id, name, owner_id) SELECT '999', 'A large guild', '1' WHERE $1::int + $2::int > 0`,
		`INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, entrant_count, entry_count)
		 SELECT '999', 'large' || i, 'active', 'A prize', 100, '1', '2', now() - interval '1 hour', now() + interval '1 day', $2::int, $2::int
		 FROM generate_series(1, $1::int) i`,
		`INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
		 SELECT '999', 'large' || i, (5000000 + u)::text FROM generate_series(1, $1::int) i, generate_series(1, $2::int) u`,
	}, large, entries); err != nil {
		return err
	}
	if err := d.Exec(ctx, []string{`UPDATE giveaways SET status = 'active', ends_at = now() WHERE guild_id = '999'`}); err != nil {
		return err
	}
	begin := time.Now()
	var worst time.Duration
	for n := 0; ; n++ {
		id := fmt.Sprint("small", n)
		if err := d.Exec(ctx, []string{`
			INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, pot)
			VALUES ('1000', $1, 'drawing', 'A prize', 1, '1', '2', now() - interval '1 hour', now(), 'frozen')`}, id); err != nil {
			return err
		}
		asked := time.Now()
		if _, err := d.until(ctx, `id = '`+id+`' AND status <> 'ended'`); err != nil {
			return err
		}
		worst = max(worst, time.Since(asked))
		var left int
		if err := d.DB.Reader().GetContext(ctx, &left, `SELECT count(*) FROM giveaways WHERE guild_id = '999' AND status <> 'ended'`); err != nil {
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
func (d draws) until(ctx context.Context, condition string) (time.Time, error) {
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); {
		var left int
		if err := d.DB.Reader().GetContext(ctx, &left, `SELECT count(*) FROM (SELECT 1 FROM giveaways WHERE `+condition+` LIMIT 1) AS one`); err != nil {
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
