package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/wire"
)

const (
	// maxPlaces is how many problems a message names at most.
	maxPlaces = 5
	// maxCounted is how many further problems a message counts at most.
	maxCounted = 500
	// fewItems and fewMembers are how much of a large value is validated first.
	fewItems, fewMembers = 100, 1000
)

func init() {
	// This replaces kin-openapi's own check, a pattern that accepts 30 February.
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(s string) error {
		_, err := wire.ParseTime(s)
		return err
	}))
}

// Check validates a value that Read has returned against a schema. It removes members from
// the value that mean the same as absent ones, and appends the problems to found. It stops when
// there are more problems than a message counts.
func Check(s *openapi3.Schema, value any, found []Problem) []Problem {
	w := normalizer{found: found}
	w.normalize(s, value)
	if w.full() {
		return w.found
	}
	all := problems{list: w.found}
	for _, p := range Visit(s, value) {
		all.add(p)
	}
	return all.list
}

// problems collects at most one problem for each place: the first, which is the most specific.
type problems struct {
	list   []Problem
	places map[string]bool // the places of list; allocated with the first problem
}

func (all *problems) add(p Problem) {
	if all.places == nil {
		all.places = make(map[string]bool, len(all.list)+1)
		for _, other := range all.list {
			all.places[other.Place] = true
		}
	}
	if !all.places[p.Place] {
		all.places[p.Place] = true
		all.list = append(all.list, p)
	}
}

// Describe returns a message about the first problems of found.
func Describe(found []Problem) string { return Join(found, Problem.String) }

// Join returns a message about the first problems of found, each formatted by say.
func Join(found []Problem, say func(Problem) string) string {
	texts := make([]string, 0, maxPlaces+1)
	for _, p := range found[:min(len(found), maxPlaces)] {
		texts = append(texts, say(p))
	}
	if n := len(found) - maxPlaces; n > maxCounted {
		texts = append(texts, fmt.Sprintf("and more than %d more", maxCounted))
	} else if n > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(texts, "; ")
}

// Visit checks a value against a schema and returns the problems in our own words. It reports a
// violated rule of an object as a whole only if no member has a problem: a member's problem says
// more. If the beginning of a large value has more problems than a message counts, the rest
// is not validated.
func Visit(s *openapi3.Schema, value any) []Problem {
	if begin, large := beginning(s, value); large {
		if found := visit(s, begin); len(found) > maxPlaces+maxCounted {
			return found
		}
	}
	return visit(s, value)
}

// beginning returns an object without the items of its lists behind the first fewItems, or
// with the members that the schema knows and the first fewMembers by name. It reports whether
// anything was left out.
func beginning(s *openapi3.Schema, value any) (begin map[string]any, large bool) {
	object, _ := value.(map[string]any)
	begin = object
	if len(object) > fewMembers {
		begin = make(map[string]any, fewMembers+len(s.Properties))
		for i, name := range slices.Sorted(maps.Keys(object)) {
			if i < fewMembers || s.Properties[name] != nil {
				begin[name] = object[name]
			}
		}
		return begin, true
	}
	for name, member := range object {
		if list, _ := member.([]any); len(list) > fewItems {
			if !large {
				begin, large = maps.Clone(object), true
			}
			begin[name] = list[:fewItems]
		}
	}
	return begin, large
}

func visit(s *openapi3.Schema, value any) []Problem {
	if s.Not != nil {
		members := *s
		members.Not, members.MinProps = nil, 0
		if found := visit(&members, value); found != nil {
			return found
		}
	}
	err := s.VisitJSON(value, openapi3.MultiErrors())
	if err == nil {
		return nil
	}
	var all problems
	all.flatten(err)
	return all.list
}

// flatten adds the problems that err consists of, one by one.
func (all *problems) flatten(err error) {
	if many, ok := errors.AsType[openapi3.MultiError](err); ok {
		for _, e := range many {
			all.flatten(e)
		}
		return
	}
	se, ok := errors.AsType[*openapi3.SchemaError](err)
	if !ok {
		all.add(Problem{Text: "does not match the schema"})
		return
	}
	if object, _ := se.Value.(map[string]any); se.SchemaField == "minProperties" && !lacksOptional(se.Schema, object) {
		return // a required member is absent, which is a problem of its own
	}
	at := ""
	for _, key := range se.JSONPointer() {
		at += "/" + Printable(key)
	}
	all.add(Problem{Place: at, detail: func() string { return phrase(se) }})
}

// phrase says what the schema requires, and never repeats the value that was sent.
func phrase(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "type", "nullable":
		if s.Type == nil {
			return "has the wrong type"
		}
		if _, number := e.Value.(json.Number); number && s.Type.Is(openapi3.TypeInteger) { // the number has more digits than any integer type
			return "must be an integer" + Bounds(s)
		}
		return "must be " + typePhrase(s) + written(s)
	case "required":
		return "is required"
	case "properties", "additionalProperties":
		return "is not a member of this object"
	case "enum":
		allowed, _ := json.Marshal(s.Enum)
		return "must be one of " + string(allowed)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return "must be an integer" + Bounds(s)
	case "minLength":
		return "must have at least " + several(s.MinLength, "character")
	case "maxLength":
		switch s.Pattern { // a mention is longer than an id may be
		case snowflakes, lookups, days, names:
			return patternPhrase(s.Pattern)
		}
		return "must have at most " + several(*s.MaxLength, "character")
	case "minItems":
		return "must have at least " + several(s.MinItems, "item")
	case "maxItems":
		return "must have at most " + several(*s.MaxItems, "item")
	case "minProperties":
		if s.Not != nil {
			return mustChange(s)
		}
		return mustHave(s, "at least", s.MinProps)
	case "maxProperties":
		if len(s.Properties) == 0 {
			return "must have at most " + several(*s.MaxProps, "member")
		}
		return mustHave(s, "at most", *s.MaxProps)
	case "pattern":
		if text, ok := e.Value.(string); ok && strings.HasPrefix(s.Pattern, `^https`) {
			return wire.WrongURL(text).Error()
		}
		return patternPhrase(s.Pattern)
	case "format":
		return formatPhrase(e)
	case "not":
		return mustChange(s)
	case "uniqueItems":
		return "must not repeat an item"
	default:
		return "does not match the schema (" + e.SchemaField + ")"
	}
}

