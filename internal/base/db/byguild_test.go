package db_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
)

// Each guild is yielded once, in order, with all its rows in their order.
func TestByGuild(t *testing.T) {
	t.Parallel()
	type row struct {
		guild string
		n     int
	}
	rapid.Check(t, func(t *rapid.T) {
		guilds := rapid.SliceOf(rapid.SampledFrom([]string{"1", "2", "10"})).Draw(t, "guilds")
		rows := make([]row, len(guilds))
		for i, g := range guilds {
			rows[i] = row{g, i}
		}
		var seen []string
		count := 0
		for guild, part := range db.ByGuild(rows, func(r row) string { return r.guild }) {
			seen = append(seen, guild)
			count += len(part)
			for i, r := range part {
				if r.guild != guild || i > 0 && part[i-1].n >= r.n {
					t.Fatalf("under %s: %v", guild, part)
				}
			}
		}
		slices.Sort(guilds)
		if want := slices.Compact(guilds); !slices.Equal(seen, want) || count != len(rows) {
			t.Fatalf("the guilds are %v with %d rows, want %v with %d", seen, count, want, len(rows))
		}
	})
}
