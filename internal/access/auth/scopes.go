package auth

import (
	"slices"
	"strings"
	"unicode"

	"guildhall/internal/base/fault"
)

// Scopes lists all scopes that a token can have. There is no wildcard.
var Scopes = []string{
	"guild:read",
	"members:read",
	"members:write",
	"cases:read",
	"cases:write",
	"economy:read",
	"economy:write",
	"levelling:read",
	"levelling:write",
	"tickets:read",
	"tickets:write",
	"giveaways:read",
	"giveaways:write",
	"network:read",
	"webhooks:manage",
}

// keyScopes lists the scopes of every bot key.
var keyScopes = append(slices.Clone(Scopes), ScopeBot)

// ParseScopes parses scopes; each string may contain several, separated by commas or white space.
// It returns each scope once, in the order of Scopes.
func ParseScopes(lists ...string) ([]string, error) {
	given := splitList(lists)
	if len(given) == 0 {
		return nil, fault.New(fault.Invalid, "invalid_request", "A token needs at least one scope. The scopes are: %s.", strings.Join(Scopes, ", "))
	}
	for _, s := range given {
		if !slices.Contains(Scopes, s) {
			return nil, fault.New(fault.Invalid, "invalid_request", "%q is not a scope. The scopes are: %s.", s, strings.Join(Scopes, ", "))
		}
	}
	var scopes []string
	for _, s := range Scopes {
		if slices.Contains(given, s) {
			scopes = append(scopes, s)
		}
	}
	return scopes, nil
}

// splitList splits typed lists at commas and white space.
func splitList(lists []string) []string {
	var all []string
	for _, list := range lists {
		all = append(all, strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })...)
	}
	return all
}
