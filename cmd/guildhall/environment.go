package main

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"guildhall/internal/base/schema"
)

// variablePrefix is how the variables of settings begin.
const variablePrefix = "GUILDHALL_"

// Variables with that prefix that are no settings: those that Kubernetes sets for services
// whose names begin with guildhall (GUILDHALL_TLS_PORT_8443_TCP), those of the tests, and
// those that the examples and the documents have people set.
var (
	foreignParts = []string{"_PORT", "_SERVICE_", "GUILDHALL_TEST_"}
	foreign      = []string{
		"GUILDHALL_RECEIVER", "GUILDHALL_INBOX", "GUILDHALL_SOURCE", "GUILDHALL_HOST",
	}
)

// maxTypos is how many letters a variable's name may differ from a setting's to be taken
// for a misspelling of it: a third of the letters after the prefix, and at most two.
func maxTypos(name string) int { return min(2, len(strings.TrimPrefix(name, variablePrefix))/3) }

// noSettings warns of variables that look like ours and mean nothing here, as those
// of a newer release do after a roll-back. Empty: there are none.
type noSettings string

// checkEnvironment refuses a variable that must be meant for a setting of ours, and
// returns what to warn of.
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

// variables are those that commands take their settings from.
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

// nearest returns the setting's name from which name differs in the fewest letters, and
// nothing when none is near.
func nearest(name string, of []string) (meant string) {
	best := maxTypos(name) + 1
	for _, one := range of {
		if d := schema.Distance(name, one); d < best {
			best, meant = d, one
		}
	}
	return meant
}
