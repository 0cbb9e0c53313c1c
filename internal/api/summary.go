package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"guildhall/internal/audit"
	"guildhall/internal/fault"
	"guildhall/internal/schema"
	"guildhall/internal/usage"
)

// Summary is what the document says of an operation in one line.
type Summary struct{ ID, Method, Path, Scope, Summary, Tag string }

// Summaries returns every operation, by tag in the document's order, then by
// path, reads first.
func Summaries() ([]Summary, error) {
	doc, err := schema.Document()
	if err != nil {
		return nil, err
	}
	tags := map[string]int{}
	for i, t := range doc.Tags {
		tags[t.Name] = i
	}
	var all []Summary
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			s := Summary{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary}
			s.Scope, _ = o.Extensions["x-required-scope"].(string)
			if len(o.Tags) > 0 {
				s.Tag = o.Tags[0]
			}
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Summary) int {
		if a.Tag != b.Tag {
			return tags[a.Tag] - tags[b.Tag]
		}
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return strings.Compare(a.Method, b.Method)
	})
	return all, nil
}

// attributed names the token as the one who makes the changes that the audit
// log tells of: those of webhooks.
func attributed(ctx context.Context, x *exchange) context.Context {
	if x.op == nil || x.op.ReadOnly || x.op.Scope != "webhooks:manage" {
		return ctx
	}
	return audit.With(ctx, audit.Actor{Type: audit.Token, ID: x.by.TokenID, Name: x.by.Name, Address: x.from.String(), RequestID: x.id})
}

// counted tells of a request that came with a token, or with one that may not be
// used from its address.
func counted(count func(usage.Request), x *exchange, at time.Time) {
	by := x.by
	if by == nil {
		by = x.refused
	}
	if count == nil || by == nil {
		return
	}
	r := usage.Request{Guild: by.GuildID, Token: by.TokenID, RequestID: x.id, Status: x.Response().Status, From: x.from, At: at}
	if x.op != nil {
		r.Operation = x.op.ID
	}
	if r.Status >= http.StatusBadRequest {
		if f, ok := fault.As(x.refusal); ok {
			r.Code = f.Code
		}
	}
	count(r)
}
