package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/seal"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32

	// overlap is how long a replaced secret goes on signing beside the new one.
	overlap = 24 * time.Hour
)

// newSecret mints a signing secret: whsec_ and the base64 of 32 random bytes.
func newSecret() string {
	b := make([]byte, secretBytes)
	rand.Read(b) //nolint:errcheck // crypto/rand.Read never returns an error: it ends the program instead
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// secretKey is the key of the Standard Webhooks scheme: the decoded bytes.
func secretKey(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, fmt.Errorf("webhooks: a signing secret starts with %s", secretPrefix)
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, fmt.Errorf("webhooks: a signing secret is %s and base64", secretPrefix)
	}
	return key, nil
}

// preview is what may be shown of a secret after its creation.
func preview(secret string) string {
	return secretPrefix + "..." + secret[len(secret)-4:]
}

// boundTo is the place a secret is sealed for. A sealed secret that is copied
// into another endpoint's row does not open there.
func boundTo(guild, endpoint string) string {
	return "webhook_endpoints/" + guild + "/" + endpoint
}

// openSecrets returns the secrets that sign at the given instant, the current
// one first. The replaced one counts until notAfter.
func openSecrets(box *seal.Box, guild, endpoint string, current, replaced []byte, notAfter *time.Time, at time.Time) ([]string, error) {
	plain, err := box.Open(current, boundTo(guild, endpoint))
	if err != nil {
		return nil, fmt.Errorf("open the secret of endpoint %s: %w", endpoint, err)
	}
	secrets := []string{string(plain)}
	if replaced == nil || notAfter == nil || !at.Before(*notAfter) {
		return secrets, nil
	}
	if plain, err = box.Open(replaced, boundTo(guild, endpoint)); err != nil {
		return nil, fmt.Errorf("open the replaced secret of endpoint %s: %w", endpoint, err)
	}
	return append(secrets, string(plain)), nil
}
