package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// brokenContract is the message in the log for a response that violates the contract. Scripts
// search for it.
const brokenContract = "an answer breaks the contract"

// validateResponse checks every response against the contract: status, headers, body and code. The
// response is sent in any case, and violations are logged. It copies each response, so it is meant
// for staging and for tests from outside.
func validateResponse(doc *openapi3.T, log *slog.Logger) middleware {
	routes := map[string]*routers.Route{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			routes[o.OperationID] = &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: o}
		}
	}
	return func(next handler) handler {
		return func(rs *reqState) error {
			if rs.op == nil || rs.Request().Method == http.MethodHead {
				return next(rs)
			}
			req, response := rs.Request(), rs.Response()
			both := &teeWriter{ResponseWriter: response.Writer}
			response.Writer = both
			err := next(rs)
			response.Writer = both.ResponseWriter
			if wrong := contractViolation(req, routes[rs.op.ID], response.Status, response.Header(), both.body.Bytes()); wrong != nil {
				log.ErrorContext(req.Context(), brokenContract,
					slog.String("operation", rs.op.ID),
					slog.Int("status", response.Status),
					slog.String("request_id", rs.id),
					slog.String("wrong", wrong.Error()))
			}
			return err
		}
	}
}

// contractViolation returns an error that says how a response violates the contract.
func contractViolation(req *http.Request, route *routers.Route, status int, header http.Header, body []byte) error {
	documented := route.Operation.Responses.Status(status)
	if documented == nil {
		return fmt.Errorf("the status %d is not documented", status)
	}
	err := openapi3filter.ValidateResponse(context.WithoutCancel(req.Context()), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route},
		Status:                 status,
		Header:                 header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil || status < http.StatusBadRequest {
		return err
	}
	var failure envelope
	if err := json.Unmarshal(body, &failure); err != nil {
		return err
	}
	if codes, _ := documented.Value.Extensions["x-error-codes"].([]any); !slices.Contains(codes, any(failure.Error.Code)) {
		return fmt.Errorf("the code %q is not documented for %d", failure.Error.Code, status)
	}
	return nil
}

// teeWriter is a ResponseWriter that also keeps a copy.
type teeWriter struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (w *teeWriter) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController access to the underlying writer.
func (w *teeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
