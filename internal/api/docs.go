package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
	"go.yaml.in/yaml/v3"

	"guildhall/gen"
)

// page is a public document, served without a token but over HTTPS only.
type document struct {
	contentType string
	body        []byte
}

// documents answers GET and HEAD for the contract and its reference, outside
// the versioned prefix.
func documents() (echo.MiddlewareFunc, error) {
	pages := map[string]document{}
	for name, source := range map[string][]byte{"/openapi": gen.OpenAPI, "/openapi-3.1": gen.OpenAPI31} {
		asJSON, err := toJSON(source)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		pages[name+".yaml"] = document{"application/yaml", source}
		pages[name+".json"] = document{contentType, asJSON}
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			page, ok := pages[c.Request().URL.Path]
			if !ok || (c.Request().Method != http.MethodGet && c.Request().Method != http.MethodHead) {
				return next(c)
			}
			return c.Blob(http.StatusOK, page.contentType, page.body)
		}
	}, nil
}

func toJSON(source []byte) ([]byte, error) {
	var v any
	if err := yaml.Unmarshal(source, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
