package api

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
)

// reqState is one request on its way through the chain and back, with what the
// middlewares have found out about it so far. It stands in for Echo's own context.
type reqState struct {
	echo.Context
	serve   echo.HandlerFunc // what Echo's router has found
	op      *operation       // what the document says of it; nil: it is no operation
	came    time.Time        // when it arrived
	caller  context.Context  // ends when the caller hangs up
	ctx     context.Context  // of whatever is done for this request
	id      string           // its X-Request-Id
	trace   string           // the trace that it belongs to; empty: none
	from    netip.Addr       // the client's; the zero one when it cannot be known
	by      *auth.Principal  // nil until somebody has authenticated
	refused *auth.Principal  // whose token it is, where it was not accepted
	ended   bool             // that token was revoked, or has expired
	noGuild error            // why the caller acts in no guild
	making  bool             // the guild in which it acts was not there when it came
	body    []byte           // of a write, as it was sent
	value   any              // what the body holds, as validation has read it; nil: there is none
	key     string           // of a write; empty when none was sent
	broken  error            // what validation found wrong with a write
	refusal error            // what was answered from inside, for the log
	waited  time.Duration    // for something to answer with
	closed  bool             // the caller hung up before its response was ready
}

// handler answers a request, or fails; middleware is what stands before it.
type (
	handler    func(*reqState) error
	middleware func(next handler) handler
)

// chain puts the middlewares, the first outermost, before whatever Echo's router
// finds. It is put together once; Echo would do it again for each request.
func chain(middlewares []middleware) echo.MiddlewareFunc {
	whole := handler(func(rs *reqState) error { return rs.serve(rs) })
	for _, s := range slices.Backward(middlewares) {
		whole = s(whole)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return whole(&reqState{Context: c, serve: next}) }
	}
}
