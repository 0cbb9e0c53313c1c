// Package migrations holds the database's history: forward-only SQL files,
// numbered, one purpose each.
package migrations

import "embed"

// Files is every migration.
//
//go:embed [0-9]*.sql
var Files embed.FS

// NotNeeded is the line of a migration without which the program's statements
// run as well: serve starts before it and after it. Every other migration has to
// be run before the program that brings it.
const NotNeeded = "-- The program runs without this migration."
