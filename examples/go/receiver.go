//go:generate go tool oapi-codegen -config client.yaml ../../gen/openapi.yaml

package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// verified says whether a Service-Signature header signs exactly these bytes
// with this secret, within five minutes of now.
func verified(header string, body []byte, secret string, now time.Time) bool {
	var at string
	var signatures [][]byte
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(part, "="); name {
		case "t":
			at = value
		case "v1": // one per secret while a secret is being rotated
			if s, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, s)
			}
		}
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	want := mac.Sum(nil)
	for _, s := range signatures {
		if hmac.Equal(s, want) {
			return true
		}
	}
	return false
}

type delivery struct {
	signature string
	body      []byte
}

// listen receives webhooks and passes them on; close the server when done.
func listen() (*httptest.Server, <-chan delivery) {
	deliveries := make(chan delivery, 8)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		deliveries <- delivery{r.Header.Get("Service-Signature"), body}
	}))
	return server, deliveries
}
