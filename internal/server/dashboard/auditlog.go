package dashboard

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/service/webhooks"
)

const (
	auditPage  = 50
	auditChunk = 2000 // rows of a CSV file that are read at a time
	// auditTimeout is how long sending a CSV file may take: a million rows over a slow connection.
	auditTimeout = 30 * time.Minute
)

type auditView struct {
	Filter  audit.Filter
	Actions []string
	Rows    []auditRow
	Next    string // query of the next page; empty on the last page
	CSV     string
	Since   string // as the person typed it
	Until   string
	checked
}

// Filtered reports whether a filter is set.
func (v *auditView) Filtered() bool {
	return v.Filter.Action != "" || v.Filter.Actor != "" || v.Filter.Target != "" || v.Since != "" || v.Until != "" ||
		!v.Filter.ChangesOnly
}

// auditRow is one row of the audit log, with its details as lines.
type auditRow struct {
	audit.Row
	Changes         []auditChange
	Thing, ActorsAt string // paths of the pages of the target and of the actor; empty if there is no such page
}

// Edited reports whether the change replaced values: both the old and the new values are known.
func (r auditRow) Edited() bool { return r.Before != nil && r.After != nil }

// maker is the creator of a token or an endpoint.
type maker struct {
	auditRow
	Known bool   // the audit log has a row about the creation
	Lines string // path of the rows about the target in the audit log
}

// maker returns, from the audit log, who created the target with this id.
func (c *call) maker(action, target string) (maker, error) {
	row, known, err := audit.First(c.ctx, c.cfg.DB.Reader(), c.guild.ID, action, target)
	m := maker{Known: known, Lines: c.path("audit") + "?" + url.Values{"target": {target}}.Encode()}
	m.auditRow = auditRow{Row: row, ActorsAt: c.actorPath(row)}
	return m, err
}

// actorPath returns the path of the page of a row's actor; only tokens have such a page.
func (c *call) actorPath(r audit.Row) string {
	if r.ActorType != audit.Token || r.ActorID == "" {
		return ""
	}
	return c.path("tokens", r.ActorID)
}

// linked returns rows for the page. Each row links to the page of its target, if that page exists:
// always for a token, and until its removal for an endpoint.
func (c *call) linked(rows []audit.Row) ([]auditRow, error) {
	endpoints := map[string]bool{}
	if slices.ContainsFunc(rows, func(r audit.Row) bool { return strings.HasPrefix(r.Action, "webhook.") }) {
		standings, err := webhooks.Standings(c.ctx, c.cfg.DB.Reader(), c.guild.ID)
		if err != nil {
			return nil, err
		}
		for _, e := range standings {
			endpoints[e.ID] = true
		}
	}
	list := make([]auditRow, len(rows))
	for i, r := range rows {
		list[i] = auditRow{Row: r, Changes: changesOf(r.Before, r.After), ActorsAt: c.actorPath(r)}
		switch {
		case r.Target == "":
		case strings.HasPrefix(r.Action, "token."):
			list[i].Thing = c.path("tokens", r.Target)
		case r.Action == audit.TranscriptRead:
			list[i].Thing = c.path("tickets", r.Target)
		case endpoints[r.Target]:
			list[i].Thing = c.path("webhooks", r.Target)
		}
	}
	return list, nil
}

type auditChange struct{ Name, Before, After string }

func listAudit(c *call) (reply, error) {
	q := c.r.URL.Query()
	f := audit.Filter{Action: q.Get("action"), Actor: q.Get("actor"), Target: strings.TrimSpace(q.Get("target")), Below: q.Get("before")}
	f.ChangesOnly = q.Get("sign_ins") == ""
	v := &auditView{Actions: audit.Actions, Since: strings.TrimSpace(q.Get("since")), Until: strings.TrimSpace(q.Get("until"))}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		var ok bool
		if *at, ok = instantOf(strings.TrimSpace(q.Get(name))); !ok && q.Get(name) != "" {
			v.Problems.add(name, "Write a time in UTC, as in 2026-05-01T08:00.")
		}
	}
	v.Filter = f
	if len(v.Problems) > 0 {
		return auditReply(v, http.StatusUnprocessableEntity), nil
	}
	db := c.cfg.DB.Reader()
	if q.Get("format") == "csv" {
		return c.auditCSV(f), nil
	}
	rows, err := audit.List(c.ctx, db, c.guild.ID, f, auditPage+1)
	if err != nil {
		return reply{}, err
	}
	chosen := url.Values{}
	for name, value := range map[string]string{"action": f.Action, "actor": f.Actor, "target": f.Target, "since": v.Since, "until": v.Until, "sign_ins": q.Get("sign_ins")} {
		if value != "" {
			chosen.Set(name, value)
		}
	}
	if len(rows) > auditPage {
		rows = rows[:auditPage]
		chosen.Set("before", rows[auditPage-1].ID)
		v.Next = c.path("audit") + "?" + chosen.Encode()
		chosen.Del("before")
	}
	chosen.Set("format", "csv")
	v.CSV = c.path("audit") + "?" + chosen.Encode()
	if v.Rows, err = c.linked(rows); err != nil {
		return reply{}, err
	}
	return auditReply(v, 0), nil
}

