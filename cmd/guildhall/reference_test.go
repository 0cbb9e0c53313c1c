package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// write makes the tests write the generated pages; go generate sets it.
var write = flag.Bool("write", false, "write the pages that are made of the settings and the commands")

const generated = "made by `go generate ./cmd/guildhall`"

// newParser returns the program's parser of command lines, without kong's own flags.
func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&commands{}, kong.Name("guildhall"), kong.NoDefaultHelp())
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// commandLine returns kong's model of the command line.
func commandLine(t *testing.T) *kong.Application { return newParser(t).Model }

// settings returns the flags of a command that are settings of an installation.
func settings(command *kong.Node) (list []*kong.Flag) {
	for _, flag := range command.Flags {
		if flag.Group != nil {
			list = append(list, flag)
		}
	}
	return list
}

func leaf(t *testing.T, path string) *kong.Node {
	t.Helper()
	all := commandLine(t).Leaves(true)
	i := slices.IndexFunc(all, func(n *kong.Node) bool { return n.Path() == path })
	if i < 0 {
		t.Fatalf("there is no command %s", path)
	}
	return all[i]
}

// groups returns the groups of settings in the order in which help prints them.
func groups(flags []*kong.Flag) (titles []string) {
	for _, flag := range flags {
		if !slices.Contains(titles, flag.Group.Title) {
			titles = append(titles, flag.Group.Title)
		}
	}
	return titles
}

// The generated pages list the program's settings and commands.
func TestReferencePagesAreFresh(t *testing.T) {
	t.Parallel()
	for path, text := range map[string]string{
		"../../docs/operate/settings.md":     settingsPage(t),
		"../../docs/operate/commands.md":     commandsPage(t),
		"../../deploy/guildhall.env.example": exampleOfSettings(t),
	} {
		if *write {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, []byte(text)) {
			t.Errorf("%s is stale: run make generate", path)
		}
	}
}

func settingsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Settings\n\n<!-- %s from cmd/guildhall/config.go -->\n\n"+
		"Each setting of `guildhall serve` is a variable and a flag: `GUILDHALL_HTTP_LISTEN` is\n`--http-listen`. "+
		"The flag wins. The defaults are those of `serve`.\n\n"+
		"A misspelt variable ends every command with exit code 2: one that begins with `GUILDHALL_`, is no\n"+
		"setting, and is at most two letters off one. Of others with that prefix `serve` and `doctor` warn.\n\n"+
		"[guildhall.env.example](../../deploy/guildhall.env.example) has them all, to fill in. Traces have\n"+
		"the [standard variables of OpenTelemetry](observe.md#traces).\n", generated)
	flags := settings(leaf(t, "serve"))
	for _, group := range groups(flags) {
		fmt.Fprintf(&b, "\n## %s\n\n| Variable | Default | Meaning |\n|---|---|---|\n", group)
		for _, f := range flags {
			if f.Group.Title == group {
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Tag.Envs[0], fallback(f), cell(f.Help))
			}
		}
	}
	return b.String()
}

// fallback returns a flag's default as shown in a table.
func fallback(f *kong.Flag) string {
	if f.Default == "" {
		return "–"
	}
	return "`" + f.Default + "`"
}

// cell escapes a text for a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func exampleOfSettings(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Settings of guildhall, for /etc/guildhall/env (root:root, 0600).\n"+
		"# Lines with a value are the defaults. This file is %s.\n", generated)
	flags := settings(leaf(t, "serve"))
	for _, group := range groups(flags) {
		fmt.Fprintf(&b, "\n## %s\n", group)
		for _, f := range flags {
			if f.Group.Title != group {
				continue
			}
			b.WriteString("\n")
			for _, line := range wrapped(f.Help, 96) {
				fmt.Fprintf(&b, "# %s\n", line)
			}
			fmt.Fprintf(&b, "#%s=%s\n", f.Tag.Envs[0], f.Default)
		}
	}
	return b.String()
}

func wrapped(text string, columns int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > columns {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

func commandsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "# Commands\n\n<!-- %s from cmd/guildhall -->\n\n"+
		"Every command answers `--help`, prints one line on standard error when it fails, and exits with\n"+
		"1, or with 2 for wrong usage, such as a flag that is given without a value (`--allow-ip \"\"`).\n"+
		"Output escapes unprintable characters.\n\n"+
		"Commands that work on data use `GUILDHALL_DATABASE_URL` (`--database-url`), or the `guildhall dev`\n"+
		"that runs in this folder, or in that of `--dir`. `--json` prints JSON for programs.\n", generated)
	group := ""
	for _, c := range commandLine(t).Leaves(true) {
		if title := c.ClosestGroup().Title; title != group {
			group = title
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		fmt.Fprintf(&b, "\n### guildhall %s\n\n%s\n", c.Path(), strings.Join(wrapped(c.Help, 100), "\n"))
		if c.Detail != "" {
			fmt.Fprintf(&b, "\n%s\n", strings.Join(wrapped(strings.ReplaceAll(c.Detail, "\n", " "), 100), "\n"))
		}
		writeOptions(&b, c)
	}
	return b.String()
}

// writeOptions lists the options of a command that are not settings.
func writeOptions(b *strings.Builder, c *kong.Node) {
	var rows []string
	for _, p := range c.Positional {
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", strings.ToUpper(p.Name), cell(p.Help)))
	}
	for _, f := range c.Flags {
		if f.Group != nil || f.Name == "dir" && len(settings(c)) > 0 {
			continue // the page lists these at its beginning
		}
		call := "--" + f.Name
		switch {
		case f.Enum != "":
			call += " " + strings.Trim(strings.ReplaceAll(f.Enum, ",", "|"), "|")
		case !f.IsBool():
			call += " " + strings.Trim(f.FormatPlaceHolder(), `"`)
		}
		help := f.Help
		if f.Required {
			help += " Required."
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", cell(call), cell(help)))
	}
	if len(rows) > 0 {
		fmt.Fprintf(b, "\n| Option | Meaning |\n|---|---|\n%s\n", strings.Join(rows, "\n"))
	}
	if len(settings(c)) > 2 {
		b.WriteString("\nIts other flags are the [settings](settings.md).\n")
	}
}

// A setting has the same text and group in every command, and the text is short enough for a table
// and a terminal.
func TestEverySettingHasOneShortTextAndAGroup(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, path := range []string{"serve", "dev", "doctor"} {
		for _, f := range leaf(t, path).Flags {
			if len(f.Tag.Envs) == 0 {
				continue
			}
			name := f.Tag.Envs[0]
			if f.Group == nil {
				t.Errorf("%s of %s has no group", name, path)
			}
			if n := len(strings.Fields(f.Help)); n == 0 || n > 25 {
				t.Errorf("the text of %s has %d words", name, n)
			}
			if other, ok := texts[name]; ok && other != f.Help {
				t.Errorf("%s has two texts:\n%s\n%s", name, other, f.Help)
			}
			texts[name] = f.Help
			if want := variablePrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")); name != want {
				t.Errorf("--%s is %s, want %s", f.Name, name, want)
			}
		}
	}
	for _, c := range commandLine(t).Leaves(true) {
		if c.Help == "" || c.ClosestGroup() == nil {
			t.Errorf("%s has no help or no group", c.Path())
		}
	}
}
