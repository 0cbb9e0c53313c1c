package api_test

import (
	"encoding/json"
	"html"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"guildhall/gen"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// loaded matches the files that a page loads.
var loaded = regexp.MustCompile(`<(?:link|script|img)\b[^>]* (?:href|src)="([^"]*)"`)

// The contract and its reference are public and need no token.
func TestDocuments(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	root := strings.TrimSuffix(api.URL, "/api/v1")

	fetch := func(t *testing.T, path string) (*http.Response, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, root+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := api.Server.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusOK {
			t.Fatalf("%s answers %d: %s", path, res.StatusCode, body)
		}
		if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") {
			t.Errorf("%s has the policy %q", path, policy)
		}
		return res, body
	}

	t.Run("the reference is called after the program", func(t *testing.T) {
		t.Parallel()
		if _, body := fetch(t, "/docs"); !strings.Contains(string(body), "<title>Guildhall API</title>") {
			t.Errorf("the page begins %.400s", body)
		}
	})
	for name, source := range map[string][]byte{"/openapi": gen.OpenAPI, "/openapi-3.1": gen.OpenAPI31} {
		t.Run(name+".yaml is the file of the repository", func(t *testing.T) {
			t.Parallel()
			res, body := fetch(t, name+".yaml")
			if string(body) != string(source) || res.Header.Get("Content-Type") != "application/yaml" {
				t.Errorf("got %s, %d bytes", res.Header.Get("Content-Type"), len(body))
			}
		})
		t.Run(name+".json says the same", func(t *testing.T) {
			t.Parallel()
			_, body := fetch(t, name+".json")
			var want, got any
			if err := yaml.Unmarshal(source, &want); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			plain, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(plain, &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Error("the JSON differs from the YAML")
			}
			if !strings.HasPrefix(string(body), `{"openapi":`) {
				t.Errorf("the keys are not in the order of the document: %.60s", body)
			}
			if _, err := openapi3.NewLoader().LoadFromData(body); err != nil {
				t.Error(err)
			}
		})
	}

	t.Run("the reference loads nothing from elsewhere", func(t *testing.T) {
		t.Parallel()
		for _, path := range []string{"/docs", "/docs/"} {
			res, page := fetch(t, path)
			if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "script-src 'self';") {
				t.Errorf("%s has the policy %q", path, policy)
			}
			text := string(page)
			for _, m := range loaded.FindAllStringSubmatch(text, -1) {
				asset := m[1]
				if asset == "data:," {
					continue
				}
				if !strings.HasPrefix(asset, "/docs/") {
					t.Errorf("%s loads %s", path, asset)
					continue
				}
				if res, body := fetch(t, asset); len(body) == 0 || res.Header.Get("Content-Type") == "" {
					t.Errorf("%s is empty, or of no type: %v", asset, res.Header)
				}
			}
			if strings.Contains(text, "<script>") || strings.Contains(text, " onload=") {
				t.Errorf("%s has a script inside", path)
			}
			if res, _ := fetch(t, "/docs/begin.js"); !strings.HasPrefix(res.Header.Get("Content-Type"), "text/javascript") ||
				!strings.Contains(text, `data-contract="/openapi.json"`) {
				t.Errorf("the script of %s does not learn where the contract is", path)
			}
		}
	})
}

// The reference names the program's version and links to the dashboard, the documents and the
// guides; the contract links to the guides too.
func TestTheReferenceLeadsOn(t *testing.T) {
	t.Parallel()
	about := api.About{
		PublicURL: "https://api.example.com", Version: "26.12.0",
		Guides: "https://docs.example.com/guildhall", Dashboard: "https://desk.example.com/dashboard/",
	}
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.About = about }))
	fetch := func(path string) string {
		res, err := server.Server.Client.Get(strings.TrimSuffix(server.URL, "/api/v1") + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	page := fetch("/docs")
	for _, want := range []string{
		"Guildhall 26.12.0", `href="/openapi.yaml"`, `href="/openapi-3.1.yaml"`, `href="https://desk.example.com/dashboard/"`,
		`href="https://docs.example.com/guildhall/docs/integrate/first-program.html"`, `integrate/writes.html"`,
		`integrate/webhooks.html"`, `integrate/copies.html"`, `name="viewport"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if style := fetch("/docs/style.css"); !strings.Contains(style, "prefers-color-scheme: dark") {
		t.Errorf("the page has one scheme of colours: %s", style)
	}
	for _, path := range []string{"/openapi.yaml", "/openapi-3.1.json"} {
		doc, err := openapi3.NewLoader().LoadFromData([]byte(fetch(path)))
		if err != nil {
			t.Fatal(err)
		}
		if doc.ExternalDocs == nil || doc.ExternalDocs.URL != about.Guides+"/docs/integrate/first-program.html" {
			t.Errorf("%s has the guides %v", path, doc.ExternalDocs)
		}
	}
	for _, page := range []string{"first-program", "writes", "webhooks", "copies"} {
		if _, err := os.Stat("../../../docs/integrate/" + page + ".md"); err != nil {
			t.Error(err)
		}
	}
}

// Without a script the reference lists the operations; behind a proxy that serves the
// installation under a path, it loads what it needs from below that path.
func TestTheReferenceIsReadableWithoutScript(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) { c.About.PublicURL = "https://example.com/guildhall" }))
	res, body := bare(t, server, http.MethodGet, "/docs")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("got %d", res.StatusCode)
	}
	page := html.UnescapeString(string(body))
	for _, op := range apitest.Operations() {
		for _, want := range []string{op.ID + ": " + op.Spec.Summary, "<code>" + op.Method + " " + op.Path + "</code>"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
	}
	for _, m := range loaded.FindAllStringSubmatch(page, -1) {
		if m[1] != "data:," && !strings.HasPrefix(m[1], "/guildhall/docs/") {
			t.Errorf("the page loads %s", m[1])
		}
	}
	if !strings.Contains(page, `data-contract="/guildhall/openapi.json"`) {
		t.Error("the page names another contract")
	}
}
