package db

import (
	"iter"
	"slices"
	"strings"
)

// ByGuild yields rows grouped by guild, in the order of the guilds' ids; within a guild the rows
// keep their order. Work over all guilds finds its candidates without locks and then names one
// guild in each statement.
func ByGuild[T any](rows []T, guild func(T) string) iter.Seq2[string, []T] {
	return func(yield func(string, []T) bool) {
		sorted := slices.Clone(rows)
		slices.SortStableFunc(sorted, func(a, b T) int { return strings.Compare(guild(a), guild(b)) })
		for len(sorted) > 0 {
			first := guild(sorted[0])
			n := slices.IndexFunc(sorted, func(r T) bool { return guild(r) != first })
			if n < 0 {
				n = len(sorted)
			}
			if !yield(first, sorted[:n:n]) {
				return
			}
			sorted = sorted[n:]
		}
	}
}
