package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/leaderboard"
)

const (
	oldGuild  = "1"
	endpoint  = "e0"
	mostTime  = 50 * time.Millisecond // the limit for the first byte of a page, at the 95th percentile
	besides   = 32                    // connections of one session
	mostMoved = 0.1                   // the limit by which the API's p50 may change beside the sessions
)

// dashboardBench measures the time to the first byte of each page of the dashboard, for a guild
// with a long history: tokens, a hundred endpoints, a million deliveries and audit rows, a month of
// usage counters, and the records of a million members. It measures with that guild alone in the
// database and among many others. Then it measures an API call while one session loads pages and
// sends forms.
func dashboardBench(flags *flag.FlagSet) func(*rig.Run, string) {
	deliveries := flags.Int("deliveries", 1_000_000, "deliveries of the guild")
	endpoints := flags.Int("endpoints", 100, "endpoints of the guild")
	audit := flags.Int("audit", 1_000_000, "lines of the guild's audit log")
	members := flags.Int("members", 1_000_000, "members of the guild, each with a wallet, a level and a ledger entry")
	cases := flags.Int("cases", 100_000, "cases of the guild, and a tenth as many tickets")
	messages := flags.Int("messages", 10_000, "entries of a transcript, and entrants of a giveaway")
	guilds := flags.Int("guilds", 1_000, "other guilds beside it")
	samples := flags.Int("samples", 200, "requests for each page")
	return func(r *rig.Run, server string) {
		b := &browser{Place: r.Place(rig.Config{Program: server}), samples: *samples}
		b.Exec(pastsTable)
		began := time.Now()
		b.fill(`INSERT INTO pasts VALUES ($1, 10, 10, 20, $2, $3, $4, $5, $6, $7)`, oldGuild, *endpoints, *audit, *deliveries, *members, *cases, *messages)
		b.Must(giveaways.Draw(b, b.DB, oldGuild, "g0"))
		maintainer := &leaderboard.Maintainer{DB: b.DB, Log: slog.New(slog.DiscardHandler)}
		ranked := *members < 1000 || b.Await(3*time.Minute, func() bool {
			b.Must(maintainer.Maintain(b))
			return b.Count(`SELECT count(*) FROM rank_indexes WHERE state = 'live'`) == 2
		})
		b.Need(ranked, "the leaderboards have got no rank index")
		b.Say("%d deliveries to %d endpoints, %d lines of the audit log, 10 tokens, 30 days of usage,\n%d members, %d cases, a transcript of %d, filled in %.0f s",
			*deliveries, *endpoints, *audit, *members, *cases, *messages, time.Since(began).Seconds())
		node := b.Serve("GUILDHALL_DASHBOARD_URL=https://bench", "GUILDHALL_ROLES=api", "GUILDHALL_RATE_DASHBOARD=off")
		b.signIn(node)
		b.Get(&b.entry, `SELECT id FROM ledger_entries WHERE guild_id = $1 AND reference = 'order-10'`, oldGuild)
		alone := b.measure(node)
		b.fill(`INSERT INTO pasts SELECT (1000 + g)::text, 3, 0, 1, 3, 100, 100, 100, 20, 20 FROM generate_series(1, $1::int) g`, *guilds)
		b.compare(alone, b.measure(node), *guilds)
		b.Must(node.Stop())
		b.beside()
	}
}

// browser requests pages with the cookie of a session.
type browser struct {
	*rig.Place
	samples int
	cookie  string
	entry   string // of the ledger
}

// pastsTable creates the table of the guilds that pastRows gives their history.
const pastsTable = `CREATE TABLE pasts (
	guild text, tokens int, used int, operations int, endpoints int, audit int, deliveries int, members int, cases int, messages int)`

// pastRows is a statement that gives each guild in the table pasts its history.
//
//go:embed past.sql
var pastRows string

// fill creates the guilds that a statement inserts into pasts, with their history.
func (b *browser) fill(pasts string, args ...any) {
	b.Exec(pasts, args...)
	b.Exec(pastRows)
	b.Vacuum()
}

// signIn signs in by an operator's link.
func (b *browser) signIn(n *rig.Node) {
	link, err := dashboard.NewLink(b, b.DB, oldGuild, time.Hour)
	b.Must(err)
	req, err := http.NewRequestWithContext(b, http.MethodPost, "http://"+n.HTTP+link.Path, nil)
	b.Must(err)
	req.Host = "bench"
	req.Header = http.Header{"X-Forwarded-Proto": {"https"}, "Sec-Fetch-Site": {"same-origin"}}
	res, err := http.DefaultTransport.RoundTrip(req)
	b.Must(err)
	defer res.Body.Close()
	b.Need(res.StatusCode == http.StatusSeeOther && len(res.Cookies()) > 0, "signing in to the server answers %d", res.StatusCode)
	cookie := res.Cookies()[len(res.Cookies())-1]
	b.cookie = cookie.Name + "=" + cookie.Value
}

