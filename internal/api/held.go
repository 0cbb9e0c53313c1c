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

// brokenContract is the line that the log has for an answer that the contract
// does not know. Scripts look for it.
const brokenContract = "an answer breaks the contract"

// held holds every answer of a running server against the contract: status,
// headers, body and code. The caller gets the answer either way; the log says
// what is wrong with it. It costs a copy of each answer, so it is for staging
// and for tests from outside.
func held(doc *openapi3.T, log *slog.Logger) step {
	routes := map[string]*routers.Route{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			routes[o.OperationID] = &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: o}
		}
	}
	return func(next handler) handler {
		return func(x *exchange) error {
			if x.op == nil || x.Request().Method == http.MethodHead {
				return next(x)
			}
			req, answer := x.Request(), x.Response()
			both := &copied{ResponseWriter: answer.Writer}
			answer.Writer = both
			err := next(x)
			answer.Writer = both.ResponseWriter
			if wrong := breach(req, routes[x.op.ID], answer.Status, answer.Header(), both.body.Bytes()); wrong != nil {
				log.ErrorContext(req.Context(), brokenContract,
					slog.String("operation", x.op.ID),
					slog.Int("status", answer.Status),
					slog.String("request_id", x.id),
					slog.String("wrong", wrong.Error()))
			}
			return err
		}
	}
}

// breach says where an answer and the contract disagree.
func breach(req *http.Request, route *routers.Route, status int, header http.Header, body []byte) error {
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

// copied keeps what is written through it.
type copied struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (w *copied) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController find what lies below.
func (w *copied) Unwrap() http.ResponseWriter { return w.ResponseWriter }
