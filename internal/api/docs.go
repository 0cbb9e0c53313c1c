package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"
	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"
	"go.yaml.in/yaml/v3"

	"guildhall/gen"
)

// reference is where the browsable reference lives.
const reference = "/docs"

// referencePolicy lets the reference load what this server serves, and nothing
// from any other host.
const referencePolicy = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// documents answers GET and HEAD for the contract and its reference, outside
// the versioned prefix: without a token, but over HTTPS only.
var documents = sync.OnceValues(func() (step, error) {
	pages := map[string]echo.HandlerFunc{}
	for name, source := range map[string][]byte{"/openapi": gen.OpenAPI, "/openapi-3.1": gen.OpenAPI31} {
		asJSON, err := toJSON(source)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		pages[name+".yaml"] = blob("application/yaml", source)
		pages[name+".json"] = blob(contentType, asJSON)
	}
	ui := echo.WrapHandler(v5emb.NewHandlerWithConfig(swgui.Config{
		Title:       "Guildhall API",
		SwaggerJSON: "/openapi.json",
		BasePath:    reference,
		SettingsUI: map[string]string{
			"defaultModelsExpandDepth": "0", // the models, folded
			"displayOperationId":       "true",
			"filter":                   "true",
		},
	}))
	for _, file := range []string{
		"", "/", "/swagger-ui.css", "/swagger-ui-bundle.js", "/swagger-ui-standalone-preset.js",
		"/favicon-16x16.png", "/favicon-32x32.png",
	} {
		pages[reference+file] = ui
	}
	return func(next handler) handler {
		return func(x *exchange) error {
			page, ok := pages[x.Request().URL.Path]
			if !ok || (x.Request().Method != http.MethodGet && x.Request().Method != http.MethodHead) {
				return next(x)
			}
			x.Response().Header().Set("Content-Security-Policy", referencePolicy)
			return page(x)
		}
	}, nil
})

func blob(contentType string, body []byte) echo.HandlerFunc {
	return func(c echo.Context) error { return c.Blob(http.StatusOK, contentType, body) }
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
