package gen_test

import (
	"io/fs"
	"os"
	"path"
	"slices"
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
	err = fs.WalkDir(os.DirFS(".."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{"node_modules", "bin", "build", "dist", ".git", ".venv", "target", "testdata"}, d.Name()) {
			return fs.SkipDir
		}
		if e, ok := ecosystems[d.Name()]; ok {
			found = append(found, e+" "+path.Clean("/"+path.Dir(name)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(named)
	slices.Sort(found)
	if found = slices.Compact(found); !slices.Equal(named, found) {
		t.Errorf("dependabot.yml names\n%q, these are there:\n%q", named, found)
	}
}
