// Package migrations holds the database's history: forward-only SQL files,
// numbered, one purpose each.
//
// An ordinary migration runs before the program that brings it. One in contract/
// takes away what older programs need: it runs after all ordinary ones, when no
// program is at work that does not know its number, and has a version table of
// its own, so that ordinary ones follow it in any order. Both take their numbers
// from one row.
package migrations

import (
	"embed"
	"regexp"
	"strings"
)

// Files is every migration.
//
//go:embed [0-9]*.sql contract
var Files embed.FS

// Contract is the folder of those that take away what older programs need.
const Contract = "contract"

// NotNeeded is the line of an ordinary migration without which the program's
// statements run as well: serve starts before it and after it. Every other one has
// to be run before the program that brings it.
const NotNeeded = "-- The program runs without this migration."

// Schema is what all migrations together make, as statements.
//
//go:embed schema.sql
var Schema string

// Index is one that the schema has.
type Index struct {
	Name, Table string
	Unique      bool   // statements rely on it, and not for their speed alone
	Definition  string // what makes it anew; of an index, while others write, and in no transaction
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
