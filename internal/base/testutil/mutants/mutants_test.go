package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Each condition of a statement and each constant is changed, and nothing else: no
// join, no assignment, no condition that is not whole, and none that names a guild.
func TestConditionsAndConstantsAreChanged(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	const source = "package p\n\nconst limit, name = 3 * second, `x`\n\nvar statement = `\n" +
		"UPDATE t SET a = CASE WHEN a BETWEEN 1 AND 2 THEN 0 END\n" +
		"FROM s WHERE t.guild_id = $1 AND t.id = s.id AND (t.x IS DISTINCT FROM s.x OR t.y) ORDER BY 1` + `\nWHERE b = ` + name\n"
	if err := os.WriteFile(filepath.Join(folder, "p.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := changes(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		text := c.applied()
		got = append(got, oneLine(string(c.content[c.from:c.to]))+" → "+string(text[c.from:c.from+len(c.with)]))
	}
	want := []string{
		"3 * second → 2 * (3 * second)",
		"3 * second → (3 * second) / 2",
		"a BETWEEN 1 AND 2 → (a BETWEEN 1 AND 2 AND false)",
		"t.id = s.id → (t.id = s.id OR true)",
		"(t.x IS DISTINCT FROM s.x OR t.y) → ((t.x IS DISTINCT FROM s.x OR t.y) OR true)",
		"t.y → (t.y AND false)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}
