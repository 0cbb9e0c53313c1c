package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// Probe sends the collector no spans, and says whether it takes them.
func Probe(ctx context.Context) error {
	client := otlptracehttp.NewClient(otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	if err := client.Start(ctx); err != nil {
		return fmt.Errorf("%s: %w", endpointVariable, err)
	}
	defer func() { _ = client.Stop(ctx) }() // it holds nothing
	return client.UploadTraces(ctx, nil)
}
