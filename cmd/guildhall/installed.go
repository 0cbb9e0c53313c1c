package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// installedSettings is the file with the settings of an installation. Tests use another file, or
// none.
var installedSettings = "/etc/guildhall/env"

// installed returns a resolver that reads flags from a file of settings, so that commands work in a
// shell on a server. The file is used by commands on an existing database if neither the
// environment nor the command line names a database and no guildhall dev runs in the directory. A
// file without read permission is ignored.
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

// ownsDatabase reports whether the command embeds connection and nothing names its database.
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

// readSettings parses lines of the form NAME=value as systemd and a shell do, with or without
// quotes.
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
