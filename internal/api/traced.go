package api

import (
	"guildhall/internal/fault"
	"guildhall/internal/tracing"
)

// traced makes the whole of a request a span, of which everything that is done
// for it becomes a part.
func traced(t *tracing.Tracer) step {
	return func(next handler) handler {
		return func(x *exchange) error {
			req := x.Request()
			ctx, span := t.Request(req.Context(), req.Header, method(x)+" "+x.Path())
			defer span.End()
			x.SetRequest(req.WithContext(ctx))
			x.trace = span.TraceID()
			err := next(x)
			tell(span, x)
			return err
		}
	}
}

// tell adds what has been found out about the request.
func tell(span tracing.Span, x *exchange) {
	span.Set("http.request.method", method(x))
	span.Set("http.route", x.Path())
	span.SetInt("http.response.status_code", x.status())
	span.Set("guildhall.request_id", x.id)
	if x.op != nil {
		span.Set("guildhall.operation", x.op.ID)
	}
	if x.by != nil {
		span.Set("guildhall.guild_id", x.by.GuildID)
		span.Set("guildhall.token_id", x.by.TokenID)
	}
	f, ok := fault.As(x.refusal)
	if ok {
		span.Set("guildhall.code", f.Code)
	}
	if ok && x.status() >= 500 {
		span.Fail(f.Code)
	}
}
