package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

// Each condition of a statement and each constant is changed, and nothing else: no
// join, no assignment, no condition that is not whole, and none that names a guild.
// A text that is put together is read as one, since a quote may end in another part.
func TestConditionsAndConstantsAreChanged(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	const source = "package p\n\nconst limit, name = 3 * second, `x`\n\nvar statement = `\n" +
		"UPDATE t SET a = CASE WHEN a BETWEEN 1 AND 2 THEN 0 END\n" +
		"FROM s WHERE t.guild_id = $1 AND t.id = s.id AND (t.x IS DISTINCT FROM s.x OR t.y) ORDER BY 1` + `\nWHERE b = ` + name\n\n" +
		"var quoted = `WHERE a = '` + name + `' AND b IN (` + join(\"'x AND y\") + `) AND c = 'd' AND ` + name + `.e OR ` + name\n"
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
		"a = '` + name + `' → (a = '` + name + `' OR true)",
		"b IN (` + join(\"'x AND y\") + `) → (b IN (` + join(\"'x AND y\") + `) OR true)",
		"c = 'd' → (c = 'd' OR true)",
		"` + name + `.e → (` + name + `.e OR true)",
		"y → (y OR true)",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// Changes of texts, those of a statement's file too, stand in one program, which is told
// the number of the one to make. A constant that is made of one with a change becomes
// a variable as well.
func TestChangesOfTextsAreBuiltTogether(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module p\n\ngo 1.26\n",
		"p.go": "package main\n\nimport _ \"embed\"\n\nconst limit = 3\n\n" +
			"const where = `WHERE a = 1 AND b`\n\nconst query = `SELECT x ` + where\n\n" +
			"var (\n\t//go:embed q.sql\n\tfile string\n)\n\nfunc main() { print(query, `; `, file, limit) }\n",
		"q.sql": "SELECT `y`\nWHERE \"c\"",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := changes(folder)
	if err != nil {
		t.Fatal(err)
	}
	contents, err := allTogether(folder, list)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range contents {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wants := []string{
		0: "SELECT x WHERE a = 1 AND b; SELECT `y`\nWHERE \"c\"3",
		5: "SELECT x WHERE a = 1 AND b; SELECT `y`\nWHERE (\"c\" OR true)3",
	}
	wants[3] = "SELECT x WHERE (a = 1 OR true) AND b; SELECT `y`\nWHERE \"c\"3"
	wants[4] = "SELECT x WHERE a = 1 AND (b OR true); SELECT `y`\nWHERE \"c\"3"
	for number, want := range wants {
		if want == "" {
			continue // the constant, which is built by itself
		}
		run := exec.CommandContext(t.Context(), "go", "run", ".")
		run.Dir, run.Env = folder, append(os.Environ(), variable+"="+strconv.Itoa(number))
		if out, err := run.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("change %d: %v, got\n%s, want\n%s", number, err, out, want)
		}
	}
}

// The tests of another package may be those that are to notice a change.
func TestChangesAreNoticedByAnotherPackagesTests(t *testing.T) {
	t.Parallel()
	list, err := changes("testdata/texts")
	if err != nil || len(list) != 1 {
		t.Fatal(err, list)
	}
	contents, err := allTogether("testdata/texts", list)
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	program := filepath.Join(work, "together.test")
	if err := makeTests(t.Context(), work, "./testdata/texts/held", program, contents); err != nil {
		t.Fatal(err)
	}
	for number, noticed := range []bool{false, true} {
		run := exec.CommandContext(t.Context(), program)
		run.Env = append(os.Environ(), variable+"="+strconv.Itoa(number))
		if out, err := run.CombinedOutput(); (err != nil) != noticed {
			t.Errorf("change %d: %v, %s", number, err, out)
		}
	}
}
