package dashboard

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/usage"
)

// window is the time span that a page shows.
type window struct {
	Key, Name string
	hours     int
}

var windows = []window{{"24h", "24 hours", 24}, {"7d", "7 days", 7 * 24}, {"30d", "30 days", 30 * 24}}

// usageView shows requests over time and by operation.
type usageView struct {
	Window  window
	Windows []window
	Plot    plot
	Rows    []usageRow
	query   url.Values // of this page
}

// To returns the address of this page for another time span, with the same filters.
func (v usageView) To(window string) string {
	q := maps.Clone(v.query)
	q.Set("window", window)
	return "?" + q.Encode()
}

// usageRow is the number of requests of one operation.
type usageRow struct {
	Operation, Method, Path string
	Total                   int64
	Classes                 []int64 // by class of response
}

// classes are the classes of responses, as plots and tables show them.
var classes = []struct {
	digit       int
	class, name string
}{{2, "c2", "2xx"}, {3, "c3", "3xx"}, {4, "c4", "4xx"}, {5, "c5", "5xx"}}

// requestsView is the page of requests and refusals.
type requestsView struct {
	Usage    usageView
	Groups   []usage.Group
	Refusals []refusalRow
	Ended    []endedRow
	Filter   usage.RefusalFilter
	Tokens   []auth.Token
	Seconds  int
	Next     string // query of the next page of refusals; empty on the last page
}

// Empty reports whether there is nothing to show.
func (v requestsView) Empty() bool {
	return v.Usage.Plot.Total == 0 && len(v.Groups) == 0 && len(v.Refusals) == 0 && len(v.Ended) == 0 &&
		v.Filter == (usage.RefusalFilter{})
}

// refusalsPage is how many refusals one page lists.
const refusalsPage = 50

type refusalRow struct {
	usage.Refusal
	Token string // name of the token, or its id if the name is unknown
}

// endedRow is the use of an ended token.
type endedRow struct {
	usage.Ended
	Token string // name of the token
}

// maxEnded is how many ended tokens with later use are listed.
const maxEnded = 20

// namesOf returns the names of tokens by id.
func namesOf(tokens []auth.Token) map[string]string {
	names := make(map[string]string, len(tokens))
	for _, t := range tokens {
		names[t.ID] = t.Name
	}
	return names
}

func listRequests(c *call) (reply, error) {
	q := c.r.URL.Query()
	v := requestsView{Seconds: int(usage.FlushInterval / time.Second), Filter: usage.RefusalFilter{
		Token: q.Get("token"), RequestID: strings.TrimSpace(q.Get("request_id")), Code: q.Get("code"), Operation: q.Get("operation"),
		Below: q.Get("below"),
	}}
	var err error
	if v.Usage, err = c.usageView(""); err != nil {
		return reply{}, err
	}
	db := c.cfg.DB.Reader()
	if v.Groups, err = usage.Groups(c.ctx, db, c.guild.ID, c.windowStart(v.Usage.Window)); err != nil {
		return reply{}, err
	}
	refusals, err := usage.Refusals(c.ctx, db, c.guild.ID, v.Filter, refusalsPage+1)
	if err != nil {
		return reply{}, err
	}
	if len(refusals) > refusalsPage {
		refusals = refusals[:refusalsPage]
		next := maps.Clone(q)
		next.Set("below", refusals[refusalsPage-1].RequestID)
		v.Next = "?" + next.Encode() + "#newest"
	}
	ended, err := usage.EndedTokens(c.ctx, db, c.guild.ID)
	if err != nil {
		return reply{}, err
	}
	ended = ended[:min(maxEnded, len(ended))]
	if v.Tokens, err = c.tokensOf(refusals, ended, v.Filter.Token); err != nil {
		return reply{}, err
	}
	names := namesOf(v.Tokens)
	for _, r := range refusals {
		v.Refusals = append(v.Refusals, refusalRow{r, cmp.Or(names[r.TokenID], r.TokenID)})
	}
	for _, e := range ended {
		v.Ended = append(v.Ended, endedRow{e, cmp.Or(names[e.TokenID], e.TokenID)})
	}
	return reply{page: "requests", view: v, frame: frame{Title: "Requests", Tab: "requests"}}, nil
}

