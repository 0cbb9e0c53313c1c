package rig

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestARunFailsWithWhatDidNotHold(t *testing.T) {
	t.Parallel()
	tidied := 0
	for want, work := range map[string]func(*Run){
		"":          func(r *Run) { r.Hold(true, "held") },
		"too late":  func(r *Run) { r.Hold(false, "too late") },
		"a part":    func(r *Run) { r.Part(func(p *Run) { p.Hold(false, "a part") }) },
		"no disk":   func(r *Run) { r.Must(errors.New("no disk")); r.Must(errors.New("not reached")) },
		"not tidy":  func(r *Run) { r.Cleanup(func() error { return errors.New("not tidy") }) },
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
	if tidied != 6 {
		t.Errorf("%d of 6 runs were tidied up after", tidied)
	}
}
