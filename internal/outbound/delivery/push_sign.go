package delivery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Header names of a delivery. The last three are ours alone and unsigned: they
// help a receiver's log, nothing may depend on them.
const (
	headerSignature         = "Service-Signature"
	headerStandardID        = "Webhook-Id"
	headerStandardTimestamp = "Webhook-Timestamp"
	headerStandardSignature = "Webhook-Signature"
	headerEvent             = "Service-Event"
	headerDelivery          = "Service-Delivery"
	headerAttempt           = "Service-Attempt"
	headerSequence          = "Service-Sequence"
)

// sign adds the signature headers of both schemes for the body as it is sent at
// the given instant, one signature for each secret:
//
//	Service-Signature: t=<unix>,v1=<hex>[,v1=<hex>]    over "<t>.<body>", keyed with the secret's text
//	Webhook-Signature: v1,<base64>[ v1,<base64>]       over "<id>.<t>.<body>", keyed with its decoded bytes
//
// The first is Stripe's scheme, the second that of Standard Webhooks.
func sign(h http.Header, secrets []string, id string, at time.Time, body []byte) error {
	t := strconv.FormatInt(at.Unix(), 10)
	own, standard := "t="+t, make([]string, 0, len(secrets))
	for _, secret := range secrets {
		key, err := secretKey(secret)
		if err != nil {
			return err
		}
		own += ",v1=" + hex.EncodeToString(mac([]byte(secret), t+".", body))
		standard = append(standard, "v1,"+base64.StdEncoding.EncodeToString(mac(key, id+"."+t+".", body)))
	}
	h.Set(headerSignature, own)
	h.Set(headerStandardID, id)
	h.Set(headerStandardTimestamp, t)
	h.Set(headerStandardSignature, strings.Join(standard, " "))
	return nil
}

func mac(key []byte, prefix string, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(prefix))
	m.Write(body)
	return m.Sum(nil)
}

// Sign signs a body with one secret, as a delivery of the event with that id is signed.
func Sign(h http.Header, secret, id string, at time.Time, body []byte) error {
	return sign(h, []string{secret}, id, at, body)
}
