// Package tracing reports to an OpenTelemetry collector how long requests, statements and outgoing
// calls took, as traces. It is the only package that uses OpenTelemetry's SDK, and the SDK's own
// environment variables switch it on. Without them the Tracer is nil and every Span is the zero
// Span, whose methods do nothing.
//
// A span contains only what the access log may contain: operations, route patterns and our own ids.
// It never contains a path, an argument, a header or the text of an error, which could repeat one
// of them.
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
	// instrumentation is the name of the tracer in spans.
	instrumentation = "guildhall"

	// closeTimeout is how long Close waits for the last spans to be sent.
	closeTimeout = 1500 * time.Millisecond

	// complainInterval is how often the log mentions that spans are lost.
	complainInterval = time.Minute
)

// The environment variables with the collector's address; either one switches tracing on.
const (
	endpointVariable       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpointVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	attributesVariable     = "OTEL_RESOURCE_ATTRIBUTES" // further attributes of this process
)

// Wanted reports whether the environment asks for traces.
func Wanted() bool {
	if disabled, err := strconv.ParseBool(os.Getenv("OTEL_SDK_DISABLED")); err == nil && disabled {
		return false
	}
	return os.Getenv("OTEL_TRACES_EXPORTER") != "none" && (os.Getenv(endpointVariable) != "" || os.Getenv(tracesEndpointVariable) != "")
}

// Check returns an error for settings that the SDK would only complain about at run time.
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

// Tracer makes spans. A nil *Tracer makes zero Spans.
type Tracer struct {
	tracer   trace.Tracer
	provider *sdk.TracerProvider
}

// New returns the tracer that the environment configures, or nil if it configures none. The caller
// has called Check. Spans are sent in the background, in batches. While the collector is down,
// spans that do not fit into the buffer are lost, and no caller waits. The SDK's error handler is
// global to the process: New sets it to one that writes to log.
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

// describe returns the attributes of this process. Attributes from the environment override the
// others.
func describe(ctx context.Context, options ...resource.Option) (*resource.Resource, error) {
	about, err := resource.New(ctx, append(options, resource.WithFromEnv())...)
	return about, fault.Wrap(err, attributesVariable)
}

// complaints logs errors of the export, at most once per complainInterval.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // when the last complaint was logged, in Unix nanoseconds
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

// Close sends the remaining spans. It gives up after closeTimeout.
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

// Request starts the span of a request. If the request has a traceparent header, the span belongs
// to the trace that the header names.
func (t *Tracer) Request(ctx context.Context, header http.Header, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(header))
	return t.start(ctx, trace.SpanKindServer, name)
}

// Work starts the span of background work.
func (t *Tracer) Work(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, trace.SpanKindInternal, name)
}

// Call starts the span of an outgoing call, as a child of ctx's span or as the root of a trace.
// about is a method and a pattern, or a kind of work.
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

// Within reports whether ctx has a span that is recorded.
func Within(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Child starts a child of ctx's span. It returns the zero Span if ctx's span is not recorded.
func Child(ctx context.Context, name string) Span { return child(ctx, trace.SpanKindInternal, name) }

// Statement starts the span of a database statement as a child of ctx's span.
func Statement(ctx context.Context, name string) Span { return child(ctx, trace.SpanKindClient, name) }

func child(ctx context.Context, kind trace.SpanKind, name string) Span {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return Span{}
	}
	_, span := parent.TracerProvider().Tracer(instrumentation).Start(ctx, name, trace.WithSpanKind(kind))
	return Span{span}
}

// Span measures a piece of work. The methods of the zero Span do nothing.
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

// Fail marks the span as failed. kind is a fixed word for the reason.
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

// TraceID returns the id under which the collector stores the trace, or "".
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// Inject puts the span into the headers of a call, as traceparent. It leaves out the tracestate,
// which other services have filled and third parties should not see.
func (s Span) Inject(header http.Header) {
	if s.span != nil {
		propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s.span), traceparent(header)) //nolint:forbidigo // it only carries the span
	}
}

// traceparent is a carrier that accepts only the traceparent header.
type traceparent http.Header

func (h traceparent) Get(key string) string { return http.Header(h).Get(key) }

func (h traceparent) Keys() []string { return nil }

func (h traceparent) Set(key, value string) {
	if key == "traceparent" {
		http.Header(h).Set(key, value)
	}
}

// Traceparent returns the traceparent of ctx's span, so that later work can continue the trace, or
// "".
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	header := http.Header{}
	propagation.TraceContext{}.Inject(ctx, traceparent(header))
	return header.Get("traceparent")
}

// Continue returns a context in which new spans belong to the trace that parent names. If parent is
// empty or malformed, it returns ctx unchanged.
func (t *Tracer) Continue(ctx context.Context, parent string) context.Context {
	if t == nil || parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": parent})
}

// Transport returns a RoundTripper that makes a span called name for each call of next, with the
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

// Status adds the status of the response. A status of 400 or more marks the span as failed.
func (s Span) Status(status int) {
	if s.span == nil || status == 0 {
		return
	}
	s.SetInt("http.response.status_code", status)
	if status >= 400 {
		s.Fail(strconv.Itoa(status))
	}
}
