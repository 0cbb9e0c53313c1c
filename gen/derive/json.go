package main

import (
	"bytes"
	"encoding/json"

	"github.com/getkin/kin-openapi/openapi3"
)

// JSON returns the contract as JSON. Each member has a line of its own, so that changes can be merged.
func JSON(src []byte) ([]byte, error) {
	doc, err := openapi3.NewLoader().LoadFromData(src)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer
	err = json.Indent(&lines, text, "", "")
	return lines.Bytes(), err
}
