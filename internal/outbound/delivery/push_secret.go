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

	// MaxOldSecrets is how many replaced secrets sign beside the newest. A further
	// rotation ends the oldest: a header of signatures stays short, and a leaked
	// secret does not live on behind many new ones.
	MaxOldSecrets = 2
)

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

// BoundTo is the place a signing secret is sealed for. A sealed secret that is
// copied into another endpoint's row does not open there.
func BoundTo(guild, endpoint string) string {
	return "webhook_endpoints/" + guild + "/" + endpoint
}

// oldSecret is a replaced secret as it is stored. It signs along until its time.
type oldSecret struct {
	Sealed []byte    `json:"sealed"`
	Until  time.Time `json:"until"`
}

// OpenSecrets returns the secrets that sign at the given instant, the newest
// first, MaxOldSecrets replaced ones at most. old is the JSON list of those.
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
			break // a node of the release before has kept more
		}
		if plain, err = box.Open(s.Sealed, BoundTo(guild, endpoint)); err != nil {
			return nil, fault.Wrap(err, "open a replaced secret of endpoint", endpoint)
		}
		secrets = append(secrets, string(plain))
	}
	return secrets, nil
}
