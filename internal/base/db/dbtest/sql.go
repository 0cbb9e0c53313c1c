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
//   - what inserts rows of a guild's table from a step of its own statement names the
//     guild by a row of such a table, in whose place a coordinator then runs it: the
//     steps of others it sends to every worker, also to one that is gone;
//   - what an upsert sets comes from the statement's values, from excluded or from
//     the row, never from a function that is not immutable; nor does a CASE or COALESCE in
//     what an update sets;
//   - what an update sets is no text of another step that is read as an instant, and what
//     a change returns is no clock: both depend on the session;
//   - what asks whether a guild's table has a row at all, with an empty SELECT, names
//     the guild: a coordinator has no such list for several workers;
//   - what inserts rows that it selects from a guild's table alone is no statement's main query
//     beside a step that changes rows: a worker would be sent both, and runs one;
//   - entries and draws of giveaways are added and never changed.

// token is a word, a parameter, a literal or a sign of a statement.
type token = string

var lexer = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\d+|\w+|::|<>|<=|>=|[^\s\w]`)

// literal stands for every quoted text.
const literal = "''"

// begins are the words with which a query begins, inside parentheses too.
var begins = []token{"select", "insert", "update", "delete", "with", "copy", "truncate"}

var (
	lockPattern       = regexp.MustCompile(` for (no key update|update|key share|share) `)
	updatePattern     = regexp.MustCompile(` update (only )?([a-z_]+) (as )?([a-z_0-9]+ )?set `)
	deletePattern     = regexp.MustCompile(` (?:delete from|truncate(?: table)?) (only )?([a-z_]+) `)
	insertPattern     = regexp.MustCompile(` (?:insert into|copy) ([a-z_]+) (?:as [a-z_]+ )?(\( [^()]* \))? ?`)
	copyPattern       = regexp.MustCompile(`^ with .* insert into [^()]*\([^()]*\) select [^()]* from ([a-z_]+) (?:[a-z_]+ )?where `)
	selectFromPattern = regexp.MustCompile(` select from ([a-z_]+) `)
	comparedPattern   = regexp.MustCompile(` (?:[a-z_0-9]+ \. )?(?:guild_id|id) = `)
	tablePattern      = regexp.MustCompile(` (?:from|join|using) (?:only )?([a-z_]+)\b| , ([a-z_]+)\b`)
	upsertPattern     = regexp.MustCompile(` do update set (.*?)(?: where | returning |$)`)
	setPattern        = regexp.MustCompile(` update (?:only )?([a-z_]+) (?:as )?(?:[a-z_0-9]+ )?set (.*?)(?: from | where | returning |$)`)
	castPattern       = regexp.MustCompile(` [a-z_0-9]+ :: timestamptz `)
	clockPattern      = regexp.MustCompile(` returning .*? (now|clock_timestamp|statement_timestamp) \( `)
	choicePattern     = regexp.MustCompile(` case (.*?) end | coalesce \( ([^()]*(?:\( [^()]*\)[^()]*)*)\) `)
	conditionsPattern = regexp.MustCompile(` (?:from|where) `)
	callPattern       = regexp.MustCompile(` ([a-z_0-9]+) \( `)

	guildPattern = regexp.MustCompile(` (?:[a-z_0-9]+ \. )?guild_id = (?:\$\d+|'')`)
	idPattern    = regexp.MustCompile(` (?:[a-z_0-9]+ \. )?id = (?:\$\d+|'')`)
)

// immutable are the functions that an upsert may call, and words before a list.
var immutable = []string{"greatest", "least", "coalesce", "nullif", "values", "cardinality", "abs", "make_interval", "case", "and", "or", "when", "then", "in"}

// added are the tables whose rows are never changed.
var added = []string{"giveaway_entries", "giveaway_draws"}

// broken says which rule a statement breaks; nil when it breaks none.
func broken(statement string) error {
	list := tokens(statement)
	all := queries(list)
	for _, q := range all {
		if err := brokenBy(spaced(q)); err != nil {
			return err
		}
	}
	if err := twofold(all); err != nil {
		return err
	}
	return scattered(list)
}

// twofold is an error for a statement whose main query, the last of all, inserts rows
// that it selects from a guild's table alone, while a step of it changes rows.
func twofold(all [][]token) error {
	for i, q := range all {
		m := copyPattern.FindStringSubmatch(spaced(q))
		if m == nil || !guildTables()[m[1]] {
			continue
		}
		for _, step := range all[:i] {
			if len(step) > 0 && slices.Contains([]token{"insert", "update", "delete"}, step[0]) {
				return fmt.Errorf("it inserts what it selects from %s beside a step that changes rows", m[1])
			}
		}
	}
	return nil
}

var (
	stepPattern     = regexp.MustCompile(` ([a-z_0-9]+) as (?:(?:not )?materialized )?\( (?:select|insert|update|delete|with) `)
	selectedPattern = regexp.MustCompile(` select ([a-z_0-9]+) \. (?:guild_id|id) `)
)

// scattered is an error for a statement that inserts what a step of it has found,
// and takes the guild from elsewhere than from a row of a guild's table.
func scattered(list []token) error {
	known := make(map[token]bool)
	for _, m := range stepPattern.FindAllStringSubmatch(spaced(list), -1) {
		known[m[1]] = true
	}
	for i, t := range list {
		if t != "insert" || i+2 >= len(list) || !guildTables()[list[i+2]] {
			continue
		}
		q := slices.DeleteFunc(slices.Clone(list[i:closing(list, i)]), func(t token) bool { return t == "as" })
		from, homes := false, make(map[token]bool)
		for k := 1; k < len(q); k++ {
			if !slices.Contains([]token{"from", "join", ","}, q[k-1]) {
				continue
			}
			from = from || known[q[k]]
			if guildTables()[q[k]] {
				homes[q[k]], homes[q[min(k+1, len(q)-1)]] = true, true
			}
		}
		guild := selectedPattern.FindStringSubmatch(spaced(q))
		if from && (guild == nil || !homes[guild[1]]) {
			return fmt.Errorf("it adds rows to %s from a step before and takes the guild from no row of a guild's table", list[i+2])
		}
	}
	return nil
}

// closing is where the query ends that begins at i.
func closing(list []token, i int) int {
	depth := 0
	for ; i < len(list); i++ {
		switch list[i] {
		case "(":
			depth++
		case ")":
			if depth--; depth < 0 {
				return i
			}
		}
	}
	return i
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

// spaced is a query as a text that patterns can look at.
func spaced(query []token) string { return " " + strings.Join(query, " ") + " " }

func brokenBy(q string) error {
	if lockPattern.MatchString(q) {
		for _, m := range tablePattern.FindAllStringSubmatch(q, -1) {
			if table := m[1] + m[2]; !names(q, table) {
				return fmt.Errorf("it locks rows of %s and names no guild", table)
			}
		}
	}
	for _, m := range append(updatePattern.FindAllStringSubmatch(q, -1), deletePattern.FindAllStringSubmatch(q, -1)...) {
		table := m[2]
		if slices.Contains(added, table) {
			return fmt.Errorf("it changes rows of %s, which are only added", table)
		}
		if !names(after(q), table) {
			return fmt.Errorf("it changes rows of %s and names no guild", table)
		}
	}
	for _, m := range insertPattern.FindAllStringSubmatch(q, -1) {
		column := " guild_id "
		if m[1] == "guilds" {
			column = " id "
		}
		if guildTables()[m[1]] && !strings.Contains(strings.NewReplacer("(", " ", ")", " ", ",", " ").Replace(m[2]), column) {
			return fmt.Errorf("it adds rows to %s and names no guild", m[1])
		}
	}
	for _, m := range clockPattern.FindAllStringSubmatch(q, -1) {
		changed := slices.Concat(updatePattern.FindStringSubmatch(q), deletePattern.FindStringSubmatch(q), insertPattern.FindStringSubmatch(q))
		if slices.ContainsFunc(changed, func(table string) bool { return guildTables()[table] }) {
			return fmt.Errorf("it returns %s() of what it changes", m[1])
		}
	}
	for _, m := range setPattern.FindAllStringSubmatch(q, -1) {
		if guildTables()[m[1]] && castPattern.MatchString(" "+m[2]+" ") {
			return fmt.Errorf("what it sets in %s is read as an instant from a text", m[1])
		}
		for _, c := range choicePattern.FindAllStringSubmatch(" "+m[2]+" ", -1) {
			if bad := mutable(c[1] + c[2]); bad != "" && guildTables()[m[1]] {
				return fmt.Errorf("a CASE or COALESCE in what it sets in %s has %s", m[1], bad)
			}
		}
	}
	for _, m := range selectFromPattern.FindAllStringSubmatch(q, -1) {
		if guildTables()[m[1]] && !comparedPattern.MatchString(q) {
			return fmt.Errorf("it selects nothing from %s and names no guild", m[1])
		}
	}
	for _, m := range upsertPattern.FindAllStringSubmatch(q, -1) {
		if bad := mutable(m[1]); strings.HasSuffix(bad, "()") {
			return fmt.Errorf("its upsert sets what %s returns", bad)
		}
	}
	return nil
}

// mutable is what of an expression depends on more than its values: a function that
// may, or an interval, which is added in the session's time zone.
func mutable(expression string) string {
	for _, call := range callPattern.FindAllStringSubmatch(" "+expression+" ", -1) {
		if !slices.Contains(immutable, call[1]) {
			return call[1] + "()"
		}
	}
	if strings.Contains(" "+expression+" ", " interval ") && !strings.Contains(expression, "at time zone") {
		return "an interval"
	}
	return ""
}

// after is what of an update or a delete says which rows: what follows SET and its
// list.
func after(q string) string {
	_, set, ok := strings.Cut(q, " set ")
	if !ok {
		return q
	}
	at := conditionsPattern.FindStringIndex(" " + set)
	if at == nil {
		return ""
	}
	return set[max(0, at[0]-1):]
}

// names reports whether a query that touches a table names the guild, where the
// table is a guild's: by equality with a value. Where one names the column of
// another table instead, a coordinator asks every worker.
func names(q, table string) bool {
	switch {
	case !guildTables()[table]:
		return true
	case table == "guilds":
		return idPattern.MatchString(q) || guildPattern.MatchString(q)
	}
	return guildPattern.MatchString(q)
}
