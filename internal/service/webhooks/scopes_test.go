package webhooks

import (
	"slices"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
)

func TestEveryEventHasAReadScope(t *testing.T) {
	t.Parallel()
	for _, e := range event.Types {
		if scope := ReadScope(e); !slices.Contains(auth.Scopes, scope) {
			t.Errorf("%s needs %q, which is no scope", e, scope)
		}
	}
	if scope := ReadScope(event.Ping); scope != "" {
		t.Errorf("a ping needs %s", scope)
	}
}

func TestMayReadNamesTheFirstMissingScope(t *testing.T) {
	t.Parallel()
	by := &auth.Principal{Scopes: []string{"webhooks:manage", "economy:read"}}
	for _, c := range []struct {
		events []string
		want   string
	}{
		{[]string{event.BalanceChanged}, ""},
		{[]string{event.Ping}, ""},
		{[]string{event.LevelUp, event.CaseCreated, event.TicketClosed}, "cases:read"},
		{[]string{event.LevelUp, event.GiveawayEnded}, "giveaways:read"},
		{[]string{event.BalanceChanged, event.TicketMessage}, "tickets:read"},
		{[]string{event.LevelUp}, "levelling:read"},
	} {
		f, _ := fault.As(mayRead(by, c.events))
		if (f == nil) != (c.want == "") || f != nil && (f.RequiredScope != c.want || f.Code != "insufficient_scope") {
			t.Errorf("%v: got %+v, want %q", c.events, f, c.want)
		}
	}
	if err := mayRead(nil, event.Types); err != nil {
		t.Errorf("the operator may not read: %v", err)
	}
}

// A token that may not read an endpoint's events may disable it, and may not change anything else
// along with that.
func TestAPatchThatOnlyDisables(t *testing.T) {
	t.Parallel()
	off, on, text := false, true, "text"
	described, cleared := &text, (*string)(nil)
	if !(patch{Enabled: &off}).onlyDisables() {
		t.Error("a patch that disables asks for more")
	}
	for _, p := range []patch{
		{},
		{Enabled: &on},
		{Enabled: &off, Delivery: "push"},
		{Enabled: &off, URL: &text},
		{Enabled: &off, Events: []string{event.CaseCreated}},
		{Enabled: &off, Description: &described},
		{Enabled: &off, Description: &cleared},
	} {
		if p.onlyDisables() {
			t.Errorf("%+v asks for nothing more than to be disabled", p)
		}
	}
}
