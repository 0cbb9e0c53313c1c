package idempotency

import (
	"context"
	"errors"
	"fmt"

	"guildhall/internal/base/db"
)

// Unused is the condition of a row with the columns token_id and key that nothing
// stands under its key; one without a key meets it. What stands there has to be
// found with Claim, whatever it is. A subquery of this kind is looked up for each
// row, by the primary key, and not joined.
func Unused(guild, row string) string {
	return `(SELECT true FROM idempotency_keys u WHERE u.guild_id = ` + guild + ` AND u.token_id = ` + row + `.token_id AND u.key = ` + row + `.key) IS NULL`
}

// ErrRaced says that somebody else has taken a key meanwhile.
var ErrRaced = errors.New("a key was taken meanwhile")

// KeepEach claims the keys of several requests of one unit and keeps their
// responses under them, once what they respond to is done. It is ErrRaced when
// something stands under one of the keys: the unit has to be given up then. Keys
// are claimed in one order everywhere, so that no two units wait for each other.
func (k Keys) KeepEach(ctx context.Context, tx *db.Tx, requests []Request, responses []Response) error {
	guilds, tokens, keys := make([]string, len(requests)), make([]string, len(requests)), make([]string, len(requests))
	fingerprints := make([][]byte, len(requests))
	statuses, locations, waits, bodies := make([]int64, len(requests)), make([]string, len(requests)), make([]string, len(requests)), make([][]byte, len(requests))
	for i, r := range requests {
		a := responses[i]
		guilds[i], tokens[i], keys[i], fingerprints[i] = r.GuildID, r.TokenID, r.Key, r.Fingerprint
		statuses[i], locations[i], waits[i], bodies[i] = int64(a.Status), a.Location, a.RetryAfter, k.Sealer.Seal(a.Body, bound(r))
	}
	kept, err := db.Select[bool](ctx, tx, keepEach, db.Array(guilds), db.Array(tokens), db.Array(keys), db.ByteArray(fingerprints),
		db.Integers(statuses), db.Array(locations), db.Array(waits), db.ByteArray(bodies))
	if err != nil {
		return fmt.Errorf("keep %d responses: %w", len(requests), err)
	}
	if len(kept) < len(requests) {
		return ErrRaced
	}
	return nil
}

// keepEach returns a row for each key that it has claimed. A coordinator's number of
// rows affected counts those that met another one as well.
const keepEach = `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, location, retry_after, body)
		SELECT guild_id, token_id, key, fingerprint, 'done', status, nullif(location, ''), nullif(retry_after, ''), body
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::text[], $7::text[], $8::bytea[])
		     AS a (guild_id, token_id, key, fingerprint, status, location, retry_after, body)
		ORDER BY guild_id, token_id, key
		ON CONFLICT DO NOTHING
		RETURNING true`
