package api

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oapi-codegen/runtime"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
)

// maxParameters is how many parameters a query may have.
const maxParameters = 100

var integerPattern = regexp.MustCompile(`^-?[0-9]{1,19}$`)

// lostPlus matches an instant whose offset's + was decoded as a space.
var lostPlus = regexp.MustCompile(`T\S* \d\d:?\d\d$`)

// validateRequest checks path, query and body against the operation's schemas. The problems of a
// write are only reported within its transaction, because a repeat must get the first response, and
// a refusal is stored under the key.
func validateRequest(next handler) handler {
	return func(rs *reqState) error {
		err := validate(rs)
		if err != nil && (rs.op.ReadOnly || rs.ctx.Err() != nil) {
			return err
		}
		rs.broken = err
		return next(rs)
	}
}

func validate(rs *reqState) error {
	var found []schema.Problem
	absurd := false
	for _, p := range rs.op.Path {
		v, err := pathValue(rs, p.Name)
		// No id looks like this, and Postgres cannot store such text.
		absurd = absurd || err != nil || len(v) > 256 || strings.ContainsRune(v, 0) || !utf8.ValidString(v)
		// An id without a pattern is opaque: a text that cannot be an id is not found, rather than
		// malformed.
		if p.Schema.Value.Pattern != "" {
			found = append(found, at("path "+p.Name, schema.Visit(p.Schema.Value, v))...)
		}
	}
	if rs.op.ReadOnly {
		found = append(found, validateQuery(rs.Request().URL, rs.op)...)
	} else {
		found = append(found, validateBody(rs)...)
	}
	if rs.ctx.Err() != nil {
		return context.Cause(rs.ctx)
	}
	if len(found) > 0 {
		return report(found)
	}
	if absurd {
		return fault.New(fault.NotFound, "not_found", "No such resource in this guild.")
	}
	return nil
}

// pathValue returns the value of a path parameter, decoded once. Echo matches the decoded path,
// unless the caller's escapes are unusual.
func pathValue(rs *reqState, name string) (string, error) {
	if rs.Request().URL.RawPath == "" {
		return rs.Param(name), nil
	}
	return url.PathUnescape(rs.Param(name))
}

// validateBody parses the body and keeps the value for the operation. The limit of values is
// several times what the operation needs, and low enough that a body made of as many values as
// possible uses no more memory than an ordinary one.
func validateBody(rs *reqState) []schema.Problem {
	switch {
	case rs.op.Body == nil:
		return nil
	case len(rs.body) == 0 && rs.op.BodyMust:
		return []schema.Problem{{Place: "body", Text: "is required"}}
	case len(rs.body) == 0:
		return nil
	}
	value, found, ok := schema.Read(rs.body, rs.op.MaxValues, rs.op.MayBeBlank)
	if ok && rs.ctx.Err() == nil { // a caller that has gone needs no problems
		found = schema.Check(rs.op.Body, value, found)
	}
	rs.value = value
	return at("body", found)
}

// at prefixes the places of problems with the part of the request.
func at(part string, found []schema.Problem) []schema.Problem {
	for i := range found {
		found[i].Place = strings.TrimSpace(part + " " + found[i].Place)
	}
	return found
}

// validateQuery checks the query and sets the defaults of absent parameters.
func validateQuery(u *url.URL, op *operation) []schema.Problem {
	if u.RawQuery == "" {
		u.RawQuery = strings.Join(op.Defaults, "&")
		return missing(nil, op)
	}
	if strings.Count(u.RawQuery, "&") >= maxParameters {
		return []schema.Problem{{Place: "query", Text: fmt.Sprintf("must have at most %d parameters", maxParameters)}}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return []schema.Problem{{Place: "query", Text: "must be properly percent-encoded"}}
	}
	found := missing(query, op)
	for name, values := range query {
		p, known := op.Query[name]
		place := "query " + schema.Printable(name)
		switch {
		case !known:
			found = append(found, op.Names.Unknown(place, name))
		case len(values) > 1:
			once := schema.Problem{Place: place, Text: "must be given once"}
			if p.Schema.Value.Type.Is(openapi3.TypeArray) {
				once.Text += ", with commas between its values"
			}
			found = append(found, once)
		case strings.ContainsRune(values[0], 0) || !utf8.ValidString(values[0]):
			found = append(found, schema.Problem{Place: place, Text: "must be valid UTF-8 without U+0000"})
		case p.Schema.Value.Type.Is(openapi3.TypeBoolean):
			if values[0] != "true" && values[0] != "false" {
				found = append(found, schema.Problem{Place: place, Text: "must be true or false"})
			}
		case p.Schema.Value.Type.Is(openapi3.TypeArray):
			found = append(found, at(place, schema.Visit(p.Schema.Value, items(values[0])))...)
		case p.Schema.Value.Type.Is(openapi3.TypeInteger):
			n, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil || !integerPattern.MatchString(values[0]) {
				found = append(found, schema.Problem{Place: place, Text: "must be an integer in decimal digits" + schema.Bounds(p.Schema.Value)})
				continue
			}
			found = append(found, at(place, schema.Visit(p.Schema.Value, float64(n)))...)
		default:
			wrong := at(place, schema.Visit(p.Schema.Value, values[0]))
			if p.Schema.Value.Format == "date-time" && lostPlus.MatchString(values[0]) {
				for i := range wrong {
					wrong[i] = wrong[i].With("; in a query, write + as %2B")
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
	slices.SortFunc(found, func(a, b schema.Problem) int { return strings.Compare(a.Place, b.Place) })
	return found
}

// missing returns a problem for each required parameter that is absent.
func missing(query url.Values, op *operation) (found []schema.Problem) {
	for name, p := range op.Query {
		if p.Required && !query.Has(name) {
			found = append(found, schema.Problem{Place: "query " + name, Text: "is required"})
		}
	}
	return found
}

// items splits the value of a list parameter at its commas.
func items(value string) []any {
	var list []any
	for item := range strings.SplitSeq(value, ",") {
		list = append(list, item)
	}
	return list
}

// report returns the refusal of a request for its problems.
func report(found []schema.Problem) error { return invalid("%s", schema.Describe(found)) }

// Bind fills dst from the value that validation has parsed. The generated code calls it for a body.
// Without a body, dst stays unchanged.
func (rs *reqState) Bind(dst any) error {
	if rs.value == nil {
		return nil
	}
	return fault.Wrap(runtime.BindJSONValue(rs.value, dst), "fill a request from a body that passed validation")
}
