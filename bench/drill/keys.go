package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"guildhall/internal/base/db"
)

// keysSize is how big the drill is.
type keysSize struct {
	old     int           // keys that are older than they are kept
	callers int           // beside whose writes they are deleted
	rate    int           // writes a second at most; 0: as many as the node takes
	length  time.Duration // within which they are to be gone
}

// keys deletes outlived keys while new ones come.
func keys(ctx context.Context, p place, r *report, size keysSize) (err error) {
	if err := p.load(ctx, oneTicket); err != nil {
		return err
	}
	tokens, err := p.tokens(ctx, guildA, 1)
	if err != nil {
		return err
	}
	pool, err := db.OpenSQL(p.databaseURL, "drill", 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.ExecContext(ctx, `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, body, created_at)
		SELECT $1, 'gone', 'old-' || i, '\x00', 'done', 200, convert_to(repeat('x', 300), 'UTF8'), now() - interval '26 hours'
		FROM generate_series(1, $2) AS i`, guildA, size.old); err != nil {
		return err
	}
	s, err := p.serve(ctx, drillEnv...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	var responses tally
	var all sync.WaitGroup
	going, stop := context.WithCancel(ctx)
	defer stop()
	begun := time.Now()
	for i := range size.callers {
		all.Go(func() {
			c := &caller{address: s.HTTP}
			defer c.close()
			for n := 0; going.Err() == nil; n++ {
				body := fmt.Appendf(nil, `{"user_id":"7%d","delta":1}`, i)
				responses.add(c.send(going, request("POST", "/economy/adjust", tokens[0], body, fmt.Sprintf("Idempotency-Key: %d-%d", i, n))))
				if size.rate > 0 {
					due := begun.Add(time.Duration(n+1) * time.Duration(size.callers) * time.Second / time.Duration(size.rate))
					pause(going, time.Until(due))
				}
			}
		})
	}
	left := size.old
	gone := awaited(ctx, size.length, func() bool {
		err := pool.QueryRowContext(ctx, `SELECT count(*) FROM (SELECT FROM idempotency_keys WHERE created_at < now() - interval '25 hours' LIMIT 1) k`).Scan(&left)
		return err == nil && left == 0 && len(responses.snapshot()) >= 10*size.callers
	})
	took := time.Since(begun)
	stop()
	all.Wait()
	written := responses.count(ok)
	r.hold(gone, "%d outlived keys are gone after %.0f s, beside %.0f keyed writes a second", size.old, took.Seconds(), float64(written)/took.Seconds())
	refused := responses.count(func(a response) bool { return !ok(a) && a.status != 0 }) // those that stop has ended have no status
	r.hold(written > 0 && refused == 0, "every write succeeds: %v", &responses)
	return nil
}
