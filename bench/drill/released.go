package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// firstRelease is the subject of the commit that a drill begins with as long as no
// release is tagged.
const firstRelease = "Release the first version of the contract"

// errNoRelease says what the drill needs.
var errNoRelease = errors.New("the last release is not in this checkout's history: clone the repository in full, or git fetch --unshallow --tags")

// released builds the program of the last release from this checkout's history.
func (p place) released(ctx context.Context) (old place, remove func(), err error) {
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return p, nil, errNoRelease
	}
	commit, err := lastRelease(ctx, root, p.release)
	if err != nil {
		return p, nil, err
	}
	folder, err := os.MkdirTemp("", "guildhall-drill-")
	if err != nil {
		return p, nil, err
	}
	remove = func() { _ = os.RemoveAll(folder) }
	source, archive := filepath.Join(folder, "source"), filepath.Join(folder, "source.tar")
	if err := os.Mkdir(source, 0o755); err != nil {
		remove()
		return p, nil, err
	}
	old = p
	old.program = filepath.Join(folder, "guildhall")
	for _, step := range []struct {
		dir   string
		words []string
	}{
		{root, []string{"git", "archive", "--output", archive, commit}},
		{source, []string{"tar", "-xf", archive}},
		{source, []string{"go", "build", "-buildvcs=false", "-ldflags", "-X main.version=" + commit[:12], "-o", old.program, "./cmd/guildhall"}},
	} {
		cmd := exec.CommandContext(ctx, step.words[0], step.words[1:]...)
		cmd.Dir = step.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			remove()
			return p, nil, fmt.Errorf("build the last release: %s: %w: %s", strings.Join(step.words, " "), err, out)
		}
	}
	return old, remove, nil
}

// lastRelease is the commit of the newest tagged release that does not hold what is
// checked out, or of the first release, unless another one is named.
func lastRelease(ctx context.Context, root, named string) (commit string, err error) {
	if named != "" {
		return git(ctx, root, "rev-parse", "--verify", named+"^{commit}")
	}
	tags, err := git(ctx, root, "tag", "--list", "v*", "--sort=-version:refname", "--no-contains", "HEAD")
	if err != nil {
		return "", err
	}
	if newest, _, _ := strings.Cut(tags, "\n"); newest != "" {
		return git(ctx, root, "rev-parse", "--verify", newest+"^{commit}")
	}
	commit, err = git(ctx, root, "log", "--format=%H", "--max-count=1", "--grep=^"+firstRelease+"$")
	if err == nil && commit == "" {
		err = errNoRelease
	}
	return commit, err
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
