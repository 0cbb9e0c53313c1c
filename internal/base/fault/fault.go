// Package fault is the vocabulary of failure: what kind of thing went wrong,
// under which stable code, and one sentence for the caller. It knows nothing
// of HTTP.
package fault

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Kind is the class of a failure. The set is closed.
type Kind int

// The kinds of failure.
const (
	Internal        Kind = iota // the zero Kind: ours to fix; the caller sees only that
	Invalid                     // the request breaks the published schema
	Unauthenticated             // we do not know who is asking
	Forbidden                   // we know, and the answer is no
	NotFound                    // no such thing in this guild
	Refused                     // well formed, but the guild's state forbids it
	Conflict                    // the idempotency key is taken
	Limited                     // asked too often
	Upstream                    // the chat platform said no, or nothing
	Unavailable                 // try the same request again later
)

// Error is one failure. Everything but the cause is safe to show to the caller.
type Error struct {
	Kind          Kind
	Code          string        // listed in openapi.yaml: "balance_would_be_negative"
	Message       string        // one sentence, safe to show
	RequiredScope string        // insufficient_scope only
	RetryAfter    time.Duration // Limited, Conflict, Unavailable
	Unkept        bool          // not stored under the key of the request, though its Kind is
	cause         error         // logged, never shown
}

// New returns a failure whose message is made from format and args.
func New(kind Kind, code, format string, args ...any) *Error {
	return &Error{Kind: kind, Code: code, Message: fmt.Sprintf(format, args...)}
}

// Because returns a copy of e that remembers cause for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// With returns a copy of e that says it in other words.
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

// Error is the text for logs; it includes the cause.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Code + ": " + e.Message + ": " + e.cause.Error()
	}
	return e.Code + ": " + e.Message
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// As finds the outermost failure in err's chain.
func As(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// Is reports whether err is a failure with the given code.
func Is(err error, code string) bool {
	f, ok := As(err)
	return ok && f.Code == code
}

// Panicked is the error of a panic: what it was about, and where. It is for the
// deferred function that has recovered p.
func Panicked(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// Caught calls work and returns its error, or what it panics with.
func Caught(work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Panicked(p)
		}
	}()
	return work()
}

// Wrap says of err what was being done when it came, in words and names that are
// joined by spaces. Of no error it makes none, so that a function can end with it.
// That costs nothing; formatting would.
func Wrap(err error, doing ...string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", strings.Join(doing, " "), err)
}

// At says of a failure at which place of the request it lies; what is none stays as it is.
func At(place string, err error) error {
	f, ok := As(err)
	if !ok {
		return err
	}
	return f.With("%s: %s", place, f.Message)
}
