//go:build slow

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"guildhall/internal/base/testutil"
)

// README's TypeScript works when copied.
func TestTheTypeScriptOfTheReadmeWorks(t *testing.T) {
	t.Parallel()
	needNode(t)
	blocks, lines := firstCalls(t)
	dir := started(t)
	writeFile(t, dir, "first.mts", one(t, blocks, "ts"))
	wantMatch(t, "TypeScript", shell(t, dir, ". .guildhall/env", lines[1]), `\nbalance \d+\n$`)
	shell(t, dir, "npx tsc --noEmit --strict --module nodenext --target es2022 --skipLibCheck first.mts")
}

// The TypeScript receiver of the documents accepts signed requests and no others.
func TestTheTypeScriptReceiverVerifies(t *testing.T) {
	t.Parallel()
	needNode(t)
	receives(t, "ts", "receiver.mts", "npm install --no-audit --no-fund tsx@4 >&2; exec node --import tsx receiver.mts")
}

// The documents' first programs work when copied, in a directory beside dev's. Running them again
// changes nothing.
func TestTheFirstProgramsWork(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "curl")
	const file = "docs/integrate/first-program.md"
	where, dir := one(t, codeOf(t, file, "Where and who"), "sh"), started(t)
	for _, c := range []struct{ section, language, file, again string }{
		{"TypeScript", "ts", "pay.mts", "npx tsx pay.mts"},
		{"Python", "python", "pay.py", ".venv/bin/python pay.py"},
		{"Go", "go", "main.go", "go run ."},
	} {
		t.Run(c.section, func(t *testing.T) {
			t.Parallel()
			if c.language == "ts" {
				needNode(t)
			} else {
				needRegistry(t, c.language)
			}
			blocks := codeOf(t, file, c.section)
			own := strings.Replace(where, "../first", "../"+c.language, 2)
			shell(t, dir, own) // the lines create the directory
			folder := filepath.Join(dir, "..", c.language)
			writeFile(t, folder, c.file, one(t, blocks, c.language))
			if c.language == "go" {
				writeFile(t, folder, "client.yaml", one(t, blocks, "yaml"))
			}
			first := lastLine(shell(t, dir, own, one(t, blocks, "sh")))
			wantMatch(t, c.section, first, `^balance \d+$`)
			if again := lastLine(shell(t, dir, own, c.again)); again != first {
				t.Errorf("it prints %q, and then %q", first, again)
			}
		})
	}
}

func lastLine(out string) string {
	out = strings.TrimSpace(out)
	return out[strings.LastIndex(out, "\n")+1:]
}

// needRegistry skips a test if the package registry of a language cannot be used.
func needRegistry(t *testing.T, language string) {
	t.Helper()
	ask := map[string][]string{
		"python": {"python3", "-m", "pip", "download", "--quiet", "--no-deps", "--dest", t.TempDir(), "openapi-python-client==0.29.1"},
		"go":     {"go", "list", "-m", "github.com/oapi-codegen/oapi-codegen/v2@v2.8.2"},
	}[language]
	if out, err := exec.CommandContext(t.Context(), testutil.Program(t, ask[0]), ask[1:]...).CombinedOutput(); err != nil {
		testutil.Without(t, ask[0], string(out))
	}
}

// needNode skips a test without Node or its package registry.
func needNode(t *testing.T) {
	t.Helper()
	testutil.Program(t, "node")
	testutil.Program(t, "npm")
	if out, err := exec.CommandContext(t.Context(), "npm", "ping").CombinedOutput(); err != nil {
		testutil.Without(t, "npm", string(out))
	}
}
