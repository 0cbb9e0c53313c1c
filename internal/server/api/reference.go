package api

import (
	"bytes"
	"embed"
	"html/template"
	"net/url"
	"strings"

	"guildhall/internal/base/fault"
	"guildhall/internal/contract"
)

// referencePath is where the browsable reference lives.
const referencePath = "/docs"

// referencePolicy lets the reference load what this server serves, and nothing
// from any other host.
const referencePolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// viewerFiles are the reference's page and what it loads: RapiDoc, and what makes RapiDoc
// show the contract. The page has no script inside, because it shares its origin with the
// dashboard.
//
//go:embed viewer
var viewerFiles embed.FS

var referencePage = template.Must(template.ParseFS(viewerFiles, "viewer/page.html"))

// listedTag is a tag of the contract as the page lists it.
type listedTag struct {
	Name, Description string
	Operations        []listedOperation
}

// listedOperation is an operation as the page lists it for readers without a script.
type listedOperation struct {
	Summary
	Paragraphs []string
}

// listedTags returns the tags of the contract with their operations.
func listedTags() ([]listedTag, error) {
	doc, err := contract.Document()
	if err != nil {
		return nil, err
	}
	all, err := Summaries()
	byTag := map[string][]listedOperation{}
	for _, s := range all {
		description := strings.TrimSpace(doc.Paths.Value(s.Path).GetOperation(s.Method).Description)
		byTag[s.Tag] = append(byTag[s.Tag], listedOperation{s, strings.Split(description, "\n\n")})
	}
	tags := make([]listedTag, len(doc.Tags))
	for i, tag := range doc.Tags {
		tags[i] = listedTag{tag.Name, tag.Description, byTag[tag.Name]}
	}
	return tags, err
}

// referencePages are the page of the browsable reference, below the path that the public
// URL has, and the files that it loads.
func referencePages(about About) (map[string]*page, error) {
	var links []struct{ Name, URL string }
	for _, g := range guides {
		if about.Guides != "" {
			links = append(links, struct{ Name, URL string }{g.Name, about.guide(g.Page)})
		}
	}
	public, err := url.Parse(about.PublicURL)
	if err != nil {
		return nil, fault.Wrap(err, "read the public URL")
	}
	tags, err := listedTags()
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	if err := referencePage.Execute(&body, map[string]any{"About": about, "Base": public.Path, "Guides": links, "Tags": tags}); err != nil {
		return nil, fault.Wrap(err, "write the reference")
	}
	shown := newPage("text/html; charset=utf-8", body.Bytes())
	pages := map[string]*page{referencePath: shown, referencePath + "/": shown}
	for name, contentType := range map[string]string{
		"rapidoc-min.js": "text/javascript; charset=utf-8", "begin.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8",
	} {
		file, err := viewerFiles.ReadFile("viewer/" + name)
		if err != nil {
			return nil, fault.Wrap(err, "read the reference")
		}
		pages[referencePath+"/"+name] = newPage(contentType, file)
	}
	return pages, nil
}