func formatPhrase(e *openapi3.SchemaError) string {
	if e.Schema.Format == "date-time" {
		text, _ := e.Value.(string)
		if _, err := wire.ParseTime(text); err != nil {
			return err.Error()
		}
	}
	if e.Schema.Type.Is(openapi3.TypeInteger) {
		return "must be an integer" + Bounds(e.Schema)
	}
	return "must be in the format " + e.Schema.Format
}

// lacksOptional reports whether an object has fewer optional members than s demands. minProperties
// also counts the required members.
func lacksOptional(s *openapi3.Schema, object map[string]any) bool {
	optional := len(object)
	for _, name := range s.Required {
		if _, has := object[name]; has {
			optional--
		}
	}
	return optional+len(s.Required) < int(s.MinProps)
}

// mustHave says how many of its optional members an object must have at least or at most, and names
// them. n also counts the required members.
func mustHave(s *openapi3.Schema, bound string, n uint64) string {
	optional := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(name string) bool { return slices.Contains(s.Required, name) })
	if s.MaxProps != nil && *s.MaxProps == s.MinProps {
		bound = "exactly"
	}
	count := strconv.FormatUint(n-uint64(len(s.Required)), 10)
	if count == "1" {
		count = "one"
	}
	return "must have " + bound + " " + count + " of the members " + strings.Join(optional, ", ")
}

// mustChange names the members of a body that change something. The schema lists the others in its
// keyword not.
func mustChange(s *openapi3.Schema) string {
	names := maps.Clone(s.Properties)
	maps.DeleteFunc(names, func(name string, _ *openapi3.SchemaRef) bool { return s.Not.Value.Properties[name] != nil })
	return "must change something, by one of the members " + strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// typePhrase returns a schema's type with its article, such as "an integer".
func typePhrase(s *openapi3.Schema) string {
	t := strings.Join(s.Type.Slice(), " or ")
	article := "a "
	if strings.HasPrefix(t, "i") || strings.HasPrefix(t, "o") || strings.HasPrefix(t, "a") {
		article = "an "
	}
	if s.Nullable {
		t += " or null"
	}
	return article + t
}

// snowflakes is the pattern of the chat platform's ids.
const snowflakes = `^[1-9][0-9]{0,19}$`

// lookups is the pattern of a list's query parameter metadata.
const lookups = `^[a-z0-9_.-]{1,40}:[^\x00]{0,500}$`

// days is the pattern of a date without a time.
const days = `^2[0-9]{3}-[0-9]{2}-[0-9]{2}$`

// names is the pattern of a stream's name.
const names = `^[a-z0-9-]{1,32}$`

// written describes how to write a string that callers often send as a number.
func written(s *openapi3.Schema) string {
	switch {
	case s.Pattern == snowflakes:
		return `, such as "190320984123768832": as a number an id loses its last digits`
	case s.Format == "date-time":
		return `, such as "2026-01-31T00:00:00Z"`
	}
	return ""
}

// patternPhrase describes in words the patterns that callers violate most often.
func patternPhrase(pattern string) string {
	switch {
	case pattern == snowflakes:
		return `must be a snowflake: a string of 1 to 20 digits that does not begin with 0, such as "190320984123768832"; ` +
			"of a mention, <@190320984123768832>, the digits alone"
	case pattern == lookups:
		return "must be a name, a colon and a value, such as shop.order:4711; the name has 1 to 40 lower-case letters, digits, _, . and -, " +
			"the value at most 500 characters"
	case strings.HasPrefix(pattern, `^(none|`):
		return "must be none or a snowflake, a string of 1 to 20 digits that does not begin with 0"
	case strings.HasPrefix(pattern, `^[\x20-\x7E]*`):
		return "must be printable ASCII, and not only spaces"
	case pattern == days:
		return "must be a date, such as 2026-11-23"
	case pattern == names:
		return "must have 1 to 32 lower-case letters, digits and -"
	case pattern == `^[ -~]*$`:
		return "must be printable ASCII"
	case pattern == `^[0-9a-fA-F]{64}$`:
		return "must have 64 hexadecimal digits"
	case pattern == `^[^\x00]*$`:
		return "must hold no U+0000"
	case strings.Contains(pattern, `\x1F`):
		return "must be one line without control characters, with a character that is not blank"
	case strings.Contains(pattern, `[^\x00]*`), strings.Contains(pattern, `[^\u0000]*`):
		return "must contain a character that is not blank, and no U+0000"
	}
	return "must match the pattern " + pattern
}

func several(n uint64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Bounds describes the range of an integer.
func Bounds(s *openapi3.Schema) string {
	text := ""
	if s.Min != nil {
		text += fmt.Sprintf(", at least %.0f", *s.Min)
	}
	if s.Max != nil {
		text += fmt.Sprintf(", at most %.0f", *s.Max)
	}
	return text
}
