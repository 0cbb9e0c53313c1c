package gen_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link      = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fence     = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	unslugged = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the names by which the headings of a Markdown text are linked.
func anchors(text string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := unslugged.ReplaceAllString(strings.ToLower(linkTarget.ReplaceAllString(m[1], "]")), "")
		names = append(names, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return names
}

// Each link between the documents leads to a file that is there, and to one of its headings.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	for _, file := range filesIn(t, "..", func(path string) bool { return strings.HasSuffix(path, ".md") && !isTestdata(path) }) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasSuffix(target, "/releases") || strings.HasPrefix(target, "../../actions/") {
				continue // elsewhere: the hosting's pages too
			}
			links++
			to := filepath.Join(filepath.Dir(file), target)
			if target == "" {
				to = file
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
				continue
			}
			if anchor == "" || !strings.HasSuffix(to, ".md") {
				continue
			}
			there, err := os.ReadFile(to)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(anchors(string(there)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", file, m[1])
			}
		}
	}
	if links < 80 {
		t.Errorf("only %d links were found", links)
	}
}

// The pictures that README shows are there, small enough for a page, and in light and dark.
func TestTheReadmesPicturesAreThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`docs/pictures/[a-z-]+\.(?:png|svg)`).FindAllString(string(text), -1)
	if len(shown) < 3 {
		t.Fatalf("README.md shows %q", shown)
	}
	for _, picture := range shown {
		info, err := os.Stat(filepath.Join("..", picture))
		if err != nil || info.Size() > 200<<10 {
			t.Errorf("%s: %v, %v", picture, info, err)
		}
		if other := strings.NewReplacer("-light", "-dark", "-dark", "-light").Replace(picture); !slices.Contains(shown, other) {
			t.Errorf("README.md shows %s and not %s", picture, other)
		}
	}
}

// The build of the site takes a link to a folder for a dead page, but for the folders that its
// configuration names.
func TestTheSiteKnowsLinksToFolders(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../docs/.vitepress/config.mjs")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`const folders = \[(.*)\];`).FindSubmatch(config)
	if list == nil {
		t.Fatal("config.mjs names no folders")
	}
	var folders []string
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllSubmatch(list[1], -1) {
		folders = append(folders, string(m[1]))
	}
	found := 0
	for _, file := range proseFiles(t, readmes(t)...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || filepath.Ext(target) != "" || strings.Contains(target, "://") || strings.HasSuffix(target, "/releases") {
				continue
			}
			found++
			if !slices.ContainsFunc(folders, func(folder string) bool {
				_, err := os.Stat(filepath.Join("..", folder, target))
				return err == nil
			}) {
				t.Errorf("%s links to %s, which no folder of config.mjs leads to", file, target)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d links to folders were found", found)
	}
}

// readmes are the pages outside docs.
func readmes(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "../*/README.md", "../*/*/README.md", "../*/*/*/README.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, slices.DeleteFunc(found, func(file string) bool {
			return strings.HasPrefix(file, "../docs/") || strings.Contains(file, "/node_modules/") || strings.HasPrefix(file, "../build/")
		})...)
	}
	return files
}

// npm refuses a lock that lacks a package for another machine than the one that made it.
func TestLocksHoldThePackagesOfEveryMachine(t *testing.T) {
	t.Parallel()
	locks := filesIn(t, "..", func(path string) bool { return filepath.Base(path) == "package-lock.json" })
	for _, path := range locks {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Packages map[string]struct {
				OptionalDependencies map[string]string `json:"optionalDependencies"`
			} `json:"packages"`
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			t.Fatal(err)
		}
		for at, p := range lock.Packages {
			for name := range p.OptionalDependencies {
				_, beside := lock.Packages["node_modules/"+name]
				_, below := lock.Packages[at+"/node_modules/"+name]
				if !beside && !below {
					t.Errorf("%s lacks %s, which %s may need", path, name, at)
				}
			}
		}
	}
	if len(locks) < 8 {
		t.Errorf("%d locks were read", len(locks))
	}
}
