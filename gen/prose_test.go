package gen_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The bounds of prose: what a reader takes in at once.
const (
	longestSentence  = 45 // words
	ninetiethInWords = 28 // of ten sentences nine are no longer
	longestParagraph = 90 // words
	longestLine      = 100
)

// paragraph is a paragraph of prose, or an item of a list, and where it begins.
type paragraph struct {
	line int
	text string
}

var (
	inlineCode  = regexp.MustCompile("`[^`]+`")
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	listItem    = regexp.MustCompile(`^\s*(?:[-*]|\d+\.) `)
	sentenceEnd = regexp.MustCompile(`[.!?][)"*_]*\s+`)
	tooLong     = regexp.MustCompile("^(?:\\s*\\||<|!?\\[)|^\\s*`[^`]+`\\.?$") // tables, HTML, a link or code that cannot be broken
)

// paragraphs are those of a Markdown text, without headings, tables, code and HTML.
func paragraphs(text string) (list []paragraph) {
	open, fenced := false, ""
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case fenced != "":
			if trimmed == fenced {
				fenced = ""
			}
			open = false
		case strings.HasPrefix(trimmed, "```"):
			fenced, open = "```", false
		case trimmed == "", strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "<"),
			strings.HasPrefix(line, "    ") && !open:
			open = false
		case open && !listItem.MatchString(line):
			list[len(list)-1].text += " " + trimmed
		default:
			list, open = append(list, paragraph{i + 1, listItem.ReplaceAllString(line, "")}), true
		}
	}
	return list
}

// sentences are a paragraph's; code counts as one word and the target of a link as none.
func (p paragraph) sentences() []string {
	text := linkTarget.ReplaceAllString(inlineCode.ReplaceAllString(p.text, "Code"), "]")
	return sentenceEnd.Split(strings.TrimSpace(text), -1)
}

// proseFiles are these and all documents.
func proseFiles(t *testing.T, files ...string) []string {
	t.Helper()
	files = append(files, filesIn(t, "../docs", func(path string) bool { return strings.HasSuffix(path, ".md") })...)
	if len(files) < 10 {
		t.Fatalf("only %q were found", files)
	}
	return files
}

// A reader takes in README and the documents at the first reading.
func TestProseIsShort(t *testing.T) {
	t.Parallel()
	for _, file := range proseFiles(t, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../bench/README.md", "../deploy/README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wantShort(t, file, string(text))
	}
}

func wantShort(t *testing.T, file, text string) {
	t.Helper()
	var lengths []int
	for _, p := range paragraphs(text) {
		words := 0
		for _, s := range p.sentences() {
			n := len(strings.Fields(s))
			lengths, words = append(lengths, n), words+n
			if n > longestSentence {
				t.Errorf("%s:%d: a sentence of %d words: %s", file, p.line, n, s)
			}
		}
		if words > longestParagraph {
			t.Errorf("%s:%d: a paragraph of %d words", file, p.line, words)
		}
	}
	slices.Sort(lengths)
	if n := len(lengths); n > 0 && lengths[n*9/10] > ninetiethInWords {
		t.Errorf("%s: a tenth of its %d sentences has %d words or more", file, n, lengths[n*9/10])
	}
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if !fenced && len([]rune(line)) > longestLine && !tooLong.MatchString(line) {
			t.Errorf("%s:%d: a line of %d columns", file, i+1, len([]rune(line)))
		}
	}
}

// The measure counts as a reader does.
func TestProseIsMeasured(t *testing.T) {
	t.Parallel()
	text := "# A title. Not prose.\n\nOne two `three four`. Five [six seven](a/very/long/target)\neight!\n\n" +
		"- nine\n- ten. Eleven\n\n```sh\nnot prose\n```\n| no | prose |\n"
	var got []string
	for _, p := range paragraphs(text) {
		got = append(got, p.sentences()...)
	}
	want := []string{"One two Code", "Five [six seven] eight!", "nine", "ten", "Eleven"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A decision has a heading that says what was decided, and below it says why.
func TestDecisionsAreShortAndSayWhy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/decisions.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(text))); words > 3000 {
		t.Errorf("docs/decisions.md has %d words, want 3,000 at most", words)
	}
	decisions := strings.Split(string(text), "\n### ")[1:]
	if len(decisions) < 40 {
		t.Errorf("only %d decisions were found", len(decisions))
	}
	for _, d := range decisions {
		heading, body, _ := strings.Cut(d, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		if !strings.HasPrefix(strings.TrimSpace(body), "**Why:** ") || len(strings.Fields(body)) > 60 || len(strings.Fields(heading)) < 3 {
			t.Errorf("the decision %q: %s", heading, body)
		}
	}
}

// An operator who upgrades reads the section of a release whole.
func TestTheChangelogOfAReleaseIsShort(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	releases, _, _ := strings.Cut(string(text), "\n## Before releases")
	sections := strings.Split(releases, "\n## [")[1:]
	if len(sections) == 0 {
		t.Fatal("CHANGELOG.md has no release")
	}
	for _, section := range sections {
		heading, body, _ := strings.Cut(section, "\n")
		words := 0
		for line := range strings.Lines(body) {
			n := len(strings.Fields(strings.TrimPrefix(line, "- ")))
			if words += n; n > 25 {
				t.Errorf("%s: a line of %d words, want 25 at most: %s", heading, n, line)
			}
		}
		if words > 400 {
			t.Errorf("%s: %d words, want 400 at most", heading, words)
		}
	}
}

