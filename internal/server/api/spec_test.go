package api_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/access/auth"
	"guildhall/internal/contract"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
)

// The document and its examples are valid.
func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
}

// Every operation follows the same rules.
func TestOperationRules(t *testing.T) {
	t.Parallel()
	twoPhase, batched := 0, 0
	each(t, func(t *testing.T, op apitest.Operation) {
		if len(op.Spec.Tags) != 1 {
			t.Errorf("has %d tags, want 1", len(op.Spec.Tags))
		} else if dir := folder(op.Spec.Tags[0]); !exists(dir) {
			t.Errorf("the tag %s has no package at %s", op.Spec.Tags[0], dir)
		}
		scope, said := op.Spec.Extensions["x-required-scope"]
		if free := op.ID == "getMe" || op.ID == "getHealth"; free == (scope != nil && scope != "") {
			t.Errorf("x-required-scope is %v (said: %v)", scope, said)
		}
		if op.Scope != "" && op.Scope != auth.ScopeBot && !slices.Contains(auth.Scopes, op.Scope) {
			t.Errorf("the scope %s does not exist", op.Scope)
		}
		if level := op.Spec.Extensions["x-stability-level"]; level != "stable" && level != "beta" {
			t.Errorf("x-stability-level is %v", level)
		}
		if op.Spec.Responses.Default() != nil {
			t.Error("has a default response")
		}
		params := map[string]bool{}
		for _, p := range op.Spec.Parameters {
			params[p.Value.Name] = true
		}
		write, keyed := op.Method != http.MethodGet, op.Method != http.MethodGet && !op.LongPoll()
		if params["Idempotency-Key"] != keyed {
			t.Errorf("it takes a key: %v, but Idempotency-Key is %v", keyed, params["Idempotency-Key"])
		}
		if list := strings.HasPrefix(op.ID, "list") || strings.HasSuffix(op.ID, "Leaderboard"); (params["page"] != list ||
			params["per_page"] != list) && len(params) != 1 { // user_ids alone determines the rows, which fit on one page
			t.Errorf("a list is %v, but page is %v and per_page %v", list, params["page"], params["per_page"])
		}
		for _, status := range op.Statuses() {
			if status < 400 {
				continue
			}
			if ref := op.Spec.Responses.Status(status); ref.Ref == "" {
				t.Errorf("the response %d is no reference", status)
			}
			if len(op.Codes(status)) == 0 {
				t.Errorf("the response %d lists no x-error-codes", status)
			}
		}
		want := []int{401, 403, 429, 500, 503}
		if write {
			want = append(want, 400, 413, 415)
		}
		if keyed {
			want = append(want, 409)
		}
		for _, status := range want {
			if op.Spec.Responses.Status(status) == nil {
				t.Errorf("the response %d is missing", status)
			}
		}
		isTwoPhase, isBatched := op.Spec.Extensions["x-two-phase"] == true, op.Spec.Extensions["x-batched"] == true
		if isTwoPhase {
			twoPhase++
		}
		if isBatched {
			batched++
		}
		if isBatched && isTwoPhase {
			t.Error("a two-phase operation cannot be batched")
		}
		if isTwoPhase || isBatched {
			text, err := os.ReadFile("../../../ARCHITECTURE.md")
			if err != nil || !strings.Contains(string(text), op.ID) {
				t.Errorf("is two-phase or batched, but ARCHITECTURE.md does not say why (%v)", err)
			}
		}
	})
	if batched != 7 {
		t.Errorf("%d batched operations, want 7", batched)
	}
	if twoPhase != 1 {
		t.Errorf("%d two-phase operations, want 1", twoPhase)
	}
}

func folder(tag string) string {
	name := strings.ToLower(tag)
	if name == "guild" {
		name = "guilds"
	}
	return filepath.Join("..", "..", "service", name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Every operation is implemented by a domain, and none by the generated placeholder.
func TestNothingIsUnbuilt(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("operations.go")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(source), "unbuilt") {
		t.Error("operations.go still has its stand-in")
	}
}

// Each event type has a schema, and each event schema has a type.
func TestEventsAndSchemas(t *testing.T) {
	t.Parallel()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for name, ref := range doc.Components.Schemas {
		if prop := ref.Value.Properties["type"]; strings.HasPrefix(name, "Event") && prop != nil && ref.Value.Properties["api_version"] != nil {
			list, _ := prop.Value.Extensions["x-extensible-enum"].([]any)
			if len(list) != 1 {
				t.Errorf("%s names %d types, want 1", name, len(list))
				continue
			}
			described = append(described, list[0].(string))
		}
	}
	known := append(slices.Clone(event.Types), event.Ping, event.WorkRequested)
	slices.Sort(described)
	slices.Sort(known)
	if !slices.Equal(described, known) {
		t.Errorf("the contract describes %v, the program knows %v", described, known)
	}
}
