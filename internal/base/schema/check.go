package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/wire"
)

// maxPlaces is how many offending places one message names.
const maxPlaces = 5

func init() {
	// kin-openapi's own check is a pattern that lets 30 February through.
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(s string) error {
		_, err := wire.ParseTime(s)
		return err
	}))
}

// Check holds the value that Read has returned against a schema, takes out of it
// what says as much as leaving it out, and adds what is wrong to what Read has
// found.
func Check(s *openapi3.Schema, value any, found []Problem) []Problem {
	found = append(found, settle("", s, value)...)
	for _, p := range Visit(s, value) {
		found = once(found, p)
	}
	return found
}

// once adds a problem to those that were found. One complaint about a place is enough, and
// the first is the plainer one.
func once(found []Problem, p Problem) []Problem {
	if slices.ContainsFunc(found, func(first Problem) bool { return first.Place == p.Place }) {
		return found
	}
	return append(found, p)
}

// Describe is a message that names the first of what was found.
func Describe(found []Problem) string {
	texts := make([]string, len(found))
	for i, p := range found {
		texts[i] = p.String()
	}
	return Join(texts)
}

// Join makes one message of several, the first of them.
func Join(texts []string) string {
	text := strings.Join(texts[:min(len(texts), maxPlaces)], "; ")
	if n := len(texts) - maxPlaces; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return text
}

// Visit applies a schema and words what it finds. It tells of a rule for the whole
// value only where nothing is wrong in its members: that says more.
func Visit(s *openapi3.Schema, value any) []Problem {
	if s.Not != nil {
		members := *s
		members.Not = nil
		if found := Visit(&members, value); found != nil {
			return found
		}
	}
	err := s.VisitJSON(value, openapi3.MultiErrors())
	if err == nil {
		return nil
	}
	return flatten(err, nil)
}

func flatten(err error, found []Problem) []Problem {
	if many, ok := errors.AsType[openapi3.MultiError](err); ok {
		for _, e := range many {
			found = flatten(e, found)
		}
		return found
	}
	se, ok := errors.AsType[*openapi3.SchemaError](err)
	if !ok {
		return append(found, Problem{"", "does not match the schema"})
	}
	at := ""
	for _, key := range se.JSONPointer() {
		at += "/" + Printable(key)
	}
	return once(found, Problem{at, phrase(se)})
}

// phrase says what the schema wants, and never what was sent.
func phrase(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "type", "nullable":
		if s.Type == nil {
			return "has the wrong type"
		}
		if _, number := e.Value.(json.Number); number && s.Type.Is(openapi3.TypeInteger) { // with more digits than any type takes
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
		if s.Pattern == snowflakes {
			return patternPhrase(s.Pattern) // a mention is longer
		}
		return "must have at most " + several(*s.MaxLength, "character")
	case "minItems":
		return "must have at least " + several(s.MinItems, "item")
	case "maxItems":
		return "must have at most " + several(*s.MaxItems, "item")
	case "minProperties":
		return fmt.Sprintf("must have at least %d of the members %s", s.MinProps, members(s))
	case "maxProperties":
		if len(s.Properties) == 0 {
			return "must have at most " + several(*s.MaxProps, "member")
		}
		return fmt.Sprintf("must have at most %d of the members %s", *s.MaxProps, members(s))
	case "pattern":
		if text, ok := e.Value.(string); ok && strings.HasPrefix(s.Pattern, `^https`) {
			return wire.WrongURL(text).Error()
		}
		return patternPhrase(s.Pattern)
	case "format":
		if s.Format == "date-time" {
			text, _ := e.Value.(string)
			if _, err := wire.ParseTime(text); err != nil {
				return err.Error()
			}
		}
		if s.Type.Is(openapi3.TypeInteger) {
			return "must be an integer" + Bounds(s)
		}
		return "must be in the format " + s.Format
	case "uniqueItems":
		return "must not repeat an item"
	default:
		return "does not match the schema (" + e.SchemaField + ")"
	}
}

// typePhrase is a schema's type with its article.
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

// snowflakes is the pattern of an id of the chat platform.
const snowflakes = `^[1-9][0-9]{0,19}$`

// written is how a string is written that is easily taken for a number.
func written(s *openapi3.Schema) string {
	switch {
	case s.Pattern == snowflakes:
		return `, such as "190320984123768832": as a number an id loses its last digits`
	case s.Format == "date-time":
		return `, such as "2026-01-31T00:00:00Z"`
	}
	return ""
}

// patternPhrase says in words what the patterns mean that callers meet most.
func patternPhrase(pattern string) string {
	switch {
	case pattern == snowflakes:
		return `must be a snowflake: a string of 1 to 20 digits that does not begin with 0, such as "190320984123768832"; ` +
			"of a mention, <@190320984123768832>, the digits alone"
	case strings.HasPrefix(pattern, `^(none|`):
		return "must be none or a snowflake, a string of 1 to 20 digits that does not begin with 0"
	case strings.HasPrefix(pattern, `^[\x20-\x7E]*`):
		return "must be printable ASCII, and not only spaces"
	case pattern == `^[^\x00]*$`:
		return "must hold no U+0000"
	case strings.Contains(pattern, `\x1F`):
		return "must be one line without control characters, with a character that is not blank"
	case strings.Contains(pattern, `[^\x00]*`), strings.Contains(pattern, `[^\u0000]*`):
		return "must contain a character that is not blank, and no U+0000"
	}
	return "must match the pattern " + pattern
}

func members(s *openapi3.Schema) string {
	return strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ")
}

func several(n uint64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Bounds says between what an integer lies.
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
