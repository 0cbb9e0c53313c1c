package gen_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A form that is not as the site wants it is shown to nobody, and nothing says so.
func TestIssueFormsCanBeShown(t *testing.T) {
	t.Parallel()
	const folder = "../.github/ISSUE_TEMPLATE"
	files, err := filepath.Glob(folder + "/*.yml")
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files, %v: want two forms and config.yml", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "config.yml" {
			if !strings.Contains(string(text), "blank_issues_enabled: false") {
				t.Error("an issue can be opened beside the forms")
			}
			continue
		}
		var form struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label, Value string }
			}
		}
		if err := yaml.Unmarshal(text, &form); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s: a form has a name, a description and a body", file)
		}
		var ids []string
		for _, part := range form.Body {
			asks := slices.Contains([]string{"input", "textarea", "dropdown", "checkboxes"}, part.Type)
			if part.Type != "markdown" && (!asks || part.ID == "" || part.Attributes.Label == "" || slices.Contains(ids, part.ID)) ||
				part.Type == "markdown" && part.Attributes.Value == "" {
				t.Errorf("%s: the part %+v cannot be shown", file, part)
			}
			ids = append(ids, part.ID)
		}
	}
}

// SECURITY.md says how a weakness is reported, within which time an answer comes, and which releases
// get fixes, the same as README; issues and pull requests lead there and to the checks.
func TestDocumentsForContributorsAreThere(t *testing.T) {
	t.Parallel()
	for file, says := range map[string][]string{
		"../SECURITY.md":                      {"Report a vulnerability", "within 7 days", "security fixes for 90 days"},
		"../README.md":                        {"security fixes for 90 days"},
		"../.github/ISSUE_TEMPLATE/bug.yml":   {"SECURITY.md", "guildhall version", "guildhall doctor", "X-Request-Id"},
		"../.github/pull_request_template.md": {"make check", "CHANGELOG.md", "RELIABILITY.md"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, s := range says {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), s) {
				t.Errorf("%s does not say %q", file, s)
			}
		}
	}
}

// Callers are told who takes part in a giveaway: those who stand there when it is drawn, and not
// those who stood there when it ended.
func TestDocumentsSayWhoTakesPart(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"../openapi.yaml", "../docs/integrate/draws.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), "who stand there when the draw reads them") {
			t.Errorf("%s does not say that members count who stand there when the draw reads them", file)
		}
	}
}
