package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
)

// traces is a collector that keeps the spans it receives.
type traces struct {
	*httptest.Server

	mu  sync.Mutex
	all []*spans.Span
	raw strings.Builder
}

func collect(t *testing.T) *traces {
	t.Helper()
	c := &traces{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s got %d bytes: %v", r.URL.Path, len(body), err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.all = append(c.all, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// find returns the first span with the name, or nil if there is none yet.
func (c *traces) find(name string) *spans.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// within returns the names of the descendants of a span.
func (c *traces) within(parent *spans.Span) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.all {
		if string(s.GetParentSpanId()) == string(parent.GetSpanId()) {
			names = append(names, s.GetName())
		}
	}
	return names
}

func attribute(s *spans.Span, key string) string {
	for _, a := range s.GetAttributes() {
		if a.GetKey() == key {
			if text := a.GetValue().GetStringValue(); text != "" {
				return text
			}
			return fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return ""
}

func named(s *spans.Span) string { return fmt.Sprintf("00-%x-%x-01", s.GetTraceId(), s.GetSpanId()) }

const callersTrace = "0af7651916cd43dd8448eb211c80319c"

// traced is a server that sends traces to a collector, with the services that the server calls.
type traced struct {
	*serving
	*traces
	mu           sync.Mutex
	endpoint     string // id of an endpoint that listens
	hook, posted string // the traceparent headers that the receiver and the platform got
}

func serveTraced(t *testing.T) *traced {
	t.Helper()
	s, url := &traced{traces: collect(t)}, withGuild(t)
	platform := chattest.New(t)
	platform.Home(guild)
	platform.In("77", func(_ http.ResponseWriter, r *http.Request, _ func() any) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.posted = r.Header.Get("Traceparent")
		return false
	})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hook = r.Header.Get("Traceparent")
	}))
	t.Cleanup(receiver.Close)
	call(t, `{"record":"ticket","guild_id":"`+guild+`","opener_id":"7","id":"the-ticket","channel_id":"77"}`, "import",
		"--database-url", url, "-").ok(t)
	s.serving = serve(t, url, "GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8",
		"GUILDHALL_DISCORD_TOKEN="+chattest.Token, "GUILDHALL_DISCORD_URL="+platform.URL,
		"GUILDHALL_REDIS_URL=redis://"+miniredis.RunT(t).Addr(),
		"OTEL_EXPORTER_OTLP_ENDPOINT="+s.traces.URL, "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_SERVICE_NAME=the-service")
	var made struct{ Data struct{ ID, Secret string } }
	body := s.post(t, "/webhooks", `{"url":"`+receiver.URL+`","events":["ticket.message"]}`, 201, "")
	if err := json.Unmarshal([]byte(body), &made); err != nil || !strings.HasPrefix(made.Data.Secret, "whsec_") {
		t.Fatalf("no endpoint was made, %v: %s", err, body)
	}
	s.endpoint = made.Data.ID
	return s
}

func (s *traced) post(t *testing.T, path, body string, status int, traceparent string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.https+"/api/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + s.token}, "Content-Type": {"application/json"}, "Idempotency-Key": {"key:" + path},
		"Traceparent": {traceparent}, "Tracestate": {"vendor=somebodys"},
	}
	res, err := s.client(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Fatalf("%s is answered with %d, %v: %s", path, res.StatusCode, err, text)
	}
	return string(text)
}

// The trace of a write that posts a message and emits an event contains its request, each of its
// statements, its calls of Redis and of the platform and, after its end, the delivery.
func TestTraces(t *testing.T) {
	t.Parallel()
	s := serveTraced(t)
	s.post(t, "/tickets/the-ticket/message", `{"content":"a private word","author_id":"55"}`, 201, "00-"+callersTrace+"-b7ad6b7169203331-01")

	const route = "POST /api/v1/tickets/:id/message"
	testutil.Eventually(t, "the collector has the spans", func() bool {
		return s.find(route) != nil && s.find("webhook ticket.message") != nil && s.find("POST /channels/{channel.id}/messages") != nil
	})
	request := s.find(route)
	if fmt.Sprintf("%x", request.GetTraceId()) != callersTrace || request.GetKind() != spans.Span_SPAN_KIND_SERVER {
		t.Errorf("the request is %v", request)
	}
	for key, want := range map[string]string{
		"guildhall.operation": "createTicketMessage", "guildhall.guild_id": guild, "http.response.status_code": "201",
		"http.route": "/api/v1/tickets/:id/message",
	} {
		if got := attribute(request, key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	parts := s.within(request)
	for _, name := range []string{
		"BEGIN", "COMMIT", "INSERT idempotency_keys", "INSERT chat_intents", "INSERT ticket_messages",
		"POST /channels/{channel.id}/messages", "EVALSHA",
	} {
		if !slices.Contains(parts, name) {
			t.Errorf("%s is no part of the request, which has %q", name, parts)
		}
	}
	s.says(t, `"trace_id":"`+callersTrace+`"`)

	delivery, post := s.find("webhook ticket.message"), s.find("POST /channels/{channel.id}/messages")
	if attribute(delivery, "guildhall.guild_id") != guild || attribute(delivery, "guildhall.event_id") == "" ||
		attribute(delivery, "http.response.status_code") != "200" {
		t.Errorf("the delivery is %v", delivery)
	}
	if fmt.Sprintf("%x", delivery.GetTraceId()) != callersTrace || string(delivery.GetParentSpanId()) != string(request.GetSpanId()) {
		t.Errorf("the delivery is no part of the request %x: %v", request.GetSpanId(), delivery)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hook != named(delivery) {
		t.Errorf("the receiver was sent the traceparent %q, want %q", s.hook, named(delivery))
	}
	if s.posted != named(post) {
		t.Errorf("the platform was sent the traceparent %q, want %q", s.posted, named(post))
	}
	s.holdNothingSecret(t)
}

// A ping, whose event is recorded by a statement of its own, belongs to the trace of its request.
func TestATestEventIsPartOfItsTrace(t *testing.T) {
	t.Parallel()
	s := serveTraced(t)
	s.post(t, "/webhooks/"+s.endpoint+"/test", ``, 202, "00-"+callersTrace+"-b7ad6b7169203331-01")
	testutil.Eventually(t, "the collector has the delivery", func() bool { return s.find("webhook ping") != nil })
	if delivery := s.find("webhook ping"); fmt.Sprintf("%x", delivery.GetTraceId()) != callersTrace {
		t.Errorf("the delivery is of another trace: %v", delivery)
	}
}

// holdNothingSecret searches the bytes that were sent to the collector for secrets.
func (s *traced) holdNothingSecret(t *testing.T) {
	t.Helper()
	s.traces.mu.Lock()
	defer s.traces.mu.Unlock()
	sent := s.raw.String()
	if !strings.Contains(sent, "the-service") {
		t.Error("OTEL_SERVICE_NAME is not told")
	}
	for what, text := range map[string]string{
		"a token": s.token, "a signing secret": "whsec_", "the bot's token": chattest.Token, "a message": "a private word",
		"a path": "the-ticket", "a key": "key:/tickets", "a receiver's address": "http://127.0.0.1",
		"a bucket": "guildhall:rate:",
	} {
		if strings.Contains(sent, text) {
			t.Errorf("the traces hold %s", what)
		}
	}
}
