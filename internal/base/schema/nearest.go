package schema

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// nullIsValue marks an optional member for which null is a value of its own. For any other optional
// member null means the same as leaving the member out.
const nullIsValue = "x-null-is-value"

// namesMatch is the pattern for the member names of an object with free names; OpenAPI 3.0 has no
// keyword for it.
const namesMatch = "x-property-names"

// kindsOf is the key under which SetKinds stores the kinds of a schema. The document does not have
// it: OpenAPI 3.0 allows a discriminator only beside oneOf, which generators read in different ways.
const kindsOf = "x-kinds"

// normalizer walks a value and its schema together. It finds the problems for which kin-openapi's
// messages are not good enough, reports them and removes them from the value.
type normalizer struct {
	place []string // the path to the present value, from the outside in
	found []Problem
}

// full reports whether more problems were found than a message counts. The rest is not looked for.
func (w *normalizer) full() bool { return len(w.found) > maxPlaces+maxCounted }

// wrong adds a problem at the present place, or at the named member below it.
func (w *normalizer) wrong(problem Problem, member ...string) {
	for _, name := range append(w.place, member...) {
		problem.Place += "/" + Printable(name)
	}
	w.found = append(w.found, problem)
}

// below normalizes the value of the member called name, and adds name to the place of any problem.
func (w *normalizer) below(name string, s *openapi3.Schema, value any) {
	w.place = append(w.place, name)
	w.normalize(s, value)
	w.place = w.place[:len(w.place)-1]
}

// normalize reports unknown members, each with a suggestion, arrays with too many items, and violated
// exactly-one-of rules. It removes a null that means the same as leaving the member out.
func (w *normalizer) normalize(s *openapi3.Schema, value any) {
	switch v := value.(type) {
	case map[string]any:
		w.object(s, v)
	case []any:
		if s.Items == nil || scalar(s.Items.Value) {
			return
		}
		for i, item := range v {
			if w.full() {
				return
			}
			w.below(strconv.Itoa(i), s.Items.Value, item)
		}
	}
}

// scalar reports whether values of the schema are neither objects nor arrays.
func scalar(s *openapi3.Schema) bool {
	return s.Type != nil && !s.Type.Includes(openapi3.TypeObject) && !s.Type.Includes(openapi3.TypeArray)
}

func (w *normalizer) object(s *openapi3.Schema, v map[string]any) {
	if pattern, ok := s.Extensions[namesMatch].(string); ok {
		w.misnamed(pattern, v)
		return
	}
	if s.Type == nil || !s.Type.Is(openapi3.TypeObject) || s.AdditionalProperties.Has == nil || *s.AdditionalProperties.Has {
		return
	}
	kind := kindOf(s, v)
	for _, name := range slices.Sorted(maps.Keys(v)) {
		member := s.Properties[name]
		switch {
		case w.full():
			return
		case kind.Properties[name] == nil:
			w.wrong(unknown(name, kind), name)
			delete(v, name)
		case v[name] == nil && !slices.Contains(s.Required, name) && member.Value.Extensions[nullIsValue] != true:
			delete(v, name)
		case tooLong(member.Value, v[name]): // the items are not checked: there may be a hundred times too many
			w.wrong(Problem{Text: "must have at most " + several(*member.Value.MaxItems, "item")}, name)
			delete(v, name)
		default:
			w.below(name, member.Value, v[name])
		}
	}
	w.oneOf(s, v)
}

// kinds are the schemas of the kinds of an object, by the value of the member that names the kind.
type kinds struct {
	member  string
	schemas map[string]*openapi3.Schema
}

// SetKinds makes Check report the members of an object that its kind does not have. s has the
// members of all kinds, and member is the one that names the object's kind.
func SetKinds(s *openapi3.Schema, member string, schemas map[string]*openapi3.Schema) {
	s.Extensions = maps.Clone(s.Extensions)
	if s.Extensions == nil {
		s.Extensions = make(map[string]any)
	}
	s.Extensions[kindsOf] = kinds{member, schemas}
}

