package main

import (
	"context"
	"fmt"
	"time"

	"guildhall/bench/rig"
)

// keys prunes expired idempotency keys while new ones are inserted.
func keys(p *place) {
	old, callers, rate := sized(p, 400_000, 5000), sized(p, 64, 4), sized(p, 2000, 100)
	p.LoadText(oneTicket, guildA)
	token := p.Token(guildA)
	p.Exec(`
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, body, created_at)
		SELECT $1, 'gone', 'old-' || i, '\x00', 'done', 200, convert_to(repeat('x', 300), 'UTF8'), now() - interval '26 hours'
		FROM generate_series(1, $2) AS i`, guildA, old)
	n := p.Serve()
	var responses rig.Tally
	begun := time.Now()
	stop := p.Start(1, func(ctx context.Context, _ int) {
		responses.Run(ctx, rig.Load{Address: n.HTTP, Connections: callers, Rate: rate, Request: func(caller, n int) []byte {
			return pays(token, member(caller), fmt.Sprintf("Idempotency-Key: %d", n))
		}})
	})
	gone := p.Await(sized(p, 5*time.Minute, 2*time.Minute), func() bool {
		return p.Count(`SELECT count(*) FROM (SELECT 1 FROM idempotency_keys WHERE created_at < now() - interval '25 hours' LIMIT 1) k`) == 0 &&
			responses.N() >= 10*callers
	})
	took := time.Since(begun)
	stop()
	p.Hold(gone, "%d expired keys are gone after %.0f s, beside %.0f keyed writes a second", old, took.Seconds(), responses.Rate())
	p.Hold(responses.AllOK(), "every write succeeds: %v", &responses)
}