// The tour and the recipes are short enough to be read at one sitting.
func TestDocumentsForContributorsAreShort(t *testing.T) {
	t.Parallel()
	for file, most := range map[string]int{"ARCHITECTURE.md": 4000, "CONTRIBUTING.md": 1600} {
		text, err := os.ReadFile("../" + file)
		if err != nil {
			t.Fatal(err)
		}
		if words := len(strings.Fields(string(text))); words > most {
			t.Errorf("%s has %d words, want %d at most", file, words, most)
		}
	}
}

var (
	// unnamed begins a sentence with a subject that names no one.
	unnamed = regexp.MustCompile(`^(?:\W*)(?:Whoever|Nobody|Somebody|What)\b`)
	// unnamedBeside begins a comment beside code so.
	unnamedBeside = regexp.MustCompile(`^(?:whoever|nobody|somebody)\b`)
	// whole is a sentence with its end; a full stop inside code is none.
	whole = regexp.MustCompile(`[^.!?]+(?:[.!?]+\S[^.!?]*)*[.!?]*`)
)

// unnamedSubjects are the sentences that begin with whoever, nobody, somebody or what and
// are no question. With first, the first one is let pass: it names a thing, as in "What to
// change".
func unnamedSubjects(text string, first bool) (found []string) {
	text = linkTarget.ReplaceAllString(inlineCode.ReplaceAllString(text, "Code"), "]")
	for i, s := range whole.FindAllString(text, -1) {
		s = strings.TrimSpace(s)
		if unnamed.MatchString(s) && !strings.HasSuffix(s, "?") && (i > 0 || !first) {
			found = append(found, s)
		}
	}
	return found
}

// A sentence says who does it.
func TestSubjectsAreNamed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"It waits. What is over goes.": 1, "Whoever asks gets it.": 1, "Why? What for?": 0, "Ask `a. b`. Nobody reads it": 1,
		"It says what it does. So v1.2 stays. **What it is not** is said.": 1,
	} {
		if found := unnamedSubjects(text, false); len(found) != want {
			t.Errorf("%s: %q", text, found)
		}
	}
	for _, file := range proseFiles(t, readmes(t)...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paragraphs(string(text)) {
			for _, s := range unnamedSubjects(p.text, false) {
				t.Errorf("%s:%d: who does it? %s", file, p.line, s)
			}
		}
	}
	text, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	opened, blockOpens := false, regexp.MustCompile(`\bdescription: *[|>]-?$`)
	description := regexp.MustCompile(`^.*\bdescription: *['"]?`)
	for i, line := range strings.Split(string(text), "\n") {
		prose := description.ReplaceAllString(line, "")
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			for _, s := range unnamedSubjects(strings.TrimSpace(prose), prose != line || opened) {
				t.Errorf("openapi.yaml:%d: who does it? %s", i+1, s)
			}
		}
		opened = blockOpens.MatchString(line)
	}
}

// Comments say who does it, too. A comment beside code may name a thing, as in "what it returned".
func TestSubjectsOfCommentsAreNamed(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]int{
		"package p\n\n// F waits.\n// Nobody is\n// asked.\nfunc F() {}\n":                 3,
		"package p\n\nfunc F() {\n\tprint() // somebody waits\n}\n":                        4,
		"package p\n\n// Who am I? A caller asks nobody.\nvar a int // what it returned\n": 0,
		"// Code generated by hand. DO NOT EDIT.\n\n// Whoever asks.\npackage p\n":         0,
	} {
		var lines []int
		for _, c := range unnamedComments(t, "p.go", source) {
			lines = append(lines, c.line)
		}
		if want == 0 && len(lines) > 0 || want > 0 && (len(lines) != 1 || lines[0] != want) {
			t.Errorf("%q: found in lines %v, want %d", source, lines, want)
		}
	}
	files := filesIn(t, "..", func(path string) bool { return strings.HasSuffix(path, ".go") })
	for _, path := range files {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range unnamedComments(t, path, string(source)) {
			t.Errorf("%s:%d: who does it? %s", path, c.line, c.text)
		}
	}
	if len(files) < 300 {
		t.Errorf("%d files were read", len(files))
	}
}

// unnamedComments are the sentences of a Go file's comments whose subject names no one.
func unnamedComments(t *testing.T, path, source string) (found []paragraph) {
	t.Helper()
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	for _, group := range file.Comments {
		at, text := positions.Position(group.Pos()), group.Text()
		for _, part := range strings.Split(text, "\n\n") {
			for _, s := range unnamedSubjects(strings.Join(strings.Fields(part), " "), false) {
				found = append(found, paragraph{at.Line, s})
			}
		}
		before := source[at.Offset-at.Column+1 : at.Offset]
		if strings.TrimSpace(before) != "" && unnamedBeside.MatchString(text) {
			found = append(found, paragraph{at.Line, text})
		}
	}
	return found
}
