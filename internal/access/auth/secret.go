package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// The prefixes of tokens and of bot keys. They have the same length.
const (
	tokenBrand = "svc_"
	keyBrand   = "bot_"
)

// secretLength is the length of 32 random bytes in base64url without padding.
const secretLength = 43

// digest is the SHA-256 hash by which a token is stored. The secret has 256 random bits, so a slow
// hash would add no protection.
type digest [sha256.Size]byte

// mint makes the text of a new token, svc_<env>_<43 base64url characters>, or of a bot key, which
// begins with bot_.
func mint(brand, env string) string {
	var b [32]byte
	rand.Read(b[:])
	return brand + env + "_" + base64.RawURLEncoding.EncodeToString(b[:])
}

// preview returns the part of a token that may be shown later: enough to recognise the token, and
// of no help in guessing it.
func preview(token, env string) string {
	return token[:len(tokenBrand)] + env + "_..." + token[len(token)-4:]
}

// recognise returns the digest of a text that has the form of a token or bot key of env. Any other
// text is refused without reading the database. The text is split at its first two underscores,
// since the secret may contain more.
func recognise(token, env string) (digest, bool) {
	head := len(tokenBrand) + len(env) + 1
	if len(token) != head+secretLength || token[len(tokenBrand):head-1] != env || token[head-1] != '_' {
		return digest{}, false
	}
	if brand := token[:len(tokenBrand)]; brand != tokenBrand && brand != keyBrand {
		return digest{}, false
	}
	for i := head; i < len(token); i++ {
		if !base64url[token[i]] {
			return digest{}, false
		}
	}
	var b [len(tokenBrand) + 16 + 1 + secretLength]byte // a copy that stays on the stack
	return sha256.Sum256(append(b[:0], token...)), true
}

// base64url tells which bytes are characters of base64url.
var base64url = func() (is [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") {
		is[c] = true
	}
	return is
}()
