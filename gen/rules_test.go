package gen_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"guildhall"
	"guildhall/gen"
)

// parsed parses openapi.yaml once: 130 ms of CPU that most tests of this package need.
var parsed = sync.OnceValues(func() (*openapi3.T, error) { return openapi3.NewLoader().LoadFromData(guildhall.OpenAPI) })

// document returns the parsed openapi.yaml. Tests must not change it.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// operations calls fn with every operation of the document.
func operations(t *testing.T, fn func(t *testing.T, doc *openapi3.T, path, method string, op *openapi3.Operation)) {
	t.Helper()
	doc := document(t)
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			t.Run(op.OperationID, func(t *testing.T) {
				t.Parallel()
				fn(t, doc, path, method, op)
			})
		}
	}
}

var (
	tags = []string{
		"Meta",
		"Guild",
		"Members",
		"Cases",
		"Economy",
		"Levelling",
		"Tickets",
		"Giveaways",
		"Network",
		"Webhooks",
		"Streams",
		"Work",
		"Records",
	}
	idempotent = "#/components/parameters/IdempotencyKey"
	stability  = []string{"stable", "beta"}
	camel      = regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`)
)

func TestOperations(t *testing.T) {
	t.Parallel()
	operations(t, func(t *testing.T, doc *openapi3.T, path, method string, op *openapi3.Operation) {
		write := method != "GET"
		if len(op.Tags) != 1 || !slices.Contains(tags, op.Tags[0]) {
			t.Errorf("tags are %v; want one of %v", op.Tags, tags)
		}
		if !camel.MatchString(op.OperationID) {
			t.Error("the operationId is not verb and noun in camel case")
		}
		if s, _ := op.Extensions["x-stability-level"].(string); !slices.Contains(stability, s) {
			t.Errorf("x-stability-level is %q", s)
		}
		scope, scoped := op.Extensions["x-required-scope"].(string)
		if free := op.OperationID == "getMe" || op.OperationID == "getHealth"; free == scoped {
			t.Errorf("x-required-scope is %q", scope)
		}
		if scoped && !slices.Contains(known(t, doc, "FailureDetail", "required_scope"), scope) {
			t.Errorf("the scope %s does not exist", scope)
		}
		if _, twoPhase := op.Extensions["x-two-phase"]; twoPhase != (op.OperationID == "createTicketMessage") {
			t.Error("createTicketMessage alone is x-two-phase")
		}
		together := []string{
			"adjustBalance", "transferBalance", "adjustXp", "getWallet", "getLevelRecord", "getEconomyLeaderboard", "getLevellingLeaderboard",
		}
		if _, collected := op.Extensions["x-batched"]; collected != slices.Contains(together, op.OperationID) {
			t.Errorf("%v alone are x-batched", together)
		}
		// Only these two are long polls, which count as reads and take no idempotency key.
		_, waits := op.Extensions["x-long-poll"]
		if waits != (op.OperationID == "pullWebhookEvents" || op.OperationID == "pullBotEvents") {
			t.Error("pullWebhookEvents and pullBotEvents alone are x-long-poll")
		}
		var refs, query []string
		for _, p := range op.Parameters {
			refs = append(refs, p.Ref)
			if p.Value.In == "query" {
				query = append(query, p.Value.Name)
			}
			// Forms for trying a call are filled with the examples, so an optional parameter with
			// an example would be sent by accident, and every call would have the same idempotency
			// key.
			filter := !p.Value.Required && p.Value.Name != "page" && p.Value.Name != "per_page"
			if shown := p.Value.Example != nil; shown == filter {
				t.Errorf("the parameter %s: an example is %v, it may be left out is %v", p.Value.Name, shown, filter)
			}
		}
		if slices.Contains(refs, idempotent) != (write && !waits) {
			t.Error("writes take Idempotency-Key, reads and calls that wait do not")
		}
		if write && len(query) > 0 {
			t.Errorf("a write takes no query, not %v", query)
		}
		pages := op.Responses.Status(200) != nil && property(op.Responses.Status(200), "has_more")
		// user_ids determines the rows, which fit on one page.
		if pages && !waits && !slices.Equal(query, []string{"user_ids"}) {
			if !slices.Contains(query, "page") || !slices.Contains(query, "per_page") {
				t.Error("a list takes page and per_page")
			}
		}
		if op.RequestBody != nil {
			examples(t, "the request", op.RequestBody.Value.Content)
		}
		responses(t, write, waits, strings.Contains(path, "{id}"), scoped, op)
	})
}

// responses checks the responses of an operation: one success, described inline with an example,
// and every failure by reference.
func responses(t *testing.T, write, waits, byID, scoped bool, op *openapi3.Operation) {
	t.Helper()
	want := []string{"400", "401", "403", "429", "500", "503"}
	if write {
		want = append(want, "413", "415")
	}
	if write && !waits {
		want = append(want, "409")
	}
	if byID {
		want = append(want, "404")
	}
	successes := 0
	for status, r := range op.Responses.Map() {
		switch {
		case status[0] == '2':
			successes++
			if r.Ref != "" {
				t.Errorf("the answer %s is a reference", status)
			}
			if status != "204" {
				examples(t, "the answer "+status, r.Value.Content)
			}
		case r.Ref == "":
			t.Errorf("the answer %s is no reference", status)
		case len(codes(r.Value)) == 0:
			t.Errorf("the answer %s lists no x-error-codes", status)
		default:
			for _, c := range codes(r.Value) {
				if r.Value.Content["application/json"].Examples[c] == nil {
					t.Errorf("the answer %s has no example of %s", status, c)
				}
			}
		}
		if r.Value.Headers["X-Request-Id"] == nil {
			t.Errorf("the answer %s has no X-Request-Id", status)
		}
		want = slices.DeleteFunc(want, func(s string) bool { return s == status })
	}
	if len(want) > 0 {
		t.Errorf("the answers %v are missing", want)
	}
	if successes != 1 {
		t.Errorf("there are %d successes; want one", successes)
	}
	if slices.Contains(codes(op.Responses.Status(403).Value), "insufficient_scope") != scoped {
		t.Error("insufficient_scope stands where a scope is needed, and only there")
	}
}

// FailureDetail lists exactly the codes that responses may contain. The code for a wrong method
// belongs to no operation's response.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	doc := document(t)
	listed := known(t, doc, "FailureDetail", "code")
	used := []string{"method_not_allowed"}
	for _, r := range doc.Components.Responses {
		used = append(used, codes(r.Value)...)
	}
	slices.Sort(used)
	slices.Sort(listed)
	if used = slices.Compact(used); !slices.Equal(used, listed) {
		t.Errorf("answers use %v, FailureDetail lists %v", used, listed)
	}
}

// Every event type has a schema and a callback, and all except ping can be subscribed to. One type
// exists only in the stream of work.
func TestEvents(t *testing.T) {
	t.Parallel()
	doc := document(t)
	var subscribable []string
	for _, v := range doc.Components.Schemas["WebhookEventType"].Value.Enum {
		subscribable = append(subscribable, v.(string))
	}
	var described, called []string
	for name, s := range doc.Components.Schemas {
		if strings.HasPrefix(name, "Event") && name != "EventOrigin" && name != "EventTypeName" {
			described = append(described, known(t, doc, name, "type")...)
			if s.Value.Example == nil {
				t.Errorf("%s has no example", name)
			}
		}
	}
	for name, byURL := range doc.Paths.Find("/webhooks").Post.Callbacks {
		post := byURL.Value.Value("{$request.body#/url}").Post
		called = append(called, post.Summary)
		ref := post.RequestBody.Value.Content["application/json"].Schema.Ref
		if ref != "#/components/schemas/Event"+strings.ToUpper(name[:1])+name[1:] {
			t.Errorf("the callback %s carries %s", name, ref)
		}
	}
	described = slices.DeleteFunc(described, func(typ string) bool { return typ == "work.requested" })
	all := append(slices.Clone(subscribable), "ping")
	for _, s := range [][]string{all, described, called} {
		slices.Sort(s)
	}
	if !slices.Equal(all, described) || !slices.Equal(all, called) {
		t.Errorf("subscribable and ping: %v\nschemas: %v\ncallbacks: %v", all, described, called)
	}
}

// Schemas use only what every generator and fuzzer understands.
func TestSchemas(t *testing.T) {
	t.Parallel()
	var file struct {
		Components struct {
			Schemas map[string]map[string]any
		}
	}
	if err := yaml.Unmarshal(guildhall.OpenAPI, &file); err != nil {
		t.Fatal(err)
	}
	for name, s := range file.Components.Schemas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Exception") {
				t.Error("generated clients have classes of these names: call it Failure")
			}
			request := comesIn(name)
			if _, named := s["properties"]; s["type"] == "object" && named {
				if closed := s["additionalProperties"] == false; closed != request {
					t.Error("what comes in is closed, answers are open")
				}
				for _, err := range incomplete(name, s) {
					t.Error(err)
				}
			}
			for _, err := range unbounded(name, s, request) {
				t.Error(err)
			}
		})
	}
}

// comesIn reports whether a schema describes input: requests, guild files and records.
func comesIn(name string) bool {
	return strings.HasSuffix(name, "Request") || strings.HasPrefix(name, "GuildFile") || strings.HasPrefix(name, "Record") ||
		name == "GuildRecord"
}

// Rules that involve several members of a request are expressed by `not`, where generators make no
// class of it and fuzzers can still find valid requests. .github/contract/refusals.toml lists the
// other rules.
func TestRequestsAreExact(t *testing.T) {
	t.Parallel()
	doc := document(t)
	for _, c := range []struct {
		schema, body string
		fits         bool
	}{
		{"AdjustXpRequest", `{"user_id":"1","delta":5}`, true},
		{"AdjustXpRequest", `{"user_id":"1","delta":null,"total_xp":5}`, true},
		{"AdjustXpRequest", `{"user_id":"1","delta":-5,"total_xp":null}`, true},
		{"AdjustXpRequest", `{"user_id":"1","delta":5,"total_xp":5}`, false},
		{"AdjustXpRequest", `{"user_id":"1","delta":0,"total_xp":0}`, false},
		{"AdjustXpRequest", `{"user_id":"1"}`, false},
		{"UpdateCaseRequest", `{"reason":"x"}`, true},
		{"UpdateCaseRequest", `{"reason":null,"expires_at":null}`, true},
		{"UpdateCaseRequest", `{"expires_at":null}`, true},
		{"UpdateCaseRequest", `{"reason":null}`, false},
		{"UpdateCaseRequest", `{}`, false},
	} {
		var body any
		if err := json.Unmarshal([]byte(c.body), &body); err != nil {
			t.Fatal(err)
		}
		if err := doc.Components.Schemas[c.schema].Value.VisitJSON(body, openapi3.VisitAsRequest()); (err == nil) != c.fits {
			t.Errorf("%s %s fits: %v, want %v (%v)", c.schema, c.body, err == nil, c.fits, err)
		}
	}
}

// incomplete returns the members of a response that may be absent.
func incomplete(name string, s map[string]any) (errs []string) {
	if comesIn(name) || name == "NetworkHit" || name == "WrittenRecord" {
		return nil
	}
	required, _ := s["required"].([]any)
	for p := range s["properties"].(map[string]any) {
		if !slices.Contains(required, any(p)) && (name != "FailureDetail" || p != "required_scope") {
			errs = append(errs, p+" is not required")
		}
	}
	return errs
}

// unbounded returns the places where a schema, or one within it, lacks a bound or uses something on
// which generators do not agree.
func unbounded(at string, s map[string]any, request bool) (errs []string) {
	has := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(k string) bool { _, ok := s[k]; return ok })
	}
	report := func(format string, args ...any) { errs = append(errs, at+": "+fmt.Sprintf(format, args...)) }
	if has("allOf", "anyOf", "oneOf") || (has("not") && !request) {
		report("has no composition, and `not` only where it makes a request exact")
	}
	if has("$ref") {
		if len(s) > 1 {
			report("a reference stands alone")
		}
		return errs
	}
	switch s["type"] {
	case "string":
		if !has("enum", "maxLength") {
			report("has no maxLength")
		}
		if request && !has("enum", "pattern", "format") {
			report("a text of a request has a pattern")
		}
		if request && has("x-extensible-enum") {
			report("a list of values of a request is closed")
		}
	case "integer":
		if !has("minimum") || !has("maximum") || !has("format") {
			report("has not format, minimum and maximum")
		}
	case "array":
		if !has("maxItems") {
			report("has no maxItems")
		}
		errs = append(errs, unbounded(at+"[]", s["items"].(map[string]any), request)...)
	case "boolean":
	case "object":
		members, ok := s["properties"].(map[string]any)
		if !ok {
			if !has("maxProperties") || !has("x-property-names") {
				report("has not maxProperties and x-property-names, by which an object without named members is bounded")
			}
			return append(errs, unbounded(at+"{}", s["additionalProperties"].(map[string]any), request)...)
		}
		for p, v := range members {
			prop := v.(map[string]any)
			if prop["type"] == "object" {
				errs = append(errs, at+"."+p+": an object has a name of its own")
			}
			errs = append(errs, unbounded(at+"."+p, prop, request)...)
		}
	default:
		report("has the type %v", s["type"])
	}
	return errs
}

// known returns the known values of a property whose list of values may grow.
func known(t *testing.T, doc *openapi3.T, schema, prop string) []string {
	t.Helper()
	list, ok := doc.Components.Schemas[schema].Value.Properties[prop].Value.Extensions["x-extensible-enum"].([]any)
	if !ok || len(list) == 0 {
		t.Fatalf("%s.%s has no x-extensible-enum", schema, prop)
	}
	var out []string
	for _, v := range list {
		out = append(out, v.(string))
	}
	return out
}

func codes(r *openapi3.Response) []string {
	list, _ := r.Extensions["x-error-codes"].([]any)
	var out []string
	for _, v := range list {
		out = append(out, v.(string))
	}
	return out
}

func property(r *openapi3.ResponseRef, name string) bool {
	return r.Value.Content["application/json"].Schema.Value.Properties[name] != nil
}

func examples(t *testing.T, what string, content openapi3.Content) {
	t.Helper()
	media := content["application/json"]
	if media == nil || len(content) != 1 || (media.Example == nil && len(media.Examples) == 0) {
		t.Errorf("%s has not exactly one media type, application/json, with an example", what)
	}
	if media != nil && !strings.HasPrefix(media.Schema.Ref, "#/components/schemas/") {
		t.Errorf("the body of %s has no name", what)
	}
}

// Constant names stay unique even in generators that do not prefix an enum's values with the
// schema's name, such as openapi-generator's for Go.
func TestNamesOfValuesAreUnique(t *testing.T) {
	t.Parallel()
	used := map[string]string{}
	for name, ref := range document(t).Components.Schemas {
		s := ref.Value
		var names []string
		for _, v := range s.Enum {
			names = append(names, strings.ToUpper(strings.ReplaceAll(v.(string), ".", "_")))
		}
		if list, ok := s.Extensions["x-enum-varnames"].([]any); ok {
			if len(list) != len(names) {
				t.Errorf("%s has %d names for %d values", name, len(list), len(names))
			}
			names = names[:0]
			for _, n := range list {
				names = append(names, n.(string))
			}
		}
		for _, n := range names {
			if other, ok := used[n]; ok {
				t.Errorf("%s and %s both have %s", name, other, n)
			}
			used[n] = name
		}
	}
}

// Patterns use only what the regular expressions of PHP, Python and JavaScript have in common. The
// URL of a receiver must be https.
func TestPatternsArePortable(t *testing.T) {
	t.Parallel()
	for name, source := range map[string][]byte{"3.0": gen.OpenAPI, "3.1": gen.OpenAPI31} {
		var file any
		if err := yaml.Unmarshal(source, &file); err != nil {
			t.Fatal(err)
		}
		found := patterns(file)
		if len(found) < 50 {
			t.Errorf("%s: only %d patterns were found", name, len(found))
		}
		for _, p := range found {
			if strings.Contains(p, `\u`) || strings.Contains(p, "http") && !strings.HasPrefix(p, "^https://") {
				t.Errorf("%s: %s", name, p)
			}
		}
	}
}

// patterns returns the patterns of all schemas below a value of the document.
func patterns(v any) (found []string) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if p, ok := value.(string); ok && key == "pattern" {
				found = append(found, p)
			}
			found = append(found, patterns(value)...)
		}
	case []any:
		for _, item := range v {
			found = append(found, patterns(item)...)
		}
	}
	return found
}

// The parts of the document stand in the order that CONTRIBUTING.md describes, so that each part
// can be found.
func TestPartsStandInOrder(t *testing.T) {
	t.Parallel()
	var file yaml.Node
	if err := yaml.Unmarshal(guildhall.OpenAPI, &file); err != nil {
		t.Fatal(err)
	}
	doc := file.Content[0]
	wantOrder(t, "the document", doc, "openapi", "info", "servers", "security", "x-max-body", "x-max-values", "tags", "paths", "components")
	components := member(doc, "components")
	wantOrder(t, "components", components, "securitySchemes", "parameters", "headers", "responses", "schemas", "examples")

	// Paths and schemas are grouped by tag, and each group follows a comment with the tag's name.
	bySchema := append(append([]string{"All tags"}, tags...), "Guild files")
	paths, schemas := groups(member(doc, "paths")), groups(member(components, "schemas"))
	if !slices.Equal(paths, tags) {
		t.Errorf("paths are grouped by %v; want %v", paths, tags)
	}
	if !slices.Equal(schemas, bySchema) {
		t.Errorf("schemas are grouped by %v; want %v", schemas, bySchema)
	}
	under, enforced := "", document(t)
	for i := 0; i < len(member(doc, "paths").Content); i += 2 {
		path := member(doc, "paths").Content[i]
		under = cmp.Or(strings.TrimPrefix(path.HeadComment, "# "), under)
		for _, op := range enforced.Paths.Find(path.Value).Operations() {
			if op.Tags[0] != under {
				t.Errorf("%s of %s stands under %s", op.OperationID, op.Tags[0], under)
			}
		}
	}
}

func wantOrder(t *testing.T, what string, n *yaml.Node, want ...string) {
	t.Helper()
	var keys []string
	for i := 0; i < len(n.Content); i += 2 {
		keys = append(keys, n.Content[i].Value)
	}
	if !slices.Equal(keys, want) {
		t.Errorf("%s has the parts %v; want %v", what, keys, want)
	}
}

// groups returns the comments that stand before keys.
func groups(n *yaml.Node) (names []string) {
	for i := 0; i < len(n.Content); i += 2 {
		if c := n.Content[i].HeadComment; c != "" {
			names = append(names, strings.TrimPrefix(c, "# "))
		}
	}
	return names
}

func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return &yaml.Node{}
}

// Schemas that Go implements by embedding another schema's struct (overlay.yaml) have exactly that
// schema's members and the ones listed here.
func TestSchemasThatAreAnotherAndMore(t *testing.T) {
	t.Parallel()
	schemas := document(t).Components.Schemas
	for name, c := range map[string]struct {
		embeds string
		more   []string
	}{
		"CaseChange":                {"Case", []string{"changed", "author_id"}},
		"XpAdjustment":              {"LevelRecord", []string{"previous_level"}},
		"WebhookEndpointWithSecret": {"WebhookEndpoint", []string{"secret"}},
		"WebhookDeliveryDetail":     {"WebhookDelivery", []string{"request_body", "attempts"}},
	} {
		whole, part := schemas[name].Value, schemas[c.embeds].Value
		for member, ref := range part.Properties {
			got := whole.Properties[member]
			if got == nil || !got.Value.Type.Is(ref.Value.Type.Slice()[0]) || got.Value.Nullable != ref.Value.Nullable ||
				got.Value.Format != ref.Value.Format {
				t.Errorf("%s.%s is not what %s has", name, member, c.embeds)
			}
		}
		for member := range whole.Properties {
			if part.Properties[member] == nil && !slices.Contains(c.more, member) {
				t.Errorf("%s.%s is neither of %s nor one of %v", name, member, c.embeds, c.more)
			}
		}
	}
}
