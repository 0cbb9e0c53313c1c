package idempotency

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// LeaseTime is how long a request that calls another service may hold its key before a duplicate
// may take it over.
const LeaseTime = 30 * time.Second

// ClaimLeased is Claim for a request that calls another service between two transactions. It also
// takes over a key whose lease has expired, if the request is the same.
func (k Keys) ClaimLeased(ctx context.Context, tx *db.Tx, r Request) (*Response, error) {
	// SKIP LOCKED skips a key that a duplicate is just taking over.
	_, err := db.Exec(ctx, tx, `
		DELETE FROM idempotency_keys
		WHERE guild_id = $1 AND (token_id, key) IN (
			SELECT token_id, key FROM idempotency_keys
			WHERE guild_id = $1 AND token_id = $2 AND key = $3 AND fingerprint = $4
			  AND state = 'running' AND lease_until <= now()
			FOR UPDATE SKIP LOCKED)`, r.GuildID, r.TokenID, r.Key, r.Fingerprint)
	if err != nil {
		return nil, fault.Wrap(err, "take over an idempotency key")
	}
	return k.Claim(ctx, tx, r)
}

// Lease commits the claimed key without a response and reserves it for LeaseTime. Until then
// duplicates get idempotency_key_in_use.
func (k Keys) Lease(ctx context.Context, tx *db.Tx, r Request) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE idempotency_keys
		SET lease_until = now() + make_interval(secs => $4)
		WHERE guild_id = $1 AND token_id = $2 AND key = $3 AND state = 'running'`, r.GuildID, r.TokenID, r.Key, LeaseTime.Seconds())
	return fault.Wrap(err, "lease the idempotency key")
}

// Release frees a leased key without a response, so that the request may run again.
func (k Keys) Release(ctx context.Context, tx *db.Tx, r Request) error {
	_, err := db.Exec(ctx, tx, `
		DELETE FROM idempotency_keys
		WHERE guild_id = $1 AND token_id = $2 AND key = $3 AND fingerprint = $4 AND state = 'running'`, r.GuildID, r.TokenID, r.Key, r.Fingerprint)
	return fault.Wrap(err, "release the idempotency key")
}

// ErrInUse is the refusal of a request while its duplicate is running.
var ErrInUse error = inUse
