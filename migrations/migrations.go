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

// AfterRollout is the line of a migration that takes away what only the release
// before it needs. It waits until no node of an older program runs any more, so
// its own release runs without it too: it carries NotNeeded as well.
const AfterRollout = "-- No node of the release before runs any more."
