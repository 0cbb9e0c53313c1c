package dashboard

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/server/failure"
)

// bucketOf returns the name of a session's bucket, made from the hash of its token. Only an
// existing session has a bucket, so that invented tokens use no memory.
func bucketOf(token string) string {
	hash := sha256.Sum256([]byte(token))
	return "dashboard:session:" + hex.EncodeToString(hash[:])
}

// spend takes one request from the session's bucket, and makes the database count its work for the
// session, so that many requests of one session get only a fair share.
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