func (b *browser) request(method, path string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: bench\r\nX-Forwarded-Proto: https\r\nSec-Fetch-Site: same-origin\r\n"+
		"Content-Length: 0\r\nCookie: %s\r\n\r\n", method, path, b.cookie)
}

// measure requests all pages in turn, so that other load on the machine affects all of them.
func (b *browser) measure(n *rig.Node) map[string]*rig.Tally {
	c := &rig.Caller{Address: n.HTTP}
	defer c.Close()
	all := map[string]*rig.Tally{}
	for round := range b.samples + 5 {
		for _, p := range b.pages() {
			a := c.Send(b, b.request("GET", p.path))
			b.Need(a.Status == http.StatusOK || a.Status == http.StatusSeeOther && strings.HasPrefix(p.name, "find"), "%s answers %d", p.name, a.Status)
			if round < 5 { // the first rounds fill caches and prepare statements
				all[p.name] = &rig.Tally{}
				continue
			}
			all[p.name].Add(rig.Response{Status: http.StatusOK, Took: a.First}) // a redirect of find counts like a page
		}
	}
	return all
}

// compare prints each page's response times, first with one guild in the database, then with many.
func (b *browser) compare(alone, among map[string]*rig.Tally, guilds int) {
	b.Say("\ntime to first byte in ms, at most %d at p95      alone        among %d guilds\n%-46s %6s %6s   %6s %6s",
		mostTime.Milliseconds(), guilds, "page", "p50", "p95", "p50", "p95")
	for _, p := range b.pages() {
		first, then := alone[p.name], among[p.name]
		b.Say("%-46s %6.1f %6.1f   %6.1f %6.1f", p.name, first.Ms(0.5), first.Ms(0.95), then.Ms(0.5), then.Ms(0.95))
		if slowest := max(first.Ms(0.95), then.Ms(0.95)); slowest > rig.Ms(mostTime) {
			b.Hold(false, "%s takes %.1f ms at p95, at most %s", p.name, slowest, mostTime)
		}
	}
}

// beside measures an API call, alone and while one session loads pages and sends forms over many
// connections, alternately.
func (b *browser) beside() {
	n := b.Serve("GUILDHALL_DASHBOARD_URL=https://bench", "GUILDHALL_ROLES=api")
	g := "/dashboard/guilds/" + oldGuild + "/"
	asks := [][]byte{b.request("GET", g), b.request("POST", g+"tokens"), b.request("GET", g+"webhooks/"+endpoint)}
	pages := rig.Load{Address: n.HTTP, Connections: besides, Rate: 400, For: 3 * time.Second, Request: func(_, n int) []byte {
		return asks[n%len(asks)]
	}}
	calls := rig.Load{Address: n.HTTP, Connections: 1, For: 3 * time.Second, Request: get(b.Token(oldGuild), "/cases?per_page=10")}
	var alone, crowded, answers rig.Tally
	for range 5 {
		alone.Run(b, calls)
		stop := b.Start(1, func(ctx context.Context, _ int) { answers.Run(ctx, pages) })
		crowded.Run(b, calls)
		stop()
	}
	moved := crowded.Ms(0.5)/alone.Ms(0.5) - 1
	b.Say("\nAPI, p50 in ms: %.2f alone, %.2f beside %d connections of one session (answers: %v): %+.0f %%",
		alone.Ms(0.5), crowded.Ms(0.5), besides, &answers, 100*moved)
	b.Hold(alone.AllOK() && crowded.AllOK() && moved <= mostMoved, "the API's p50 moves by at most %.0f %% (%.0f)", 100*mostMoved, 100*moved)
}

// page is a page to measure.
type page struct{ name, path string }

// pages returns the pages to measure.
func (b *browser) pages() []page {
	return append(recordPages(b.entry), plainPages()...)
}

