package delivery

import (
	"bytes"
	"encoding/json"
	"testing"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v84/webhook"

	"guildhall/internal/base/db/dbtest"
)

func TestACommittedEventArrivesSignedOnce(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	r := w.receive(nil)
	e, secret := w.add(w.guild, r.URL)
	d, _ := w.start(w.cfg)

	w.record(w.guild, 1)
	d.wakeAll()
	w.drain()

	calls := r.got()
	if len(calls) != 1 {
		t.Fatalf("the receiver got %d requests, want 1", len(calls))
	}
	got := calls[0]
	stored := dbtest.Value[[]byte](t, w.DB, `SELECT payload FROM webhook_events`)
	if !bytes.Equal(got.Body, stored) {
		t.Errorf("sent %s, stored %s", got.Body, stored)
	}
	var envelope struct {
		ID, Type, Timestamp string
		GuildID             string `json:"guild_id"`
		APIVersion          string `json:"api_version"`
	}
	if err := json.Unmarshal(got.Body, &envelope); err != nil {
		t.Fatal(err)
	}
	if envelope.GuildID != w.guild || envelope.APIVersion != "v1" || envelope.Type != "economy.balance_changed" {
		t.Errorf("envelope %+v", envelope)
	}

	verifier, err := standard.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(got.Body, got.Header); err != nil {
		t.Errorf("the Standard Webhooks library refuses the delivery: %v", err)
	}
	if err := stripe.ValidatePayload(got.Body, got.Header.Get("Service-Signature"), secret); err != nil {
		t.Errorf("stripe's library refuses the delivery: %v", err)
	}

	for header, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "Service-Webhooks/1", "Webhook-Id": envelope.ID,
		"Service-Event": envelope.Type, "Service-Attempt": "1", "Accept-Encoding": "",
	} {
		if have := got.Header.Get(header); have != want {
			t.Errorf("%s is %q, want %q", header, have, want)
		}
	}
	if n := w.count(`
		SELECT count(*) FROM webhook_deliveries d
		JOIN webhook_attempts a ON a.guild_id = d.guild_id AND a.delivery_id = d.id
		WHERE d.endpoint_id = $1 AND d.id = $2 AND d.state = 'delivered' AND d.attempts = 1 AND d.response_class = '2xx'
		  AND a.status = 204 AND a.error IS NULL AND a.excerpt IS NULL`, e.ID, got.Header.Get("Service-Delivery")); n != 1 {
		t.Errorf("the log has %d deliveries as they should be, want 1", n)
	}
}
