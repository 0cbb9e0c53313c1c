package main

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// block is a code block of a document.
type block struct {
	section  string // the heading of the second level above the block
	language string
	text     string // without the block's indentation
}

var listItem = regexp.MustCompile(`^ *(?:[-*]|\d+\.) +`)

// blocksOf returns the code blocks of a Markdown text in order, and the text without them. A block
// that is marked by indentation alone has the language "indented".
func blocksOf(text string) (blocks []block, prose string) {
	var open *block
	section, margin, content, blank := "", 0, 0, true
	for line := range strings.Lines(text) {
		words := strings.TrimLeft(line, " ")
		indent := len(line) - len(words)
		mark, fence := strings.CutPrefix(words, "```")
		switch {
		case fence && open == nil:
			open, margin = &block{section: section, language: strings.TrimSpace(mark)}, indent
			continue
		case fence:
			blocks, open = append(blocks, *open), nil
			continue
		case open != nil:
			open.text += line[min(margin, indent):]
			continue
		case strings.HasPrefix(line, "## "):
			section = strings.TrimSpace(line[len("## "):])
		case listItem.MatchString(line):
			content = len(listItem.FindString(line))
		case indent >= content+4 && blank:
			blocks = append(blocks, block{section, "indented", words})
		case indent == 0 && words != "\n":
			content = 0
		}
		blank = words == "\n"
		prose += line
	}
	return blocks, prose
}

// documents returns the Markdown files of the repository by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for at, text := range textsFor(t) {
		if filepath.Ext(at) == ".md" {
			texts[strings.TrimPrefix(at, "../../")] = text
		}
	}
	if len(texts) < 30 {
		t.Fatalf("only %d documents were found", len(texts))
	}
	return texts
}

var span = regexp.MustCompile("`([^`\n]+(?:\n[^`\n]+)?)`")

// spansOf returns the code spans of a Markdown text without blocks. A span may cross one line break.
func spansOf(prose string) (spans []string) {
	for _, m := range span.FindAllStringSubmatch(prose, -1) {
		spans = append(spans, strings.Join(strings.Fields(m[1]), " "))
	}
	return spans
}

// readBy names, for each language of blocks that is not a shell's, the documents whose blocks
// another test runs, with the name of the test; or a reason why no test can.
var readBy = map[string]map[string]string{
	"ts": {
		"README.md": "TestTheTypeScriptOfTheReadmeWorks", "docs/integrate/first-program.md": "TestTheFirstProgramsWork",
		"docs/integrate/webhooks.md": "TestTheTypeScriptReceiverVerifies", "docs/recipes.md": "TestTheRecipesWork",
	},
	"python": {
		"README.md": "TestTheFirstCallsOfTheReadmeWork", "docs/integrate/first-program.md": "TestTheFirstProgramsWork",
		"docs/integrate/webhooks.md": "TestTheReceiversOfTheDocumentsVerify",
	},
	"go": {
		"docs/integrate/first-program.md": "TestTheFirstProgramsWork", "docs/integrate/webhooks.md": "TestTheReceiversOfTheDocumentsVerify",
	},
	"yaml": {
		"docs/integrate/first-program.md": "TestTheFirstProgramsWork",
		"docs/operate/observe.md":         "TestPrometheusTakesTheConfigurationsOfTheDocuments",
	},
	"json": {
		"README.md": "TestTheFirstCallsOfTheReadmeWork", "docs/bot/import.md": "TestTheShellBlocksOfTheDocumentsRun",
		"docs/integrate/writes.md": "TestTheCallsOfThePageAboutWritesWork",
	},
	"sql": {
		"docs/bot/convert.md":    "TestTheRecipesOfTheDocumentsAreQueriesOfThoseBots",
		"docs/operate/backup.md": "TestTheShellBlocksOfTheDocumentsRun",
	},
	"sh":    nil, // TestTheShellBlocksOfTheDocumentsRun fails for a document that it does not know
	"nginx": {"docs/operate/upgrade.md": "no: the machines that run the tests have no nginx"},
	"text": {
		"README.md": "TestTheShellBlocksOfTheDocumentsRun", "docs/bot/convert.md": "TestTheShellBlocksOfTheDocumentsRun",
		"docs/integrate/first-program.md": "TestTheLinkThatFillsTheFormOfATokenWorks",
		"docs/integrate/copies.md":        "no: pseudocode, of which examples/mirror are the programs",
		"ARCHITECTURE.md":                 "TestTheTreeOfTheArchitectureIsThere",
	},
}

