package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"
	"go.yaml.in/yaml/v3"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
)

// reference is where the browsable reference lives.
const reference = "/docs"

// referenceScript is what begins the reference: its page has no script inside,
// because it shares its origin with the dashboard.
const referenceScript = reference + "/begin.js"

// referencePolicy lets the reference load what this server serves, and nothing
// from any other host.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// page is one document, made ready at start in both of its forms: nothing is
// compressed, unpacked or copied for a request.
type page struct {
	contentType  string
	etag         string // weak: the two forms are the same document
	plain, small []byte // small is gzip; nil where that is not smaller
}

// serveDocuments answers GET and HEAD for the contract and its reference, outside
// the versioned prefix: without a token, but over HTTPS only. They spend their
// address's bucket, as everything that is asked without a token does. publicURL
// is the server that the contract names; empty: whichever it was read from.
func serveDocuments(publicURL string, limits *ratelimit.Limiter, quota ratelimit.Quota) (middleware, error) {
	pages, err := allPages(publicURL)
	if err != nil {
		return nil, err
	}
	return func(next handler) handler {
		return func(rs *reqState) error {
			if rs.Request().Method != http.MethodGet && rs.Request().Method != http.MethodHead {
				return next(rs)
			}
			p := pages[rs.Request().URL.Path]
			if p == nil && rs.Request().URL.Path != "/" {
				return next(rs)
			}
			if r := limits.Spend(rs.ctx, auth.LoginKey(rs.from), quota); !r.Allowed {
				return limited("Too many requests without a token from this address.", r)
			}
			switch {
			case p != nil:
				return p.respond(rs)
			case strings.Contains(rs.Request().Header.Get("Accept"), "text/html"):
				return rs.Redirect(http.StatusSeeOther, reference) // a browser's
			}
			return noRoute(rs)
		}
	}, nil
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
	_, _ = rs.Response().Write(body) // a client that is gone misses its document
	return nil
}

// sameEtag compares as If-None-Match does: weakly, with any of a list.
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

// acceptsGzip reports whether a client takes gzip: named, or by *, and not with
// a weight of 0.
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

// allPages are the documents by their paths.
func allPages(publicURL string) (map[string]*page, error) {
	pages := map[string]*page{}
	shared, err := referencePages()
	if err != nil {
		return nil, err
	}
	for path, p := range shared {
		pages[path] = p
	}
	contract := contractPages
	if publicURL != "" {
		contract = func() (map[string]*page, error) { return contractNaming(publicURL + Prefix) }
	}
	own, err := contract()
	if err != nil {
		return nil, err
	}
	for path, p := range own {
		pages[path] = p
	}
	return pages, nil
}

var contractPages = sync.OnceValues(func() (map[string]*page, error) { return contractNaming(Prefix) })

// contractNaming is the contract in its four forms, with a server.
func contractNaming(server string) (map[string]*page, error) {
	pages := map[string]*page{}
	for name, source := range map[string][]byte{"/openapi": gen.OpenAPI, "/openapi-3.1": gen.OpenAPI31} {
		written := []byte("\n  - url: " + Prefix + "\n")
		if bytes.Count(source, written) != 1 {
			return nil, fmt.Errorf("read %s: it does not name one server", name)
		}
		source = bytes.Replace(source, written, []byte("\n  - url: "+server+"\n"), 1)
		asJSON, err := toJSON(source)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		for path, p := range map[string]*page{name + ".yaml": newPage("application/yaml", source), name + ".json": newPage(contentType, asJSON)} {
			pages[path] = p
		}
	}
	return pages, nil
}

// referencePages are the browsable reference, which does not depend on any
// setting: its files are taken from where they are embedded, once.
var referencePages = sync.OnceValues(func() (map[string]*page, error) {
	ui := v5emb.NewHandlerWithConfig(swgui.Config{
		Title:       "Guildhall API",
		SwaggerJSON: "/openapi.json",
		BasePath:    reference,
		SettingsUI: map[string]string{
			"defaultModelsExpandDepth": "0", // the models, folded
			"displayOperationId":       "true",
			"filter":                   "true",
		},
	})
	pages := map[string]*page{}
	for _, file := range []string{
		"", "/", "/swagger-ui.css", "/swagger-ui-bundle.js", "/swagger-ui-standalone-preset.js",
		"/favicon-16x16.png", "/favicon-32x32.png",
	} {
		req, err := http.NewRequest(http.MethodGet, reference+file, nil)
		if err != nil {
			return nil, err
		}
		taken := &memoryWriter{header: http.Header{}}
		ui.ServeHTTP(taken, req)
		if taken.status != 0 && taken.status != http.StatusOK || taken.body.Len() == 0 {
			return nil, errors.New("the reference lacks " + reference + file)
		}
		body := taken.body.Bytes()
		if file == "" || file == "/" {
			body = bytes.Replace(body, []byte("<title>Guildhall API - Swagger UI</title>"), []byte("<title>Guildhall API</title>"), 1)
			var script []byte
			if body, script, err = withoutScripts(body); err != nil {
				return nil, err
			}
			pages[referenceScript] = newPage("text/javascript; charset=utf-8", script)
		}
		pages[reference+file] = newPage(taken.header.Get("Content-Type"), body)
	}
	return pages, nil
})

// withoutScripts takes the scripts that stand inside a page out of it, and names
// one file with all of them where the last was: they only wait for the page to
// be loaded.
func withoutScripts(page []byte) (rest, script []byte, err error) {
	const opens, closes = "<script>", "</script>"
	for {
		before, after, found := bytes.Cut(page, []byte(opens))
		if !found {
			break
		}
		inside, after, ended := bytes.Cut(after, []byte(closes))
		if !ended {
			return nil, nil, errors.New("a script of the reference's page does not end")
		}
		script, rest, page = append(script, inside...), append(rest, before...), after
	}
	if len(script) == 0 {
		return nil, nil, errors.New("the reference's page has no script")
	}
	return slices.Concat(rest, []byte(`<script src="`+referenceScript+`">`+closes), page), script, nil
}

// memoryWriter is a ResponseWriter that keeps what is written.
type memoryWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (t *memoryWriter) Header() http.Header         { return t.header }
func (t *memoryWriter) WriteHeader(status int)      { t.status = status }
func (t *memoryWriter) Write(b []byte) (int, error) { return t.body.Write(b) }

func newPage(contentType string, body []byte) *page {
	sum := sha256.Sum256(body)
	p := &page{contentType: contentType, etag: `W/"` + hex.EncodeToString(sum[:12]) + `"`, plain: slices.Clone(body)}
	var small bytes.Buffer
	z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is one of gzip's own
	}
	_, _ = z.Write(body) // into memory
	_ = z.Close()
	if small.Len() < len(body) {
		p.small = small.Bytes()
	}
	return p
}

// toJSON turns a YAML document into JSON with its keys in the order in which
// they were written, because people read it too.
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
