// Package base holds packages that know nothing of Guildhall's API: database access, lanes of
// background work, JSON schemas, failures and logging.
//
// It is the lowest of the layers of internal, each of which is a directory. Its packages import one
// another and no other package of internal.
package base
