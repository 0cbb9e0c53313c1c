package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"time"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32

	// MaxOverlap is how long a replaced secret goes on signing beside the new one,
	// unless the caller wants it to end sooner.
	MaxOverlap = 24 * time.Hour
)

// newSecret mints a signing secret: whsec_ and the base64 of 32 random bytes.
func newSecret() string {
	b := make([]byte, secretBytes)
	rand.Read(b) // never fails: without randomness the program ends
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// preview is what may be shown of a secret after its creation.
func preview(secret string) string {
	return secretPrefix + "..." + secret[len(secret)-4:]
}

// oldSecret is a replaced secret as it is stored. It signs along until its time.
type oldSecret struct {
	Sealed []byte    `json:"sealed"`
	Until  time.Time `json:"until"`
}
