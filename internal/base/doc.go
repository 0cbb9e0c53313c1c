// Package base knows nothing of Guildhall: the database, jobs, schemas, failures, the log.
//
// It is one of the six floors of internal, each a folder. Its packages import one
// another and nothing else of internal, never a floor above.
package base
