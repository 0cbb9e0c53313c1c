package gen_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/semver"

	"guildhall/gen"
)

// released is the directory of the released documents. The commit of a release adds its document;
// before the first release the directory does not exist.
const released = "../.github/contract/released"

// A changed document needs a new version, which CHANGELOG.md must mention. make doclint checks that
// the change is compatible with existing clients.
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
		for _, place := range insertions(t, text, string(gen.OpenAPI)) {
			t.Errorf("%s comes before what %s has: new optional parameters and members go last", place, version)
		}
	}
}

func TestADocumentIsHeldAgainstEveryFrozenOne(t *testing.T) {
	t.Parallel()
	const changelog = "# Changelog\n\n## [26.12.0] - unreleased, contract 2.2.0\n\n- Two.\n\n" +
		"## [2.1.0] - 2027-01-01\n\n- One thing more.\n\n## [2.0.0] - 2026-11-21\n"
	one := map[string]string{"2.0.0": "a"}
	two := map[string]string{"2.0.0": "a", "2.1.0": "b"}
	for name, c := range map[string]struct {
		version, text string
		frozen        map[string]string
		ok            bool
	}{
		"nothing released yet":                {"2.0.0", "a", nil, true},
		"nothing changed":                     {"2.0.0", "a", one, true},
		"nothing changed since the last":      {"2.1.0", "b", two, true},
		"changed with a new version":          {"2.1.0", "b", one, true},
		"a new version, not yet released":     {"2.2.0", "c", two, true},
		"changed with the same version":       {"2.0.0", "b", one, false},
		"changed with the last version":       {"2.1.0", "b2", two, false},
		"changed with an older version":       {"0.9.0", "b", one, false},
		"an older one's text and its version": {"2.0.0", "a", two, false},
		"changed and nobody was told":         {"2.3.0", "c", two, false},
		"told of a version that begins alike": {"2.2", "c", two, false},
		"a version that is none":              {"next", "b", one, false},
		"a new version and nothing else":      {"2.1.0", "a", one, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := versioned(c.version, c.text, c.frozen, changelog); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// versioned returns an error if the version of a document does not fit CHANGELOG.md or the frozen
// documents, which are given by version.
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

// Generated clients pass parameters and members by position, so an addition in the middle would
// shift the following ones.
func TestInsertions(t *testing.T) {
	t.Parallel()
	const was = `
paths: {/a: {get: {parameters: [{name: p}, {$ref: '#/q'}]}}}
components: {schemas: {A: {properties: {b: {}, c: {}}}}}`
	for now, want := range map[string][]string{
		was: nil,
		`
paths: {/a: {get: {parameters: [{name: p}, {$ref: '#/q'}, {name: r}]}}, /b: {get: {parameters: [{name: p}]}}}
components: {schemas: {Z: {properties: {a: {}}}, A: {properties: {b: {}, c: {}, a: {}}}}}`: nil,
		`
paths: {/a: {get: {parameters: [{name: p}, {name: r}, {$ref: '#/q'}]}}}
components: {schemas: {A: {properties: {b: {}, a: {}, c: {}}}}}`: {"get /a: r", "A: a"},
	} {
		if got := insertions(t, was, now); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", now, got, want)
		}
	}
}

// insertions returns the added parameters and members that do not stand after all existing ones.
func insertions(t *testing.T, was, now string) (found []string) {
	t.Helper()
	before, after := lists(t, was), lists(t, now)
	for _, l := range before {
		for _, other := range after {
			if other.place != l.place || len(l.names) == 0 {
				continue
			}
			for _, name := range other.names[:slices.Index(other.names, l.names[len(l.names)-1])+1] {
				if !slices.Contains(l.names, name) {
					found = append(found, l.place+": "+name)
				}
			}
		}
	}
	return found
}

type namedList struct {
	place string
	names []string
}

// lists returns the names of each operation's parameters and of each schema's members, in
// the document's order.
func lists(t *testing.T, text string) (all []namedList) {
	t.Helper()
	var file yaml.Node
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	paths, schemas := member(file.Content[0], "paths"), member(member(file.Content[0], "components"), "schemas")
	for i := 0; i < len(paths.Content); i += 2 {
		item := paths.Content[i+1]
		for j := 0; j < len(item.Content); j += 2 {
			l := namedList{place: item.Content[j].Value + " " + paths.Content[i].Value}
			for _, p := range member(item.Content[j+1], "parameters").Content {
				l.names = append(l.names, member(p, "name").Value+member(p, "$ref").Value)
			}
			all = append(all, l)
		}
	}
	for i := 0; i < len(schemas.Content); i += 2 {
		l, members := namedList{place: schemas.Content[i].Value}, member(schemas.Content[i+1], "properties")
		for j := 0; j < len(members.Content); j += 2 {
			l.names = append(l.names, members.Content[j].Value)
		}
		all = append(all, l)
	}
	return all
}

// releases returns the released documents by version.
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
