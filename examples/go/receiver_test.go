package main

import (
	"encoding/json"
	"os"
	"testing"
	"time"
)

type vector struct {
	Name      string   `json:"name"`
	Secrets   []string `json:"secrets"`
	Timestamp int64    `json:"timestamp"`
	Body      string   `json:"body"`
	Signature string   `json:"service_signature"`
}

// vectors are the published ones, which the service itself is tested with.
func vectors(tb testing.TB) []vector {
	tb.Helper()
	text, err := os.ReadFile("../../internal/service/webhooks/testdata/signatures.json")
	if err != nil {
		tb.Fatal(err)
	}
	var list []vector
	if err := json.Unmarshal(text, &list); err != nil {
		tb.Fatal(err)
	}
	if len(list) == 0 {
		tb.Fatal("there are no vectors")
	}
	return list
}

func TestVerified(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			at := time.Unix(v.Timestamp, 0)
			for _, secret := range v.Secrets {
				if !verified(v.Signature, []byte(v.Body), secret, at.Add(4*time.Minute)) {
					t.Errorf("%s is refused", v.Signature)
				}
				if verified(v.Signature, []byte(v.Body), secret, at.Add(6*time.Minute)) {
					t.Error("an old signature passes")
				}
				if verified(v.Signature, []byte(v.Body+" "), secret, at) {
					t.Error("a forged body passes")
				}
			}
			if verified(v.Signature, []byte(v.Body), "whsec_of_somebody_else", at) {
				t.Error("another secret passes")
			}
		})
	}
}

// Whatever the header, nothing passes that was not signed, and nothing panics.
func FuzzVerified(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.Signature, []byte(v.Body))
	}
	f.Add("t=1,v1=", []byte(nil))
	f.Add("v1=00,t=,t=9223372036854775807", []byte("{}"))
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(1781516112, 0)} {
			if verified(header, body, "whsec_nobody_signs_with_this", at) {
				t.Errorf("%q passes", header)
			}
		}
	})
}
