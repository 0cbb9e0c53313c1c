package idempotency

import (
	"context"
	"fmt"

	"guildhall/internal/db"
)

// Claiming makes a statement claim the keys of the rows that it works on. Rows is
// the name of a CTE of it with the columns guild_id, token_id, key and
// fingerprint; key is null where there is none. A key that is there already, with whatever response, is
// not claimed: whose it is has to be done with Claim.
type Claiming struct{ Rows string }

// CTE is the further CTE that does it, to be put behind that of the rows. Keys are
// claimed in one order everywhere, so that no two statements wait for each other.
func (c Claiming) CTE() string {
	return `keys_claimed AS (
			INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint)
			SELECT guild_id, token_id, key, fingerprint
			FROM ` + c.Rows + `
			WHERE key IS NOT NULL
			ORDER BY guild_id, token_id, key
			ON CONFLICT DO NOTHING
			RETURNING token_id, key
		)`
}

// Granted is the condition of a row to be worked on: it has no key, or has it now.
func (c Claiming) Granted() string {
	return `(` + c.Rows + `.key IS NULL OR (` + c.Rows + `.token_id, ` + c.Rows + `.key) IN (SELECT token_id, key FROM keys_claimed))`
}

// Columns are the arguments of such rows, as arrays: the tokens, the keys and the
// fingerprints of requests, of which those without a key are nil.
func Columns(requests []*Request) (args []any) {
	tokens, keys, fingerprints := make([]*string, len(requests)), make([]*string, len(requests)), make([][]byte, len(requests))
	for i, r := range requests {
		if r != nil {
			tokens[i], keys[i], fingerprints[i] = &r.TokenID, &r.Key, r.Fingerprint
		}
	}
	return []any{db.Texts(tokens), db.Texts(keys), db.ByteArray(fingerprints)}
}

// KeepEach is Keep for several requests of one unit.
func (k Keys) KeepEach(ctx context.Context, tx *db.Tx, requests []Request, responses []Response) error {
	guilds, tokens, keys := make([]string, len(requests)), make([]string, len(requests)), make([]string, len(requests))
	fingerprints := make([][]byte, len(requests))
	statuses, locations, waits, bodies := make([]int64, len(requests)), make([]string, len(requests)), make([]string, len(requests)), make([][]byte, len(requests))
	for i, r := range requests {
		a := responses[i]
		guilds[i], tokens[i], keys[i], fingerprints[i] = r.GuildID, r.TokenID, r.Key, r.Fingerprint
		statuses[i], locations[i], waits[i], bodies[i] = int64(a.Status), a.Location, a.RetryAfter, k.Sealer.Seal(a.Body, bound(r))
	}
	_, err := tx.ExecContext(ctx, keepEach, db.Array(guilds), db.Array(tokens), db.Array(keys), db.ByteArray(fingerprints),
		db.Integers(statuses), db.Array(locations), db.Array(waits), db.ByteArray(bodies))
	if err != nil {
		return fmt.Errorf("keep %d answers: %w", len(requests), err)
	}
	return nil
}

// The rows are there, claimed by this unit. As conflicts they are found by their
// key whatever Postgres believes of the table: an UPDATE that joins it read all
// keys of a guild for each batch, by a plan made while there were few.
const keepEach = `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, location, retry_after, body)
		SELECT guild_id, token_id, key, fingerprint, 'done', status, nullif(location, ''), nullif(retry_after, ''), body
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::text[], $7::text[], $8::bytea[])
		     AS a (guild_id, token_id, key, fingerprint, status, location, retry_after, body)
		ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE
		SET state = excluded.state, status = excluded.status, location = excluded.location, retry_after = excluded.retry_after,
		    body = excluded.body, lease_until = NULL`
