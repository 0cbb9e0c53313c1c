package gen_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"golang.org/x/mod/semver"

	"guildhall/gen"
)

// The documents that were released, by version. A release adds its own.
const released = "../.github/contract/released"

// A change of a released document takes a new version, of which callers are told.
// That it breaks none of them is the linters' to say.
func TestADocumentWhoseVersionIsFrozenEqualsItsFrozenFileByteForByte(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	frozen := releases(t)
	if err := versioned(document(t).Info.Version, string(gen.OpenAPI), frozen, string(changelog)); err != nil {
		t.Error(err)
	}
	for version, text := range frozen {
		doc, err := openapi3.NewLoader().LoadFromData([]byte(text))
		switch {
		case err != nil:
			t.Errorf("openapi-%s.yaml: %v", version, err)
		case doc.Info.Version != version:
			t.Errorf("openapi-%s.yaml calls itself %s", version, doc.Info.Version)
		}
	}
}

func TestADocumentIsHeldAgainstEveryFrozenOne(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## [26.12.0] - unreleased, contract 1.2.0\n\n- Two.\n\n" +
		"## [1.1.0] - 2027-01-01\n\n- One thing more.\n\n## [1.0.0] - 2026-11-21\n"
	one := map[string]string{"1.0.0": "a"}
	two := map[string]string{"1.0.0": "a", "1.1.0": "b"}
	for name, c := range map[string]struct {
		version, text string
		frozen        map[string]string
		ok            bool
	}{
		"nothing released yet":                {"1.0.0", "a", nil, true},
		"nothing changed":                     {"1.0.0", "a", one, true},
		"nothing changed since the last":      {"1.1.0", "b", two, true},
		"changed with a new version":          {"1.1.0", "b", one, true},
		"a new version, not yet released":     {"1.2.0", "c", two, true},
		"changed with the same version":       {"1.0.0", "b", one, false},
		"changed with the last version":       {"1.1.0", "b2", two, false},
		"changed with an older version":       {"0.9.0", "b", one, false},
		"an older one's text and its version": {"1.0.0", "a", two, false},
		"changed and nobody was told":         {"1.3.0", "c", two, false},
		"told of a version that begins alike": {"1.2", "c", two, false},
		"a version that is none":              {"next", "b", one, false},
		"a new version and nothing else":      {"1.1.0", "a", one, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := versioned(c.version, c.text, c.frozen, changelog); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A release is named by its date, says which contract it has and tells of at most
// as much as a reader takes in; the contract's versions before have sections of their own.
func TestTheChangelogHasOneSectionARelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	now, _, _ := strings.Cut(string(text), "\n## Before releases of the program\n")
	sections := strings.Split(now, "\n## ")[1:]
	heading := regexp.MustCompile(`^\[(\d{2}\.\d{1,2}\.\d+)\] - (unreleased|\d{4}-\d{2}-\d{2}), contract \d+\.\d+\.\d+$`)
	kinds := []string{"You have to do something", "For callers", "For the bot", "For operators", "Mended"}
	for i, section := range sections {
		title, body, _ := strings.Cut(section, "\n")
		m := heading.FindStringSubmatch(title)
		if m == nil {
			t.Errorf("CHANGELOG.md has a section %q", title)
			continue
		}
		if unreleased := m[2] == "unreleased"; unreleased && i > 0 {
			t.Errorf("%s is not the newest and has no date", m[1])
		} else if words := len(strings.Fields(body)); !unreleased && words > 400 {
			t.Errorf("%s has %d words, want 400 at most", m[1], words)
		}
		last := -1
		for _, k := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(body, -1) {
			at := slices.Index(kinds, k[1])
			if at <= last {
				t.Errorf("%s has %q where it does not belong: the order is %q", m[1], k[1], kinds)
			}
			last = at
		}
		out, err := exec.CommandContext(t.Context(), "../.ci/changelog", m[1]).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(body) {
			t.Errorf(".ci/changelog %s prints %.200q: %v", m[1], out, err)
		}
	}
	for _, none := range []string{"26.1", "6.12.0", "26X12.0", "unreleased"} {
		if out, err := exec.CommandContext(t.Context(), "../.ci/changelog", none).CombinedOutput(); err == nil {
			t.Errorf(".ci/changelog %s prints %.200q", none, out)
		}
	}
}

// versioned says what is wrong with the version of a document, given the frozen
// ones by version.
func versioned(version, text string, frozen map[string]string, changelog string) error {
	if !semver.IsValid("v" + version) {
		return fmt.Errorf("info.version %q is no semantic version", version)
	}
	quoted := regexp.QuoteMeta(version)
	section := regexp.MustCompile(`(?m)^## (\[` + quoted + `\] - |\[[0-9.]+\] - (unreleased|[0-9-]{10}), contract ` + quoted + `$)`)
	if !section.MatchString(changelog) {
		return fmt.Errorf("CHANGELOG.md has no section for %s", version)
	}
	for last, frozen := range frozen {
		switch semver.Compare("v"+version, "v"+last) {
		case -1:
			return fmt.Errorf("openapi.yaml is called %s, though %s is released: give it a new info.version", version, last)
		case 0:
			if text != frozen {
				return fmt.Errorf("openapi.yaml differs from the released %s but is called so: give it a new info.version", last)
			}
		}
	}
	return nil
}

// releases are the documents that were released, by version.
func releases(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(released + "/openapi-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range files {
		version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "openapi-"), ".yaml")
		if !semver.IsValid("v" + version) {
			t.Fatalf("%s is not named after a version", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[version] = string(text)
	}
	return texts
}
