package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
	"guildhall/internal/base/fault"
	"guildhall/internal/contract"
	"guildhall/internal/outbound/event"
)

// Summary is an operation in one line of the document.
type Summary struct{ ID, Method, Path, Scope, Summary, Tag string }

// Summaries returns all operations, ordered by tag as in the document, then by path, reads first.
func Summaries() ([]Summary, error) {
	doc, err := contract.Document()
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
			s := Summary{ID: o.OperationID, Method: method, Path: path, Summary: o.Summary, Tag: o.Tags[0]}
			s.Scope, _ = o.Extensions["x-required-scope"].(string)
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Summary) int {
		return cmp.Or(cmp.Compare(tags[a.Tag], tags[b.Tag]), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all, nil
}

// EventSample is the document's description of an event type.
type EventSample struct{ Type, Summary, Body string }

// EventSamples returns all event types in the order in which they are offered, each with an example
// body.
func EventSamples() ([]EventSample, error) {
	doc, err := contract.Document()
	if err != nil {
		return nil, err
	}
	found := map[string]EventSample{}
	for name, ref := range doc.Components.Schemas {
		example, ok := ref.Value.Example.(map[string]any)
		if typ, named := example["type"].(string); ok && named && strings.HasPrefix(name, "Event") {
			body, err := json.MarshalIndent(example, "", "  ")
			if err != nil {
				return nil, fault.Wrap(err, "the example of", name)
			}
			found[typ] = EventSample{typ, strings.ReplaceAll(ref.Value.Description, "`", ""), string(body)}
		}
	}
	list := make([]EventSample, 0, len(event.Types))
	for _, typ := range event.Types {
		if _, ok := found[typ]; !ok {
			return nil, fmt.Errorf("the document has no example of %s", typ)
		}
		list = append(list, found[typ])
	}
	return list, nil
}

// attributed sets the token or bot key as the actor of changes for the audit log: changes of
// webhooks, and operations for bot keys only.
func attributed(ctx context.Context, rs *reqState) context.Context {
	if rs.op == nil || rs.op.ReadOnly || rs.op.Scope != "webhooks:manage" && rs.op.Scope != auth.ScopeBot {
		return ctx
	}
	typ := audit.Token
	if rs.by.IsKey() {
		typ = audit.BotKey
	}
	return audit.With(ctx, audit.Actor{Type: typ, ID: rs.by.ID, Name: rs.by.Name, Address: rs.from.String(), RequestID: rs.id})
}

// countUsage counts a request with a token, including a token that was refused for its address or
// is revoked or expired. Requests of a bot key in no guild are not counted.
func countUsage(count func(usage.Request), rs *reqState, at time.Time) {
	by := rs.by
	if by == nil {
		by = rs.refused
	}
	if count == nil || by == nil || by.GuildID == "" || rs.closed && rs.reads() && rs.Response().Status >= http.StatusBadRequest {
		return // a refusal is not counted for a read whose caller has gone
	}
	r := usage.Request{Guild: by.GuildID, Token: by.ID, Ended: rs.ended, RequestID: rs.id, Status: rs.Response().Status, From: rs.from, At: at}
	if rs.op != nil {
		r.Operation = rs.op.ID
	}
	if r.Status >= http.StatusBadRequest {
		if f, ok := fault.As(rs.refusal); ok {
			r.Code, r.Message, r.Scope = f.Code, f.Message, f.RequiredScope
		}
	}
	count(r)
}
