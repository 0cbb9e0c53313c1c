package schema

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// nullIsValue marks an optional member of which null is a value. Null of any other
// optional member says the same as leaving the member out.
const nullIsValue = "x-null-is-value"

// namesMatch is the pattern of the names of an object that takes any; a schema of
// OpenAPI 3.0 has no word for it.
const namesMatch = "x-property-names"

// settle takes out of a body what needs a better message than the schema's
// checker has: unknown members, each with the one that may be meant, and null
// where it says as much as leaving the member out. Of what has exactly one of some
// members it says so.
func settle(place string, s *openapi3.Schema, value any) (found []Problem) {
	switch v := value.(type) {
	case map[string]any:
		if pattern, ok := s.Extensions[namesMatch].(string); ok {
			return misnamed(place, pattern, v)
		}
		if s.Type == nil || !s.Type.Is(openapi3.TypeObject) || s.AdditionalProperties.Has == nil || *s.AdditionalProperties.Has {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := place + "/" + Printable(name)
			member, known := s.Properties[name]
			switch {
			case !known:
				found = append(found, Problem{at, "is not a member of this object; " + meant(name, s)})
				delete(v, name)
			case v[name] == nil && !slices.Contains(s.Required, name) && member.Value.Extensions[nullIsValue] != true:
				delete(v, name)
			default:
				found = append(found, settle(at, member.Value, v[name])...)
			}
		}
		found = append(found, oneOf(place, s, v)...)
	case []any:
		if s.Items != nil {
			for i, item := range v {
				found = append(found, settle(fmt.Sprintf("%s/%d", place, i), s.Items.Value, item)...)
			}
		}
	}
	return found
}

// misnamed takes out of an object the members whose names are not as they must be.
func misnamed(place, pattern string, object map[string]any) (found []Problem) {
	legal := regexp.MustCompile(pattern)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !legal.MatchString(name) {
			found = append(found, Problem{place + "/" + Printable(name), "must have a name of 1 to 40 lower-case letters, digits, _, . and -"})
			delete(object, name)
		}
	}
	return found
}

// meant says which member of an object an unknown name may stand for.
func meant(name string, s *openapi3.Schema) string {
	names := slices.Sorted(maps.Keys(s.Properties))
	if near := Nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	return "its members are " + strings.Join(names, ", ")
}

// Nearest is the known name that a misspelt one is likely to stand for; empty
// when there is none.
func Nearest(name string, known []string) string {
	best, least := "", 3
	plain := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
	}
	for _, k := range known {
		if d := Distance(plain(name), plain(k)); d < least && d*3 <= len(k)+1 {
			best, least = k, d
		}
	}
	return best
}

// Distance counts the letters to insert, delete or change; long texts are far.
func Distance(a, b string) int {
	if len(a) > 40 || len(b) > 40 {
		return 40
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := last
			if a[i] != b[j] {
				change++
			}
			last = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// oneOf reports an object that does not have exactly one of several members. A schema
// says so by a `not` that requires all of them, beside minProperties; checked alone,
// these two rules would not say which members are meant.
func oneOf(place string, s *openapi3.Schema, object map[string]any) []Problem {
	if s.Not == nil || len(s.Not.Value.Required) < 2 {
		return nil
	}
	given, names := 0, s.Not.Value.Required
	for _, name := range names {
		if _, has := object[name]; has {
			given++
		}
	}
	if given == 1 {
		return nil
	}
	return []Problem{{place, "must have exactly one of " + strings.Join(names, " and ")}}
}
