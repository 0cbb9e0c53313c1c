// Package secretkey checks that the configured secret key fits the database, and re-encrypts stored
// secrets with a new key.
package secretkey

import (
	"context"
	"errors"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/webhooks"
)

// ErrOther says that the key is not the installation's.
var ErrOther = errors.New("this key opens nothing of what is kept in this database: give the key it was sealed with, " +
	"behind a comma if there is a new one in front, and run `guildhall reseal` to get rid of it")

// checkBound is the text that the installation's check value is bound to.
const checkBound = "secret_key_check"

// Check returns ErrOther if the secrets in the database were sealed with a key that is not in box.
// At the first start with a key it stores a check value, sealed with that key.
func Check(ctx context.Context, d *db.DB, box *seal.Box) error {
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		sealed, err := sealedCheck(ctx, tx)
		if err != nil {
			return err
		}
		if sealed == nil {
			// An installation older than this table has no check value: its stored secrets show
			// whether the key fits.
			some, opens, err := webhooks.SampleSecrets(ctx, tx, box)
			if err != nil {
				return err
			}
			if some && !opens {
				return ErrOther
			}
			_, err = db.Exec(ctx, tx, `
				INSERT INTO secret_key_check (single, sealed) VALUES (true, $1) ON CONFLICT (single) DO NOTHING`,
				box.Seal([]byte("guildhall"), checkBound))
			if err != nil {
				return fault.Wrap(err, "note the secret key")
			}
			// Another node may have stored a check value first, with another key.
			if sealed, err = sealedCheck(ctx, tx); err != nil {
				return err
			}
		}
		if _, err := box.Open(sealed, checkBound); err != nil {
			return ErrOther
		}
		return nil
	})
	if db.UndefinedTable(err) {
		return nil // a schema without the table has no check value to compare with
	}
	return err
}

// State is the result of Inspect.
type State int

// The states of a key that fits.
const (
	First  State = iota // the first key of the box opens the check value
	Older               // another key of the box opens it
	Unused              // nothing was sealed yet
)

// Inspect is Check without writing. It returns which key of box opens the check value, or ErrOther.
func Inspect(ctx context.Context, q db.Querier, box *seal.Box) (State, error) {
	sealed, err := sealedCheck(ctx, q)
	if err != nil && !db.UndefinedTable(err) {
		return 0, err
	}
	some, opens, err := webhooks.SampleSecrets(ctx, q, box)
	switch {
	case err != nil:
		return 0, err
	case some && !opens:
		return 0, ErrOther
	case sealed == nil && !some:
		return Unused, nil
	case sealed == nil:
		return First, nil
	}
	_, older, err := box.Reseal(sealed, checkBound)
	switch {
	case err != nil:
		return 0, ErrOther
	case older:
		return Older, nil
	}
	return First, nil
}

// sealedCheck returns the installation's check value, or nil if there is none.
func sealedCheck(ctx context.Context, q db.Querier) ([]byte, error) {
	sealed, err := db.Get[[]byte](ctx, q, `SELECT sealed FROM secret_key_check`)
	if err != nil && !db.Missing(err) {
		return nil, fault.Wrap(err, "read which secret key there is")
	}
	return sealed, nil
}

// Resealed counts the results of Reseal by kind.
type Resealed struct {
	Endpoints seal.Count `json:"endpoints"`
	Answers   seal.Count `json:"answers"`
}

// Reseal re-encrypts with the first key of box what its other keys have sealed, a few rows at a
// time, while nodes serve. Others who change a row meanwhile seal with the first key too. A row
// that no key opens is counted and left unchanged. Repeating Reseal does no harm.
func Reseal(ctx context.Context, d *db.DB, box *seal.Box) (Resealed, error) {
	var done Resealed
	var err error
	if done.Endpoints, err = webhooks.Reseal(ctx, d, box); err != nil {
		return done, err
	}
	if done.Answers, err = idempotency.Reseal(ctx, d, box); err != nil {
		return done, err
	}
	// This comes last, so that the older key stays required until nothing needs it.
	return done, d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		sealed, err := sealedCheck(ctx, tx)
		if err != nil || sealed == nil {
			return err
		}
		fresh, changed, err := box.Reseal(sealed, checkBound)
		if err != nil || !changed {
			return err
		}
		_, err = db.Exec(ctx, tx, `UPDATE secret_key_check SET sealed = $1 WHERE sealed = $2`, fresh, sealed)
		return err
	})
}

// Responses seals the stored responses of writes. If no key opens one, the error is
// service_unavailable: the write was done and must not be done again. The response can be read once
// the key it was sealed with is configured again, and is no longer needed when the idempotency
// key's 24 hours are over.
type Responses struct{ *seal.Box }

var errUnreadable = fault.New(fault.Unavailable, "service_unavailable",
	"The request was carried out, but its stored answer cannot be read until the operator of this installation gives the key it was sealed with.").After(time.Minute)

// Open decrypts what was sealed for bound.
func (a Responses) Open(sealed []byte, bound string) ([]byte, error) {
	plain, err := a.Box.Open(sealed, bound)
	if err != nil {
		return nil, errUnreadable.Because(err)
	}
	return plain, nil
}
