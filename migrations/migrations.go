// Package migrations holds the database's history: forward-only SQL files,
// numbered, one purpose each.
//
// An ordinary migration runs before the program that brings it. One in contract/
// takes away what older programs need: it runs after all ordinary ones, when no
// program is at work that does not know its number, and has a version table of
// its own, so that ordinary ones follow it in any order. Both take their numbers
// from one row.
package migrations

import "embed"

// Files is every migration.
//
//go:embed [0-9]*.sql contract/[0-9]*.sql
var Files embed.FS

// Contract is the folder of those that take away what older programs need.
const Contract = "contract"

// NotNeeded is the line of an ordinary migration without which the program's
// statements run as well: serve starts before it and after it. Every other one has
// to be run before the program that brings it.
const NotNeeded = "-- The program runs without this migration."
