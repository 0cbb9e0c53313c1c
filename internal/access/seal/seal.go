// Package seal encrypts small secrets at rest with AES-256-GCM. Each ciphertext is bound to the
// place where it is stored. The package knows nothing of what it encrypts or where.
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

// sealScheme is the first byte of every ciphertext. It allows for another scheme later.
const sealScheme = 1

// ErrUnreadable is returned by Open for a ciphertext that was sealed with another key or for
// another place, or that was changed.
var ErrUnreadable = errors.New("seal: cannot be opened with these keys here")

// Box seals with its first key and opens with any of its keys. It is safe for concurrent use.
type Box struct {
	keys []cipher.AEAD
}

// New returns a Box with one or more keys of KeySize bytes.
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

// Seal encrypts plain. Only Open with the same key and the same boundTo can decrypt it, so a
// ciphertext cannot be moved to another place.
func (b *Box) Seal(plain []byte, boundTo string) []byte {
	return b.keys[0].Seal([]byte{sealScheme}, nil, plain, associated(boundTo)) //nolint:gosec // the AEAD draws a random nonce for each call and takes none
}

// Open decrypts a ciphertext that was sealed for boundTo, or returns ErrUnreadable.
func (b *Box) Open(sealed []byte, boundTo string) ([]byte, error) {
	plain, _, err := b.open(sealed, boundTo)
	return plain, err
}

// Reseal returns the ciphertext re-encrypted with the first key, and true. If the first key can
// open it already, it returns sealed unchanged, and false. If no key opens it, the error is
// ErrUnreadable.
func (b *Box) Reseal(sealed []byte, boundTo string) (fresh []byte, changed bool, err error) {
	plain, key, err := b.open(sealed, boundTo)
	if err != nil || key == 0 {
		return sealed, false, err
	}
	return b.Seal(plain, boundTo), true, nil
}

// open is Open and also returns the index of the key.
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

// associated returns the data that is authenticated with a ciphertext: boundTo, and the version
// byte, so that the byte cannot be changed.
func associated(boundTo string) []byte {
	return append([]byte{sealScheme}, boundTo...)
}

// Count counts the results of Reseal.
type Count struct {
	Resealed   int64 `json:"resealed"`   // now sealed with the first key
	Current    int64 `json:"current"`    // already sealed with the first key
	Unreadable int64 `json:"unreadable"` // sealed values that no key opens; left unchanged
}

// Add counts one result of Reseal.
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
