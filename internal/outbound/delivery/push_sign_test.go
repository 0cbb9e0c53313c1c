package delivery

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v84/webhook"

	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/outbound/event"
)

var updating = flag.Bool("update", false, "write testdata anew")

// vector is a published example of both signature schemes.
type vector struct {
	Name             string   `json:"name"`
	Secrets          []string `json:"secrets"`
	ID               string   `json:"webhook_id"`
	Timestamp        int64    `json:"timestamp"`
	Body             string   `json:"body"`
	ServiceSignature string   `json:"service_signature"`
	WebhookSignature string   `json:"webhook_signature"`
}

const vectorsFile = "../../service/webhooks/testdata/signatures.json"

// sign produces the published examples, and both client libraries accept them. RELIABILITY.md,
// Events.
func TestSignMakesThePublishedVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(raw, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 4 {
		t.Fatalf("%d vectors", len(vectors))
	}
	for i, v := range vectors {
		h := received(t, v.Secrets, v.ID, time.Unix(v.Timestamp, 0), []byte(v.Body))
		if *updating {
			vectors[i].ServiceSignature, vectors[i].WebhookSignature = h.Get(headerSignature), h.Get(headerStandardSignature)
			continue
		}
		if got := h.Get(headerSignature); got != v.ServiceSignature {
			t.Errorf("%s: Service-Signature is %q, want %q", v.Name, got, v.ServiceSignature)
		}
		if got := h.Get(headerStandardSignature); got != v.WebhookSignature {
			t.Errorf("%s: webhook-signature is %q, want %q", v.Name, got, v.WebhookSignature)
		}
		for _, secret := range v.Secrets {
			published := http.Header{}
			published.Set("webhook-id", v.ID)
			published.Set("webhook-timestamp", h.Get(headerStandardTimestamp))
			published.Set("webhook-signature", v.WebhookSignature)
			if !standardAccepts(t, secret, published, []byte(v.Body)) {
				t.Errorf("%s: the Standard Webhooks library refuses it", v.Name)
			}
			if err := stripe.ValidatePayloadIgnoringTolerance([]byte(v.Body), v.ServiceSignature, secret); err != nil {
				t.Errorf("%s: stripe's library refuses it: %v", v.Name, err)
			}
		}
	}
	if *updating {
		var out bytes.Buffer
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(vectors); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// received returns the headers of sign as an HTTP server passes them to its handler.
func received(t *testing.T, secrets []string, id string, at time.Time, body []byte) http.Header {
	t.Helper()
	sent, h := http.Header{}, http.Header{}
	if err := sign(sent, secrets, id, at, body); err != nil {
		t.Fatal(err)
	}
	for name, values := range sent {
		h.Set(name, values[0])
	}
	return h
}

// The names of the service's headers are in lower case on the wire of HTTP/1.1: Standard Webhooks'
// libraries for PHP and Ruby look them up in lower case.
func TestHeadersAreInLowerCaseOnTheWire(t *testing.T) {
	t.Parallel()
	h := Headers(event.CaseCreated, "d", 1, time.Now())
	if err := sign(h, []string{newSecret()}, "e", time.Now(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	wire := make(chan string, 1)
	go func() {
		defer close(wire)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var text strings.Builder
		lines := bufio.NewScanner(conn)
		for lines.Scan() && lines.Text() != "" {
			text.WriteString(lines.Text() + "\n")
		}
		wire <- text.String()
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	client := egress.NewClient(egress.NewGuard(egresstest.Loopback, nil), nil)
	defer client.Close()
	if res := client.Post(t.Context(), "http://"+listener.Addr().String(), h, []byte("{}")); res.Status != http.StatusNoContent {
		t.Fatalf("the receiver's answer is %+v", res)
	}
	text := <-wire
	for _, name := range []string{
		"webhook-id", "webhook-timestamp", "webhook-signature",
		"service-signature", "service-event", "service-delivery", "service-attempt", "service-sequence",
	} {
		if !strings.Contains(text, "\n"+name+": ") {
			t.Errorf("%s is not sent so:\n%s", name, text)
		}
	}
}

func standardAccepts(t *testing.T, secret string, h http.Header, body []byte) bool {
	t.Helper()
	verifier, err := standard.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	return verifier.VerifyIgnoringTimestamp(body, h) == nil
}

// Both client libraries accept every signed body, and neither accepts a body with a single changed
// bit. RELIABILITY.md, Events.
func TestBothLibrariesAcceptWhatIsSignedAndNothingElse(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	bodies := map[string][]byte{
		"empty":      {},
		"unicode":    []byte(`{"reason":"Grüße, 世界 🪙   \u0000"}`),
		"key order":  []byte(`{"b":1,"a":2}`),
		"whitespace": []byte("{ \"a\" :\t1 }\n"),
		"64 KiB":     bytes.Repeat([]byte("0123456789abcdef"), 4<<10),
		"dots":       []byte("1.2.3"),
	}
	for name, body := range bodies {
		secret, id, at := newSecret(), "01977420-8c00-7000-8000-000000000601", time.Now()
		h := received(t, []string{secret}, id, at, body)
		own := h.Get(headerSignature)
		if !standardAccepts(t, secret, h, body) || stripe.ValidatePayload(body, own, secret) != nil {
			t.Fatalf("%s: refused as it is", name)
		}
		for range min(len(body)*8, 200) {
			bit := random.IntN(len(body) * 8)
			flipped := bytes.Clone(body)
			flipped[bit/8] ^= 1 << (bit % 8)
			if standardAccepts(t, secret, h, flipped) || stripe.ValidatePayload(flipped, own, secret) == nil {
				t.Fatalf("%s: accepted with bit %d flipped", name, bit)
			}
		}
		for bit := range 256 { // of the signatures themselves
			mac, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.Get(headerStandardSignature), "v1,"))
			if err != nil {
				t.Fatal(err)
			}
			mac[bit/8] ^= 1 << (bit % 8)
			forged := h.Clone()
			forged.Set(headerStandardSignature, "v1,"+base64.StdEncoding.EncodeToString(mac))
			if standardAccepts(t, secret, forged, body) {
				t.Fatalf("%s: a forged signature passes", name)
			}
		}
		if standardAccepts(t, newSecret(), h, body) || stripe.ValidatePayload(body, own, newSecret()) == nil {
			t.Fatalf("%s: accepted with another secret", name)
		}
	}
}

func TestOnlyASecretIsRead(t *testing.T) {
	t.Parallel()
	a := newSecret()
	key, err := secretKey(a)
	if err != nil || len(key) != 32 {
		t.Fatalf("%q decodes to %d bytes, %v", a, len(key), err)
	}
	for _, bad := range []string{"", "whsec_", "whsec_***", "whsec_AAAA*", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"} {
		if _, err := secretKey(bad); err == nil {
			t.Errorf("%q passes as a secret", bad)
		}
	}
}
