package delivery

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/fault"
)

const (
	secretPrefix = "whsec_"

	// MaxOldSecrets is how many replaced secrets sign in addition to the newest secret. A further
	// rotation ends the oldest secret: the header of signatures stays short, and a leaked secret
	// ends after a few rotations.
	MaxOldSecrets = 2
)

// secretKey returns the signing key of the Standard Webhooks scheme: the decoded bytes of the
// secret.
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

// BoundTo returns the context under which a signing secret is encrypted. An encrypted secret that
// is copied into the row of another endpoint cannot be decrypted there.
func BoundTo(guild, endpoint string) string {
	return "webhook_endpoints/" + guild + "/" + endpoint
}

// oldSecret is a replaced secret as it is stored. The secret still signs until its time.
type oldSecret struct {
	Sealed []byte    `json:"sealed"`
	Until  time.Time `json:"until"`
}

// OpenSecrets returns the secrets that sign at the given instant, the newest first, and at most
// MaxOldSecrets replaced ones. old is the JSON list of replaced secrets.
func OpenSecrets(box *seal.Box, guild, endpoint string, current, old []byte, at time.Time) ([]string, error) {
	plain, err := box.Open(current, BoundTo(guild, endpoint))
	if err != nil {
		return nil, fault.Wrap(err, "open the secret of endpoint", endpoint)
	}
	secrets := []string{string(plain)}
	var replaced []oldSecret
	if err := json.Unmarshal(old, &replaced); err != nil {
		return nil, fault.Wrap(err, "read the replaced secrets of endpoint", endpoint)
	}
	for _, s := range replaced {
		if !at.Before(s.Until) {
			continue
		}
		if len(secrets) > MaxOldSecrets {
			break // a node of the previous release has stored more
		}
		if plain, err = box.Open(s.Sealed, BoundTo(guild, endpoint)); err != nil {
			return nil, fault.Wrap(err, "open a replaced secret of endpoint", endpoint)
		}
		secrets = append(secrets, string(plain))
	}
	return secrets, nil
}
