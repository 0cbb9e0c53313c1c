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

// Header names of a delivery, in lower case on the wire: Standard Webhooks' libraries for PHP and
// Ruby look them up in lower case, and HTTP/1.1 sends names as they are written. So the code uses
// the names as map keys, and never passes them to Set or Get, which change the case. The last four
// headers are the service's own and unsigned: they help with a receiver's log, and receivers must
// not depend on them.
const (
	headerSignature         = "service-signature"
	headerStandardID        = "webhook-id"
	headerStandardTimestamp = "webhook-timestamp"
	headerStandardSignature = "webhook-signature"
	headerEvent             = "service-event"
	headerDelivery          = "service-delivery"
	headerAttempt           = "service-attempt"
	headerSequence          = "service-sequence"
)

// sign adds the signature headers of both schemes for the body as it is sent at the given instant,
// one signature for each secret:
//
//	service-signature: t=<unix>,v1=<hex>[,v1=<hex>]    over "<t>.<body>", keyed with the secret's text
//	webhook-signature: v1,<base64>[ v1,<base64>]       over "<id>.<t>.<body>", keyed with its decoded bytes
//
// The first scheme is Stripe's, the second is that of Standard Webhooks.
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
	h[headerSignature] = []string{own}
	h[headerStandardID] = []string{id}
	h[headerStandardTimestamp] = []string{t}
	h[headerStandardSignature] = []string{strings.Join(standard, " ")}
	return nil
}

func mac(key []byte, prefix string, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(prefix))
	m.Write(body)
	return m.Sum(nil)
}

// Sign signs a body with one secret, like a delivery of the event with the given id.
func Sign(h http.Header, secret, id string, at time.Time, body []byte) error {
	return sign(h, []string{secret}, id, at, body)
}
