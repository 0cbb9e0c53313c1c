// Package migrations holds the database's history: forward-only SQL files,
// numbered, one purpose each.
package migrations

import "embed"

// Files is every migration.
//
//go:embed [0-9]*.sql
var Files embed.FS
