package dbtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The rules for statements (ARCHITECTURE.md, "One guild a statement"), as far as
// their text shows them:
//
//   - what changes or deletes rows of a guild's table, or locks some, names the
//     guild by equality; what inserts some names the column;
//   - what an upsert sets comes from the statement's values, from excluded or from
//     the row, never from a function that is not immutable;
//   - entries and draws of giveaways are added and never changed.

// token is a word, a parameter, a literal or a sign of a statement.
type token = string

var lexer = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\d+|\w+|::|<>|<=|>=|[^\s\w]`)

// literal stands for every quoted text.
const literal = "''"

// begins are the words with which a query begins, inside parentheses too.
var begins = []token{"select", "insert", "update", "delete", "with", "copy", "truncate"}

var (
	locking    = regexp.MustCompile(` for (no key update|update|key share|share) `)
	updating   = regexp.MustCompile(` update (only )?([a-z_]+) (as )?([a-z_0-9]+ )?set `)
	deleting   = regexp.MustCompile(` (?:delete from|truncate(?: table)?) (only )?([a-z_]+) `)
	adding     = regexp.MustCompile(` (?:insert into|copy) ([a-z_]+) (?:as [a-z_]+ )?(\( [^()]* \))? ?`)
	touching   = regexp.MustCompile(` (?:from|join|using) (?:only )?([a-z_]+) | , ([a-z_]+) `)
	upsert     = regexp.MustCompile(` do update set (.*?)(?: where | returning |$)`)
	conditions = regexp.MustCompile(` (?:from|where) `)
	calls      = regexp.MustCompile(` ([a-z_0-9]+) \( `)

	byGuild = regexp.MustCompile(` (?:[a-z_0-9]+ \. )?guild_id = (?:\$\d+|'')`)
	byID    = regexp.MustCompile(` (?:[a-z_0-9]+ \. )?id = (?:\$\d+|'')`)
	byTable = regexp.MustCompile(` (?:[a-z_0-9]+ \. )?guild_id = [a-z_0-9]+ \. guild_id| guild_id = [a-z_0-9]+ \. `)
)

// immutable are the functions that an upsert may call, and words before a list.
var immutable = []string{"greatest", "least", "coalesce", "nullif", "values", "cardinality", "abs", "make_interval", "case", "and", "or", "when", "then", "in"}

// added are the tables whose rows are never changed.
var added = []string{"giveaway_entries", "giveaway_draws"}

// broken says which rule a statement breaks; nil when it breaks none.
func broken(statement string) error {
	all := queries(tokens(statement))
	named := false // some query of the statement names the guild that others then take over
	for _, q := range all {
		text := words(q)
		named = named || byGuild.MatchString(text) || byID.MatchString(text)
	}
	for _, q := range all {
		if err := brokenBy(words(q), named); err != nil {
			return err
		}
	}
	return nil
}

// tokens takes a statement apart, without its comments and in lower case.
func tokens(statement string) []token {
	var list []token
	for _, t := range lexer.FindAllString(statement, -1) {
		switch {
		case strings.HasPrefix(t, "--"), strings.HasPrefix(t, "/*"):
		case strings.HasPrefix(t, `"`):
			list = append(list, strings.Trim(t, `"`))
		case strings.HasPrefix(t, "$$"), strings.HasSuffix(t, "'"):
			list = append(list, literal)
		default:
			list = append(list, strings.ToLower(t))
		}
	}
	return list
}

// queries returns the queries of a statement, each without those inside it: the
// main one and every CTE and subquery.
func queries(list []token) [][]token {
	var all [][]token
	var read func(at int) ([]token, int)
	read = func(at int) (own []token, end int) {
		for at < len(list) && list[at] != ")" {
			if list[at] != "(" {
				own = append(own, list[at])
				at++
				continue
			}
			inner, after := read(at + 1)
			if len(inner) > 0 && slices.Contains(begins, inner[0]) {
				all = append(all, inner)
				own = append(own, "(", ")")
			} else {
				own = append(append(append(own, "("), inner...), ")")
			}
			at = after + 1
		}
		return own, at
	}
	for at := 0; at < len(list); at++ { // further rounds only for a stray parenthesis
		own, end := read(at)
		for i := range own {
			if own[i] == ";" {
				own[i] = "; "
			}
		}
		all = append(all, split(own)...)
		at = end
	}
	return all
}

// split takes several statements apart.
func split(list []token) (all [][]token) {
	for {
		i := slices.Index(list, "; ")
		if i < 0 {
			return append(all, list)
		}
		all, list = append(all, list[:i]), list[i+1:]
	}
}

// words is a query as a text that patterns can look at.
func words(query []token) string { return " " + strings.Join(query, " ") + " " }

func brokenBy(q string, named bool) error {
	if locking.MatchString(q) {
		for _, m := range touching.FindAllStringSubmatch(q, -1) {
			if table := m[1] + m[2]; !names(q, table, false) {
				return fmt.Errorf("it locks rows of %s and names no guild", table)
			}
		}
	}
	for _, m := range append(updating.FindAllStringSubmatch(q, -1), deleting.FindAllStringSubmatch(q, -1)...) {
		table := m[2]
		if slices.Contains(added, table) {
			return fmt.Errorf("it changes rows of %s, which are only added", table)
		}
		if !names(after(q), table, named) {
			return fmt.Errorf("it changes rows of %s and names no guild", table)
		}
	}
	for _, m := range adding.FindAllStringSubmatch(q, -1) {
		column := " guild_id "
		if m[1] == "guilds" {
			column = " id "
		}
		if guildTables()[m[1]] && !strings.Contains(strings.NewReplacer("(", " ", ")", " ", ",", " ").Replace(m[2]), column) {
			return fmt.Errorf("it adds rows to %s and names no guild", m[1])
		}
	}
	for _, m := range upsert.FindAllStringSubmatch(q, -1) {
		for _, call := range calls.FindAllStringSubmatch(" "+m[1]+" ", -1) {
			if !slices.Contains(immutable, call[1]) {
				return fmt.Errorf("its upsert sets what %s() returns", call[1])
			}
		}
	}
	return nil
}

// after is what of an update or a delete says which rows: what follows SET and its
// list.
func after(q string) string {
	_, set, ok := strings.Cut(q, " set ")
	if !ok {
		return q
	}
	at := conditions.FindStringIndex(" " + set)
	if at == nil {
		return ""
	}
	return set[max(0, at[0]-1):]
}

// names reports whether a query that touches a table names the guild, where the
// table is a guild's: by equality with a value, or with another query of a
// statement that names it.
func names(q, table string, elsewhere bool) bool {
	switch {
	case !guildTables()[table]:
		return true
	case table == "guilds":
		return byID.MatchString(q) || byGuild.MatchString(q)
	}
	return byGuild.MatchString(q) || elsewhere && byTable.MatchString(q)
}
