package gen_test

import (
	"io/fs"
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
	var files []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{"node_modules", "bin", "build", "dist", ".git", "testdata"}, d.Name()) {
			return fs.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasSuffix(target, "/releases") {
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
