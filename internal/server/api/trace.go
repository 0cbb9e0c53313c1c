package api

import (
	"guildhall/internal/base/fault"
	"guildhall/internal/base/tracing"
)

// traceRequest makes a span of the whole request. Spans of its work are children of this span.
func traceRequest(t *tracing.Tracer) middleware {
	return func(next handler) handler {
		return func(rs *reqState) error {
			req := rs.Request()
			ctx, span := t.Request(req.Context(), req.Header, method(rs)+" "+rs.Path())
			defer span.End()
			rs.SetRequest(req.WithContext(ctx))
			rs.trace = span.TraceID()
			err := next(rs)
			setAttributes(span, rs)
			return err
		}
	}
}

// setAttributes describes the request in the span's attributes.
func setAttributes(span tracing.Span, rs *reqState) {
	span.Set("http.request.method", method(rs))
	span.Set("http.route", rs.Path())
	span.SetInt("http.response.status_code", rs.status())
	span.Set("guildhall.request_id", rs.id)
	if rs.op != nil {
		span.Set("guildhall.operation", rs.op.ID)
	}
	if rs.by != nil {
		span.Set("guildhall.guild_id", rs.by.GuildID)
		span.Set("guildhall.token_id", rs.by.ID)
	}
	f, ok := fault.As(rs.refusal)
	if ok {
		span.Set("guildhall.code", f.Code)
	}
	if ok && rs.status() >= 500 {
		span.Fail(f.Code)
	}
}
