// Package seal keeps small secrets unreadable at rest: AES-256-GCM, each
// bound to the place it is stored in. It knows nothing of what it
// seals or where that is kept.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"guildhall/internal/base/fault"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// sealScheme is the first byte of everything sealed, so that a later scheme can be
// told from this one.
const sealScheme = 1

// ErrUnreadable is returned by Open for everything that was not sealed under
// one of these keys for this place, or was changed since.
var ErrUnreadable = errors.New("seal: cannot be opened with these keys here")

// Box seals under its first key and opens under all of them. It is safe for
// concurrent use.
type Box struct {
	keys []cipher.AEAD
}

// New makes a Box from keys of exactly KeySize bytes each, at least one.
func New(keys ...[]byte) (*Box, error) {
	if len(keys) == 0 {
		return nil, errors.New("seal: no key")
	}
	b := &Box{}
	for _, key := range keys {
		if len(key) != KeySize {
			return nil, fmt.Errorf("seal: the key has %d bytes, want %d", len(key), KeySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fault.Wrap(err, "seal")
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fault.Wrap(err, "seal")
		}
		b.keys = append(b.keys, aead)
	}
	return b, nil
}

// Seal encrypts plain so that only Open with the same key and the same boundTo
// reads it. A text sealed for one place cannot be moved to another.
func (b *Box) Seal(plain []byte, boundTo string) []byte {
	return b.keys[0].Seal([]byte{sealScheme}, nil, plain, associated(boundTo)) //nolint:gosec // the AEAD draws a random nonce for each call and takes none
}

// Open returns what was sealed for boundTo, or ErrUnreadable.
func (b *Box) Open(sealed []byte, boundTo string) ([]byte, error) {
	plain, _, err := b.open(sealed, boundTo)
	return plain, err
}

// Reseal returns what was sealed for boundTo under the first key, and whether
// that is a change: it is sealed itself where the first key opens it. A text that no
// key opens is ErrUnreadable.
func (b *Box) Reseal(sealed []byte, boundTo string) (fresh []byte, changed bool, err error) {
	plain, key, err := b.open(sealed, boundTo)
	if err != nil || key == 0 {
		return sealed, false, err
	}
	return b.Seal(plain, boundTo), true, nil
}

// open tells which key has opened it, too.
func (b *Box) open(sealed []byte, boundTo string) (plain []byte, key int, err error) {
	if len(sealed) == 0 || sealed[0] != sealScheme {
		return nil, 0, ErrUnreadable
	}
	for i, aead := range b.keys {
		if plain, err := aead.Open(nil, nil, sealed[1:], associated(boundTo)); err == nil {
			return plain, i, nil
		}
	}
	return nil, 0, ErrUnreadable
}

// associated binds the version byte as well, so that it cannot be rewritten.
func associated(boundTo string) []byte {
	return append([]byte{sealScheme}, boundTo...)
}

// Count says what became of sealed things that were gone through.
type Count struct {
	Resealed   int64 `json:"resealed"`   // under the first key now
	Current    int64 `json:"current"`    // were so before
	Unreadable int64 `json:"unreadable"` // no key opens them; left as they were
}

// Add counts what Reseal has returned about one thing.
func (c *Count) Add(changed bool, err error) {
	switch {
	case err != nil:
		c.Unreadable++
	case changed:
		c.Resealed++
	default:
		c.Current++
	}
}