// recordPages returns the pages of records. entry is an entry of the ledger.
func recordPages(entry string) []page {
	const member = "1000000000000000001" // with the longest lists
	g := "/dashboard/guilds/" + oldGuild + "/"
	find := func(q string) string { return g + "find?q=" + url.QueryEscape(q) }
	month := "since=" + time.Now().UTC().AddDate(0, 0, -20).Format("2006-01-02T15:04")
	return []page{
		{"find, nothing", g + "find"},
		{"find, a case by its number", find("77")},
		{"find, a reference", find("order-10")},
		{"find, an entry", find(entry)},
		{"find, the beginning of a million names", find("mem")},
		{"find, the beginning of names, far back", find("member") + "&page=100"},
		{"find, nobody", find("nobody")},
		{"member with the longest lists", g + "members/" + member},
		{"member in the middle of the leaderboard", g + "members/1000000000000500000"},
		{"member of whom nothing is known", g + "members/7"},
		{"ledger entry", g + "ledger/" + entry},
		{"cases", g + "cases"},
		{"cases, page 200", g + "cases?page=200"},
		{"cases of a member", g + "cases?user_id=" + member},
		{"cases of a moderator, one type and status", g + "cases?moderator_id=1000000000000000049&type=mute&status=active"},
		{"cases of a time, one status", g + "cases?status=revoked&" + month},
		{"case", g + "cases/c7"},
		{"case with 501 changes", g + "cases/c0"},
		{"tickets", g + "tickets"},
		{"tickets by activity", g + "tickets?order=activity&status=closed"},
		{"tickets, one category and priority", g + "tickets?category=help&priority=normal&claimed_by_id=none"},
		{"tickets of an opener, one who claims", g + "tickets?opener_id=" + member + "&claimed_by_id=" + member},
		{"ticket", g + "tickets/t7"},
		{"transcript of 10,000", g + "tickets/t0"},
		{"transcript of 10,000, the last page", g + "tickets/t0?page=100"},
		{"giveaways", g + "giveaways"},
		{"giveaways, one status", g + "giveaways?status=active"},
		{"giveaway", g + "giveaways/g1"},
		{"giveaway of 10,000, drawn", g + "giveaways/g0"},
		{"giveaway of 10,000, the last entrants", g + "giveaways/g0?entrants=200"},
		{"giveaway of 10,000, verified", g + "giveaways/g0?verify=1"},
	}
}

// plainPages returns the pages of tokens, webhooks and requests, and of what was changed.
func plainPages() []page {
	g := "/dashboard/guilds/" + oldGuild + "/"
	one := g + "webhooks/" + endpoint
	old := url.Values{"below": {"d"}, "below_at": {time.Now().UTC().Add(-20 * 24 * time.Hour).Format(time.RFC3339Nano)}}.Encode()
	now := time.Now().UTC()
	months := "until=" + now.AddDate(0, -6, 0).Format("2006-01-02T15:04")
	day := "since=" + now.AddDate(0, -1, -1).Format("2006-01-02T15:04") + "&until=" + now.AddDate(0, -1, 0).Format("2006-01-02T15:04")
	return []page{
		{"servers", "/dashboard/"},
		{"overview", g},
		{"tokens", g + "tokens"},
		{"new token", g + "tokens/new"},
		{"token, 24 hours", g + "tokens/1-1"},
		{"token, 7 days", g + "tokens/1-1?window=7d"},
		{"token, 30 days", g + "tokens/1-1?window=30d"},
		{"requests, 24 hours", g + "requests"},
		{"requests, 7 days", g + "requests?window=7d"},
		{"requests, 30 days", g + "requests?window=30d"},
		{"requests, refusals of a token and a code", g + "requests?token=1-1&code=not_found"},
		{"requests, one refusal", g + "requests?request_id=00000001"},
		{"requests, an id that is not there", g + "requests?request_id=none"},
		{"webhooks", g + "webhooks"},
		{"new endpoint", g + "webhooks/new"},
		{"endpoint", one},
		{"endpoint, tried", one + "?view=tried"},
		{"endpoint, all", one + "?view=all"},
		{"endpoint, twenty days back", one + "?" + old},
		{"endpoint, failed", one + "?status=failed"},
		{"endpoint, delivered, twenty days back", one + "?status=delivered&" + old},
		{"endpoint, one event type, no answer", one + "?event_type=case.created&response_class=none"},
		{"endpoint, one event type and status", one + "?event_type=case.updated&status=failed"},
		{"recover, all of 29 days", one + "/recover?since=" + time.Now().UTC().Add(-29*24*time.Hour).Format("2006-01-02T15:04")},
		{"edit endpoint", one + "/edit"},
		{"delivery", one + "/deliveries/d0"},
		{"audit log", g + "audit"},
		{"audit log, one person", g + "audit?actor=u7"},
		{"audit log, one thing", g + "audit?target=e7"},
		{"audit log, with sign-ins", g + "audit?sign_ins=1"},
		{"audit log, one action, far back", g + "audit?action=webhook.updated&" + months},
		{"audit log, a day of last month", g + "audit?" + day},
		{"sessions", "/dashboard/sessions"},
	}
}
