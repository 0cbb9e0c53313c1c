package tracing

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"guildhall/internal/base/fault"
)

// Probe sends the collector no spans, and says whether it takes them.
func Probe(ctx context.Context) error {
	client := otlptracehttp.NewClient(otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err := client.Start(ctx); err != nil {
		return fault.Wrap(err, endpointVariable)
	}
	defer func() { _ = client.Stop(ctx) }() // it holds nothing
	return client.UploadTraces(ctx, nil)
}