func auditReply(v *auditView, status int) reply {
	return reply{status: status, page: "audit", view: v, frame: frame{Title: "Audit log", Tab: "audit"}}
}

// instantOf parses an instant: in the format of a form field, or RFC 3339.
func instantOf(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// changesOf returns the members that differ, sorted by name.
func changesOf(before, after *string) []auditChange {
	was, is := membersOf(before), membersOf(after)
	var list []auditChange
	all := maps.Clone(was)
	maps.Copy(all, is)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if was[name] != is[name] {
			list = append(list, auditChange{name, was[name], is[name]})
		}
	}
	return list
}

// membersOf returns the members of a JSON object as text, by name.
func membersOf(text *string) map[string]string {
	members := map[string]string{}
	if text == nil {
		return members
	}
	var raw map[string]json.RawMessage
	if json.Unmarshal([]byte(*text), &raw) != nil {
		return members
	}
	for name, v := range raw {
		var s string
		var list []string
		switch {
		case string(v) == "null":
		case json.Unmarshal(v, &s) == nil:
			members[name] = s
		case json.Unmarshal(v, &list) == nil:
			members[name] = strings.Join(list, ", ")
		default:
			members[name] = string(v)
		}
	}
	return members
}

// auditCSV sends the filtered audit log as a CSV file. The rows are read and sent in chunks, so
// that a long log takes no more memory than a short one.
func (c *call) auditCSV(f audit.Filter) reply {
	return reply{header: http.Header{
		"Content-Type":        {"text/csv; charset=utf-8"},
		"Content-Disposition": {`attachment; filename="audit-` + fileName(c.guild.ID) + `.csv"`},
	}, stream: func(ctx context.Context, to io.Writer) error {
		ctx, cancel := context.WithTimeout(ctx, auditTimeout)
		defer cancel()
		w := csv.NewWriter(to)
		_ = w.Write([]string{"at", "actor_type", "actor_id", "actor_name", "address", "request_id", "action", "target_id", "target_name", "before", "after"}) // see Flush
		for more := true; more; {
			rows, err := audit.List(ctx, c.cfg.DB.Reader(), c.guild.ID, f, auditChunk)
			if err != nil {
				return err
			}
			for _, r := range rows {
				_ = w.Write(auditCells(r)) // see Flush
				f.Below = r.ID
			}
			if w.Flush(); w.Error() != nil {
				return w.Error()
			}
			more = len(rows) == auditChunk
		}
		return nil
	}}
}

// auditCells returns the cells of a row, written so that a spreadsheet does not run any of them as
// a formula.
func auditCells(r audit.Row) []string {
	cells := []string{
		r.At.UTC().Format(time.RFC3339Nano), r.ActorType, r.ActorID, r.ActorName, r.Address, r.RequestID, r.Action, r.Target, r.Name, or(r.Before), or(r.After),
	}
	for i, cell := range cells {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			cells[i] = "'" + cell
		}
	}
	return cells
}

// fileName returns the characters of a text that are allowed in a file name.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' {
			return r
		}
		return '_'
	}, s)
}

// kinds are names for the types of actors. The page shows them apart from the actor's name, because
// the actor may have chosen the name.
var kinds = map[string]string{
	audit.User:        "Discord account",
	audit.Operator:    "operator link",
	audit.CommandLine: "command line",
	audit.Token:       "API token",
	audit.BotKey:      "bot key",
	audit.System:      "service",
}

// Kind returns a name for the type of the row's actor.
func (r auditRow) Kind() string { return cmp.Or(kinds[r.ActorType], r.ActorType) }
