package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"guildhall/gen"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/operate/doctor"
	"guildhall/internal/outbound/egress/egresstest"
)

// failingReceiver is a receiver that fails, and the sentence about its failure.
type failingReceiver struct{ url, problem string }

// failingReceivers starts receivers that each fail for another cause, as many as a guild may have.
func failingReceivers(t *testing.T) []failingReceiver {
	t.Helper()
	status := func(code int) string { return egresstest.NewReceiver(t, egresstest.Respond(code, "no")).URL }
	return []failingReceiver{
		{status(500), "The receiver answered 500, so something went wrong in the receiver: its log says what."},
		{
			status(401),
			"The receiver answered 401, so it does not know who asks: check that it verifies the signature with this endpoint’s secret.",
		},
		{status(404), "The receiver answered 404, so nothing there takes the event: check the address’s path, and that it takes POST."},
		{status(301), "The receiver answered 301, and redirects are not followed: edit the endpoint, and give it the final address."},
		{status(429), "The receiver answered 429, which asks for a pause: it is tried again by itself."},
		{
			egresstest.NewTLSReceiver(t, egresstest.Respond(200, "")).URL,
			"No trusted TLS connection could be made: check the receiver’s certificate, its chain and its names.",
		},
		{unknownName, "The receiver’s name could not be resolved: check the address for a slip."},
		{
			egresstest.NewReceiver(t, hangUp("")).URL,
			"The connection broke before an answer arrived: the receiver, or a proxy in front of it, hung up.",
		},
		{
			egresstest.NewReceiver(t, hangUp("220 mail.example ESMTP\r\n")).URL,
			"What the receiver answered is not HTTP: check what listens at this port.",
		},
		{refusing(t), "Nothing takes connections at this address: check that the receiver runs, and the port."},
	}
}

// unknownName leads to a name that does not exist. A part of it is longer than the 63 characters of
// RFC 1035, so Go's resolver says so by itself, without a name server.
var unknownName = "https://" + strings.Repeat("receiver", 8) + ".example/"

// hangUp returns a handler that writes a text instead of an HTTP answer and closes the connection.
func hangUp(text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// refusing returns the URL of a port that refuses connections. Until the test ends the port belongs
// to a connection, so that nothing else can listen there.
func refusing(t *testing.T) string {
	t.Helper()
	conn, err := net.Dial("tcp", egresstest.NewReceiver(t, egresstest.Respond(200, "")).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return "http://" + conn.LocalAddr().String()
}

// The API, `guildhall webhook list`, `webhook deliveries` and `webhook test`, `guildhall doctor`, and
// the dashboard's overview, list and page of an endpoint say with the same sentence why the endpoint
// fails. A slow answer takes longer
// than a test may: TestEachCauseHasItsSentence (internal/service/webhooks) has its sentence.
func TestEachFailureHasOneSentenceEverywhere(t *testing.T) {
	t.Parallel()
	d := openDoors(t, "GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8", "GUILDHALL_WEBHOOK_RETRIES=1h")
	ask := func(method, path, body string, want int, into any) string {
		t.Helper()
		status, text := d.call(method, path, body)
		if err := json.Unmarshal([]byte(text), into); status != want || err != nil {
			t.Fatalf("%s %s answers %d, %v: %s", method, path, status, err, text)
		}
		return text
	}
	problems := make(map[string]string) // by the endpoint's id
	for _, r := range failingReceivers(t) {
		at := strings.Replace(r.url, unknownName, "https://127.0.0.1:1/", 1) // a name has to exist when it is registered
		var made struct{ Data gen.WebhookEndpointWithSecret }
		ask(http.MethodPost, "/webhooks", `{"url":"`+at+`","events":["case.created"]}`, 201, &made)
		problems[made.Data.ID] = r.problem
	}
	dbtest.Exec(t, dbtest.Open(t, d.database).DB, `UPDATE webhook_endpoints SET url = $1 WHERE url = 'https://127.0.0.1:1/'`, unknownName)
	ask(http.MethodPost, "/cases", `{"user_id":"1","moderator_id":"2","type":"warn","reason":"r"}`, 201, &struct{}{})

	var list struct{ Data []gen.WebhookEndpoint }
	testutil.Eventually(t, "every receiver has failed", func() bool {
		return strings.Count(ask(http.MethodGet, "/webhooks", "", 200, &list), `"state":"failing"`) == len(problems)
	})
	for _, e := range list.Data {
		if e.Health.Problem == nil || *e.Health.Problem != problems[e.ID] {
			t.Errorf("listWebhookEndpoints says of %s %+v, want %q", e.URL, e.Health, problems[e.ID])
		}
	}
	places := map[string][]string{
		"webhook list": strings.Split(call(t, "", "webhook", "list", "--guild", guild, "--database-url", d.database).ok(t), "\n"),
		"doctor":       endpointFindings(t, d.database),
		"the overview": strings.Split(d.page("/"), "<tr>"),
		"the list":     strings.Split(d.page("/webhooks"), "<tr>"),
	}
	for id, problem := range problems {
		if r := call(t, "", "webhook", "test", id, "--database-url", d.database); r.code != 1 || !strings.Contains(r.err, problem) {
			t.Errorf("webhook test says %q, want %q", r.err, problem)
		}
		places["getWebhookEndpoint"] = []string{ask(http.MethodGet, "/webhooks/"+id, "", 200, &struct{}{})}
		places["webhook deliveries"] = strings.Split(call(t, "", "webhook", "deliveries", id, "--database-url", d.database).ok(t), "\n")
		places["the endpoint's page"] = []string{d.page("/webhooks/" + id)}
		for place, parts := range places {
			if !slices.ContainsFunc(parts, func(part string) bool {
				return (place == "webhook deliveries" || strings.Contains(part, id)) && strings.Contains(part, problem)
			}) {
				t.Errorf("%s does not say %q", place, problem)
			}
		}
	}
}

// endpointFindings returns what doctor says about each endpoint that fails.
func endpointFindings(t *testing.T, url string) []string {
	t.Helper()
	var all examined
	out := call(t, "", "doctor", "--json", "--database-url", url, "--secret-key", keyOf(url), "--discord-url", "off",
		"--webhook-allow", "127.0.0.0/8").ok(t)
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all.Findings, func(f doctor.Finding) bool { return f.Check == doctor.Endpoints })
	return all.Findings[i].About
}