// tokensOf returns the active tokens, and the tokens that a page names: a guild may have any number
// of other ended tokens.
func (c *call) tokensOf(refusals []usage.Refusal, ended []usage.Ended, chosen string) ([]auth.Token, error) {
	tokens, err := auth.Working(c.ctx, c.cfg.DB, c.guild.ID)
	if err != nil {
		return nil, err
	}
	named := []string{chosen}
	for _, r := range refusals {
		named = append(named, r.TokenID)
	}
	for _, e := range ended {
		named = append(named, e.TokenID)
	}
	names := namesOf(tokens)
	named = slices.DeleteFunc(named, func(id string) bool { return names[id] != "" })
	more, err := auth.Named(c.ctx, c.cfg.DB, c.guild.ID, named)
	return append(tokens, more...), err
}

// pageNumber returns the page number in the query string; the default is 1.
func (c *call) pageNumber(name string) int {
	page, err := strconv.Atoi(c.r.URL.Query().Get(name))
	if err != nil || page < 1 || page > 1000 {
		return 1
	}
	return page
}

// usageView returns the requests of a token, or of the whole guild if token is empty.
func (c *call) usageView(token string) (usageView, error) {
	v := usageView{Window: c.window(), Windows: windows, query: c.r.URL.Query()}
	start := c.windowStart(v.Window)
	q := c.cfg.DB.Reader()
	hours, err := usage.Hours(c.ctx, q, c.guild.ID, token, start)
	if err != nil {
		return v, err
	}
	v.Plot = hourly("Requests per hour, "+v.Window.Name, start, v.Window.hours, hours)
	operations, err := usage.Operations(c.ctx, q, c.guild.ID, token, start)
	if err != nil {
		return v, err
	}
	v.Rows = c.byOperation(operations)
	return v, nil
}

// window returns the time span in the query string; the default is a day.
func (c *call) window() window {
	for _, w := range windows {
		if w.Key == c.r.URL.Query().Get("window") {
			return w
		}
	}
	return windows[0]
}

// windowStart returns the first hour of a time span that ends with the current hour.
func (c *call) windowStart(w window) time.Time {
	return c.now().UTC().Truncate(time.Hour).Add(-time.Duration(w.hours-1) * time.Hour)
}

// hourly returns the plot of requests by hour and class.
func hourly(label string, start time.Time, steps int, hours []usage.Hour) plot {
	list := make([]series, len(classes))
	for i, k := range classes {
		list[i] = series{k.class, k.name, make([]int64, steps)}
	}
	for _, h := range hours {
		at := int(h.Hour.Sub(start) / time.Hour)
		for i, k := range classes {
			if k.digit == h.Class && at >= 0 && at < steps {
				list[i].values[at] += h.Requests
			}
		}
	}
	group := 1
	if steps > 24 {
		group = 24
	}
	return newPlot(label, start, time.Hour, group, list)
}

func (c *call) byOperation(rows []usage.Operation) []usageRow {
	var list []usageRow
	for _, r := range rows {
		if len(list) == 0 || list[len(list)-1].Operation != r.Operation {
			u := usageRow{Operation: r.Operation, Classes: make([]int64, len(classes))}
			for _, o := range c.cfg.Operations {
				if o.ID == r.Operation {
					u.Method, u.Path = o.Method, o.Path
				}
			}
			list = append(list, u)
		}
		last := &list[len(list)-1]
		for i, k := range classes {
			if k.digit == r.Class {
				last.Classes[i] += r.Requests
				last.Total += r.Requests
			}
		}
	}
	slices.SortStableFunc(list, func(a, b usageRow) int { return int(b.Total - a.Total) })
	return list
}

// replaceQuery returns the query string that fills the form with the values of a token.
func replaceQuery(t tokenRow) string {
	q := url.Values{"name": {t.Name}, "scopes": t.Scopes, "expires_in_days": {t.Days()}, "replaces": {t.ID}}
	if len(t.IPAllowlist) > 0 {
		q.Set("ip_allowlist", strings.Join(t.IPAllowlist, " "))
	}
	return q.Encode()
}
