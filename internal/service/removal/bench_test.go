package removal_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/removal"
)

// How long a small unit of another guild takes while the worker deletes a guild
// with a million rows in its ledger: its slowest, and its 99th percentile.
func BenchmarkAGuildWithAMillionLedgerRowsGoes(b *testing.B) {
	for b.Loop() {
		d := dbtest.New(b).DB
		dbtest.AddGuilds(b, d, "1", "2")
		dbtest.Fill(b, d, `
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note, created_at)
			SELECT '1', n::text, (n % 1000)::text, 1, n, '', now() - n * interval '1 second' FROM generate_series(1, 1000000) n`,
			`INSERT INTO wallets (guild_id, user_id, balance) SELECT '2', n::text, 0 FROM generate_series(1, 1000) n`,
			`ANALYZE`)
		dbtest.Do(b, d, func(ctx context.Context, tx *db.Tx) error {
			_, err := guilds.Remove(ctx, tx, "1", 0)
			return err
		})
		dbtest.Exec(b, d, `UPDATE guilds SET removed_after = removed_after - interval '16 seconds' WHERE id = '1'`)

		quiet := meanwhile(b, d, func() { time.Sleep(5 * time.Second) })
		begun := time.Now()
		busy := meanwhile(b, d, func() {
			if err := removal.Guilds(context.Background(), d); err != nil {
				b.Error(err)
			}
		})
		b.ReportMetric(time.Since(begun).Seconds(), "s/removal")
		for name, took := range map[string][]time.Duration{"quiet": quiet, "busy": busy} {
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, name+"-max-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, name+"-p99-ms")
		}
	}
}

// meanwhile runs units of another guild, one after the other, while work goes on, and
// returns how long each took.
func meanwhile(b *testing.B, d *db.DB, work func()) (took []time.Duration) {
	b.Helper()
	done := make(chan struct{})
	var other sync.WaitGroup
	other.Go(func() {
		for {
			begun := time.Now()
			if err := d.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
				_, err := tx.ExecContext(ctx, `UPDATE wallets SET balance = balance + 1 WHERE guild_id = '2' AND user_id = '7'`)
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
