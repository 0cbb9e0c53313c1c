package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/fault"
)

// page is a document in both its forms, prepared once, so that no request compresses, decompresses
// or copies it.
type page struct {
	contentType  string
	etag         string // a weak ETag, since the plain and the gzip form share it
	plain, small []byte // small is compressed with gzip; nil if that is not smaller
}

// serveDocuments serves the contract and its reference, outside the versioned prefix, without a
// token but only over HTTPS. Requests count against their address's bucket, as all requests without
// a token do. The first of them prepares the documents: a third of what a start would cost, and many
// nodes are never asked.
func serveDocuments(about About, limits *ratelimit.Limiter, quota ratelimit.Quota) middleware {
	prepared := sync.OnceValues(func() (map[string]*page, error) { return allPages(about) })
	return func(next handler) handler {
		return func(rs *reqState) error {
			path := rs.Request().URL.Path
			if strings.HasPrefix(path, Prefix+"/") {
				return next(rs)
			}
			pages, err := prepared()
			if err != nil {
				return err
			}
			p := pages[path]
			if p == nil && (path != "/" || !gets(rs)) {
				return next(rs)
			}
			return serveDocument(rs, p, limits, quota)
		}
	}
}

func gets(rs *reqState) bool {
	return rs.Request().Method == http.MethodGet || rs.Request().Method == http.MethodHead
}

func serveDocument(rs *reqState, p *page, limits *ratelimit.Limiter, quota ratelimit.Quota) error {
	if r := limits.Spend(rs.ctx, auth.LoginKey(rs.from), quota); !r.Allowed {
		return limited("Too many requests without a token from this address.", r)
	}
	switch {
	case p != nil && !gets(rs):
		rs.Set(echo.ContextKeyHeaderAllow, "OPTIONS, GET, HEAD")
		return unrouted(rs)
	case p != nil:
		return p.respond(rs)
	case strings.Contains(rs.Request().Header.Get("Accept"), "text/html"):
		return rs.Redirect(http.StatusSeeOther, referencePath) // a browser
	}
	return noRoute(rs)
}

func (p *page) respond(rs *reqState) error {
	set(rs, "Content-Security-Policy", referencePolicy, "Cache-Control", "public, max-age=300", "Vary", "Accept-Encoding",
		"Etag", p.etag)
	h := rs.Response().Header()
	if sameEtag(rs.Request().Header.Values("If-None-Match"), p.etag) {
		return rs.NoContent(http.StatusNotModified)
	}
	body := p.plain
	if p.small != nil && acceptsGzip(rs.Request().Header.Values("Accept-Encoding")) {
		body = p.small
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", p.contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	rs.Response().WriteHeader(http.StatusOK)
	if rs.Request().Method == http.MethodHead {
		return nil
	}
	_, _ = rs.Response().Write(body) // the client may have gone
	return nil
}

// sameEtag compares as If-None-Match requires: weakly, with any ETag of a list.
func sameEtag(lines []string, etag string) bool {
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimPrefix(strings.TrimSpace(one), "W/")
			if one == "*" || one == strings.TrimPrefix(etag, "W/") {
				return true
			}
		}
	}
	return false
}

// acceptsGzip reports whether a client accepts gzip, by name or by *, with a weight above 0.
func acceptsGzip(lines []string) bool {
	taken := map[string]bool{}
	for _, line := range lines {
		for one := range strings.SplitSeq(line, ",") {
			name, weight, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(one, " ", "")), ";q=")
			q, err := strconv.ParseFloat(weight, 64)
			taken[strings.TrimSpace(name)] = weight == "" || err == nil && q > 0
		}
	}
	gz, named := taken["gzip"]
	return gz || !named && taken["*"]
}

// About describes the installation that serves the documents.
type About struct {
	// PublicURL is the base URL that the contract names as its server, without a trailing slash;
	// empty: the URL from which the contract is read.
	PublicURL string
	Version   string // the program's version
	Guides    string // base URL of the published guides for integrators, without a trailing slash; empty: not published
	Dashboard string // URL of the dashboard; empty: there is none
}

// guides are the pages for integrators below About.Guides.
var guides = []struct{ Name, Page string }{
	{"First program", "first-program"}, {"Writes", "writes"}, {"Webhooks", "webhooks"}, {"Copies", "copies"},
}

func (a About) guide(page string) string { return a.Guides + "/docs/integrate/" + page + ".html" }

// allPages returns the documents by path.
func allPages(about About) (map[string]*page, error) {
	pages := map[string]*page{}
	for _, some := range []func(About) (map[string]*page, error){contractPages, referencePages} {
		own, err := some(about)
		if err != nil {
			return nil, err
		}
		maps.Copy(pages, own)
	}
	return pages, nil
}

// contractPages are the contract in its four forms, with the server's URL and a link to the
// guides.
func contractPages(about About) (map[string]*page, error) {
	pages := map[string]*page{}
	for name, source := range map[string][]byte{"/openapi": gen.OpenAPI, "/openapi-3.1": gen.OpenAPI31} {
		before, after, found := bytes.Cut(source, []byte("\nservers:\n  - url: "+Prefix+"\n"))
		if !found {
			return nil, fmt.Errorf("read %s: it does not name its server", name)
		}
		servers := "\nservers:\n  - url: " + about.PublicURL + Prefix + "\n"
		if about.Guides != "" {
			servers = "\nexternalDocs:\n  description: Guides, from the first program to copies\n  url: " + about.guide(guides[0].Page) + "\n" + servers
		}
		source = slices.Concat(before, []byte(servers), after)
		asJSON, err := toJSON(source)
		if err != nil {
			return nil, fault.Wrap(err, "read", name)
		}
		pages[name+".yaml"], pages[name+".json"] = newPage("application/yaml", source), newPage(contentType, asJSON)
	}
	return pages, nil
}

func newPage(contentType string, body []byte) *page {
	sum := sha256.Sum256(body)
	p := &page{contentType: contentType, etag: `W/"` + hex.EncodeToString(sum[:12]) + `"`, plain: slices.Clone(body)}
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		panic(err) // cannot fail: gzip accepts this level
	}
	_, _ = z.Write(body) // writing to memory cannot fail
	_ = z.Close()
	if small.Len() < len(body) {
		p.small = small.Bytes()
	}
	return p
}

// toJSON converts a YAML document to JSON and keeps the order of the keys, because people read the
// result too.
func toJSON(source []byte) ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(source, &file); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := writeJSON(&out, &file); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.DocumentNode:
		return writeJSON(out, n.Content[0])
	case yaml.MappingNode:
		sep := byte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			out.WriteByte(sep)
			sep = ','
			key, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return err
			}
			out.Write(key)
			out.WriteByte(':')
			if err := writeJSON(out, n.Content[i+1]); err != nil {
				return err
			}
		}
		if sep == '{' {
			out.WriteByte(sep)
		}
		out.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeJSON(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
		return nil
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return err
		}
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		out.Write(b)
		return nil
	default:
		return fmt.Errorf("line %d: an alias, or nothing", n.Line)
	}
}
