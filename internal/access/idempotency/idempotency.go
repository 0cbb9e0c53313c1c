// Package idempotency stores the responses of writes under the caller's idempotency key, so that a
// repeated request gets the first response instead of a second effect. The key's row is inserted in
// the transaction of the change; its primary key serves as the lock. The package knows nothing of
// HTTP but a status and bytes.
package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Request identifies a request with an idempotency key.
type Request struct {
	GuildID     string
	TokenID     string // the id of the token or bot key
	Key         string
	Fingerprint []byte
}

// Response is the response to a request.
type Response struct {
	Status     int
	Location   string
	RetryAfter string
	Body       []byte
	Replayed   bool
}

// Sealer encrypts stored responses. Opening needs the same bound as sealing.
type Sealer interface {
	Seal(plain []byte, bound string) []byte
	Open(sealed []byte, bound string) ([]byte, error)
}

// Keys stores and finds responses.
type Keys struct {
	Sealer Sealer

	Answer Answer // rebuilds the body for keys that have none stored
}

// Fingerprint returns the SHA-256 of method, path and raw body, each preceded by its length as
// eight big-endian bytes. Requests with equal fingerprints are the same request; a body with its
// members in another order is another request.
func Fingerprint(method, path string, body []byte) []byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(method), []byte(path), body} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// The refusals of a key that is in use.
var (
	inUse  = fault.New(fault.Conflict, "idempotency_key_in_use", "The first request with this Idempotency-Key is still running.").After(time.Second)
	reused = fault.New(fault.Conflict, "idempotency_key_reused", "This Idempotency-Key was used for a different request, "+
		"whose answer (2xx, 400, 404 or 422) is kept for 24 hours: a request that has been mended takes a new key.")
)

// Claim inserts the key in the caller's transaction and returns nil, or returns the response that
// an earlier request stored under the key. A concurrent duplicate waits here until the first
// commits or rolls back, at most for the transaction's lock timeout; then, and while a leased
// request runs, Claim returns idempotency_key_in_use. For a key of another request it returns
// idempotency_key_reused.
func (k Keys) Claim(ctx context.Context, tx *db.Tx, r Request) (*Response, error) {
	// ON CONFLICT names no index, so the statement works both before and after the migration that
	// adds the guild to the primary key.
	_, err := db.Get[bool](ctx, tx, `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT DO NOTHING
		RETURNING true`, r.GuildID, r.TokenID, r.Key, r.Fingerprint)
	switch {
	case err == nil:
		return nil, nil
	case db.LockTimeout(err):
		return nil, inUse.Because(err)
	case !db.Missing(err):
		return nil, fault.Wrap(err, "claim idempotency key")
	}
	response, err := k.find(ctx, tx, r)
	if !errors.Is(err, errOver) {
		return response, err
	}
	if ours, err := takeOver(ctx, tx, r); ours || err != nil {
		return nil, err
	}
	response, err = k.find(ctx, tx, r) // a duplicate has stored its response meanwhile
	if errors.Is(err, errOver) {
		return nil, inUse
	}
	return response, err
}

// errOver says that the 24 hours of a key are over, so the key is free.
var errOver = errors.New("the window of the idempotency key is over")

// takeOver claims a key whose 24 hours are over, unless a duplicate has just done so.
func takeOver(ctx context.Context, tx *db.Tx, r Request) (bool, error) {
	ours, err := db.Select[bool](ctx, tx, `
		UPDATE idempotency_keys
		SET fingerprint = $4, state = 'running', status = NULL, location = NULL, retry_after = NULL,
		    body = NULL, entry_id = NULL, entry_at = NULL, xp_of = NULL, xp_before = NULL, xp_after = NULL, created_at = now(), lease_until = NULL
		WHERE guild_id = $1 AND token_id = $2 AND key = $3
		  AND created_at <= now() - interval '24 hours'
		  AND (lease_until IS NULL OR lease_until <= now())
		RETURNING true`, r.GuildID, r.TokenID, r.Key, r.Fingerprint)
	switch {
	case db.LockTimeout(err):
		return false, inUse.Because(err)
	case err != nil:
		return false, fault.Wrap(err, "take over an idempotency key whose window is over")
	}
	return len(ours) == 1, nil
}

