// Package migrations holds the database's schema as numbered SQL files, each with one purpose.
// There are no down migrations.
//
// An ordinary migration runs before its program is installed. A migration in contract/ removes what
// older programs need: it runs after all ordinary ones, once every running program knows its
// number. It has a version table of its own, so that later ordinary migrations can run before it.
// Both kinds share one sequence of numbers.
package migrations

import (
	"embed"
	"regexp"
	"strings"
)

// Files holds all migrations.
//
//go:embed [0-9]*.sql contract
var Files embed.FS

// Contract is the directory of the migrations that remove what older programs need.
const Contract = "contract"

// NotNeeded is a line in an ordinary migration that the program's statements can run without: serve
// starts before and after it. Any other ordinary migration has to run before its program starts.
const NotNeeded = "-- The program runs without this migration."

// Schema is the schema that all migrations together make, as SQL statements.
//
//go:embed schema.sql
var Schema string

// Index is an index of the schema.
type Index struct {
	Name, Table string
	Unique      bool   // statements need it for correctness, not only for speed
	Definition  string // the statement that recreates it; for an index, one that does not block writes and runs outside a transaction
}

var (
	tableLine      = regexp.MustCompile(`(?m)^CREATE (?:UNLOGGED )?TABLE (\w+) \($`)
	constraintLine = regexp.MustCompile(`(?m)^    CONSTRAINT (\w+) ((?:PRIMARY KEY|UNIQUE) .*?),?$`)
	indexLine      = regexp.MustCompile(`(?m)^CREATE (UNIQUE )?INDEX (\w+) ON public\.(\w+) .*;$`)
)

// Tables names the schema's tables.
func Tables() (names []string) {
	for _, m := range tableLine.FindAllStringSubmatch(Schema, -1) {
		names = append(names, m[1])
	}
	return names
}

// Indexes lists the schema's indexes, those of its constraints among them.
func Indexes() (all []Index) {
	starts := append(tableLine.FindAllStringSubmatchIndex(Schema, -1), []int{len(Schema)})
	for i, m := range starts[:len(starts)-1] {
		table := Schema[m[2]:m[3]]
		for _, c := range constraintLine.FindAllStringSubmatch(Schema[m[0]:starts[i+1][0]], -1) {
			all = append(all, Index{Name: c[1], Table: table, Unique: true, Definition: "ALTER TABLE " + table + " ADD CONSTRAINT " + c[1] + " " + c[2] + ";"})
		}
	}
	for _, m := range indexLine.FindAllStringSubmatch(Schema, -1) {
		made := strings.Replace(strings.Replace(m[0], " INDEX ", " INDEX CONCURRENTLY ", 1), " ON public.", " ON ", 1)
		all = append(all, Index{Name: m[2], Table: m[3], Unique: m[1] != "", Definition: made})
	}
	return all
}
