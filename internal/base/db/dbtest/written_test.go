package dbtest

import (
	"context"
	"strings"
	"testing"
)

// printer keeps what a test prints.
type printer struct {
	testing.TB
	printed []string
}

func (p *printer) Logf(_ string, args ...any) {
	for _, a := range args {
		p.printed = append(p.printed, a.(string))
	}
}

// A test that fails is read by people: the plans of what it ran do not bury its reason.
func TestPlansArePrintedOnDemand(t *testing.T) { //nolint:paralleltest // it sets the environment
	d := New(t)
	for _, asked := range []string{"", "true"} {
		t.Setenv(plansVariable, asked)
		p := &printer{TB: t}
		noteForms("asked "+asked, "SELECT id FROM guilds WHERE id = 'asked "+asked+"'")
		wantForms(context.Background(), p, d.URL, "asked "+asked)
		WantPlanned(p, d.DB, map[string]string{"guild": `SELECT id FROM guilds WHERE id = $1`})
		if printed := strings.Join(p.printed, "\n"); strings.Contains(printed, "guilds_pkey") != (asked != "") || asked == "" && printed != "" {
			t.Errorf("asked %q, printed %q", asked, printed)
		}
	}
}
