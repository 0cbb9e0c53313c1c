package network

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func TestTheLookupReadsOneRowByItsKey(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO network_listings (user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at)
			SELECT n::text, n % 101, n, 'spam', 'low', now(), now() FROM generate_series(1, 20000) AS n`)
		if err == nil {
			_, err = tx.ExecContext(ctx, `ANALYZE network_listings`)
		}
		return err
	})
	dbtest.WantIndex(t, d, "network_listings_pkey", listing, "666")
	dbtest.WantIndex(t, d, "network_listings_pkey", listings, db.Array([]string{"666", "667"}))
}
