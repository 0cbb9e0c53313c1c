package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// installedSettings is where an installation on a server has its settings. Tests have
// another file, or none.
var installedSettings = "/etc/guildhall/env"

// installed resolves flags from a file of settings, so that commands work in a new shell
// of a server. The file counts for the commands that work on an existing database, where
// neither the environment nor the command line names one and no guildhall dev runs in
// the folder. A file that may not be read counts as none.
func installed(path string) kong.Resolver {
	var settings map[string]string
	return kong.ResolverFunc(func(ctx *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if path == "" || len(flag.Envs) == 0 || !ownsDatabase(ctx) {
			return nil, nil
		}
		if settings == nil {
			settings = readSettings(path)
		}
		for _, name := range flag.Envs {
			if value, ok := settings[name]; ok && os.Getenv(name) == "" {
				return value, nil
			}
		}
		return nil, nil
	})
}

// ownsDatabase reports whether the command finds its database by itself: it is one that
// embeds connection, and nothing names the database.
func ownsDatabase(ctx *kong.Context) bool {
	if os.Getenv("GUILDHALL_DATABASE_URL") != "" || ctx.Selected() == nil || ctx.Selected().Name == "dev" {
		return false
	}
	dir, found := "", false
	for _, flag := range ctx.Flags() {
		found = found || flag.Name == "dir"
	}
	if !found {
		return false
	}
	dir = ".guildhall"
	for i, arg := range ctx.Args {
		switch {
		case arg == "--database-url" || strings.HasPrefix(arg, "--database-url="):
			return false
		case strings.HasPrefix(arg, "--dir="):
			dir = strings.TrimPrefix(arg, "--dir=")
		case arg == "--dir" && i+1 < len(ctx.Args):
			dir = ctx.Args[i+1]
		}
	}
	_, err := os.Stat(filepath.Join(dir, runningFile))
	return err != nil
}

// readSettings reads lines NAME=value as systemd and a shell do, with quotes around a
// value or without.
func readSettings(path string) map[string]string {
	settings := make(map[string]string)
	text, err := os.ReadFile(path)
	if err != nil {
		return settings
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || !strings.HasPrefix(name, variablePrefix) {
			continue
		}
		if n := len(value); n > 1 && value[0] == value[n-1] && slices.Contains([]byte{'"', '\''}, value[0]) {
			value = value[1 : n-1]
		}
		settings[name] = value
	}
	return settings
}
