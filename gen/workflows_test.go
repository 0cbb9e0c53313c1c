package gen_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// On CI a test that lacks a program fails. So wherever all tests are run, the
// programs that .ci/run installs for them are installed before.
func TestWorkflowsInstallWhatTheTestsUse(t *testing.T) {
	t.Parallel()
	run, err := os.ReadFile("../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	tools := regexp.MustCompile(`for tool in ([a-z ]+);`).FindSubmatch(run)
	if tools == nil {
		t.Fatal(".ci/run installs nothing")
	}
	install := ".ci/tools " + string(tools[1])
	files, err := filepath.Glob("../.github/workflows/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var workflow struct {
			Jobs map[string]struct{ Steps []struct{ Run string } }
		}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, job := range workflow.Jobs {
			installed := false
			for _, step := range job.Steps {
				switch command := strings.TrimSpace(step.Run); command {
				case install:
					installed = true
				case "make test", "make race", "make check":
					found++
					if !installed {
						t.Errorf("%s: the job %s runs %s without %s before", file, name, command, install)
					}
				}
			}
		}
	}
	if found < 3 {
		t.Errorf("%d jobs run all tests, want two of changes and that of releases", found)
	}
}

// Docker takes a file that is not called Dockerfile only by its name.
func TestImagesAreBuiltFromAFileThatIsNamed(t *testing.T) {
	t.Parallel()
	builds := 0
	for _, file := range []string{"../.github/workflows/release.yaml", "../deploy/Containerfile", "../deploy/release.Containerfile"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		joined := strings.ReplaceAll(string(text), "\\\n", " ")
		for _, build := range regexp.MustCompile(`docker (?:buildx )?build .*`).FindAllString(joined, -1) {
			builds++
			if !regexp.MustCompile(`(?:-f|--file) \S*Containerfile\b`).MatchString(build) {
				t.Errorf("%s: no file is named: %s", file, build)
			}
		}
	}
	if builds != 3 {
		t.Errorf("%d builds were found", builds)
	}
}

// A release that a workflow makes starts no other workflow, so the documents are published
// by a call, with the rights that it needs.
func TestAReleasePublishesTheDocuments(t *testing.T) {
	t.Parallel()
	type job struct {
		Needs, Uses string
		Permissions map[string]string
	}
	type workflow struct {
		On   map[string]any
		Jobs map[string]job
	}
	read := func(name string) (w workflow) {
		t.Helper()
		text, err := os.ReadFile("../.github/workflows/" + name)
		if err == nil {
			err = yaml.Unmarshal(text, &w)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return w
	}
	docs := read("docs.yaml")
	if _, called := docs.On["workflow_call"]; !called {
		t.Errorf("docs.yaml cannot be called: %v", docs.On)
	}
	for name, j := range read("release.yaml").Jobs {
		if j.Uses != "./.github/workflows/docs.yaml" {
			continue
		}
		if j.Needs != "release" || !maps.Equal(j.Permissions, docs.Jobs["publish"].Permissions) {
			t.Errorf("the job %s waits for %q and may %v", name, j.Needs, j.Permissions)
		}
		return
	}
	t.Error("release.yaml does not publish the documents")
}
