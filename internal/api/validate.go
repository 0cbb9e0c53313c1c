package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"guildhall/internal/fault"
	"guildhall/internal/wire"
)

// maxPlaces is how many offending places one message names.
const maxPlaces = 5

var digits = regexp.MustCompile(`^-?[0-9]{1,19}$`)

func init() {
	// kin-openapi's own check is a pattern that lets 30 February through.
	openapi3.DefineStringFormatValidator("date-time", openapi3.NewCallbackValidator(func(s string) error {
		_, err := wire.ParseTime(s)
		return err
	}))
}

// validated checks path, query and body against the operation's schemas. For a
// write the verdict only waits for the unit: a repeated request gets its first
// answer, and a refusal is kept under the key.
func validated(next handler) handler {
	return func(x *exchange) error {
		err := validate(x)
		if err != nil && x.op.ReadOnly {
			return err
		}
		x.broken = err
		return next(x)
	}
}

func validate(x *exchange) error {
	var found []problem
	absurd := false
	for _, p := range x.op.Path {
		v, err := url.PathUnescape(x.Param(p.Name))
		// No id looks like this, and Postgres must not see it.
		absurd = absurd || err != nil || len(v) > 256 || strings.ContainsRune(v, 0) || !utf8.ValidString(v)
		// An id without a pattern is opaque: what cannot be one is not found, and not malformed.
		if p.Schema.Value.Pattern != "" {
			found = append(found, visit("path "+p.Name, p.Schema.Value, v)...)
		}
	}
	if x.op.ReadOnly {
		found = append(found, validateQuery(x.Request().URL, x.op)...)
	} else {
		found = append(found, validateBody(x.body, x.op)...)
	}
	if len(found) > 0 {
		return report(found)
	}
	if absurd {
		return fault.New(fault.NotFound, "not_found", "No such resource in this guild.")
	}
	return nil
}

func validateBody(body []byte, op *operation) []problem {
	switch {
	case op.Body == nil:
		return nil
	case len(body) == 0 && op.BodyMust:
		return []problem{{"body", "is required"}}
	case len(body) == 0:
		return nil
	}
	value, found, ok := parseJSON(body)
	if !ok {
		return found
	}
	found = append(found, settle("body ", op.Body, value)...)
	found = append(found, oneOf(op.Body, value)...)
	for _, p := range visit("body", op.Body, value) {
		// One complaint about a place is enough, and the first is the plainer one.
		if !slices.ContainsFunc(found, func(first problem) bool { return first.place == p.place }) {
			found = append(found, p)
		}
	}
	return found
}

// validateQuery checks the query and puts the defaults of absent parameters
// into the request.
func validateQuery(u *url.URL, op *operation) []problem {
	if u.RawQuery == "" {
		u.RawQuery = strings.Join(op.Defaults, "&")
		return nil
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return []problem{{"query", "must be properly percent-encoded"}}
	}
	var found []problem
	for name, values := range query {
		p, known := op.Query[name]
		place := "query " + printable(name)
		switch {
		case !known:
			found = append(found, problem{place, "is not a parameter of this operation; " + meantParameter(name, op)})
		case len(values) > 1:
			found = append(found, problem{place, "must be given once"})
		case strings.ContainsRune(values[0], 0) || !utf8.ValidString(values[0]):
			found = append(found, problem{place, "must be valid UTF-8 without U+0000"})
		case p.Schema.Value.Type.Is(openapi3.TypeInteger):
			n, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil || !digits.MatchString(values[0]) {
				found = append(found, problem{place, "must be an integer in decimal digits" + bounds(p.Schema.Value)})
				continue
			}
			found = append(found, visit(place, p.Schema.Value, float64(n))...)
		default:
			wrong := visit(place, p.Schema.Value, values[0])
			if p.Schema.Value.Format == "date-time" && strings.Contains(values[0], " ") {
				for i := range wrong {
					wrong[i].text += "; in a query, write + as %2B"
				}
			}
			found = append(found, wrong...)
		}
	}
	for _, d := range op.Defaults {
		if name, _, _ := strings.Cut(d, "="); !query.Has(name) {
			u.RawQuery += "&" + d
		}
	}
	slices.SortFunc(found, func(a, b problem) int { return strings.Compare(a.place, b.place) })
	return found
}

// meantParameter says which parameter an unknown name may stand for.
func meantParameter(name string, op *operation) string {
	names := slices.Sorted(maps.Keys(op.Query))
	if near := nearest(name, names); near != "" {
		return "did you mean " + near + "?"
	}
	if len(names) == 0 {
		return "it has none"
	}
	return "its parameters are " + strings.Join(names, ", ")
}

