package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"guildhall/internal/base/schema"
)

// Prefix is the path below which every operation lives.
const Prefix = "/api/v1"

// operation is what the document says of one operation, read once at start.
type operation struct {
	ID         string
	Scope      string // required scope; empty when any token will do
	OfGuild    bool   // done in one guild, which a bot key has to name
	MakesGuild bool   // may be done in a guild that is not there yet
	ReadOnly   bool
	TwoPhase   bool             // calls another system between two transactions
	LongPoll   bool             // may wait for its response; counts as a read and takes no key
	Batched    bool             // shares its transaction or statement with concurrent requests
	Body       *openapi3.Schema // nil: it takes none, and one that is sent anyway is ignored
	BodyMust   bool
	MaxBody    int64  // bytes that a body may have
	MayBeBlank string // places of texts that may be blank
	MaxValues  int    // values that it may hold; see validateBody
	Query      map[string]*openapi3.Parameter
	Names      *schema.Names // of Query
	Path       []*openapi3.Parameter
	Defaults   []string // "page=1": what an absent query parameter counts as
}

// operations maps method and Echo's form of a path to the operation.
type operationMap map[[2]string]*operation

func readOperations(doc *openapi3.T) operationMap {
	ops := operationMap{}
	for path, item := range doc.Paths.Map() {
		echoPath := Prefix + strings.NewReplacer("{", ":", "}", "").Replace(path)
		for method, o := range item.Operations() {
			op := &operation{
				ID:       o.OperationID,
				ReadOnly: method == http.MethodGet,
				Query:    map[string]*openapi3.Parameter{},
			}
			op.Scope, _ = o.Extensions["x-required-scope"].(string)
			op.MakesGuild, _ = o.Extensions["x-creates-guild"].(bool)
			op.TwoPhase, _ = o.Extensions["x-two-phase"].(bool)
			op.LongPoll, _ = o.Extensions["x-long-poll"].(bool)
			op.MayBeBlank, _ = o.Extensions["x-blank-allowed"].(string)
			op.Batched, _ = o.Extensions["x-batched"].(bool)
			for _, refs := range []openapi3.Parameters{item.Parameters, o.Parameters} {
				for _, ref := range refs {
					op.parameter(ref.Value)
				}
			}
			op.Names = schema.NewNames("its parameters are ", slices.Collect(maps.Keys(op.Query)))
			if o.RequestBody != nil {
				op.BodyMust = o.RequestBody.Value.Required
				op.Body = o.RequestBody.Value.Content.Get("application/json").Schema.Value
			}
			op.OfGuild = ofGuild(doc, o)
			op.MaxBody = int64(bound(doc, o, "x-max-body"))
			op.MaxValues = bound(doc, o, "x-max-values")
			ops[[2]string{method, echoPath}] = op
			if method == http.MethodGet {
				ops[[2]string{http.MethodHead, echoPath}] = op
			}
		}
	}
	return ops
}

// bound is what the document says under name of an operation, or else of all.
func bound(doc *openapi3.T, o *openapi3.Operation, name string) int {
	n, own := o.Extensions[name].(float64)
	if !own {
		n, _ = doc.Extensions[name].(float64)
	}
	return int(n)
}

// reads says whether the operation counts as a read.
func (op *operation) reads() bool { return op.ReadOnly || op.LongPoll }

func (op *operation) parameter(p *openapi3.Parameter) {
	switch p.In {
	case openapi3.ParameterInPath:
		op.Path = append(op.Path, p)
	case openapi3.ParameterInQuery:
		op.Query[p.Name] = p
		if d := p.Schema.Value.Default; d != nil {
			op.Defaults = append(op.Defaults, fmt.Sprintf("%s=%v", p.Name, d))
		}
	}
}

// matchOperation looks the operation up by the path that Echo has matched. There is
// no second router. Nothing is refused yet: nobody without a token learns
// which routes exist.
func matchOperation(ops operationMap) middleware {
	return func(next handler) handler {
		return func(rs *reqState) error {
			ops.locate(rs)
			return next(rs)
		}
	}
}

func (ops operationMap) locate(rs *reqState) {
	path := echo.GetPath(rs.Request())
	if op, ok := ops[[2]string{rs.Request().Method, rs.Path()}]; ok && fits(rs.Path(), path) {
		rs.op = op
		return
	}
	for at := range ops {
		if fits(at[1], path) {
			return
		}
	}
	// No operation has the path, though Echo may name methods for it.
	rs.Set(echo.ContextKeyHeaderAllow, "")
}

// fits reports whether a path has what a route asks for, segment by segment: Echo
// matches /cases/ and /cases/x/y as /cases/:id. A slash that is part of an id comes
// escaped, and stays so until the id is read.
func fits(route, path string) bool {
	for route != "" || path != "" {
		wanted, restRoute, moreRoute := strings.Cut(route, "/")
		given, restPath, morePath := strings.Cut(path, "/")
		if moreRoute != morePath || given != wanted && (given == "" || !strings.HasPrefix(wanted, ":")) {
			return false
		}
		route, path = restRoute, restPath
	}
	return true
}

// requireOperation answers what is no operation: 404, or 405 and OPTIONS with Allow.
func requireOperation(next handler) handler {
	return func(rs *reqState) error {
		if rs.op != nil {
			return next(rs)
		}
		return unrouted(rs)
	}
}

func unrouted(rs *reqState) error {
	allow, _ := rs.Get(echo.ContextKeyHeaderAllow).(string)
	path := rs.Request().URL.EscapedPath()
	if allow == "" {
		return noRoute(rs)
	}
	rs.Response().Header().Set(echo.HeaderAllow, allow)
	if rs.Request().Method == http.MethodOptions {
		return rs.NoContent(http.StatusNoContent)
	}
	return errMethod.With("This path takes %s, and not this method%s.", allow, pathHint(path))
}

// pathHint names the path that is meant where two differ in a letter.
func pathHint(path string) string {
	switch {
	case !strings.HasPrefix(path, Prefix+"/tickets/"):
	case strings.HasSuffix(path, "/message"):
		return ": the messages of a ticket are read with GET /tickets/{id}/messages"
	case strings.HasSuffix(path, "/messages"):
		return ": a message is sent with POST /tickets/{id}/message"
	}
	return ""
}

// noRoute says what the path of a request may lack, without repeating it.
func noRoute(rs *reqState) error {
	switch path := rs.Request().URL.Path; {
	case strings.Contains(path, "//"):
		return errNoRoute.With("There is no such route: a segment of the path is empty, as where an id is missing.")
	case !strings.HasPrefix(path, Prefix+"/"):
		return errNoRoute.With("There is no such route: the paths of the API begin with %s.", Prefix)
	case strings.HasSuffix(path, "/"):
		return errNoRoute.With("There is no such route: a path has no slash at its end.")
	case strings.ToLower(path) != path:
		return errNoRoute.With("There is no such route: paths are written in lower case, up to their ids.")
	}
	return errNoRoute
}
