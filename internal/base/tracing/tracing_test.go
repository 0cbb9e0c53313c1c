package tracing

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// recording returns a tracer with a recorder of its spans.
func recording(t *testing.T) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	return &Tracer{tracer: provider.Tracer(instrumentation), provider: provider}, spans
}

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	sampled      = "00-" + callersTrace + "-b7ad6b7169203331-01"
	unsampled    = "00-" + callersTrace + "-b7ad6b7169203331-00"
)

func TestARequestJoinsTheTraceOfItsCaller(t *testing.T) {
	t.Parallel()
	tracer, spans := recording(t)
	in := http.Header{"Traceparent": {sampled}, "Tracestate": {"vendor=secret"}}
	ctx, request := tracer.Request(t.Context(), in, "GET /x")
	statement := Statement(ctx, "SELECT wallets")
	statement.End()
	_, call := tracer.Call(ctx, "POST", "/channels/{channel.id}/messages")
	out := http.Header{}
	call.Inject(out)
	call.Status(403)
	call.End()
	request.End()

	if len(spans.Ended()) != 3 {
		t.Fatalf("%d spans, want 3", len(spans.Ended()))
	}
	root := spans.Ended()[2]
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID().String() != callersTrace {
			t.Errorf("%s belongs to the trace %s", s.Name(), s.SpanContext().TraceID())
		}
		if s != root && s.Parent().SpanID() != root.SpanContext().SpanID() {
			t.Errorf("%s is no part of the request", s.Name())
		}
	}
	sent := spans.Ended()[1]
	if want := "00-" + callersTrace + "-" + sent.SpanContext().SpanID().String() + "-01"; out.Get("Traceparent") != want {
		t.Errorf("the traceparent passed on is %q, want %q", out.Get("Traceparent"), want)
	}
	if len(out) != 1 {
		t.Errorf("more than the traceparent is passed on: %v", out)
	}
	if s := sent.Status(); s.Code != codes.Error || s.Description != "403" {
		t.Errorf("the call's status is %+v", s)
	}
}

// A caller that does not sample causes no spans of statements, and its decision is passed on to the
// services that we call.
func TestWhatIsNotSampledIsNotRecorded(t *testing.T) {
	t.Parallel()
	tracer, spans := recording(t)
	ctx, request := tracer.Request(t.Context(), http.Header{"Traceparent": {unsampled}}, "GET /x")
	if Within(ctx) || Statement(ctx, "SELECT wallets") != (Span{}) {
		t.Error("its statements are recorded")
	}
	out := http.Header{}
	request.Inject(out)
	request.End()
	if !strings.HasPrefix(out.Get("Traceparent"), "00-"+callersTrace) || !strings.HasSuffix(out.Get("Traceparent"), "-00") ||
		len(spans.Ended()) != 0 {
		t.Errorf("passed on %q, recorded %d spans", out.Get("Traceparent"), len(spans.Ended()))
	}
}

// A malformed traceparent header starts a new trace and breaks nothing.
func TestAMalformedTraceparentBeginsATraceOfItsOwn(t *testing.T) {
	t.Parallel()
	tracer, spans := recording(t)
	bad := []string{
		"", "x", "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", "ff-" + callersTrace + "-b7ad6b7169203331-01",
		strings.Repeat("a", 1<<16),
	}
	for _, text := range bad {
		_, s := tracer.Request(t.Context(), http.Header{"Traceparent": {text}}, "GET /x")
		s.End()
	}
	for _, s := range spans.Ended() {
		if !s.SpanContext().TraceID().IsValid() || s.Parent().IsValid() {
			t.Errorf("%s has the parent %v", s.Name(), s.Parent())
		}
	}
	if len(spans.Ended()) != len(bad) {
		t.Errorf("%d spans of %d requests", len(spans.Ended()), len(bad))
	}
}

