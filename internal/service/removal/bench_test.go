package removal_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/removal"
)

// BenchmarkAMillionLedgerRowsGo measures how long small transactions of others take while the
// worker deletes a million ledger rows: the slowest, and the 99th percentile. The others are
// another guild while a guild is deleted, and another member while a member's data is deleted.
func BenchmarkAMillionLedgerRowsGo(b *testing.B) {
	for _, c := range []struct {
		name  string
		ask   func(ctx context.Context, tx *db.Tx) error
		due   string
		work  func(ctx context.Context, d *db.DB) error
		other string // the guild of the small transactions
	}{
		{
			"guild", func(ctx context.Context, tx *db.Tx) error {
				_, err := guilds.Remove(ctx, tx, "1", 0)
				return err
			}, `UPDATE guilds SET removed_after = removed_after - interval '16 seconds' WHERE id = '1'`, removal.Guilds, "2",
		},
		{
			"member", func(ctx context.Context, tx *db.Tx) error {
				_, err := removal.Forget(ctx, tx, auth.System("1"), "5", true)
				return err
			}, `ANALYZE forgotten_members`, removal.Members, "1",
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				d := dbtest.New(b).DB
				dbtest.AddGuilds(b, d, "1", "2")
				dbtest.Fill(b, d, `
					INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
					SELECT '1', n::text, '5', 1, n, '', now() - n * interval '1 second' FROM generate_series(1, 1000000) n`,
					`INSERT INTO wallets (guild_id, user_id, balance) SELECT g, n::text, 0 FROM unnest('{1,2}'::text[]) g, generate_series(1, 1000) n`,
					`ANALYZE`)
				quiet := meanwhile(b, d, c.other, func() { time.Sleep(5 * time.Second) })
				dbtest.Do(b, d, c.ask)
				dbtest.Exec(b, d, c.due)
				begun := time.Now()
				busy := meanwhile(b, d, c.other, func() {
					if err := c.work(context.Background(), d); err != nil {
						b.Error(err)
					}
				})
				b.ReportMetric(time.Since(begun).Seconds(), "s/removal")
				if n := dbtest.Value[int](b, d, `SELECT count(*) FROM ledger_entries WHERE user_id = '5'`); n != 0 {
					b.Errorf("%d rows are left", n)
				}
				for name, took := range map[string][]time.Duration{"quiet": quiet, "busy": busy} {
					slices.Sort(took)
					long := slices.IndexFunc(took, func(d time.Duration) bool { return d > 50*time.Millisecond })
					if long < 0 {
						long = len(took)
					}
					b.ReportMetric(float64(len(took)-long), name+"-over-50ms")
					b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, name+"-max-ms")
					b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, name+"-p99-ms")
				}
			}
		})
	}
}

// meanwhile runs transactions of a guild one after the other while work runs, and returns how long
// each took.
func meanwhile(b *testing.B, d *db.DB, guild string, work func()) (took []time.Duration) {
	b.Helper()
	done := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for {
			begun := time.Now()
			if err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.ExecContext(ctx, `
					WITH moved AS (UPDATE wallets SET balance = balance + 1 WHERE guild_id = $1 AND user_id = '7' RETURNING balance)
					INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
					SELECT $1, $2, '7', 1, balance, '', now() FROM moved`, guild, db.NewID())
				return err
			}); err != nil {
				b.Error(err)
				return
			}
			took = append(took, time.Since(begun))
			select {
			case <-done:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
	work()
	close(done)
	other.Wait()
	return took
}
