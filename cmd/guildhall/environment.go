package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"guildhall/internal/base/schema"
)

// variablePrefix is the prefix of the settings' environment variables.
const variablePrefix = "GUILDHALL_"

// Variables with that prefix that are no settings: variables that Kubernetes sets for services
// named guildhall… (GUILDHALL_TLS_PORT_8443_TCP), those of the tests, and those that the examples
// and the documents use.
var (
	foreignParts = []string{"_PORT", "_SERVICE_", "GUILDHALL_TEST_"}
	foreign      = []string{
		"GUILDHALL_RECEIVER", "GUILDHALL_INBOX", "GUILDHALL_SOURCE", "GUILDHALL_HOST",
	}
)

// maxTypos returns the edit distance up to which a variable counts as a misspelt setting: a third
// of the letters after the prefix, at most two.
func maxTypos(name string) int { return min(2, len(strings.TrimPrefix(name, variablePrefix))/3) }

// noSettings is a warning about variables with our prefix that are not settings, such as those of a
// newer release after a rollback. Empty: there are none.
type noSettings string

// checkEnvironment returns an error for a variable that is a misspelt setting, and a warning about
// other unknown ones.
func checkEnvironment(environ []string) (note noSettings, err error) {
	ours := variables(reflect.TypeFor[commands]())
	var unknown []string
	for _, assignment := range environ {
		name, _, _ := strings.Cut(assignment, "=")
		if !strings.HasPrefix(name, variablePrefix) || slices.Contains(ours, name) || slices.Contains(foreign, name) ||
			slices.ContainsFunc(foreignParts, func(p string) bool { return strings.Contains(name, p) }) {
			continue
		}
		if meant := nearest(name, ours); meant != "" {
			return "", usageError{fmt.Errorf("%s: there is no such setting; did you mean %s?", name, meant)}
		}
		unknown = append(unknown, name)
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		note = noSettings("the environment has variables that are no settings of this program: " + strings.Join(unknown, ", "))
	}
	return note, nil
}

// variables returns the environment variables of all commands' settings.
func variables(t reflect.Type) (names []string) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if name := f.Tag.Get("env"); name != "" {
			names = append(names, name)
			continue
		}
		names = append(names, variables(f.Type)...)
	}
	return names
}

// nearest returns the setting whose name is the most similar to name, or "" if none is similar.
func nearest(name string, of []string) (meant string) {
	best := maxTypos(name) + 1
	for _, one := range of {
		if d := schema.Distance(name, one); d < best {
			best, meant = d, one
		}
	}
	return meant
}
