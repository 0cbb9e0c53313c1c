package dashboard

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"guildhall/internal/service/cases"
)

// caseStates and caseTypes are what a list of cases can be filtered by.
var (
	caseStates = []string{"active", "expired", "revoked", "deleted"}
	caseTypes  = []string{"note", "warn", "timeout", "mute", "kick", "ban"}
)

type casesView struct {
	people
	Filter        cases.Filter
	Number        string // Number, Since and Until are the text that the user typed
	Since, Until  string
	States, Types []string
	Rows          []cases.Case
	Next          string
	checked
}

// Filtered reports whether anything is filtered by.
func (v *casesView) Filtered() bool {
	f := v.Filter
	return f.UserID != "" || f.ModeratorID != "" || f.Type != "" || f.Status != "" || v.Number != "" || v.Since != "" || v.Until != ""
}

// typed returns what the query string has under a name, without white space around it.
func (c *call) typed(name string) string { return strings.TrimSpace(c.r.URL.Query().Get(name)) }

// chosen is typed for one of some values; empty for another value.
func (c *call) chosen(name string, values []string) string {
	if v := c.typed(name); slices.Contains(values, v) {
		return v
	}
	return ""
}

func listCases(c *call) (reply, error) {
	v := &casesView{States: caseStates, Types: caseTypes, Number: c.typed("number"), Since: c.typed("since"), Until: c.typed("until")}
	v.Filter = cases.Filter{
		UserID: c.typed("user_id"), ModeratorID: c.typed("moderator_id"), Type: c.chosen("type", caseTypes), Status: c.chosen("status", caseStates),
	}
	if v.Number != "" {
		n, err := strconv.ParseInt(strings.TrimPrefix(v.Number, "#"), 10, 64)
		if err != nil || n < 1 {
			v.Problems.add("number", "Write the number of a case, as in 12.")
		}
		v.Filter.Number = n
	}
	if at, ok := instantOf(v.Since); ok {
		v.Filter.Since = at
	} else if v.Since != "" {
		v.Problems.add("since", "Write a time in UTC, as in 2026-05-01T08:00.")
	}
	if at, ok := instantOf(v.Until); ok {
		v.Filter.Until = &at
	} else if v.Until != "" {
		v.Problems.add("until", "Write a time in UTC, as in 2026-05-01T08:00.")
	}
	status := 0
	if len(v.Problems) > 0 {
		status = http.StatusUnprocessableEntity
	} else if err := c.readCases(v); err != nil {
		return reply{}, err
	}
	return reply{status: status, page: "cases", view: v, frame: frame{Title: "Cases", Tab: "cases"}}, nil
}

func (c *call) readCases(v *casesView) error {
	rows, more, err := cases.List(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.Filter, c.page())
	if err != nil {
		return err
	}
	v.Rows, v.Next = rows, c.nextPage(more)
	var users []string
	for _, one := range rows {
		users = append(users, one.UserID, one.ModeratorID)
	}
	v.people, err = c.people(users...)
	return err
}

// caseView is a case with its changes and their trace.
type caseView struct {
	people
	Case  cases.Case
	Next  string // the query of the next page of changes; empty after the last
	Trace traceView
}

func showCase(c *call) (reply, error) {
	one, err := cases.Find(c.ctx, c.cfg.DB.Reader(), c.guild.ID, c.r.PathValue("id"))
	if err != nil {
		return reply{}, notHere(err)
	}
	list, more, err := cases.ChangesOf(c.ctx, c.cfg.DB.Reader(), c.guild.ID, one.ID, c.page())
	if err != nil {
		return reply{}, err
	}
	v, users := &caseView{Case: one, Next: c.nextPage(more)}, []string{one.UserID, one.ModeratorID}
	for _, past := range list {
		users = append(users, or(past.AuthorID))
	}
	if v.people, err = c.people(users...); err != nil {
		return reply{}, err
	}
	changes, err := c.caseChanges(list)
	if err != nil {
		return reply{}, err
	}
	if v.Trace, err = c.trace(v.people, "case.", one.ID, changes); err != nil {
		return reply{}, err
	}
	return reply{page: "case", view: v, frame: frame{
		Title: "Case " + strconv.FormatInt(one.Number, 10), Tab: "cases", Crumbs: []crumb{{"Cases", c.path("cases")}},
	}}, nil
}

// caseChanges returns the changes of a case for its trace. The service creates no case: who has
// created one without a caller is not stored.
func (c *call) caseChanges(list []cases.Change) ([]change, error) {
	who, err := actorsOf(c, list, func(past cases.Change) (token, key *string) { return past.Origin.TokenID, past.Origin.KeyID })
	changes := make([]change, len(who))
	for i, by := range who {
		past := list[i]
		changes[i] = change{At: past.At.Time, What: "changed", Who: &by, Author: or(past.AuthorID)}
		for _, d := range past.Changes {
			changes[i].Diff = append(changes[i].Diff, auditChange{d.Field, or(d.Before), or(d.After)})
		}
		if len(past.Changes) == 0 {
			changes[i].What = "created"
			if by.service() {
				changes[i].Who = nil
			}
		}
	}
	return changes, err
}
