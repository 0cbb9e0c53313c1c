package webhooks

import (
	"context"
	"encoding/json"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
)

// resealChunk is how many endpoints are read at a time.
const resealChunk = 200

// sealedSecrets are the encrypted secrets of an endpoint.
type sealedSecrets struct {
	GuildID string `db:"guild_id"`
	ID      string `db:"id"`
	Secret  []byte `db:"secret"`
	Old     []byte `db:"old_secrets"`
}

// SampleSecrets reads a hundred endpoints and returns whether there are any, and whether box can
// decrypt the secret of at least one.
func SampleSecrets(ctx context.Context, q db.Querier, box *seal.Box) (some, opens bool, err error) {
	rows, err := sealedAfter(ctx, q, sealedSecrets{}, 100)
	for _, r := range rows {
		if _, err := box.Open(r.Secret, delivery.BoundTo(r.GuildID, r.ID)); err == nil {
			return true, true, nil
		}
	}
	return len(rows) > 0, false, err
}

// Reseal re-encrypts the endpoints' secrets, including replaced ones, with the first key of box.
func Reseal(ctx context.Context, d *db.DB, box *seal.Box) (seal.Count, error) {
	var count seal.Count
	var last sealedSecrets
	for {
		rows, err := sealedAfter(ctx, d.Reader(), last, resealChunk)
		if len(rows) == 0 {
			return count, err
		}
		for _, r := range rows {
			fresh, changed, err := r.reseal(box)
			count.Add(changed, err)
			if err != nil || !changed {
				continue
			}
			if err := replaceSealed(ctx, d, r, fresh); err != nil {
				return count, err
			}
		}
		last = rows[len(rows)-1]
	}
}

// reseal returns the secrets encrypted with the first key. A replaced secret that no key can
// decrypt is kept unchanged; it no longer signs.
func (s sealedSecrets) reseal(box *seal.Box) (fresh sealedSecrets, changed bool, err error) {
	fresh = s
	if fresh.Secret, changed, err = box.Reseal(s.Secret, delivery.BoundTo(s.GuildID, s.ID)); err != nil {
		return s, false, err
	}
	var old []oldSecret
	if err := json.Unmarshal(s.Old, &old); err != nil {
		return s, false, fault.Wrap(err, "read the replaced secrets of endpoint", s.ID)
	}
	for i := range old {
		if sealed, also, _ := box.Reseal(old[i].Sealed, delivery.BoundTo(s.GuildID, s.ID)); also {
			old[i].Sealed, changed = sealed, true
		}
	}
	if changed {
		fresh.Old, err = json.Marshal(old)
	}
	return fresh, changed, err
}

// sealedAfter reads the next endpoints in the order of their key.
func sealedAfter(ctx context.Context, q db.Querier, last sealedSecrets, n int) ([]sealedSecrets, error) {
	rows, err := db.Select[sealedSecrets](ctx, q, `
		SELECT guild_id, id, secret, old_secrets
		FROM webhook_endpoints
		WHERE (guild_id, id) > ($1, $2)
		ORDER BY guild_id, id
		LIMIT $3`, last.GuildID, last.ID, n)
	return rows, fault.Wrap(err, "read sealed secrets")
}

// replaceSealed stores fresh if the row still contains was. If it does not, somebody has changed
// the secrets meanwhile and has used the first key.
func replaceSealed(ctx context.Context, d *db.DB, was, fresh sealedSecrets) error {
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, `
			UPDATE webhook_endpoints SET secret = $3, old_secrets = $4
			WHERE guild_id = $1 AND id = $2 AND secret = $5 AND old_secrets = $6`,
			was.GuildID, was.ID, fresh.Secret, fresh.Old, was.Secret, was.Old)
		return err
	})
	return fault.Wrap(err, "reseal the secrets of endpoint", was.ID)
}
