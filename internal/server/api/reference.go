package api

import (
	"bytes"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"sync"

	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"
)

// referencePath is the path of the API reference in HTML.
const referencePath = "/docs"

// referenceScript is the script that starts the reference. It is a file of its own because the page
// shares its origin with the dashboard and must not contain inline scripts.
const referenceScript = referencePath + "/begin.js"

// referencePolicy is the reference's Content-Security-Policy. It allows only files of this server.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// referenceAssets returns the reference's files beside the page. They are read from the embedded
// file system once.
var referenceAssets = sync.OnceValues(func() (map[string]*page, error) {
	pages := map[string]*page{}
	for _, file := range []string{
		"/swagger-ui.css", "/swagger-ui-bundle.js", "/swagger-ui-standalone-preset.js", "/favicon-16x16.png", "/favicon-32x32.png",
	} {
		contentType, body, err := referenceFile(swgui.Config{}, file)
		if err != nil {
			return nil, err
		}
		pages[referencePath+file] = newPage(contentType, body)
	}
	return pages, nil
})

// referenceHead is shown above the reference and describes the installation. In dark mode the
// page's colours are inverted, since Swagger UI has no dark theme.
var (
	referenceHead = template.Must(template.New("head").Parse(`<header class="about"><b>Guildhall {{.About.Version}}</b>
<a href="/openapi.yaml">OpenAPI 3.0</a> <a href="/openapi-3.1.yaml">OpenAPI 3.1</a>
{{with .About.Dashboard}}<a href="{{.}}">Dashboard</a>{{end}}
{{range .Guides}}<a href="{{.URL}}">{{.Name}}</a>
{{end}}</header>`))
	referenceStyle = template.HTML(`<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
.about { max-width: 1460px; margin: 0 auto; padding: 12px 20px 0; font: 14px sans-serif; display: flex; flex-wrap: wrap; gap: 4px 16px; }
@media (prefers-color-scheme: dark) {
  html { color-scheme: light; background: #fff; filter: invert(.9) hue-rotate(180deg); }
  .highlight-code, img { filter: invert(1) hue-rotate(180deg); }
}
@media (max-width: 639px) {
  .swagger-ui .info .title { font-size: 26px; }
  .swagger-ui .wrapper { padding: 0 12px; }
  .swagger-ui .opblock .opblock-summary-operation-id, .swagger-ui .opblock .opblock-summary-description { display: none; }
  .swagger-ui .opblock .opblock-summary-path { max-width: none; }
  .swagger-ui .opblock-body, .swagger-ui .responses-inner { overflow-x: auto; }
}
</style>`)
)

// referencePages returns the reference's page and script.
func referencePages(about About) (map[string]*page, error) {
	var links []struct{ Name, URL string }
	for _, g := range guides {
		if about.Guides != "" {
			links = append(links, struct{ Name, URL string }{g.Name, about.guide(g.Page)})
		}
	}
	var head bytes.Buffer
	if err := referenceHead.Execute(&head, map[string]any{"About": about, "Guides": links}); err != nil {
		return nil, err
	}
	contentType, body, err := referenceFile(swgui.Config{
		Title:       "Guildhall API",
		SwaggerJSON: "/openapi.json",
		SettingsUI: map[string]string{
			"defaultModelsExpandDepth": "0", // the models are folded
			"displayOperationId":       "true",
			"filter":                   "true",
		},
		AppendHead:  referenceStyle,
		PrependHTML: template.HTML(head.String()), //nolint:gosec // a template has made it
	}, "/")
	if err != nil {
		return nil, err
	}
	body = bytes.Replace(body, []byte("<title>Guildhall API - Swagger UI</title>"), []byte("<title>Guildhall API</title>"), 1)
	body, script, err := withoutScripts(body)
	if err != nil {
		return nil, err
	}
	shown := newPage(contentType, body)
	return map[string]*page{referencePath: shown, referencePath + "/": shown, referenceScript: newPage("text/javascript; charset=utf-8", script)}, nil
}

// referenceFile returns one file of the reference.
func referenceFile(cfg swgui.Config, file string) (contentType string, body []byte, err error) {
	cfg.BasePath = referencePath
	req := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: referencePath + file}, Header: http.Header{}}
	taken := &memoryWriter{header: http.Header{}}
	v5emb.NewHandlerWithConfig(cfg).ServeHTTP(taken, req)
	if taken.status != 0 && taken.status != http.StatusOK || taken.body.Len() == 0 {
		return "", nil, errors.New("the reference lacks " + referencePath + file)
	}
	return taken.header.Get("Content-Type"), taken.body.Bytes(), nil
}

// withoutScripts removes the inline scripts from a page and returns them as one script, which the
// page loads where the last one was. That is safe, because they only wait for the page to load.
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

// memoryWriter is a ResponseWriter that writes to memory.
type memoryWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (t *memoryWriter) Header() http.Header         { return t.header }
func (t *memoryWriter) WriteHeader(status int)      { t.status = status }
func (t *memoryWriter) Write(b []byte) (int, error) { return t.body.Write(b) }
