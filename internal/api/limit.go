package api

import (
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/auth"
	"guildhall/internal/fault"
	"guildhall/internal/ratelimit"
)

// Quotas are the sizes of the buckets.
type Quotas struct{ Read, Write, Login ratelimit.Quota }

// rateLimited spends the token's read or write bucket. What is no operation
// counts as a read.
func rateLimited(limits *ratelimit.Limiter, q Quotas) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			bucket, quota := "read", q.Read
			if op := operationOf(c); op != nil && !op.ReadOnly {
				bucket, quota = "write", q.Write
			}
			if quota.Off() {
				return next(c)
			}
			ctx := c.Request().Context()
			r := limits.Spend(ctx, auth.From(ctx).TokenID+":"+bucket, quota)
			h := c.Response().Header()
			h.Set("X-RateLimit-Limit", strconv.Itoa(r.Limit))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(r.Remaining))
			now := time.Now() //nolint:forbidigo // the header tells the time of day, as callers' clocks do
			h.Set("X-RateLimit-Reset", strconv.FormatInt(r.ResetAt(now), 10))
			h.Set("X-RateLimit-Bucket", bucket)
			if !r.Allowed {
				return limited("The "+bucket+" bucket of this token is empty.", r)
			}
			return next(c)
		}
	}
}

func limited(text string, r ratelimit.Result) *fault.Error {
	return fault.New(fault.Limited, "rate_limited", "%s Wait for Retry-After seconds.", text).After(max(r.RetryAfter, time.Second))
}
