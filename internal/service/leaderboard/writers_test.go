package leaderboard_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// writing matches a statement that changes rows of a leaderboard.
	writing = regexp.MustCompile(`(?i)\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE|COPY|MERGE\s+INTO)\s+` +
		`(ONLY\s+)?(wallets|levels|:board)\b`)

	// setting matches the SET part of an UPDATE.
	setting = regexp.MustCompile(`(?is)\bUPDATE\s+(?:wallets|levels)\b[^;]*?\bSET\b(.*?)(?:\bFROM\b|\bWHERE\b|\bRETURNING\b|$)`)
	// giving matches the change of a row to another member, which moves cannot express.
	giving = regexp.MustCompile(`(?i)\b(user_id|guild_id)\s*=`)
)

// unnoted returns the places where the source, Go or SQL, writes rows of a leaderboard in a text
// without :rank (which only Noted replaces), unless the file calls Reloaded.
func unnoted(t *testing.T, name, source string) (at []string) {
	t.Helper()
	judge := func(where, text string) {
		if !writing.MatchString(text) {
			return
		}
		if !strings.Contains(text, ":rank") {
			at = append(at, where+" writes rows of a leaderboard and does not note it")
		}
		if slices.ContainsFunc(setting.FindAllStringSubmatch(text, -1), func(m []string) bool { return giving.MatchString(m[1]) }) {
			at = append(at, where+" gives a row to another member")
		}
	}
	if strings.HasSuffix(name, ".sql") {
		judge(name, source)
		return at
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				judge(files.Position(n.Pos()).String(), n.Value)
			}
		case *ast.KeyValueExpr: // the tables into which an import copies
			key, _ := n.Key.(*ast.Ident)
			value, _ := n.Value.(*ast.BasicLit)
			into := key != nil && key.Name == "table" && value != nil && (value.Value == `"wallets"` || value.Value == `"levels"`)
			if into && !reloads(file) {
				at = append(at, files.Position(n.Pos()).String()+" copies rows of a leaderboard and does not reload it")
			}
		}
		return true
	})
	return at
}

func reloads(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		found = found || ok && s.Sel.Name == "Reloaded"
		return !found
	})
	return found
}

// A leaderboard's rank index is exact only if every statement that writes rows also records their
// moves.
func TestEveryStatementThatMovesRowsNotesIt(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	seen := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root &&
			(strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "build", "bench", "migrations"}, d.Name())):
			return filepath.SkipDir // bench fills its own database, and migrations create it
		case d.IsDir() || strings.HasSuffix(path, "_test.go") || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sql"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		for _, what := range unnoted(t, path, string(source)) {
			t.Error(what)
		}
		return nil
	})
	if err != nil || seen < 100 {
		t.Fatalf("%d files were read: %v", seen, err)
	}
}

func TestAStatementThatDoesNotNoteIsFound(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]int{
		"const q = `UPDATE wallets SET balance = 1 WHERE guild_id = $1`":                                                    1,
		"var q = `WITH made AS (insert into levels (guild_id) values ($1)) SELECT 1`":                                       1,
		"func f() { do(`DELETE FROM\n\twallets`) }":                                                                         1,
		"var q = target{table: \"levels\"}":                                                                                 1,
		"var q = target{table: \"levels\"}; func f() { leaderboard.Levels.Reloaded() }":                                     0,
		"var q = leaderboard.Levels.Noted(`m`, `$1`, `WITH a AS (UPDATE levels SET x = 1), :rank SELECT 1`)":                0,
		"var q = leaderboard.Levels.Noted(`m`, `$1`, `WITH a AS (UPDATE levels SET user_id = $2 WHERE x), :rank SELECT 1`)": 1,
		"const q = `SELECT FROM wallets WHERE guild_id = $1`":                                                               0,
	} {
		if got := unnoted(t, "p.go", "package p\n"+source); len(got) != want {
			t.Errorf("%s: %v, want %d", source, got, want)
		}
	}
	for source, want := range map[string]int{
		"UPDATE wallets SET balance = 1":                               1,
		"WITH a AS (UPDATE wallets SET balance = 1), :rank SELECT 1":   0,
		"WITH moved AS (SELECT FROM wallets WHERE guild_id = $1), :on": 0,
	} {
		if got := unnoted(t, "p.sql", source); len(got) != want {
			t.Errorf("%s: %v, want %d", source, got, want)
		}
	}
}
