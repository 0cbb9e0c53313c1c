// Package embedded runs a private Postgres server: it finds the machine's Postgres programs,
// creates a data directory, and starts and stops a server that only the owner of the directory can
// reach. `guildhall dev` and the tests use it. It contains no SQL and no driver.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Oldest is the oldest major version of Postgres that Guildhall works with.
const Oldest = 15

// ErrNoPrograms is returned when the machine has no usable Postgres programs.
var ErrNoPrograms = fmt.Errorf("no Postgres server programs (version %d or newer) were found: run `make postgres`, or install Postgres with the system's package manager", Oldest)

// Programs is one installation of the Postgres server programs.
type Programs struct {
	Dir   string // the directory with postgres and initdb
	Major int
}

// folders are the directories where packages install the server programs if not in the PATH.
var folders = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // PostgreSQL's own RPMs
	"/usr/libexec/postgresql*",                           // Alpine
	"/usr/lib/postgresql*/bin",                           // SUSE, Alpine
	"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew on Apple silicon
	"/opt/homebrew/Cellar/postgresql*/*/bin",             // Homebrew, by version
	"/usr/local/opt/postgresql*/bin",                     // Homebrew on Intel
	"/usr/local/Cellar/postgresql*/*/bin",                // Homebrew on Intel, by version
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

// Find returns the programs to use: those in the PATH, or else the newest in the usual directories.
// A major other than 0 must match exactly, because only the same major version can read a data
// directory.
func Find(ctx context.Context, major int) (Programs, error) {
	all := installed(ctx)
	for _, p := range all {
		if major == 0 || p.Major == major {
			return p, nil
		}
	}
	if len(all) > 0 {
		return Programs{}, fmt.Errorf("the database folder was made by Postgres %d, and only version %d is installed: install Postgres %d, or remove the folder to start afresh", major, all[0].Major, major)
	}
	return Programs{}, ErrNoPrograms
}

// installed returns the usable installations, the preferred one first.
func installed(ctx context.Context) []Programs {
	var found []Programs
	seen := map[string]bool{}
	add := func(list *[]Programs, dir string) {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[resolved] {
			return
		}
		seen[resolved] = true
		if major, err := serverVersion(ctx, resolved); err == nil && major >= Oldest {
			*list = append(*list, Programs{Dir: resolved, Major: major})
		}
	}
	for _, name := range []string{"postgres", "initdb"} {
		if path, err := exec.LookPath(name); err == nil {
			if program, err := filepath.EvalSymlinks(path); err == nil {
				add(&found, filepath.Dir(program))
			}
		}
	}
	var packaged []Programs
	for _, pattern := range folders {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			panic(err) // cannot fail: the patterns are constants
		}
		for _, dir := range dirs {
			add(&packaged, dir)
		}
	}
	slices.SortStableFunc(packaged, func(a, b Programs) int { return b.Major - a.Major })
	return append(found, packaged...)
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

func serverVersion(ctx context.Context, dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, err
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return 0, errors.New("not a Postgres server")
	}
	return strconv.Atoi(string(m[1]))
}
