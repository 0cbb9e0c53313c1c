package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// README.md's table has every command, and none that there is not: in its first
// column, or behind "also" those that stand beside that one.
func TestTheReadmeListsEveryCommand(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{})
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, command := range parser.Model.Leaves(true) {
		there = append(there, command.Path())
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	path := regexp.MustCompile("`(?:guildhall )?([a-z-]+(?: [a-z]+)*)[^`]*`")
	for line := range strings.Lines(string(readme)) {
		if !strings.HasPrefix(line, "| `guildhall ") {
			continue
		}
		call, does, _ := strings.Cut(line, " | ")
		var group string
		for _, m := range path.FindAllStringSubmatch(call, -1) {
			told = append(told, m[1])
			group, _, _ = strings.Cut(m[1], " ")
		}
		_, also, _ := strings.Cut(does, "; also ")
		for _, m := range path.FindAllStringSubmatch(also, -1) {
			told = append(told, group+" "+m[1])
		}
	}
	slices.Sort(there)
	slices.Sort(told)
	if !slices.Equal(told, there) {
		t.Errorf("README.md lists\n%q,\nthere are\n%q", told, there)
	}
}