// kindOf returns the schema of an object's kind, or s itself if s has no kinds. If the object names
// no known kind, kindOf removes all other members: Visit reports the kind, and nobody can say what
// the others must be.
func kindOf(s *openapi3.Schema, object map[string]any) *openapi3.Schema {
	k, has := s.Extensions[kindsOf].(kinds)
	if !has {
		return s
	}
	name, _ := object[k.member].(string)
	if kind := k.schemas[name]; kind != nil {
		return kind
	}
	maps.DeleteFunc(object, func(member string, _ any) bool { return member != k.member })
	return s
}

// tooLong reports whether the value is an array of more items than s allows.
func tooLong(s *openapi3.Schema, value any) bool {
	items, ok := value.([]any)
	return ok && s.MaxItems != nil && uint64(len(items)) > *s.MaxItems
}

// misnamed removes the members of an object whose names do not match pattern, and reports them.
func (w *normalizer) misnamed(pattern string, object map[string]any) {
	legal := regexp.MustCompile(pattern)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if !legal.MatchString(name) {
			w.wrong(Problem{Text: "must have a name of 1 to 40 lower-case letters, digits, _, . and -"}, name)
			delete(object, name)
		}
	}
}

// namesOf caches the Names of each schema's members.
var namesOf sync.Map

// unknown returns the problem of a member that the schema does not have.
func unknown(name string, s *openapi3.Schema) Problem {
	return Problem{Text: "is not a member of this object; ", detail: func() string {
		names, ok := namesOf.Load(s)
		if !ok {
			names, _ = namesOf.LoadOrStore(s, NewNames("its members are ", slices.Collect(maps.Keys(s.Properties))))
		}
		return names.(*Names).Meant(name) //nolint:forcetypeassert // nothing else is stored
	}}
}

// Names holds the known names of members or parameters, prepared for suggestions about unknown
// names.
type Names struct {
	sorted []string
	folded []string // sorted names in the form that fold returns
	all    string   // the sentence that lists all names
}

// NewNames prepares known names. prefix begins the sentence that lists them all.
func NewNames(prefix string, known []string) *Names {
	n := &Names{sorted: slices.Sorted(slices.Values(known)), all: "it has none"}
	if len(known) > 0 {
		n.all = prefix + strings.Join(n.sorted, ", ")
	}
	for _, name := range n.sorted {
		n.folded = append(n.folded, fold(name))
	}
	return n
}

// Unknown returns the problem, at place, of a parameter with an unknown name.
func (n *Names) Unknown(place, name string) Problem {
	return Problem{Place: place, Text: "is not a parameter of this operation; ", detail: func() string { return n.Meant(name) }}
}

// Meant suggests the known name that the unknown name resembles, or else lists all known names.
func (n *Names) Meant(name string) string {
	best, least, folded := "", 3, fold(name)
	for i, known := range n.sorted {
		if d := Distance(folded, n.folded[i]); d < least && d*3 <= len(known)+1 {
			best, least = known, d
		}
	}
	if best == "" {
		return n.all
	}
	return "did you mean " + best + "?"
}

var punctuation = strings.NewReplacer("_", "", "-", "", ".", "")

// fold removes differences of case and punctuation from a name.
func fold(name string) string { return punctuation.Replace(strings.ToLower(name)) }

// Distance returns the edit distance of two names: the letters to insert, delete or change. For
// long texts it returns a large number without computing.
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

// oneOf reports an object that does not have exactly one of several members. A schema expresses
// this by a `not` that requires all of them, and by minProperties. Checked separately, these two
// rules would not name the members.
func (w *normalizer) oneOf(s *openapi3.Schema, object map[string]any) {
	if s.Not == nil || len(s.Not.Value.Required) < 2 {
		return
	}
	given, names := 0, s.Not.Value.Required
	for _, name := range names {
		if _, has := object[name]; has {
			given++
		}
	}
	if given != 1 {
		w.wrong(Problem{Text: "must have exactly one of " + strings.Join(names, " and ")})
	}
}
