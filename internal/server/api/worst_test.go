package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/contract"
	"guildhall/internal/service/records"
)

// worstBodies returns the bodies of an operation that are the most expensive to validate: as many
// bytes and values as the operation accepts.
func worstBodies(op *operation) map[string][]byte {
	unknown := func(n int) string {
		var members strings.Builder
		for i := range n {
			fmt.Fprintf(&members, `,"unkown_%d":1`, i)
		}
		return members.String()[min(1, members.Len()):]
	}
	bodies := map[string]string{
		"unknown members": "{" + unknown(op.MaxValues-1) + "}",
		"only values":     "[" + strings.Repeat("1,", op.MaxValues-2) + "1]",
		"fractions":       "[" + strings.Repeat("1.5,", op.MaxValues-2) + "1]",
	}
	for name, ref := range op.Body.Properties {
		if ref.Value.Items == nil {
			bodies["wrong "+name] = fmt.Sprintf(`{%q:[%s1]}`, name, strings.Repeat("1,", op.MaxValues-3))
			continue
		}
		most := 1000
		if n := ref.Value.MaxItems; n != nil {
			most = int(*n)
		}
		item := ref.Value.Items.Value
		each := max(1, (op.MaxValues-2)/most-1)
		bodies["unknown members in "+name] = fmt.Sprintf(`{%q:[%s]}`, name, strings.Join(slices.Repeat([]string{"{" + unknown(each) + "}"}, most), ","))
		bodies["wrong values in "+name] = fmt.Sprintf(`{%q:[%s]}`, name, strings.Join(slices.Repeat([]string{wrongValues(item)}, most), ","))
		bodies["too many items of "+name] = fmt.Sprintf(`{%q:[%s1]}`, name, strings.Repeat("1,", op.MaxValues-3))
		bodies["empty items of "+name] = fmt.Sprintf(`{%q:[%s{}]}`, name, strings.Repeat("{},", op.MaxValues-3))
	}
	fitting := map[string][]byte{}
	for name, body := range bodies {
		if int64(len(body)) > op.MaxBody {
			body = body[:op.MaxBody/2] // cut off, so no longer JSON, but as long
			name += ", cut off"
		}
		fitting[name] = []byte(body)
	}
	return fitting
}

// wrongValues returns an object in which every member has the wrong type.
func wrongValues(s *openapi3.Schema) string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		members = append(members, fmt.Sprintf(`%q:[]`, name))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// worstRequests returns the most expensive requests to validate, by operation.
func worstRequests(t testing.TB) map[string]func() *reqState {
	t.Helper()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	requests := map[string]func() *reqState{}
	for at, op := range readOperations(doc) {
		if at[0] == http.MethodHead {
			continue
		}
		add := func(name, query string, body []byte) {
			requests[op.ID+": "+name] = func() *reqState {
				r := httptest.NewRequest(at[0], "/?"+query, bytes.NewReader(nil))
				return &reqState{Context: echo.New().NewContext(r, httptest.NewRecorder()), op: op, ctx: t.Context(), body: body}
			}
		}
		if op.ReadOnly {
			add("100 unknown parameters", parameters(100), nil)
			add("9900 unknown parameters", parameters(9900), nil)
			continue
		}
		if op.Body == nil {
			continue
		}
		for name, body := range worstBodies(op) {
			add(name, "", body)
		}
	}
	return requests
}

func parameters(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("q%02d", i)
	}
	return strings.Join(names, "&")
}

// validated validates a request as the chain does, including the message of the refusal.
func validated(rs *reqState) error {
	err := validate(rs)
	if err == nil && rs.op.ID == "writeRecords" {
		_, err = records.Check(rs.ctx, rs.value)
	}
	return err
}

// cpuTime returns the CPU time that f uses on its thread, without garbage collection.
func cpuTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const thread = 1 // RUSAGE_THREAD
	used := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(thread, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}

// BenchmarkWorstRequests validates the most expensive requests of each operation. Each must take at
// most 50 ms.
func BenchmarkWorstRequests(b *testing.B) {
	for name, request := range worstRequests(b) {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			var used time.Duration
			for b.Loop() {
				rs := request()
				used += cpuTime(func() { _ = validated(rs) })
			}
			b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

// Validation stops when the request's caller has gone, and that is not reported as a problem of the
// request. RELIABILITY.md, Input.
func TestValidationEndsWithItsRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, request := range worstRequests(t) {
		rs := request()
		rs.ctx = ctx
		served := false
		err := validateRequest(func(*reqState) error { served = true; return nil })(rs)
		if !errors.Is(err, context.Canceled) || served {
			t.Fatalf("%s: %v, served %t", name, err, served)
		}
	}
	acting := auth.With(ctx, &auth.Principal{})
	if _, err := records.Check(acting, map[string]any{"records": []any{map[string]any{}}}); !errors.Is(err, context.Canceled) {
		t.Errorf("records are checked to their end: %v", err)
	}
}
