// Package seal keeps small secrets unreadable at rest: AES-256-GCM under one
// key, each box bound to the place it is stored in. It knows nothing of what it
// seals or where that is kept.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// KeySize is the length of a key in bytes.
const KeySize = 32

// version is the first byte of everything sealed, so that a later scheme can be
// told from this one.
const version = 1

// ErrUnreadable is returned by Open for everything that was not sealed under
// this key for this place, or was changed since.
var ErrUnreadable = errors.New("seal: cannot be opened with this key here")

// Box seals and opens under one key. It is safe for concurrent use.
type Box struct {
	aead cipher.AEAD
}

// New makes a Box from a key of exactly KeySize bytes.
func New(key []byte) (*Box, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("seal: the key has %d bytes, want %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return &Box{aead: aead}, nil
}

// Seal encrypts plain so that only Open with the same key and the same boundTo
// reads it. What is sealed for one place cannot be moved to another.
func (b *Box) Seal(plain []byte, boundTo string) []byte {
	return b.aead.Seal([]byte{version}, nil, plain, associated(boundTo)) //nolint:gosec // the AEAD draws a random nonce for each call and takes none
}

// Open returns what was sealed for boundTo, or ErrUnreadable.
func (b *Box) Open(sealed []byte, boundTo string) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != version {
		return nil, ErrUnreadable
	}
	plain, err := b.aead.Open(nil, nil, sealed[1:], associated(boundTo))
	if err != nil {
		return nil, ErrUnreadable
	}
	return plain, nil
}

// associated binds the version byte as well, so that it cannot be rewritten.
func associated(boundTo string) []byte {
	return append([]byte{version}, boundTo...)
}
