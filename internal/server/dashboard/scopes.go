package dashboard

import (
	"slices"
	"strings"

	"guildhall/internal/access/auth"
)

// scopeGroup is a resource with the scopes for it.
type scopeGroup struct {
	Resource string
	Scopes   []scope
}

// scope is one scope with the operations that it allows.
type scope struct {
	Name, Verb string
	Opens      []string
}

// Explain returns what the scope allows, in the words of the API document.
func (s scope) Explain() string { return strings.Join(s.Opens, "; ") }

// groupScopes groups the scopes of reading and writing by resource.
func groupScopes(operations []Operation) []scopeGroup {
	verbs := map[string]string{"read": "Read", "write": "Write", "manage": "Manage"}
	var groups []scopeGroup
	for _, name := range auth.Scopes {
		resource, verb, _ := strings.Cut(name, ":")
		s := scope{Name: name, Verb: verbs[verb]}
		for _, o := range operations {
			if o.Scope == name {
				s.Opens = append(s.Opens, o.Summary)
			}
		}
		title := strings.ToUpper(resource[:1]) + resource[1:]
		i := slices.IndexFunc(groups, func(g scopeGroup) bool { return g.Resource == title })
		if i < 0 {
			groups = append(groups, scopeGroup{Resource: title})
			i = len(groups) - 1
		}
		groups[i].Scopes = append(groups[i].Scopes, s)
	}
	return groups
}

// scopeWords returns scopes as text, one for each resource: "Cases: read, write".
func scopeWords(scopes []string) []string {
	var words []string
	was := ""
	for _, name := range auth.Scopes {
		if !slices.Contains(scopes, name) {
			continue
		}
		resource, verb, _ := strings.Cut(name, ":")
		if resource == was {
			words[len(words)-1] += ", " + verb
			continue
		}
		words, was = append(words, strings.ToUpper(resource[:1])+resource[1:]+": "+verb), resource
	}
	return words
}
