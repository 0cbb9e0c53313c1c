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
	"guildhall/internal/contract"
)

// Prefix is the path prefix of every operation.
const Prefix = "/api/v1"

// operation is the document's description of one operation, read once at start.
type operation struct {
	ID         string
	Scope      string // the required scope; empty: any token
	OfGuild    bool   // belongs to a guild, which a bot key has to name
	MakesGuild bool   // may create a guild
	ReadOnly   bool
	TwoPhase   bool             // calls another system between two transactions
	LongPoll   bool             // may wait before it responds; counts as a read and takes no idempotency key
	Batched    bool             // shares its transaction or statement with concurrent requests
	Body       *openapi3.Schema // nil: no body; one that is sent is ignored
	BodyMust   bool
	MaxBody    int64  // the most bytes of a body
	MayBeBlank string // places where a string may be blank
	MaxValues  int    // the most values in a body; see validateBody
	Query      map[string]*openapi3.Parameter
	Names      *schema.Names // the names of Query
	Path       []*openapi3.Parameter
	Defaults   []string // such as "page=1": values of absent query parameters
}

// operationMap maps a method and a path in Echo's form to the operation.
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
			op.MaxBody = int64(contract.Bound(doc, o, "x-max-body"))
			op.MaxValues = contract.Bound(doc, o, "x-max-values")
			ops[[2]string{method, echoPath}] = op
			if method == http.MethodGet {
				ops[[2]string{http.MethodHead, echoPath}] = op
			}
		}
	}
	return ops
}

// reads reports whether the operation counts as a read.
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

// matchOperation looks up the operation by the path that Echo has matched, so there is no second
// router. It refuses nothing: without a token nobody may learn which routes exist.
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
	// No operation has this path, though Echo may allow methods for it.
	rs.Set(echo.ContextKeyHeaderAllow, "")
}

// fits reports whether a path matches a route segment by segment, since Echo also matches /cases/
// and /cases/x/y with /cases/:id. A slash within an id is escaped and stays so until the id is
// read.
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

// requireOperation responds to requests that match no operation: 404, 405 with Allow, or OPTIONS.
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

// pathHint suggests an existing path that is spelled similarly.
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

// noRoute returns the 404 for an unknown path, with a hint at what the path may lack and without
// repeating the path.
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