func TestWithoutATracerNothingIsDone(t *testing.T) { //nolint:paralleltest // it counts allocations
	var none *Tracer
	ctx, header := t.Context(), http.Header{"Traceparent": {sampled}}
	if n := testing.AllocsPerRun(100, func() {
		c, s := none.Request(ctx, header, "GET /x")
		_, call := none.Call(c, "POST", "/x")
		call.Inject(header)
		call.Status(500)
		s.Set("key", "value")
		s.Fail("word")
		Child(c, "wait").End()
		call.End()
		s.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if header.Get("Traceparent") != sampled {
		t.Error("a header was changed")
	}
	none.Close(ctx)
	if next := http.DefaultTransport; none.Transport(next, "x") != next {
		t.Error("calls go another way")
	}
}

// However the collector behaves, nobody waits for it: neither the goroutines whose spans it does
// not take, nor the program when it stops. RELIABILITY.md, Operation.
func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	release := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer collector.Close()
	defer close(release)
	t.Setenv(endpointVariable, collector.URL)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "16")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "8")
	tracer, err := New(t.Context(), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 10_000 {
		ctx, s := tracer.Request(t.Context(), http.Header{}, "GET /x")
		Statement(ctx, "SELECT wallets").End()
		s.End()
	}
	tracer.Close(context.Background())
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("20,000 spans and the end took %v", took)
	}
}

func TestSettings(t *testing.T) { //nolint:paralleltest // it sets the environment
	for _, c := range []struct {
		env    map[string]string
		wanted bool
		refuse string
	}{
		{env: map[string]string{}},
		{env: map[string]string{endpointVariable: "http://collector:4318"}, wanted: true},
		{env: map[string]string{tracesEndpointVariable: "https://collector/v1/traces"}, wanted: true},
		{env: map[string]string{endpointVariable: "http://collector:4318", "OTEL_SDK_DISABLED": "true"}},
		{env: map[string]string{endpointVariable: "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}},
		{env: map[string]string{endpointVariable: "collector:4318"}, wanted: true, refuse: endpointVariable},
		{env: map[string]string{tracesEndpointVariable: "unix:///x"}, wanted: true, refuse: tracesEndpointVariable},
		{
			env: map[string]string{endpointVariable: "http://collector:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, wanted: true,
			refuse: "OTEL_EXPORTER_OTLP_PROTOCOL",
		},
		{env: map[string]string{endpointVariable: "http://collector:4318", attributesVariable: "team=blue"}, wanted: true},
		{env: map[string]string{endpointVariable: "http://collector:4318", attributesVariable: "blue"}, wanted: true, refuse: attributesVariable},
	} {
		for _, name := range []string{
			endpointVariable, tracesEndpointVariable, attributesVariable, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL",
		} {
			t.Setenv(name, c.env[name])
		}
		err := Check()
		if Wanted() != c.wanted || (err != nil) != (c.refuse != "") || err != nil && !strings.HasPrefix(err.Error(), c.refuse+":") {
			t.Errorf("%v: wanted %v, %v", c.env, Wanted(), err)
		}
	}
}

// Work that is done after a request has ended, on any goroutine, still belongs to the request's
// trace.
func TestATraceGoesOnLater(t *testing.T) {
	t.Parallel()
	tracer, spans := recording(t)
	for _, parent := range []string{sampled, unsampled} {
		ctx, request := tracer.Request(t.Context(), http.Header{"Traceparent": {parent}, "Tracestate": {"vendor=secret"}}, "GET /x")
		kept := Traceparent(ctx)
		request.End()
		out := http.Header{}
		request.Inject(out)
		if !strings.HasPrefix(kept, "00-"+callersTrace) || kept != out.Get("Traceparent") {
			t.Errorf("kept %q of %q, while %v was passed on", kept, parent, out)
		}
		later, delivery := tracer.Call(tracer.Continue(t.Context(), kept), "webhook", "ping")
		delivery.End()
		if sent := Traceparent(later); !strings.HasPrefix(sent, "00-"+callersTrace) || sent[53:] != parent[53:] {
			t.Errorf("%q goes on as %q", parent, sent)
		}
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans", len(ended))
	}
	if ended[1].Parent().SpanID() != ended[0].SpanContext().SpanID() {
		t.Errorf("the second span is within %v", ended[1].Parent())
	}
	for _, parent := range []string{"", "rubbish", "00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01"} {
		if ctx := tracer.Continue(t.Context(), parent); Traceparent(ctx) != "" {
			t.Errorf("%q is a trace to go on with", parent)
		}
	}
	if ctx := t.Context(); Traceparent(ctx) != "" || (*Tracer)(nil).Continue(ctx, sampled) != ctx {
		t.Error("without traces there is something to go on with")
	}
}
