package main

import (
	"regexp"
	"strings"
)

// lexeme finds what conditions of SQL are told apart by: words, quoted texts, brackets
// and commas.
var lexeme = regexp.MustCompile(`'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|[A-Za-z_]\w*|[(),;]`)

// hole is each byte of what stands between two texts that are put together.
const hole = "\x00"

// neutralized are the words behind which a condition stands, with what is put behind it
// so that it never decides anything.
var neutralized = map[string]string{"WHERE": "OR true", "AND": "OR true", "ON": "OR true", "OR": "AND false", "WHEN": "AND false"}

// ends are the words before which a condition has ended.
var ends = setOf(`AND OR THEN WHEN ELSE ORDER GROUP LIMIT RETURNING FOR UNION LEFT JOIN CROSS WHERE ON OFFSET SET AS FROM DO WINDOW HAVING`)

func setOf(list string) map[string]bool {
	set := make(map[string]bool)
	for w := range strings.FieldsSeq(list) {
		set[w] = true
	}
	return set
}

// guildCondition is a condition that names a row's guild. Ids are unique beyond guilds, so
// that no result depends on it: it leads to the index, and to the machine where tables
// are distributed, and dbtest looks whether a statement has it.
var guildCondition = regexp.MustCompile(`^(\w+\.)?guild_id = (\$\d+|\w+\.guild_id)( /\*: .* \*/)?$`)

// conditionChanges returns the changes of each condition of a piece of SQL.
func conditionChanges(sql string) (list []change) {
	tokens := lexeme.FindAllStringIndex(sql, -1)
	for i, t := range tokens {
		never, ok := neutralized[sql[t[0]:t[1]]]
		if !ok || i+1 < len(tokens) && sql[t[0]:t[1]] == "ON" && sql[tokens[i+1][0]:tokens[i+1][1]] == "CONFLICT" || between(sql, tokens[:i]) {
			continue
		}
		from, to := t[1], conditionEnd(sql, tokens[i+1:])
		text := sql[from:to]
		trimmed := strings.TrimRight(strings.TrimSpace(text), hole+" \n\t")
		if trimmed == "" || trimmed == "true" || strings.Count(trimmed, "'")%2 == 1 || guildCondition.MatchString(trimmed) || strings.ContainsAny(trimmed[len(trimmed)-1:], "=<>+-|") {
			continue
		}
		from += strings.Index(text, trimmed)
		list = append(list, change{from: from, to: from + len(trimmed), with: "(%s " + never + ")"})
	}
	return list
}

// between reports whether the AND that follows belongs to a BETWEEN.
func between(sql string, before [][]int) bool {
	for i := len(before) - 1; i >= 0; i-- {
		switch w := sql[before[i][0]:before[i][1]]; {
		case w == "BETWEEN":
			return true
		case neutralized[w] != "" || w == "SELECT":
			return false
		}
	}
	return false
}

// conditionEnd is where the condition ends that the tokens begin with.
func conditionEnd(sql string, tokens [][]int) int {
	depth, ranges, last := 0, false, ""
	for _, t := range tokens {
		w := sql[t[0]:t[1]]
		switch {
		case w == "(" || w == "CASE":
			depth++
		case w == ")" || w == "END":
			if depth--; depth < 0 {
				return t[0]
			}
		case depth > 0:
		case w == "BETWEEN":
			ranges = true
		case w == "AND" && ranges:
			ranges = false
		case w == "FROM" && last == "DISTINCT":
		case w == "," || w == ";" || strings.HasPrefix(w, "--") || ends[w]:
			return t[0]
		}
		last = w
	}
	return len(sql)
}
