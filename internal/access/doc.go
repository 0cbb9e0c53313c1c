// Package access holds authentication, rate limits, idempotency keys, the audit log and usage
// counters.
//
// It is one of the layers of internal, each of which is a directory. Its packages import one
// another and base, never a layer above.
package access
