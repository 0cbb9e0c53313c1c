package tracing

import (
	"context"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"

	"guildhall/internal/base/fault"
)

// Probe sends the collector an empty batch of spans and returns an error if the collector refuses
// it.
func Probe(ctx context.Context) error {
	client := otlptracehttp.NewClient(otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err := client.Start(ctx); err != nil {
		return fault.Wrap(err, endpointVariable)
	}
	defer func() { _ = client.Stop(ctx) }() // nothing is buffered in the client
	return client.UploadTraces(ctx, nil)
}
