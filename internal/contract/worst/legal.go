package worst

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/contract"
)

// membersOfARound is how many members, at most, the legal requests of one n name.
const membersOfARound = 20_000

// Legal returns the allowed requests of each operation that cost the most: the largest
// page, the last page, and its filters; or the body of each example with texts, lists and
// maps as large as the operation takes. Each n gives members, references and keys of its
// own. Bodies replaces the examples of the operations that it has.
func Legal(doc *openapi3.T, n int, now time.Time, bodies map[string]map[string]any) (requests []Request, err error) {
	f := &filler{doc: doc, next: n * membersOfARound, now: now}
	Operations(doc, func(method, path string, op *openapi3.Operation) {
		add := func(about, query string, body []byte) {
			requests = append(requests, Request{op.OperationID, method, path, about, query, body})
		}
		examples := bodies[op.OperationID]
		switch {
		case method == http.MethodGet:
			for about, query := range f.queries(path, op) {
				add(about, query, nil)
			}
		case op.RequestBody == nil:
			add("legal", "", nil)
		case examples == nil:
			examples = map[string]any{}
			for name, example := range op.RequestBody.Value.Content.Get("application/json").Examples {
				examples[name] = example.Value.Value
			}
			if media := op.RequestBody.Value.Content.Get("application/json"); len(examples) == 0 {
				examples["example"] = media.Example
			}
		}
		for _, name := range slices.Sorted(maps.Keys(examples)) {
			body, failed := f.largest(op, examples[name])
			if failed != nil {
				err = fmt.Errorf("%s, %s: %w", op.OperationID, name, failed)
			}
			add("legal, "+name, "", body)
		}
	})
	return requests, err
}

// queries returns the legal queries of a list that cost the most, by what they ask for.
func (f *filler) queries(path string, op *openapi3.Operation) map[string]string {
	all, pages := url.Values{}, url.Values{}
	f.texts, f.items = math.MaxInt, math.MaxInt
	for _, ref := range slices.Concat(f.doc.Paths.Value(path).Parameters, op.Parameters) {
		p := ref.Value
		if p.In != openapi3.ParameterInQuery {
			continue
		}
		s := p.Schema.Value
		switch {
		case p.Name == "page":
		case p.Name == "per_page":
			pages.Set(p.Name, fmt.Sprint(int(*s.Max)))
		case strings.HasSuffix(p.Name, "_ids"):
			ids := make([]string, 100) // the maximum of ids that the API document allows
			for i := range ids {
				ids[i] = f.member()
			}
			if all.Set(p.Name, strings.Join(ids, ",")); p.Required {
				pages.Set(p.Name, strings.Join(ids, ","))
			}
		default:
			if text, ok := f.grow(p.Name, s, s.Example).(string); ok {
				all.Set(p.Name, text)
			}
		}
	}
	found := map[string]string{"legal": pages.Encode()}
	if pages.Has("per_page") {
		pages.Set("page", "100")
		found["legal, page 100"] = pages.Encode()
	}
	if all.Has("user_ids") { // nothing may stand beside it
		all = url.Values{"user_ids": all["user_ids"]}
	}
	if len(all) > 0 {
		found["legal, filtered"] = all.Encode()
	}
	return found
}

// largest makes an example as large as the operation allows.
func (f *filler) largest(op *openapi3.Operation, example any) ([]byte, error) {
	size, values := contract.Bound(f.doc, op, "x-max-body"), contract.Bound(f.doc, op, "x-max-values")
	f.texts, f.items, f.most, f.longest = math.MaxInt, math.MaxInt, 0, 0
	for {
		begun := f.next
		value := f.grow("", bodyOf(op), example)
		body, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		switch {
		case count(value) > values || len(body) > size && f.longest < 20:
			f.items = min(f.items, f.most) * 9 / 10
		case len(body) > size:
			f.texts = min(f.texts, f.longest) * 9 / 10
		default:
			return body, nil
		}
		if f.items == 0 {
			return nil, errors.New("one item is too large")
		}
		f.next, f.most, f.longest = begun, 0, 0
	}
}

// count counts the values of a body as the server does.
func count(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			n += count(member)
		}
	case []any:
		for _, item := range v {
			n += count(item)
		}
	}
	return n + 1
}

