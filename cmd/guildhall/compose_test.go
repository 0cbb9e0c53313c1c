package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The files that operators install name settings that there are: a misspelt one would
// end the program they start. All that there are reach it through .env.
func TestInstalledFilesNameSettingsThatThereAre(t *testing.T) {
	t.Parallel()
	known := append(variables(reflect.TypeFor[commands]()), foreign...)
	name := regexp.MustCompile(`GUILDHALL_[A-Z0-9_]+`)
	files := []string{
		"systemd/guildhall.service", "systemd/guildhall.service.d/certificate.conf", "compose.yaml",
		"try.compose.yaml", "Caddyfile",
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(deployFolder, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, variable := range name.FindAllString(string(text), -1) {
			if !slices.Contains(known, variable) {
				t.Errorf("%s names %s, which is no setting", file, variable)
			}
		}
		if !strings.HasSuffix(file, "compose.yaml") {
			continue
		}
		var compose struct {
			Services map[string]struct {
				DependsOn map[string]struct{} `yaml:"depends_on"`
				EnvFile   []map[string]any    `yaml:"env_file"`
				Command   any
			}
		}
		if err := yaml.Unmarshal(text, &compose); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if from := compose.Services["guildhall"].EnvFile; file == "compose.yaml" && (len(from) != 1 || from[0]["path"] != ".env") {
			t.Errorf("%s hands on the settings of %v, want .env", file, from)
		}
		for _, s := range compose.Services {
			for on := range s.DependsOn {
				if _, ok := compose.Services[on]; !ok {
					t.Errorf("%s: a service waits for %s, which is not there", file, on)
				}
			}
		}
	}
}
