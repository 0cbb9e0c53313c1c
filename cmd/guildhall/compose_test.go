package main

import (
	"os"
	"os/exec"
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
	p.says(t, "this node runs them, as it was started with --migrate")
	if _, log := p.text(); strings.Contains(log, "no settings of this program") {
		t.Errorf("variables are handed on that are no settings: %s", log)
	}
}

// The drop-in copies a renewed certificate at each start and reload, readable for the
// program alone, to where the documents have /etc/guildhall/env look for it.
func TestTheDropInHandsOverTheCertificate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(deployFolder, "systemd", "guildhall.service.d", "certificate.conf"))
	if err != nil {
		t.Fatal(err)
	}
	copying := regexp.MustCompile(`(?m)^(ExecStartPre|ExecReload)=\+/bin/sh -ec '(.*)'$`).FindAllStringSubmatch(string(text), -1)
	if len(copying) != 2 || copying[0][2] != copying[1][2] || copying[0][1] == copying[1][1] {
		t.Fatalf("it copies by %q, want the same at start and reload", copying)
	}
	from, to := t.TempDir(), t.TempDir()
	command := strings.NewReplacer("%%", "%", "%t/guildhall", to, "/etc/guildhall", from).Replace(copying[0][2])
	for _, content := range []string{"first", "renewed"} {
		for _, name := range []string{"tls.crt", "tls.key"} {
			if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-ec", command).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, name := range []string{"tls.crt", "tls.key"} {
			got, err := os.ReadFile(filepath.Join(to, name))
			info, failed := os.Stat(filepath.Join(to, name))
			if err != nil || failed != nil || string(got) != content || info.Mode() != 0o400 {
				t.Errorf("%s is %q, %v, %v", name, got, info, err)
			}
		}
	}
	for _, page := range []string{"install.md", "two-nodes.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs/operate", page))
		for _, setting := range []string{"GUILDHALL_TLS_CERT=/run/guildhall/tls.crt", "GUILDHALL_TLS_KEY=/run/guildhall/tls.key"} {
			if err != nil || !strings.Contains(string(text), setting) {
				t.Errorf("%s does not say %s, %v", page, setting, err)
			}
		}
	}
}
