package guildhall_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/testutil"
)

// A section of the changelog is named by a release's date and states its contract version.
func TestTheChangelogHasOneSectionARelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	heading := regexp.MustCompile(`^\[(\d{2}\.\d{1,2}\.\d+)\] - (unreleased|\d{4}-\d{2}-\d{2}), contract \d+\.\d+\.\d+$`)
	kinds := []string{"You have to do something", "For callers", "For the bot", "For operators", "Fixed"}
	for i, section := range sections {
		title, body, _ := strings.Cut(section, "\n")
		m := heading.FindStringSubmatch(title)
		if m == nil {
			t.Errorf("CHANGELOG.md has a section %q", title)
			continue
		}
		if unreleased := m[2] == "unreleased"; unreleased && i > 0 {
			t.Errorf("%s is not the newest and has no date", m[1])
		}
		last := -1
		for _, k := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(body, -1) {
			at := slices.Index(kinds, k[1])
			if at <= last {
				t.Errorf("%s has %q where it does not belong: the order is %q", m[1], k[1], kinds)
			}
			last = at
		}
		out, err := exec.CommandContext(t.Context(), ".ci/changelog", m[1]).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(body) {
			t.Errorf(".ci/changelog %s prints %.200q: %v", m[1], out, err)
		}
	}
	for _, none := range []string{"26.1", "6.12.0", "26X12.0", "unreleased"} {
		if out, err := exec.CommandContext(t.Context(), ".ci/changelog", none).CombinedOutput(); err == nil {
			t.Errorf(".ci/changelog %s prints %.200q", none, out)
		}
	}
}

// A version can be released when its section has a date and its contract is frozen.
func TestOnlyADatedSectionOfAFrozenContractIsReleased(t *testing.T) {
	t.Parallel()
	const contract = "info:\n  version: 2.2.0\n"
	const dated = "## [26.12.0] - 2026-12-01, contract 2.2.0\n\n- One.\n"
	for name, c := range map[string]struct{ changelog, frozen, says string }{
		"all is there":          {dated, contract, ""},
		"no section":            {strings.Replace(dated, "26.12.0", "26.11.0", 1), contract, "has no section of it"},
		"no date":               {strings.Replace(dated, "2026-12-01", "unreleased", 1), contract, "has no date"},
		"another contract":      {strings.Replace(dated, "2.2.0", "2.1.0", 1), contract, "names contract 2.1.0, openapi.yaml is 2.2.0"},
		"an empty section":      {strings.Replace(dated, "- One.", "", 1), contract, "has no section of 26.12.0"},
		"no frozen contract":    {dated, "", "there is no .github/contract/released/openapi-2.2.0.yaml"},
		"another frozen, alike": {dated, contract + "x: 1\n", "differs from gen/openapi.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put := func(file, text string, mode os.FileMode) {
				t.Helper()
				at := filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), mode)); err != nil {
					t.Fatal(err)
				}
			}
			for _, script := range []string{".ci/releasable", ".ci/changelog"} {
				text, err := os.ReadFile(script)
				if err != nil {
					t.Fatal(err)
				}
				put(script, string(text), 0o755)
			}
			put("CHANGELOG.md", c.changelog, 0o644)
			put("gen/openapi.yaml", contract, 0o644)
			if c.frozen != "" {
				put(".github/contract/released/openapi-2.2.0.yaml", c.frozen, 0o644)
			}
			out, err := exec.CommandContext(t.Context(), "sh", filepath.Join(root, ".ci/releasable"), "26.12.0").CombinedOutput()
			if (err == nil) != (c.says == "") || !strings.Contains(string(out), c.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// Two packages built from one commit are identical. The package's settings can be read by root
// only, an upgrade restarts a running service, and removing the package stops it.
func TestThePackageForDebian(t *testing.T) {
	t.Parallel()
	testutil.Program(t, "dpkg-deb")
	folder := t.TempDir()
	program := filepath.Join(folder, "guildhall")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	var packages [2]string
	for i := range packages {
		to := filepath.Join(folder, fmt.Sprint(i))
		run("mkdir", to)
		run("env", "SOURCE_DATE_EPOCH=1800000000", ".ci/deb", "26.12.0", "amd64", program, "CHANGELOG.md", to)
		packages[i] = filepath.Join(to, "guildhall_26.12.0_amd64.deb")
	}
	run("cmp", packages[0], packages[1])
	// Packages of two commits without a release have numbers by which apt sees which is newer.
	for _, at := range []string{"1800000000", "1800000001"} {
		run("env", "SOURCE_DATE_EPOCH="+at, ".ci/deb", "devel", "amd64", program, "CHANGELOG.md", folder)
		number := run("dpkg-deb", "--field", filepath.Join(folder, "guildhall_devel_amd64.deb"), "Version")
		if number != "0~devel."+at+"\n" {
			t.Errorf("the package of a commit at %s has the version %s", at, number)
		}
	}
	rootsAlone := regexp.MustCompile(`(?m)^-rw------- root/root .* \./etc/guildhall/env$`)
	if list := run("dpkg-deb", "--contents", packages[0]); !rootsAlone.MatchString(list) {
		t.Errorf("the package holds\n%s", list)
	}
	if list := run("dpkg-deb", "--contents", packages[0]); !strings.Contains(list, "./usr/share/doc/guildhall/NOTICES.txt\n") {
		t.Errorf("the package has no notices:\n%s", list)
	}
	control := filepath.Join(folder, "control")
	run("dpkg-deb", "--control", packages[0], control)
	// A fake systemctl that records its arguments, on a machine that seems to have systemd.
	for script, calls := range map[string]string{
		"postinst configure":    "daemon-reload",
		"prerm upgrade 26.12.1": "",
		"prerm remove":          "disable --now guildhall",
		"postrm remove":         "daemon-reload",
	} {
		words := strings.Fields(script)
		text, err := os.ReadFile(filepath.Join(control, words[0]))
		if err != nil {
			t.Fatal(err)
		}
		here := "systemctl() { echo \"$*\"; }\n" + strings.ReplaceAll(string(text), "/run/systemd/system", folder)
		if out := run("sh", append([]string{"-c", here, words[0]}, words[1:]...)...); strings.TrimSpace(out) != calls {
			t.Errorf("%s asks systemctl for %q, want %q", script, out, calls)
		}
	}
}

// The notices contain the licence of every module that is linked into the program.
func TestTheNoticesNameEveryLinkedModule(t *testing.T) {
	t.Parallel()
	notices, err := exec.CommandContext(t.Context(), ".ci/notices").Output()
	if err != nil {
		t.Fatal(err)
	}
	const format = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}"
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/guildhall").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range slices.Compact(slices.Sorted(strings.Lines(string(list)))) {
		if module = strings.TrimSpace(module); module != "" && !strings.Contains(string(notices), "=== "+module+" ===\n\n--- ") {
			t.Errorf("the notices lack %s", module)
		}
	}
}
