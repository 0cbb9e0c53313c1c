package api_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// documentPaths lists all paths that are served without a token.
var documentPaths = []string{
	"/openapi.yaml", "/openapi.json", "/openapi-3.1.yaml", "/openapi-3.1.json", "/docs", "/docs/",
	"/docs/rapidoc-min.js", "/docs/begin.js", "/docs/style.css",
}

// bare requests a document with exactly these headers.
func bare(t *testing.T, server *apitest.API, method, path string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, strings.TrimSuffix(server.URL, "/api/v1")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := server.Server.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, body
}

func TestDocumentsAreCachedAndCompressed(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	for _, path := range documentPaths {
		plain, body := bare(t, server, http.MethodGet, path)
		h := plain.Header
		if plain.StatusCode != 200 || h.Get("Cache-Control") != "public, max-age=300" || h.Get("Vary") != "Accept-Encoding" ||
			h.Get("Content-Encoding") != "" || h.Get("Strict-Transport-Security") != "max-age=31536000" || len(body) == 0 {
			t.Errorf("%s: %d %v, %d bytes", path, plain.StatusCode, h, len(body))
		}
		small, packed := bare(t, server, http.MethodGet, path, "Accept-Encoding", "br, gzip;q=0.5")
		if small.Header.Get("Content-Encoding") != "gzip" || len(packed) >= len(body) || small.Header.Get("ETag") != h.Get("ETag") {
			t.Errorf("%s compressed: %v, %d of %d bytes", path, small.Header, len(packed), len(body))
			continue
		}
		z, err := gzip.NewReader(strings.NewReader(string(packed)))
		if err != nil {
			t.Fatal(err)
		}
		if unpacked, err := io.ReadAll(z); err != nil || string(unpacked) != string(body) {
			t.Errorf("%s compressed is another document (%v)", path, err)
		}
		for _, known := range []string{h.Get("ETag"), `"x", ` + h.Get("ETag"), strings.TrimPrefix(h.Get("ETag"), "W/"), "*"} {
			if again, body := bare(t, server, http.MethodGet, path, "If-None-Match", known); again.StatusCode != 304 || len(body) != 0 ||
				again.Header.Get("ETag") != h.Get("ETag") {
				t.Errorf("%s known as %s: %d, %d bytes", path, known, again.StatusCode, len(body))
			}
		}
		if other, _ := bare(t, server, http.MethodGet, path, "If-None-Match", `"x"`); other.StatusCode != 200 {
			t.Errorf("%s known as another: %d", path, other.StatusCode)
		}
		for _, refuse := range []string{"gzip;q=0", "identity", "*;q=0", "br"} {
			if res, _ := bare(t, server, http.MethodGet, path, "Accept-Encoding", refuse); res.Header.Get("Content-Encoding") != "" {
				t.Errorf("%s for %s is compressed", path, refuse)
			}
		}
		if head, body := bare(t, server, http.MethodHead, path); head.StatusCode != 200 || len(body) != 0 ||
			head.ContentLength != plain.ContentLength {
			t.Errorf("HEAD %s: %d, %d bytes of %d", path, head.StatusCode, len(body), head.ContentLength)
		}
	}
	if res, _ := bare(t, server, http.MethodGet, "/api/v1/me"); res.Header.Get("Cache-Control") != "no-store" ||
		res.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("any other answer: %v", res.Header)
	}
}

func TestDocumentsRefuseOtherMethodsWithAllow(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	nobody := *server
	nobody.Token = ""
	for _, from := range []*apitest.API{server, &nobody} {
		for _, path := range documentPaths {
			for _, method := range []string{"POST", "DELETE", "TRACE"} {
				wantAllow(t, from.Raw(t, method, path, "").WantError(t, 405, "method_not_allowed"), []string{"GET", "HEAD", "OPTIONS"})
			}
			a := from.Raw(t, "OPTIONS", path, "")
			if a.Status != http.StatusNoContent {
				t.Errorf("OPTIONS %s answered %d", path, a.Status)
			}
			wantAllow(t, a, []string{"GET", "HEAD", "OPTIONS"})
		}
	}
}

func TestDocumentsSpendTheAddresssBucket(t *testing.T) {
	t.Parallel()
	server := apitest.New(t, apitest.With(func(c *api.Config) {
		c.Quotas.Login = ratelimit.Quota{Limit: 3, Window: time.Hour}
	}))
	for range 3 {
		if res, _ := bare(t, server, http.MethodGet, "/docs"); res.StatusCode != 200 {
			t.Fatalf("within the limit: %d", res.StatusCode)
		}
	}
	res, body := bare(t, server, http.MethodGet, "/openapi.json", "If-None-Match", "*")
	if res.StatusCode != 429 || !strings.Contains(string(body), `{"error":{"code":"rate_limited"`) ||
		res.Header.Get("Retry-After") == "" || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("beyond it: %d %s %v", res.StatusCode, body, res.Header)
	}
	if res, _ := bare(t, server, http.MethodGet, "/api/v1/me"); res.StatusCode != 429 {
		t.Errorf("a call without a token after that: %d", res.StatusCode)
	}
	server.Do(t, "getMe", "").Want(t, 200, "") // requests with a token still work
}

func TestDocumentsNameThePublicURL(t *testing.T) {
	t.Parallel()
	relative := apitest.New(t)
	named := apitest.New(t, apitest.With(func(c *api.Config) { c.About.PublicURL = "https://api.example.com/guildhall" }))
	for path, mark := range map[string]string{
		"/openapi.yaml": "- url: %s\n", "/openapi.json": `"servers":[{"url":"%s"`, "/openapi-3.1.yaml": "- url: %s\n",
		"/openapi-3.1.json": `"servers":[{"url":"%s"`,
	} {
		for server, url := range map[*apitest.API]string{relative: "/api/v1", named: "https://api.example.com/guildhall/api/v1"} {
			// Host headers that a caller sends never become the base URL.
			_, body := bare(t, server, http.MethodGet, path, "X-Forwarded-Host", "evil.example", "Forwarded", "host=evil.example")
			if want := strings.ReplaceAll(mark, "%s", url); !strings.Contains(string(body), want) || strings.Contains(string(body), "evil") {
				t.Errorf("%s does not hold %s", path, want)
			}
		}
	}
}
