package dbtest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The rules for statements (ARCHITECTURE.md, "One guild a statement"), as far as the text of a
// statement shows them:
//
//   - An UPDATE, DELETE or locking SELECT on a guild's table compares guild_id with one value; an
//     INSERT names the column guild_id.
//   - An INSERT into a guild's table from a CTE takes the guild from a row of a guild's table.
//     Citus then runs the insert on that guild's worker. It sends the result of any other CTE to
//     every worker, including one that is down.
//   - An upsert sets values that come from the statement, from excluded or from the row, never from
//     a function that is not immutable. The same holds for a CASE or COALESCE in an UPDATE.
//   - An UPDATE does not parse text from a CTE as an instant, and a change does not return a
//     clock's value: both depend on the session.
//   - EXISTS with an empty SELECT list on a guild's table names the guild: a coordinator cannot
//     plan an empty list for several workers.
//   - The main query of a statement whose CTEs change rows is not an INSERT that selects from a
//     guild's table and from no subquery: Citus would send both to a worker, which refuses the
//     tables of the CTEs.
//   - An INSERT as the main query that joins a CTE or a function with tables and returns columns
//     gives its table another name: Citus would return columns of a table that the worker does not
//     know.
//   - Entries and draws of giveaways are inserted and never changed.

// token is a word, parameter, literal or symbol of a statement.
type token = string

var lexer = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/|\$\$.*?\$\$|[eE]?'(?:[^']|'')*'|"(?:[^"]|"")*"|\$\d+|\w+|::|<>|<=|>=|[^\s\w]`)

// literal replaces every quoted text.
const literal = "''"

// begins lists the words with which a query starts, also inside parentheses.
var begins = []token{"select", "insert", "update", "delete", "with", "copy", "truncate"}

var (
	lockPattern       = regexp.MustCompile(` for (no key update|update|key share|share) `)
	updatePattern     = regexp.MustCompile(` update (only )?([a-z_]+) (as )?([a-z_0-9]+ )?set `)
	deletePattern     = regexp.MustCompile(` (?:delete from|truncate(?: table)?) (only )?([a-z_]+) `)
	insertPattern     = regexp.MustCompile(` (?:insert into|copy) ([a-z_]+) (?:as [a-z_]+ )?(\( [^()]* \))? ?`)
	mainInsertPattern = regexp.MustCompile(`^ (with .* )?insert into ([a-z_]+) (as [a-z_]+ )?\( [^()]* \) select .*?( from .*)$`)
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

// immutable lists the functions that an upsert may call, and keywords that may stand before a
// parenthesis.
var immutable = []string{"greatest", "least", "coalesce", "nullif", "values", "cardinality", "abs", "make_interval", "case", "and", "or", "when", "then", "in"}

// added lists the tables whose rows are never changed.
var added = []string{"giveaway_entries", "giveaway_draws"}

// broken returns an error for a statement that breaks a rule, which it names.
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

// twofold returns an error for a statement whose main query, the last, inserts rows that it selects
// from a guild's table and no subquery, if one of its CTEs changes rows, or if the main query begins its join with a
// CTE or a function and returns columns of a table that has only its own name.
func twofold(all [][]token) error {
	m := mainInsertPattern.FindStringSubmatch(spaced(all[len(all)-1]))
	if m == nil || !guildTables()[m[2]] {
		return nil
	}
	named, selected := m[3] != "", m[4]
	for i, from := range tablePattern.FindAllStringSubmatch(selected, -1) {
		if !guildTables()[from[1]+from[2]] {
			continue
		}
		if !strings.Contains(selected, " ( ) ") && slices.ContainsFunc(all[:len(all)-1], func(step []token) bool {
			return len(step) > 0 && slices.Contains([]token{"insert", "update", "delete"}, step[0])
		}) {
			return fmt.Errorf("it inserts what it selects from %s beside a step that changes rows", from[1]+from[2])
		}
		if i > 0 && !named && strings.Contains(selected, " returning ") && !strings.Contains(selected, " on conflict ") {
			return fmt.Errorf("it returns columns of %s, which has no other name, and selects from more than tables", m[2])
		}
		break
	}
	return nil
}

var (
	stepPattern     = regexp.MustCompile(` ([a-z_0-9]+) as (?:(?:not )?materialized )?\( (?:select|insert|update|delete|with) `)
	selectedPattern = regexp.MustCompile(` select ([a-z_0-9]+) \. (?:guild_id|id) `)
)

// scattered returns an error for a statement that inserts the result of a CTE and does not take the
// guild from a row of a guild's table.
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

// closing returns the index at which the query ends that starts at i.
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

// tokens splits a statement into tokens, in lower case and without comments.
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

// queries returns the queries of a statement, each without the queries inside it: the main query,
// and every CTE and subquery.
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
	for at := 0; at < len(list); at++ { // runs more than once only after a stray closing parenthesis
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

// split separates several statements.
func split(list []token) (all [][]token) {
	for {
		i := slices.Index(list, "; ")
		if i < 0 {
			return append(all, list)
		}
		all, list = append(all, list[:i]), list[i+1:]
	}
}

// spaced returns a query as text that patterns can match.
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

// mutable returns the part of an expression that depends on more than its values: a function that
// is not immutable, or an interval, which is added in the session's time zone. It returns "" if
// there is none.
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

// after returns the part of an UPDATE or DELETE that selects the rows: everything after SET and its
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

// names reports whether a query on a guild's table compares guild_id with one value. If it compares
// guild_id with another table's column instead, a coordinator asks every worker.
func names(q, table string) bool {
	switch {
	case !guildTables()[table]:
		return true
	case table == "guilds":
		return idPattern.MatchString(q) || guildPattern.MatchString(q)
	}
	return guildPattern.MatchString(q)
}
