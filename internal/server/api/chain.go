package api

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
)

// reqState is the state of one request in the chain, with what the middlewares have found out so
// far. It implements echo.Context.
type reqState struct {
	echo.Context
	serve   echo.HandlerFunc // the handler that Echo's router has found
	op      *operation       // the request's operation; nil: none matches
	came    time.Time        // when the request arrived
	caller  context.Context  // cancelled when the caller hangs up
	ctx     context.Context  // the context for all work of the request
	id      string           // the request's X-Request-Id
	trace   string           // the id of the request's trace; empty: none
	from    netip.Addr       // the client's address; zero if unknown
	by      *auth.Principal  // the principal; nil before authentication
	refused *auth.Principal  // the owner of a token that was not accepted
	ended   bool             // the refused token was revoked or had expired
	noGuild error            // why the caller acts in no guild
	making  bool             // the guild did not exist when the request arrived
	body    []byte           // the body of a write, as it was sent
	value   any              // the parsed body; nil: no body
	key     string           // the idempotency key of a write; empty: none
	broken  error            // the problems that validation found in a write
	refusal error            // the internal error behind the response, for the log
	waited  time.Duration    // how long the request waited as a long poll
	closed  bool             // the caller hung up before the response was ready
}

// handler handles a request or returns an error; middleware wraps a handler.
type (
	handler    func(*reqState) error
	middleware func(next handler) handler
)

// chain puts the middlewares, the first outermost, around the handler that Echo's router finds. The
// chain is built once; Echo would build it for each request.
func chain(middlewares []middleware) echo.MiddlewareFunc {
	whole := handler(func(rs *reqState) error { return rs.serve(rs) })
	for _, s := range slices.Backward(middlewares) {
		whole = s(whole)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return whole(&reqState{Context: c, serve: next}) }
	}
}