// Replay returns the response stored under the key, or nil if there is none. For a key of another
// request it returns idempotency_key_reused.
func (k Keys) Replay(ctx context.Context, q db.Querier, r Request) (*Response, error) {
	response, err := k.find(ctx, q, r)
	if errors.Is(err, inUse) || errors.Is(err, errOver) {
		return nil, nil
	}
	return response, err
}

type row struct {
	Fingerprint []byte         `db:"fingerprint"`
	State       string         `db:"state"`
	Status      sql.NullInt64  `db:"status"`
	Location    sql.NullString `db:"location"`
	RetryAfter  sql.NullString `db:"retry_after"`
	Body        []byte         `db:"body"`
	Over        bool           `db:"over"`
	Made
}

// find returns the response stored under the key, or errOver.
func (k Keys) find(ctx context.Context, q db.Querier, r Request) (*Response, error) {
	have, err := db.Get[row](ctx, q, `
		SELECT fingerprint, state, status, location, retry_after, body, entry_at, entry_id, xp_of, xp_before, xp_after,
		       created_at <= now() - interval '24 hours' AND (lease_until IS NULL OR lease_until <= now()) AS over
		FROM idempotency_keys
		WHERE guild_id = $1 AND token_id = $2 AND key = $3`, r.GuildID, r.TokenID, r.Key)
	switch {
	case db.Missing(err):
		// The row does not exist, or was released between two statements: the caller may retry.
		return nil, inUse
	case err != nil:
		return nil, fault.Wrap(err, "read idempotency key")
	case have.Over:
		return nil, errOver
	}
	return k.open(ctx, q, have, r)
}

// open returns the response in a row, if the row belongs to the request.
func (k Keys) open(ctx context.Context, q db.Querier, have row, r Request) (*Response, error) {
	switch {
	case !bytes.Equal(have.Fingerprint, r.Fingerprint):
		return nil, reused
	case have.State != "done":
		return nil, inUse
	}
	body, err := k.body(ctx, q, have, r)
	if err != nil {
		return nil, err
	}
	return &Response{
		Status: int(have.Status.Int64), Location: have.Location.String, RetryAfter: have.RetryAfter.String,
		Body: body, Replayed: true,
	}, nil
}

// body returns the stored response body, or rebuilds it from the ledger entry that the key refers
// to. A missing ledger entry, as in a backup that is only partly restored, is an error: the request
// has run, so it must not run again.
func (k Keys) body(ctx context.Context, q db.Querier, have row, r Request) ([]byte, error) {
	if have.Made.At != nil {
		body, err := k.Answer(ctx, q, r.GuildID, have.Made)
		return body, fault.Wrap(err, "answer with what a key names")
	}
	body, err := k.Sealer.Open(have.Body, bound(r))
	return body, fault.Wrap(err, "open the stored answer")
}

// Keep stores the response under the key that this transaction has claimed.
func (k Keys) Keep(ctx context.Context, tx *db.Tx, r Request, a Response) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE idempotency_keys
		SET state = 'done', status = $4, location = nullif($5, ''), retry_after = nullif($6, ''), body = $7, lease_until = NULL
		WHERE guild_id = $1 AND token_id = $2 AND key = $3`,
		r.GuildID, r.TokenID, r.Key, a.Status, a.Location, a.RetryAfter, k.Sealer.Seal(a.Body, bound(r)))
	return fault.Wrap(err, "keep the answer")
}

// bound returns the text that binds a sealed response to its row: in another row it cannot be
// opened. It contains the guild only for bot keys, since a token has just one guild.
func bound(r Request) string {
	if (auth.By{ID: r.TokenID}).IsKey() {
		return "idempotency_keys/" + r.GuildID + "/" + r.TokenID + "/" + r.Key
	}
	return "idempotency_keys/" + r.TokenID + "/" + r.Key
}

// Expired returns the rule by which the pruner deletes old idempotency keys. Correctness does not
// depend on pruning, because Claim itself checks the age of a key.
func Expired() []db.Expiry {
	return []db.Expiry{{Table: "idempotency_keys", Key: "token_id, key", Since: "created_at", Kept: "25 hours"}}
}

type contextKey struct{}

// With returns a context with the current keyed request, for the operation that needs two
// transactions.
func With(ctx context.Context, r Request) context.Context {
	return context.WithValue(ctx, contextKey{}, &r)
}

// From returns the current keyed request, or nil if the request has no key.
func From(ctx context.Context) *Request {
	r, _ := ctx.Value(contextKey{}).(*Request)
	return r
}
