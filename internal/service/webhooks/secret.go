package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"time"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32

	// MaxOverlap is how long a replaced secret signs in addition to the new one, unless the caller
	// chooses a shorter time.
	MaxOverlap = 24 * time.Hour
)

// newSecret returns a new signing secret: whsec_ and the base64 of 32 random bytes.
func newSecret() string {
	b := make([]byte, secretBytes)
	rand.Read(b) // cannot fail: without randomness the program ends
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// preview returns the part of a secret that may be shown after its creation.
func preview(secret string) string {
	return secretPrefix + "..." + secret[len(secret)-4:]
}

// oldSecret is a stored replaced secret. It also signs until its end.
type oldSecret struct {
	Sealed []byte    `json:"sealed"`
	Until  time.Time `json:"until"`
}
