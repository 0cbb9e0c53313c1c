package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.yaml.in/yaml/v3"

	"guildhall/internal/base/db/dbtest"
)

// The files that operators install name only existing settings, since a misspelt one keeps the
// program from starting. Every setting can be passed through .env.
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

// The program starts with the values in compose.yaml and those that the file tells people to write
// into .env. The test only changes the addresses.
func TestComposeStartsTheProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deployFolder, "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
		}
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	dotenv := map[string]string{"GUILDHALL_HOST": "api.example.com", "POSTGRES_PASSWORD": "x", "GUILDHALL_SECRET_KEY": key}
	asked := regexp.MustCompile(`\$\{([A-Z_]+)(:\?[^}]*)?\}`)
	env := []string{"GUILDHALL_DISCORD_URL=off", "GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_HOST=api.example.com"}
	program := compose.Services["guildhall"]
	for name, value := range program.Environment {
		switch name {
		case "GUILDHALL_DATABASE_URL":
			value = dbtest.Empty(t, "template0") // --migrate creates the schema
		case "GUILDHALL_REDIS_URL":
			value = "redis://" + miniredis.RunT(t).Addr() + "/0"
		case "GUILDHALL_OPS_LISTEN":
			value = "127.0.0.1:0"
		}
		env = append(env, name+"="+asked.ReplaceAllStringFunc(value, func(found string) string {
			from := asked.FindStringSubmatch(found)[1]
			if dotenv[from] == "" {
				t.Errorf("%s takes %s, which the file tells nobody to set", name, from)
			}
			return dotenv[from]
		}))
	}
	if len(env) < 10 {
		t.Fatalf("only %d settings were found", len(env))
	}
	p := begin(t, t.TempDir(), env, program.Command...)
	p.says(t, `"msg":"ready"`)
	if _, log := p.text(); strings.Contains(log, "no settings of this program") {
		t.Errorf("variables are handed on that are no settings: %s", log)
	}
}
