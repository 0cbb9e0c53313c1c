package api

import (
	"github.com/labstack/echo/v4"

	"guildhall/internal/idempotency"
)

// phased serves the operation that calls out between two commits. It takes its
// key itself; here it only gets to know it.
func (u *units) phased(c echo.Context, key string, next echo.HandlerFunc) error {
	req := c.Request()
	ctx := u.db.Reading(req.Context())
	if key != "" {
		ctx = idempotency.With(ctx, request(c, key))
	}
	if err := broken(c); err != nil {
		return err
	}
	answer, err := capture(c, ctx, next)
	if err != nil {
		return err
	}
	u.wake()
	return send(c, answer)
}
