package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
)

// Response is a response of the server.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	Cause  string // the logged error behind a 500
}

// said returns the body for the message of a failed test, with the cause of a 500.
func (a *Response) said() string {
	if a.Cause == "" {
		return string(a.Body)
	}
	return string(a.Body) + "\ncause: " + a.Cause
}

// cause returns the error that the server logged for the response with the headers h. The log line
// is written after the response, so cause may have to wait for it.
func (s *Server) cause(h http.Header) string {
	for begun := time.Now(); time.Since(begun) < time.Second; time.Sleep(time.Millisecond) {
		for line := range strings.Lines(s.Log.String()) {
			var logged struct {
				RequestID string `json:"request_id"`
				Cause     string `json:"cause"`
			}
			if json.Unmarshal([]byte(line), &logged) == nil && logged.Cause != "" && logged.RequestID == h.Get("X-Request-Id") {
				return logged.Cause
			}
		}
	}
	return ""
}

// Code returns the error code, or "".
func (a *Response) Code() string {
	var e struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(a.Body, &e)
	return e.Error.Code
}

// Into decodes the body into dst.
func (a *Response) Into(t testing.TB, dst any) {
	t.Helper()
	if err := json.Unmarshal(a.Body, dst); err != nil {
		t.Fatalf("cannot decode %s: %v", a.Body, err)
	}
}

// Str returns the string at a dotted path of the body, such as "data.id".
func (a *Response) Str(t testing.TB, path string) string {
	t.Helper()
	var v any
	a.Into(t, &v)
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("no %s in %s", path, a.Body)
		}
		v = m[name]
	}
	s, ok := v.(string)
	if !ok {
		t.Fatalf("%s is no string in %s", path, a.Body)
	}
	return s
}

// All returns one member of every item of a list.
func (a *Response) All(t testing.TB, member string) []string {
	t.Helper()
	var body struct{ Data []map[string]any }
	a.Into(t, &body)
	list := make([]string, len(body.Data))
	for i, item := range body.Data {
		list[i] = fmt.Sprint(item[member])
	}
	return list
}

// Want fails the test unless the response has this status and its body contains subset: every
// member of subset with the same value, and arrays item by item.
func (a *Response) Want(t testing.TB, status int, subset string) *Response {
	t.Helper()
	if a.Status != status {
		t.Fatalf("got status %d, want %d: %s", a.Status, status, a.said())
	}
	if subset != "" {
		wantSubset(t, a.Body, subset)
	}
	return a
}

// WantError fails the test unless the response is this error.
func (a *Response) WantError(t testing.TB, status int, code string) *Response {
	t.Helper()
	if a.Status != status || a.Code() != code {
		t.Fatalf("got %d %s, want %d %s: %s", a.Status, a.Code(), status, code, a.said())
	}
	return a
}

// WantReplayOf fails the test unless the response repeats first, has the replay header, and has a
// request id of its own.
func (a *Response) WantReplayOf(t testing.TB, first *Response) *Response {
	t.Helper()
	switch {
	case a.Status != first.Status || !bytes.Equal(a.Body, first.Body) || a.Header.Get("Location") != first.Header.Get("Location"):
		t.Fatalf("got %d %s, want a replay of %d %s", a.Status, a.Body, first.Status, first.Body)
	case a.Header.Get("Idempotent-Replay") != "true":
		t.Fatal("the replay does not say Idempotent-Replay: true")
	case a.Header.Get("X-Request-Id") == first.Header.Get("X-Request-Id"):
		t.Fatal("the replay repeats the request id")
	}
	return a
}

func wantSubset(t testing.TB, body []byte, subset string) {
	t.Helper()
	var got, want any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("cannot decode %s: %v", body, err)
	}
	if err := json.Unmarshal([]byte(subset), &want); err != nil {
		t.Fatalf("the test's own JSON %s: %v", subset, err)
	}
	if at, ok := contains(got, want, "$"); !ok {
		t.Fatalf("at %s the answer differs from the wanted %s:\n%s", at, subset, body)
	}
}

