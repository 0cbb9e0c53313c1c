package db

import (
	"regexp"
	"strings"
)

// otherwise is a part of a statement that a coordinator gets otherwise.
var otherwise = regexp.MustCompile(`(?:\([^()]*\)|[^\s(]+) /\*: ((?:[^/]|/[^*])+?) \*/`)

// Distributed is the statement for tables that are distributed by guild. Statements
// are written for tables that lie together, as psql takes them. A comment of the form
// /*: … */ takes the place of the word or the parenthesis before it, so that a
// coordinator reads there which one guild a statement of several is about, or takes the
// guild from the guild's own row:
//
//	WHERE d.guild_id = due.guild_id /*: $5 */ AND d.id = due.id
//
//	SELECT $1 /*: home.id */, moved.id
//	FROM moved /*: moved JOIN guilds home ON home.id = $1 */
//
// Elsewhere that row would cost a lookup, some 5 % of an adjustment.
func Distributed(statement string) string {
	for strings.Contains(statement, "/*: ") { // one may stand in another
		inner := otherwise.ReplaceAllString(statement, "${1}")
		if inner == statement {
			break
		}
		statement = inner
	}
	return statement
}

// With sets variables of a statement, in pairs of a name and a value, as \set does in
// psql: :name is the value as it is, :'name' the value as a literal.
func With(statement string, variables ...string) string {
	pairs := make([]string, 0, 2*len(variables))
	for i := 0; i < len(variables); i += 2 {
		pairs = append(pairs, ":'"+variables[i]+"'", Quote(variables[i+1]), ":"+variables[i], variables[i+1])
	}
	return strings.NewReplacer(pairs...).Replace(statement)
}
