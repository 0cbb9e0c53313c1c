package webhooks

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
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

	// maxSecrets is how many sign at most. Whoever rotates more often than that
	// in a day ends the oldest early: request headers have limits, too.
	maxSecrets = 101
)

// newSecret mints a signing secret: whsec_ and the base64 of 32 random bytes.
func newSecret() string {
	b := make([]byte, secretBytes)
	rand.Read(b) // never fails: without randomness the program ends
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

// oldSecret is a replaced secret as it is stored. It signs along until its time.
type oldSecret struct {
	Sealed []byte    `json:"sealed"`
	Until  time.Time `json:"until"`
}

// openSecrets returns the secrets that sign at the given instant, the newest
// first. old is the JSON list of those that were replaced.
func openSecrets(box *seal.Box, guild, endpoint string, current, old []byte, at time.Time) ([]string, error) {
	plain, err := box.Open(current, boundTo(guild, endpoint))
	if err != nil {
		return nil, fmt.Errorf("open the secret of endpoint %s: %w", endpoint, err)
	}
	secrets := []string{string(plain)}
	var replaced []oldSecret
	if err := json.Unmarshal(old, &replaced); err != nil {
		return nil, fmt.Errorf("read the replaced secrets of endpoint %s: %w", endpoint, err)
	}
	for _, s := range replaced {
		if !at.Before(s.Until) {
			continue
		}
		if plain, err = box.Open(s.Sealed, boundTo(guild, endpoint)); err != nil {
			return nil, fmt.Errorf("open a replaced secret of endpoint %s: %w", endpoint, err)
		}
		secrets = append(secrets, string(plain))
	}
	return secrets, nil
}