// Every block of a document is run or read by a test, or stands above with the reason why not.
func TestEveryBlockOfADocumentHasATest(t *testing.T) {
	t.Parallel()
	tests, used := testNames(t), map[string]bool{}
	for at, text := range documents(t) {
		blocks, _ := blocksOf(text)
		for _, b := range blocks {
			by, known := readBy[b.language]
			reader := by[at]
			used[b.language+" "+at] = true
			if !known || by != nil && reader == "" {
				t.Errorf("%s has a block %q in %q, of which readBy says nothing: %.80q", at, b.language, b.section, b.text)
			}
			if reader != "" && !strings.HasPrefix(reader, "no: ") && !tests[reader] {
				t.Errorf("readBy names %s, which does not exist", reader)
			}
		}
	}
	for language, by := range readBy {
		for at := range by {
			if !used[language+" "+at] {
				t.Errorf("readBy names blocks %q of %s, which has none", language, at)
			}
		}
	}
}

// No two calls of the documents share an idempotency key: whoever tries one page after the other
// would get 409 for the second.
func TestCallsOfTheDocumentsHaveTheirOwnKeys(t *testing.T) {
	t.Parallel()
	keys := map[string]string{}
	for at, text := range documents(t) {
		blocks, _ := blocksOf(text)
		for _, b := range blocks {
			for _, key := range regexp.MustCompile(`order-\d+/\d+`).FindAllString(b.text, -1) {
				if other, known := keys[key]; known {
					t.Errorf("%s and %s use the key %s", other, at, key)
				}
				keys[key] = at
			}
		}
	}
	if len(keys) < 6 {
		t.Errorf("only the keys %v were found", keys)
	}
}

// testNames returns the names of all tests and benchmarks of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range []string{".", "bench", "cmd", "gen", "internal", "migrations", "examples"} {
		err := filepath.WalkDir("../../"+folder, func(at string, d os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "node_modules" || folder == "." && at != "../../."):
				return filepath.SkipDir
			case !strings.HasSuffix(at, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(at)
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`).FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// slug returns the anchor that a heading gets where the repository is shown.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// Every link between the documents leads to a file that exists and, with an anchor, to a heading.
func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	all, found := documents(t), 0
	anchors := map[string]map[string]bool{}
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for at, text := range all {
		_, prose := blocksOf(text)
		anchors[at] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(prose, -1) {
			anchors[at][slug(m[1])] = true
		}
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)|(?:href|src|srcset)="([^"]+)"`)
	elsewhere := regexp.MustCompile(`^(https?:|mailto:|\.\./\.\./(actions|releases)\b)`) // the second: pages of the hosting
	for at, text := range all {
		_, prose := blocksOf(text)
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(prose, ""), -1) {
			target := m[1] + m[2]
			if elsewhere.MatchString(target) {
				continue
			}
			found++
			file, anchor, _ := strings.Cut(target, "#")
			to := at
			if file != "" {
				to = path.Join(path.Dir(at), file)
			}
			if _, err := os.Stat("../../" + to); err != nil {
				t.Errorf("%s links to %s: %v", at, target, err)
			} else if anchor != "" && !anchors[to][anchor] {
				t.Errorf("%s links to %s, which is no heading of %s: it has %q", at, target, to, slices.Sorted(maps.Keys(anchors[to])))
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d links were found", found)
	}
}
