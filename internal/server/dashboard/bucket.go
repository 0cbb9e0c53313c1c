package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/failure"
)

// bucketOf names the bucket of a session by its token's hash. Only one that has a
// session takes from it, so that tokens which are made up fill no memory.
func bucketOf(token string) string {
	hash := sha256.Sum256([]byte(token))
	return "dashboard:session:" + hex.EncodeToString(hash[:])
}

// spend takes one request from the session's bucket, and has the database work on
// the session's account, so that one of many requests has its share and no more.
func (c *call) spend(bucket string) error {
	if c.who.ID == "" {
		return nil
	}
	c.ctx = onAccount(c.ctx, db.Caller{Token: "session:" + c.load.id, Guild: c.r.PathValue("guild")})
	c.r = c.r.WithContext(c.ctx)
	return c.take(bucket)
}

// take takes one request from a bucket, or returns the refusal.
func (c *call) take(bucket string) error {
	r := c.cfg.Limits.Spend(c.ctx, bucket, c.cfg.Session)
	if r.Allowed {
		return nil
	}
	return fault.New(fault.Limited, "rate_limited", "You have asked for %d pages in a short time. Try again in %d seconds.", c.cfg.Session.Limit, failure.Seconds(r.RetryAfter)).
		After(max(r.RetryAfter, time.Second))
}
