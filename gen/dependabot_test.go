package gen_test

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A folder whose dependencies are pinned is named, so that they do not grow old.
func TestDependabotKnowsEveryFolderWithDependencies(t *testing.T) {
	t.Parallel()
	ecosystems := map[string]string{
		"go.mod": "gomod", "package.json": "npm", "requirements.txt": "pip", "pom.xml": "maven", "Cargo.toml": "cargo", "Containerfile": "docker",
	}
	text, err := os.ReadFile("../.github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, u := range config.Updates {
		for _, d := range append(u.Directories, u.Directory) {
			if d != "" && u.Ecosystem != "github-actions" {
				named = append(named, u.Ecosystem+" "+d)
			}
		}
	}
	var found []string
	for _, file := range filesIn(t, "..", func(file string) bool { return ecosystems[path.Base(file)] != "" && !isTestdata(file) }) {
		found = append(found, ecosystems[path.Base(file)]+" "+path.Dir(strings.TrimPrefix(file, "..")))
	}
	slices.Sort(named)
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(named, found) {
		t.Errorf("dependabot.yml names\n%q, these are there:\n%q", named, found)
	}
}
