package testutil

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Font is a font family in which tests render pages.
type Font struct {
	Name   string
	Config string // path of a fontconfig file that lists only this family
}

// fontFiles lists the font families that distributions install with a browser, with the prefixes of
// the file names of their proportional and monospaced fonts.
var fontFiles = []struct {
	name    string
	regular string
	files   []string
}{
	{"DejaVu", "DejaVuSans.ttf", []string{"DejaVuSans"}},
	{"Liberation", "LiberationSans-Regular.ttf", []string{"LiberationSans-", "LiberationMono-"}},
	{"Noto Sans", "NotoSans-Regular.ttf", []string{"NotoSans-", "NotoSansMono-"}},
}

// Fonts writes a fontconfig file for each font family that is installed and returns the
// families. A browser whose FONTCONFIG_FILE names such a file shows a page as it looks on
// a machine that has this family alone. Where no family is installed, Fonts returns one
// font without a fontconfig file: the machine's own.
func Fonts(t testing.TB) []Font {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	installed := map[string]string{} // paths of font files by base name
	for _, dir := range []string{"/usr/share/fonts", "/usr/local/share/fonts"} {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				installed[e.Name()] = path
			}
			return nil // skip a directory that cannot be read
		})
	}
	var fonts []Font
	for _, family := range fontFiles {
		if installed[family.regular] == "" {
			continue
		}
		dir := filepath.Join(t.TempDir(), "fonts")
		must(os.Mkdir(dir, 0o755))
		for name, path := range installed {
			for _, prefix := range family.files {
				if strings.HasPrefix(name, prefix) {
					must(os.Symlink(path, filepath.Join(dir, name)))
				}
			}
		}
		config := filepath.Join(filepath.Dir(dir), "fonts.conf")
		must(os.WriteFile(config, fmt.Appendf(nil,
			"<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>\n", dir, filepath.Join(filepath.Dir(dir), "cache")), 0o600))
		fonts = append(fonts, Font{family.name, config})
	}
	if len(fonts) == 0 {
		return []Font{{Name: "the machine's own font"}}
	}
	return fonts
}
