// Package fault defines the failures that callers see: a kind, a stable code, and one sentence for
// the caller. It knows nothing of HTTP.
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Kind is the class of a failure.
type Kind int

// The kinds of failure.
const (
	Internal        Kind = iota // the zero Kind: a bug or an outage; the caller sees no details
	Invalid                     // the request breaks the published schema
	Unauthenticated             // the caller is not authenticated
	Forbidden                   // the caller is known but may not do this
	NotFound                    // the guild has no such resource
	Refused                     // the request is well formed, but the guild's present state forbids it
	Conflict                    // the idempotency key is in use
	Limited                     // the caller exceeds a rate limit
	Upstream                    // the chat platform refused the call or did not answer
	Unavailable                 // the caller should retry the same request later
)

// Error is one failure. All its fields except cause may be shown to the caller.
type Error struct {
	Kind          Kind
	Code          string        // a code listed in openapi.yaml, such as "balance_would_be_negative"
	Message       string        // one sentence that may be shown to the caller
	RequiredScope string        // set for the code insufficient_scope only
	RetryAfter    time.Duration // set for the kinds Limited, Conflict and Unavailable
	Unkept        bool          // the refusal is not stored under the request's idempotency key, though its Kind would be
	cause         error         // logged, never shown
}

// New returns a failure whose message is format with args.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Because returns a copy of e with cause, which is only logged.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// With returns a copy of e with another message.
func (e *Error) With(format string, args ...any) *Error {
	c := *e
	c.Message = fmt.Sprintf(format, args...)
	return &c
}

// After returns a copy of e that asks the caller to wait for d.
func (e *Error) After(d time.Duration) *Error {
	c := *e
	c.RetryAfter = d
	return &c
}

// Error returns the text for logs, which includes the cause.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Code + ": " + e.Message + ": " + e.cause.Error()
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// As returns the outermost *Error in err's chain.
func As(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// Is reports whether err is a failure with the given code.
func Is(err error, code string) bool {
	f, ok := As(err)
	return ok && f.Code == code
}

// Panicked returns an error that describes a recovered panic p, with the stack. It must be called
// in the deferred function that recovered p.
func Panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// Caught calls work and returns its error. If work panics, it returns the panic as an error.
func Caught(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Panicked(p)
		}
	}()
	return work()
}

// Wrap adds to err what was being done, in words that are joined by spaces. It returns nil if err
// is nil, so a function can end with it. The words are joined only for an error: the success path
// costs no formatting.
func Wrap(err error, doing ...string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(doing, " "), err)
}

// At adds to a failure the place in the request that it is about. It returns any other error
// unchanged.
func At(place string, err error) error {
	f, ok := As(err)
	if !ok {
		return err
	}
	return f.With("%s: %s", place, f.Message)
}
