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

// Variables with that prefix that are no settings, and that may be set where this
// program runs: an orchestrator's of a service that is named guildhall, the tests',
// and those that the examples and the documents have people set.
var (
	foreignPrefixes = []string{"GUILDHALL_SERVICE_", "GUILDHALL_PORT", "GUILDHALL_TEST_"}
	foreign         = []string{
		"GUILDHALL_RECEIVER", "GUILDHALL_INBOX", "GUILDHALL_SOURCE", "GUILDHALL_HOST",
	}
)

// typos is up to how many letters a variable's name may be off one of ours to be
// taken for it.
const typos = 2

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
			slices.ContainsFunc(foreignPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
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

// nearest is the one of the names that is the fewest letters off, empty when none
// is near.
func nearest(name string, of []string) (meant string) {
	best := typos + 1
	for _, one := range of {
		if d := schema.Distance(name, one); d < best {
			best, meant = d, one
		}
	}
	return meant
}