// visit applies a schema and words what it finds.
func visit(place string, schema *openapi3.Schema, value any) []problem {
	err := schema.VisitJSON(value, openapi3.VisitAsRequest(), openapi3.MultiErrors())
	if err == nil {
		return nil
	}
	return flatten(place, err, nil)
}

func flatten(place string, err error, found []problem) []problem {
	var many openapi3.MultiError
	if errors.As(err, &many) {
		for _, e := range many {
			found = flatten(place, e, found)
		}
		return found
	}
	var se *openapi3.SchemaError
	if !errors.As(err, &se) {
		return append(found, problem{place, "does not match the schema"})
	}
	at := place
	for i, key := range se.JSONPointer() {
		if i == 0 {
			at += " "
		}
		at += "/" + printable(key)
	}
	return append(found, problem{at, phrase(se)})
}

// phrase says what the schema wants, and never what was sent.
func phrase(e *openapi3.SchemaError) string {
	s := e.Schema
	switch e.SchemaField {
	case "type", "nullable":
		if s.Type == nil {
			return "has the wrong type"
		}
		t := strings.Join(s.Type.Slice(), " or ")
		article := "a "
		if strings.HasPrefix(t, "i") || strings.HasPrefix(t, "o") || strings.HasPrefix(t, "a") {
			article = "an "
		}
		if s.Nullable {
			t += " or null"
		}
		return "must be " + article + t
	case "required":
		return "is required"
	case "properties", "additionalProperties":
		return "is not a member of this object"
	case "enum":
		allowed, _ := json.Marshal(s.Enum)
		return "must be one of " + string(allowed)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return "must be an integer" + bounds(s)
	case "minLength":
		return "must have at least " + several(s.MinLength, "character")
	case "maxLength":
		return "must have at most " + several(*s.MaxLength, "character")
	case "minItems":
		return "must have at least " + several(s.MinItems, "item")
	case "maxItems":
		return "must have at most " + several(*s.MaxItems, "item")
	case "minProperties":
		return fmt.Sprintf("must have at least %d of the members %s", s.MinProps, members(s))
	case "maxProperties":
		return fmt.Sprintf("must have at most %d of the members %s", *s.MaxProps, members(s))
	case "pattern":
		return patternPhrase(s.Pattern)
	case "format":
		if s.Format == "date-time" {
			return "must be an existing RFC 3339 date and time with offset"
		}
		if s.Type.Is(openapi3.TypeInteger) {
			return "must be an integer" + bounds(s)
		}
		return "must be in the format " + s.Format
	case "uniqueItems":
		return "must not repeat an item"
	default:
		return "does not match the schema (" + e.SchemaField + ")"
	}
}

// patternPhrase says in words what the patterns mean that callers meet most.
func patternPhrase(pattern string) string {
	switch {
	case pattern == `^[1-9][0-9]{0,19}$`:
		return `must be a snowflake: a string of 1 to 20 digits that does not begin with 0, such as "190320984123768832"`
	case strings.HasPrefix(pattern, `^(none|`):
		return "must be none or a snowflake, a string of 1 to 20 digits that does not begin with 0"
	case strings.HasPrefix(pattern, `^[\x20-\x7E]*`):
		return "must be printable ASCII, and not only spaces"
	case strings.HasPrefix(pattern, `^https`):
		return "must be an https URL without credentials, spaces and fragment, such as https://example.com/hooks"
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

func bounds(s *openapi3.Schema) string {
	text := ""
	if s.Min != nil {
		text += fmt.Sprintf(", at least %.0f", *s.Min)
	}
	if s.Max != nil {
		text += fmt.Sprintf(", at most %.0f", *s.Max)
	}
	return text
}

func report(found []problem) error {
	parts := make([]string, 0, maxPlaces)
	for _, p := range found[:min(len(found), maxPlaces)] {
		parts = append(parts, p.String())
	}
	text := strings.Join(parts, "; ")
	if n := len(found) - maxPlaces; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	return invalid("%s", text)
}

// binder hands the generated code the body that validation has read.
type binder struct{}

// Bind decodes the body into dst. An absent body leaves it untouched.
func (binder) Bind(dst any, c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body) // from memory; see framed
	if err != nil || len(body) == 0 {
		return err
	}
	if err := json.Unmarshal(body, dst); err != nil {
		return invalid("body: a member cannot be read as its type").Because(err)
	}
	return nil
}
