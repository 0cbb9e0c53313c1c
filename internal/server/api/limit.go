package api

import (
	"strconv"
	"time"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/meta"
)

// Quotas are the sizes of the rate-limit buckets.
type Quotas = meta.Quotas

// limitRate spends from the token's read or write bucket. A request that matches no operation
// counts as a read. A bot key has two buckets in each guild, and two more for requests in no
// existing guild, so guessing ids creates no buckets.
func limitRate(limits *ratelimit.Limiter, q Quotas) middleware {
	return func(next handler) handler {
		return func(rs *reqState) error {
			if err := spend(rs, limits, &q); err != nil {
				return err
			}
			return next(rs)
		}
	}
}

// spend takes one request from the token's bucket and sets the X-RateLimit headers.
func spend(rs *reqState, limits *ratelimit.Limiter, q *Quotas) error {
	read, write := q.Of(rs.by)
	bucket, quota := "read", read
	if rs.op != nil && !rs.op.reads() {
		bucket, quota = "write", write
	}
	key, whose := rs.by.ID, "this token"
	if rs.by.IsKey() {
		whose = "this key"
		if rs.by.GuildID != "" {
			key, whose = key+":"+rs.by.GuildID, "this key in this guild"
		}
	}
	if quota.Off() {
		return nil
	}
	r := limits.Spend(rs.ctx, key+":"+bucket, quota)
	now := time.Now() //nolint:forbidigo // the header tells the time of day, as callers' clocks do
	set(rs, "X-Ratelimit-Limit", strconv.Itoa(r.Limit), "X-Ratelimit-Remaining", strconv.Itoa(r.Remaining),
		"X-Ratelimit-Reset", strconv.FormatInt(r.ResetAt(now), 10), "X-Ratelimit-Bucket", bucket)
	if !r.Allowed {
		return limited("The "+bucket+" bucket of "+whose+" is empty.", r)
	}
	return nil
}

func limited(text string, r ratelimit.Result) *fault.Error {
	return fault.New(fault.Limited, "rate_limited", "%s Wait for Retry-After seconds.", text).After(max(r.RetryAfter, time.Second))
}
