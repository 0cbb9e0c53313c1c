package main

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"guildhall/internal/base/testutil"
)

// textsFor returns the files that people read for advice: the documents, what is installed,
// the contract, and the program's sources, which hold its messages.
func textsFor(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", ".venv", "node_modules", "generated", "testdata", "bin", "build", "dist"}, d.Name()) {
			return filepath.SkipDir
		}
		extensions := []string{".md", ".go", ".html", ".yaml", ".service", ".conf"}
		if strings.HasSuffix(path, "_test.go") || !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil || len(texts) < 200 {
		t.Fatalf("%d files, %v", len(texts), err)
	}
	return texts
}

var (
	quoted        = regexp.MustCompile(`"[^"]*"`)
	inserted      = regexp.MustCompile(`" \+ .* \+ "`) // a value in a message of the program
	quotedCommand = regexp.MustCompile("`(?:bin/|podman exec CONTAINER /)?guildhall ([a-z][^`]*)`")
	typedCommand  = regexp.MustCompile(`(?m)(?:^|[;|&] *)\s*(?:bin/|docker compose exec (?:-T )?guildhall /)?guildhall ([a-z][^\n;|&#>]*)`)
)

// Each command that a document or a message of the program shows is there, with its flags.
func TestAdviceNamesCommandsThatThereAre(t *testing.T) {
	t.Parallel()
	parser, found := newParser(t), 0
	for path, text := range textsFor(t) {
		shown := quotedCommand.FindAllStringSubmatch(text, -1)
		if filepath.Ext(path) == ".md" {
			blocks, _ := blocksOf(text)
			for _, b := range blocks {
				if b.language == "sh" {
					shown = append(shown, typedCommand.FindAllStringSubmatch(b.text, -1)...)
				}
			}
		}
		for _, m := range shown {
			found++
			read, err := kong.Trace(parser, wordsOf(m[1]))
			if err != nil || read.Error != nil {
				t.Errorf("%s advises guildhall %s: %v", path, m[1], cmp.Or(err, read.Error))
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d commands were found", found)
	}
}

// wordsOf returns the words of a command that a text shows.
func wordsOf(command string) []string {
	command, _, _ = strings.Cut(command, " | ")
	words := strings.Fields(quoted.ReplaceAllString(inserted.ReplaceAllString(command, "ID"), "TEXT"))
	for i, word := range words { // the end of a sentence, or of what may be left out
		words[i] = strings.TrimRight(word, ".,)]")
	}
	return words
}

// Each setting that a document or a message of the program names is there.
func TestAdviceNamesSettingsThatThereAre(t *testing.T) {
	t.Parallel()
	known := append(variables(reflect.TypeFor[commands]()), foreign...)
	name := regexp.MustCompile(`\bGUILDHALL_[A-Z][A-Z0-9_]*[A-Z0-9]\b`)
	// What the examples, the tests and make take, and Kubernetes' own.
	others := regexp.MustCompile(`^GUILDHALL_(TEST_.*|URL|TOKEN|CA|BOT_KEY|TLS_PORT.*)$`)
	found := 0
	for path, text := range textsFor(t) {
		for _, variable := range name.FindAllString(text, -1) {
			found++
			if !slices.Contains(known, variable) && !others.MatchString(variable) {
				t.Errorf("%s names %s, which is no setting", path, variable)
			}
		}
	}
	if found < 300 {
		t.Errorf("only %d settings were found", found)
	}
}

// The calls of the page about writes work by copying, and repeat as it says.
func TestTheCallsOfThePageAboutWritesWork(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "curl")
	const file = "docs/integrate/writes.md"
	dir := started(t)
	call := one(t, codeOf(t, file, "Idempotency keys: one attempt"), "sh")
	call = strings.Replace(call, "curl ", "curl --silent --show-error --include ", 1)
	shell(t, dir, ". .guildhall/env", call)
	wantMatch(t, "a repeat", shell(t, dir, ". .guildhall/env", call), `(?i)(?s)^HTTP/\S+ 200.*Idempotent-Replay: true`)

	body := strings.TrimSpace(one(t, codeOf(t, file, "References: once, for ever"), "json"))
	pays := regexp.MustCompile(`-d '[^']*'`).ReplaceAllLiteralString(call, "-d '"+body+"'")
	for _, c := range []struct{ key, pattern string }{
		{"order-1006/2", `^HTTP/\S+ 200`}, {"order-1006/3", `(?i)(?s)^HTTP/\S+ 200.*Idempotent-Replay: true`},
	} {
		wantMatch(t, "a payment", shell(t, dir, ". .guildhall/env", strings.Replace(pays, "order-1006/1", c.key, 1)), c.pattern)
	}
	out := shell(t, dir, ". .guildhall/env", `curl -sS --cacert "$GUILDHALL_CA" -H "Authorization: Bearer $GUILDHALL_TOKEN" `+
		`"$GUILDHALL_URL/economy/ledger?reference=order-1006"`)
	wantMatch(t, "the ledger", out, `"reference":"order-1006"`)
	if strings.Count(out, `"reference"`) != 1 {
		t.Errorf("the payment is booked more than once: %s", out)
	}
}
