package api

import (
	"strconv"
	"time"

	"guildhall/internal/fault"
	"guildhall/internal/ratelimit"
)

// Quotas are the sizes of the buckets.
type Quotas struct{ Read, Write, Login ratelimit.Quota }

// rateLimited spends the token's read or write bucket. What is no operation
// counts as a read.
func rateLimited(limits *ratelimit.Limiter, q Quotas) step {
	return func(next handler) handler {
		return func(x *exchange) error {
			if err := spend(x, limits, q); err != nil {
				return err
			}
			return next(x)
		}
	}
}

// spend takes one request out of the token's bucket and tells the caller what is
// left.
func spend(x *exchange, limits *ratelimit.Limiter, q Quotas) error {
	bucket, quota := "read", q.Read
	if x.op != nil && !x.op.ReadOnly {
		bucket, quota = "write", q.Write
	}
	if quota.Off() {
		return nil
	}
	r := limits.Spend(x.ctx, x.by.TokenID+":"+bucket, quota)
	now := time.Now() //nolint:forbidigo // the header tells the time of day, as callers' clocks do
	set(x, "X-Ratelimit-Limit", strconv.Itoa(r.Limit), "X-Ratelimit-Remaining", strconv.Itoa(r.Remaining),
		"X-Ratelimit-Reset", strconv.FormatInt(r.ResetAt(now), 10), "X-Ratelimit-Bucket", bucket)
	if !r.Allowed {
		return limited("The "+bucket+" bucket of this token is empty.", r)
	}
	return nil
}

func limited(text string, r ratelimit.Result) *fault.Error {
	return fault.New(fault.Limited, "rate_limited", "%s Wait for Retry-After seconds.", text).After(max(r.RetryAfter, time.Second))
}
