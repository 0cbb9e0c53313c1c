package held

import (
	"testing"

	"guildhall/internal/base/testutil/mutants/testdata/texts"
)

func TestTheConditionIsHeld(t *testing.T) {
	t.Parallel()
	if s := texts.Statement; s != `SELECT x WHERE a = 1` {
		t.Error(s)
	}
}
