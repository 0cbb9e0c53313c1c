package rig

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
)

func TestARunFailsWithWhatDidNotHold(t *testing.T) {
	t.Parallel()
	tidied := 0
	for want, work := range map[string]func(*Run){
		"":         func(r *Run) { r.Hold(true, "held") },
		"too late": func(r *Run) { r.Hold(false, "too late") },
		"a part":   func(r *Run) { r.Part(func(p *Run) { p.Hold(false, "a part") }) },
		"no disk":  func(r *Run) { r.Must(errors.New("no disk")); r.Must(errors.New("not reached")) },
		"not tidy": func(r *Run) { r.Cleanup(func() error { return errors.New("not tidy") }) },
		"count it": func(r *Run) {
			nowhere, err := sqlx.Open("postgres", "postgres://127.0.0.1:1/x")
			r.Must(err)
			r.Cleanup(nowhere.Close)
			place := &Place{Run: r, SQL: nowhere}
			place.Becomes(time.Minute, 1, `SELECT count it`)
		},
		"elsewhere": func(r *Run) { r.Part(func(p *Run) { p.Must(errors.New("elsewhere")) }) },
	} {
		err := Do(t.Context(), io.Discard, func(r *Run) {
			r.Cleanup(func() error { tidied++; return nil })
			work(r)
		})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if tidied != 7 {
		t.Errorf("%d of 7 runs were tidied up after", tidied)
	}
}
