package idempotency

import (
	"context"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// resealChunk is how many responses are read at a time; a response may have some tens of kilobytes.
const resealChunk = 200

type sealedResponse struct {
	GuildID   string    `db:"guild_id"`
	TokenID   string    `db:"token_id"`
	Key       string    `db:"key"`
	Body      []byte    `db:"body"`
	CreatedAt time.Time `db:"created_at"`
}

// Reseal re-encrypts the stored responses with the first key of box. It goes in the order of their
// age, so a key that is claimed anew meanwhile comes last.
func Reseal(ctx context.Context, d *db.DB, box *seal.Box) (seal.Count, error) {
	var count seal.Count
	var last sealedResponse
	for {
		rows, err := db.Select[sealedResponse](ctx, d.Reader(), `
			SELECT guild_id, token_id, key, body, created_at
			FROM idempotency_keys
			WHERE (created_at, token_id, key) > ($1, $2, $3) AND body IS NOT NULL
			ORDER BY created_at, token_id, key
			LIMIT $4`, last.CreatedAt, last.TokenID, last.Key, resealChunk)
		if err != nil {
			return count, fault.Wrap(err, "read kept answers")
		}
		if len(rows) == 0 {
			return count, nil
		}
		if err := resealRows(ctx, d, box, rows, &count); err != nil {
			return count, err
		}
		last = rows[len(rows)-1]
	}
}

// resealRows re-encrypts a chunk. A key that was claimed anew meanwhile has another body and is
// skipped.
func resealRows(ctx context.Context, d *db.DB, box *seal.Box, rows []sealedResponse, count *seal.Count) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		var counted seal.Count
		for _, r := range rows {
			fresh, changed, err := box.Reseal(r.Body, bound(Request{GuildID: r.GuildID, TokenID: r.TokenID, Key: r.Key}))
			counted.Add(changed, err)
			if !changed {
				continue
			}
			if _, err := db.Exec(ctx, tx, `
				UPDATE idempotency_keys SET body = $4
				WHERE guild_id = $1 AND token_id = $2 AND key = $3 AND body = $5`,
				r.GuildID, r.TokenID, r.Key, fresh, r.Body); err != nil {
				return fault.Wrap(err, "reseal a kept answer")
			}
		}
		count.Resealed += counted.Resealed
		count.Current += counted.Current
		count.Unreadable += counted.Unreadable
		return nil
	})
}
