package fault_test

import (
	"errors"
	"strings"
	"testing"

	"guildhall/internal/base/fault"
)

func TestWrapSaysWhatWasBeingDone(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection reset")
	err := fault.Wrap(cause, "read case", "7", "of guild", "42")
	if !errors.Is(err, cause) || err.Error() != "read case 7 of guild 42: connection reset" {
		t.Errorf("%v", err)
	}
}

// Wrap of a nil error allocates nothing.
func TestWrapOfNoErrorIsNone(t *testing.T) { //nolint:paralleltest // it counts allocations
	guild := string(make([]byte, 20))
	if n := testing.AllocsPerRun(100, func() {
		if err := fault.Wrap(nil, "list cases of guild", guild); err != nil {
			t.Errorf("%v", err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Caught returns a panic as an error with the reason and the stack, and returns any other error
// unchanged.
func TestAPanicIsCaught(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	if err := fault.Caught(func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("work that fails: %v", err)
	}
	if err := fault.Caught(func() error { return nil }); err != nil {
		t.Errorf("work that ends well: %v", err)
	}
	err := fault.Caught(func() error { panic("inside") })
	if err == nil || !strings.Contains(err.Error(), "panic: inside") || !strings.Contains(err.Error(), "TestAPanicIsCaught") {
		t.Errorf("work that panics: %v", err)
	}
}
