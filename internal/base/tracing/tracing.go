// Package tracing tells an OpenTelemetry collector how long requests, statements
// and calls of others took, and which belong together. It alone knows the SDK,
// and the SDK's own variables switch it on. Where they are not set there is no
// Tracer and no Span, and everything here does nothing.
//
// A span holds what the access log may hold: operations, routes as patterns, ids
// of ours. Never a path, an argument, a header or the text of an error, which may
// repeat any of them.
package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"guildhall/internal/base/fault"
)

const (
	// instrumentation is what the spans say they were made by.
	instrumentation = "guildhall"

	// closeTimeout is how long the last spans may take on their way out.
	closeTimeout = 1500 * time.Millisecond

	// complainInterval is how often the log hears that spans are lost.
	complainInterval = time.Minute
)

// The variables that say where the collector is; either switches tracing on.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	attributesVariable     = "OTEL_RESOURCE_ATTRIBUTES" // what else spans say of this process
)

// Wanted reports whether the environment asks for traces.
func Wanted() bool {
	if disabled, err := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); err == nil && disabled {
		return false
	}
	return os.Getenv("OTEL_TRACES_EXPORTER") != "none" && (os.Getenv(endpointVariable) != "" || os.Getenv(tracesEndpointVariable) != "")
}

// Check refuses settings of which the SDK would only complain.
func Check() error {
	if !Wanted() {
		return nil
	}
	for _, name := range []string{endpointVariable, tracesEndpointVariable} {
		u, err := url.Parse(os.Getenv(name))
		if os.Getenv(name) != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
			return fmt.Errorf("%s: must be a URL that begins with http:// or https://, as in http://collector:4318", name)
		}
	}
	switch cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")) {
	case "", "http/protobuf", "http/json":
		_, err := describe(context.Background()) //nolint:forbidigo // it reads variables, and waits for nothing
		return err
	}
	return errors.New("OTEL_EXPORTER_OTLP_PROTOCOL: traces are sent by http/protobuf or http/json, which collectors take on port 4318")
}

// Tracer makes spans. A nil one makes none.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
}

// New returns the tracer that the environment, which has passed Check, asks for;
// nil if it asks for none.
// Spans leave in the background, in batches; those for which there is no room
// while the collector is away are lost, and nobody waits. The SDK has one place
// for its complaints: they go to log.
func New(ctx context.Context, version string, log *slog.Logger) (*Tracer, error) {
	if !Wanted() {
		return nil, nil
	}
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(&complaints{log: log})
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fault.Wrap(err, endpointVariable)
	}
	about, err := describe(ctx,
		resource.WithAttributes(attribute.String("service.name", instrumentation), attribute.String("service.version", version)),
		resource.WithHost(), resource.WithTelemetrySDK())
	if err != nil {
		return nil, err
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &Tracer{tracer: provider.Tracer(instrumentation), provider: provider}, nil
}

// describe says what sends the spans. The environment's word comes last and wins.
func describe(ctx context.Context, options ...resource.Option) (*resource.Resource, error) {
	about, err := resource.New(ctx, append(options, resource.WithFromEnv())...)
	return about, fault.Wrap(err, attributesVariable)
}

// complaints passes on what goes wrong with the export, now and then.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // when one was passed on, in Unix nanoseconds
}

// Handle implements otel.ErrorHandler.
func (c *complaints) Handle(err error) {
	now := time.Now().UnixNano()
	last := c.last.Load()
	if now-last < int64(complainInterval) || !c.last.CompareAndSwap(last, now) {
		return
	}
	c.log.Warn("traces do not get to the collector; nothing else depends on it", "error", err)
}

// Close sends what has not been sent, for a short time.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// Request begins the span of a request, within the trace that its traceparent
// names, if there is one.
func (t *Tracer) Request(ctx context.Context, header http.Header, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	return t.start(ctx, trace.SpanKindServer, name)
}

// Work begins the span of something that is done unasked.
func (t *Tracer) Work(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, trace.SpanKindInternal, name)
}

// Call begins the span of a call of somebody else, within that of ctx or as one
// of its own. about is a method and a pattern, or a kind.
func (t *Tracer) Call(ctx context.Context, what, about string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, trace.SpanKindClient, what+" "+about)
}

func (t *Tracer) start(ctx context.Context, kind trace.SpanKind, name string) (context.Context, Span) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Within reports whether ctx belongs to a span that is recorded.
func Within(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Child begins a span within that of ctx, and none where that is not recorded.
func Child(ctx context.Context, name string) Span { return child(ctx, trace.SpanKindInternal, name) }

// Statement begins the span of a database's statement within that of ctx.
func Statement(ctx context.Context, name string) Span { return child(ctx, trace.SpanKindClient, name) }

func child(ctx context.Context, kind trace.SpanKind, name string) Span {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return Span{}
	}
	_, span := parent.TracerProvider().Tracer(instrumentation).Start(ctx, name, trace.WithSpanKind(kind))
	return Span{span}
}

// Span is a piece of work that is timed. The zero Span is none: its methods do
// nothing.
type Span struct{ span trace.Span }

// Set adds an attribute.
func (s Span) Set(key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt adds an attribute.
func (s Span) SetInt(key string, value int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// Fail marks the span as failed, with a fixed word for what went wrong.
func (s Span) Fail(kind string) {
	if s.span != nil {
		s.span.SetAttributes(attribute.String("error.type", kind))
		s.span.SetStatus(codes.Error, kind)
	}
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// TraceID is how the collector knows the trace; empty where there is none.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Inject names the span in the headers of a call, as its traceparent. A tracestate that
// other services have put beside it is not for strangers.
func (s Span) Inject(header http.Header) {
	if s.span != nil {
		propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s.span), traceparent(header)) //nolint:forbidigo // it only carries the span
	}
}

// traceparent is a header that takes nothing else.
type traceparent http.Header

func (h traceparent) Get(key string) string { return http.Header(h).Get(key) }

func (h traceparent) Keys() []string { return nil }

func (h traceparent) Set(key, value string) {
	if key == "traceparent" {
		http.Header(h).Set(key, value)
	}
}

// Traceparent names the span of ctx, for those that go on with its trace later; empty
// where there is none.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	header := http.Header{}
	propagation.TraceContext{}.Inject(ctx, traceparent(header))
	return header.Get("traceparent")
}

// Continue makes what is begun in the context part of the trace that a traceparent
// names, if it names one.
func (t *Tracer) Continue(ctx context.Context, parent string) context.Context {
	if t == nil || parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
}

// Transport makes each of next's calls a span of that name, which tells the
// method and the status.
func (t *Tracer) Transport(next http.RoundTripper, name string) http.RoundTripper {
	if t == nil {
		return next
	}
	return transport{t, next, name}
}

type transport struct {
	tracer *Tracer
	next   http.RoundTripper
	name   string
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := t.tracer.Call(r.Context(), r.Method, t.name)
	defer span.End()
	r = r.Clone(ctx)
	span.Inject(r.Header)
	res, err := t.next.RoundTrip(r)
	if err != nil {
		span.Fail("transport")
		return nil, err
	}
	span.Status(res.StatusCode)
	return res, nil
}

// Status adds the status that a call was answered with; from 400 on it has failed.
func (s Span) Status(status int) {
	if s.span == nil || status == 0 {
		return
	}
	s.SetInt("http.response.status_code", status)
	if status >= 400 {
		s.Fail(strconv.Itoa(status))
	}
}
