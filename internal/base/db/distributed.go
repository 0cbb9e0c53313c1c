package db

import (
	"regexp"
	"strings"
)

// otherwise matches a part of a statement that has another form for a coordinator.
var otherwise = regexp.MustCompile(`(?:\([^()]*\)|[^\s(]+) /\*: ((?:[^/]|/[^*])+?) \*/`)

// Distributed returns the form of a statement for tables that are distributed by guild. Statements
// are written for tables on one server, as psql accepts them. A comment of the form /*: … */
// replaces the word or the parenthesis before it. So the coordinator's form can name the one guild
// of a part that otherwise handles several, or take the guild from the guild's own row:
//
//	WHERE d.guild_id = due.guild_id /*: $5 */ AND d.id = due.id
//
//	SELECT $1 /*: home.id */, moved.id
//	FROM moved /*: moved JOIN guilds home ON home.id = $1 */
//
// On a single server that join would cost a lookup, 5 % of the time of an adjustment.
func Distributed(statement string) string {
	for strings.Contains(statement, "/*: ") { // a replacement may contain another
		inner := otherwise.ReplaceAllString(statement, "${1}")
		if inner == statement {
			break
		}
		statement = inner
	}
	return statement
}

// With replaces the variables of a statement, given as pairs of a name and a value, as \set does in
// psql: :name becomes the value itself, :'name' the value as a literal.
func With(statement string, variables ...string) string {
	pairs := make([]string, 0, 2*len(variables))
	for i := 0; i < len(variables); i += 2 {
		pairs = append(pairs, ":'"+variables[i]+"'", Quote(variables[i+1]), ":"+variables[i], variables[i+1])
	}
	return strings.NewReplacer(pairs...).Replace(statement)
}