// snowflake is the pattern of ids of the chat platform.
const snowflake = `^[1-9][0-9]{0,19}$`

// filler makes values that are as large as their schemas allow.
type filler struct {
	doc           *openapi3.T
	next          int  // number of the next guild member or reference that an example names
	strangers     bool // the members that it names have nothing in the guild
	now           time.Time
	texts, items  int // maximum lengths of texts and lists, besides the schemas' own
	longest, most int // the longest text and list so far
}

func (f *filler) member() string {
	f.next++
	if f.strangers {
		return fmt.Sprint(200_000_000_000_000_000 + int64(f.next)*7919)
	}
	return fmt.Sprint(100_000_000_000_000_000 + int64(f.next)*7919)
}

// grow makes an example as large as its schema allows.
func (f *filler) grow(name string, s *openapi3.Schema, example any) any {
	switch v := example.(type) {
	case map[string]any:
		return f.object(s, v)
	case []any:
		if s.Items == nil || len(v) == 0 {
			return v
		}
		n := len(v)
		if s.MaxItems != nil && s.Items.Value.Enum == nil {
			n = int(*s.MaxItems)
		}
		if name == "records" { // each is of another thing
			n = min(n, len(v))
		}
		n = min(n, f.items)
		f.most = max(f.most, n)
		list := make([]any, n)
		for i := range list {
			if s.Items.Value.Pattern == snowflake {
				list[i] = f.member()
			} else {
				list[i] = f.grow("", s.Items.Value, v[i%len(v)])
			}
		}
		return list
	case string:
		return f.text(name, s, v)
	case nil:
		if s.Type.Is("string") && s.Enum == nil {
			return f.text(name, s, "")
		}
	}
	return example
}

func (f *filler) object(s *openapi3.Schema, v map[string]any) any {
	if kind, ok := v["record"].(string); ok {
		words := strings.Split(kind, "_")
		for i, word := range words {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
		s = f.doc.Components.Schemas["Record"+strings.Join(words, "")].Value
		f.strangers = true
		defer func() { f.strangers = false }()
	}
	grown := map[string]any{}
	for name, example := range v {
		if p := s.Properties[name]; p != nil {
			grown[name] = f.grow(name, p.Value, example)
		} else {
			grown[name] = example
		}
	}
	for name, p := range s.Properties {
		if _, given := v[name]; !given && p.Value.Type.Is("string") {
			if text, ok := f.text(name, p.Value, "").(string); ok && (len(text) > 100 || name == "reference") {
				grown[name] = text // free text
			}
		}
	}
	if s.AdditionalProperties.Schema != nil && s.MaxProps != nil {
		for i := len(grown); i < 20; i++ { // metadata has 20 members and 8 KiB of JSON at most
			grown[fmt.Sprintf("%040d", i)] = strings.Repeat("x", 350)
		}
	}
	return grown
}

// text is the largest text that a schema takes: of characters of four bytes, or of one. Names
// of things stay what they are, members and references are new ones.
func (f *filler) text(name string, s *openapi3.Schema, example string) any {
	switch {
	case f.strangers && s.Format == "date-time" && example != "":
		return example // records that differ in it alone stay apart
	case strings.HasSuffix(name, "user_id"):
		return f.member()
	case name == "reference":
		f.next++
		return fmt.Sprintf("%0128d", f.next)
	case name == "ends_at", name == "expires_at", name == "starts_at":
		return f.now.Add(48 * time.Hour).UTC().Format(time.RFC3339Nano)
	case s.Format == "date-time":
		return f.now.Add(-48 * time.Hour).UTC().Format(time.RFC3339Nano)
	case name == "url":
		const host = "https://127.0.0.1/"
		return host + strings.Repeat("x", int(*s.MaxLength)-len(host))
	case s.MaxLength == nil, s.Enum != nil, strings.HasSuffix(name, "id"), name == "name", name == "stream", name == "timezone":
		if example == "" {
			return nil
		}
		return example
	}
	n := min(int(*s.MaxLength), f.texts)
	for _, character := range []string{"🎉", "x"} {
		if text := strings.Repeat(character, n); s.VisitJSON(text) == nil {
			f.longest = max(f.longest, n)
			return text
		}
	}
	if example == "" {
		return nil
	}
	return example
}
