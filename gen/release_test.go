package gen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"guildhall/gen"
)

// The documents that were released, by version. A release adds its own.
const released = "../.github/contract/released"

// Whoever changes a released document gives it a new version and tells callers
// about it. That the change breaks nobody is the linters' to say.
func TestVersion(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	last, text := lastRelease(t)
	if err := versioned(document(t).Info.Version, string(gen.OpenAPI), last, text, string(changelog)); err != nil {
		t.Error(err)
	}
}

func TestVersionRule(t *testing.T) {
	t.Parallel()
	const changelog = "## [1.1.0] - 2027-01-01\n\n- One thing more.\n\n## [1.0.0] - 2026-11-21\n"
	for name, c := range map[string]struct {
		version, text, last, lastText string
		ok                            bool
	}{
		"nothing released yet":           {"1.0.0", "a", "", "", true},
		"nothing changed":                {"1.0.0", "a", "1.0.0", "a", true},
		"changed with a new version":     {"1.1.0", "b", "1.0.0", "a", true},
		"changed with the same version":  {"1.0.0", "b", "1.0.0", "a", false},
		"changed with an older version":  {"0.9.0", "b", "1.0.0", "a", false},
		"changed and nobody was told":    {"1.2.0", "b", "1.0.0", "a", false},
		"a version that is none":         {"next", "b", "1.0.0", "a", false},
		"a new version and nothing else": {"1.1.0", "a", "1.0.0", "a", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := versioned(c.version, c.text, c.last, c.lastText, changelog); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// versioned says what is wrong with the version of a document, given the last
// released one; last is empty when there is none.
func versioned(version, text, last, lastText, changelog string) error {
	switch {
	case !semver.IsValid("v" + version):
		return fmt.Errorf("info.version %q is no semantic version", version)
	case !strings.Contains(changelog, "\n## ["+version+"]") && !strings.HasPrefix(changelog, "## ["+version+"]"):
		return fmt.Errorf("CHANGELOG.md has no section for %s", version)
	case last != "" && text != lastText && semver.Compare("v"+version, "v"+last) <= 0:
		return fmt.Errorf("openapi.yaml differs from the released %s but is called %s: give it a new info.version", last, version)
	default:
		return nil
	}
}

func lastRelease(t *testing.T) (version, text string) {
	t.Helper()
	files, err := filepath.Glob(released + "/openapi-*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, file := range files {
		v := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "openapi-"), ".yaml")
		if !semver.IsValid("v" + v) {
			t.Fatalf("%s is not named after a version", file)
		}
		versions = append(versions, v)
	}
	if len(versions) == 0 {
		return "", ""
	}
	version = slices.MaxFunc(versions, func(a, b string) int { return semver.Compare("v"+a, "v"+b) })
	b, err := os.ReadFile(filepath.Join(released, "openapi-"+version+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return version, string(b)
}
