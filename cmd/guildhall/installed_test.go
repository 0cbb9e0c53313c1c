package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// In a shell on a server a command reads the database from the installation's file of settings. The
// environment and the command line take precedence, and serve, which gets its settings from
// systemd, does not read the file.
func TestCommandsReadTheSettingsOfTheInstallation(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	file := filepath.Join(t.TempDir(), "env")
	text := "# settings\n\nGUILDHALL_DATABASE_URL='" + url + "'\nGUILDHALL_SECRET_KEY=" + someKey(t) +
		"\nGUILDHALL_DISCORD_URL=off\nGUILDHALL_TRUSTED_PROXIES=127.0.0.1\nPATH=/nowhere\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const away = "postgres://u@127.0.0.1:1/away"
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		says string
	}{
		"a list":                {nil, []string{"token", "list", "--guild", guild}, 0, ""},
		"doctor":                {nil, []string{"doctor"}, 0, "the settings can be used"},
		"the variable":          {[]string{"GUILDHALL_DATABASE_URL=" + away}, []string{"token", "list", "--guild", guild}, 1, "127.0.0.1:1"},
		"the command line":      {nil, []string{"token", "list", "--guild", guild, "--database-url", away}, 1, "127.0.0.1:1"},
		"a file that is absent": {[]string{"GUILDHALL_TEST_SETTINGS=" + file + "x"}, []string{"guild", "list"}, 1, "/etc/guildhall/env"},
		"serve":                 {nil, []string{"serve"}, 1, "GUILDHALL_DATABASE_URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := begin(t, t.TempDir(), append([]string{"GUILDHALL_TEST_SETTINGS=" + file}, c.env...), c.args...)
			if code := p.exits(t, time.Minute); code != c.code {
				out, errs := p.text()
				t.Errorf("it exits with %d: %s %s", code, out, errs)
			}
			if c.says != "" {
				p.says(t, c.says)
			}
		})
	}
}
