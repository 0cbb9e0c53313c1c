package api

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"guildhall/internal/access/auth"
	"guildhall/internal/contract"
	"guildhall/internal/contract/worst"
	"guildhall/internal/service/records"
)

// worstRequests are the requests of each operation that cost validation the most.
func worstRequests(t testing.TB) map[string]func() *reqState {
	t.Helper()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	operations, requests := readOperations(doc), map[string]func() *reqState{}
	for _, w := range worst.Illegal(doc) {
		op := operations[[2]string{w.Method, Prefix + strings.NewReplacer("{", ":", "}", "").Replace(w.Path)}]
		requests[w.Operation+": "+w.About] = func() *reqState {
			r := httptest.NewRequest(w.Method, "/?"+w.Query, bytes.NewReader(nil))
			return &reqState{Context: echo.New().NewContext(r, httptest.NewRecorder()), op: op, ctx: t.Context(), body: w.Body}
		}
	}
	return requests
}

// validated validates a request as the chain does, and words its refusal.
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