func contains(got, want any, at string) (string, bool) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return at, false
		}
		for name, value := range w {
			have, present := g[name]
			if !present {
				return at + "." + name, false
			}
			if where, ok := contains(have, value, at+"."+name); !ok {
				return where, false
			}
		}
		return "", true
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return at, false
		}
		for i := range w {
			if where, ok := contains(g[i], w[i], fmt.Sprintf("%s[%d]", at, i)); !ok {
				return where, false
			}
		}
		return "", true
	default:
		return at, reflect.DeepEqual(got, want)
	}
}

type recorded struct {
	ID      string `db:"id"`
	Type    string `db:"type"`
	Payload []byte `db:"payload"`
}

// WantEvent fails the test unless the oldest event that was not checked yet has this type, matches
// its schema and contains subset.
func (a *API) WantEvent(t testing.TB, typ, subset string) {
	t.Helper()
	list := a.fresh(t)
	if len(list) == 0 {
		t.Fatalf("no event, want %s", typ)
	}
	e := list[0]
	a.Server.mu.Lock()
	a.Server.seen[e.ID] = true
	a.Server.mu.Unlock()
	if e.Type != typ {
		t.Fatalf("got event %s, want %s: %s", e.Type, typ, e.Payload)
	}
	must(t, CheckEvent(e.Type, e.Payload))
	if subset != "" {
		wantSubset(t, e.Payload, subset)
	}
}

// fresh returns the guild's events that were not checked yet, oldest first.
func (a *API) fresh(t testing.TB) []recorded {
	t.Helper()
	all, err := db.Select[recorded](context.Background(), a.Server.DB.Reader(), `
		SELECT id, type, payload FROM webhook_events WHERE guild_id = $1 ORDER BY occurred_at, id`, a.Guild)
	must(t, err)
	a.Server.mu.Lock()
	defer a.Server.mu.Unlock()
	list := all[:0]
	for _, e := range all {
		if !a.Server.seen[e.ID] {
			list = append(list, e)
		}
	}
	return list
}

// WantNoEvent fails the test if there is an event that no WantEvent has checked.
func (a *API) WantNoEvent(t testing.TB) {
	t.Helper()
	if list := a.fresh(t); len(list) > 0 {
		t.Fatalf("got event %s, want none: %s", list[0].Type, list[0].Payload)
	}
}

// CheckBooks fails the test unless the database is consistent: each wallet's balance is the sum of
// its ledger, each finished key has a response, no key of a committed transaction is unfinished,
// and each event matches its schema.
func CheckBooks(t testing.TB, d *db.DB) {
	t.Helper()
	ctx := context.Background()
	for what, query := range map[string]string{
		"a wallet differs from the sum of its ledger": `
			SELECT guild_id || '/' || user_id FROM wallets w
			WHERE balance <> coalesce((SELECT sum(delta) FROM ledger_entries l
			                           WHERE l.guild_id = w.guild_id AND l.user_id = w.user_id), 0)
			AND NOT EXISTS (SELECT FROM forgotten_members f WHERE f.guild_id = w.guild_id AND f.user_id = w.user_id)`,
		"a ledger row has no wallet": `
			SELECT id FROM ledger_entries l
			WHERE NOT EXISTS (SELECT FROM wallets w WHERE w.guild_id = l.guild_id AND w.user_id = l.user_id)
			-- Of a member who is being forgotten the wallet goes first.
			AND NOT EXISTS (SELECT FROM forgotten_members f WHERE f.guild_id = l.guild_id AND f.user_id = l.user_id)`,
		"an idempotency key is unfinished without a lease": `
			SELECT token_id || '/' || key FROM idempotency_keys WHERE state = 'running' AND lease_until IS NULL`,
		"a delivery has no event": `
			SELECT id FROM webhook_deliveries v WHERE NOT EXISTS (SELECT FROM webhook_events e WHERE e.guild_id = v.guild_id AND e.id = v.event_id)`,
	} {
		wrong, err := db.Select[string](ctx, d.Reader(), query)
		must(t, err)
		if len(wrong) > 0 {
			t.Errorf("%s: %v", what, wrong)
		}
	}
	events, err := db.Select[recorded](ctx, d.Reader(), `SELECT id, type, payload FROM webhook_events LIMIT 500`)
	must(t, err)
	for _, e := range events {
		if err := CheckEvent(e.Type, e.Payload); err != nil {
			t.Error(err)
		}
	}
}
