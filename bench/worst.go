package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/contract"
	"guildhall/internal/contract/worst"
	"guildhall/internal/service/guildfile"
)

// mostCPU is what a request may cost the server's process.
const mostCPU = 50 * time.Millisecond

// dearer are the requests that may cost more than mostCPU, with the reason.
var dearer = map[string]string{
	"forgetMemberEverywhere": "it grows with the guilds that the member has something in",
	"writeRecords":           "500 records in 1 MiB, each with metadata: reading and checking 20,000 values",
}

// worstBench prints the CPU time that the server's process, Postgres apart, spends on the
// worst legal and the worst illegal request of each operation. The requests follow from the
// contract, and the server does nothing else meanwhile.
func worstBench(flags *flag.FlagSet) func(*rig.Run, string) {
	h := &host{}
	flags.IntVar(&h.wallets, "wallets", 1_000_000, "members of the guild, each with a wallet and a level")
	deliveries := flags.Int("deliveries", 1_000_000, "deliveries of the guild's endpoints")
	entrants := flags.Int("entrants", 60_000, "entrants of a giveaway")
	samples := flags.Int("samples", 3, "requests of a kind, of which the median counts")
	return func(r *rig.Run, server string) {
		h.Place = r.Place(rig.Config{Program: server, Fast: true})
		begun := time.Now()
		h.Load(h.wealth)
		h.Exec(besidesRows)
		h.Exec(`CREATE TABLE entrants AS SELECT user_id FROM loaded LIMIT $1`, *entrants)
		h.Exec(worstRows)
		h.Exec(pastsTable)
		h.Exec(`INSERT INTO pasts VALUES ($1, 10, 10, 20, 100, 100000, $2, 100, 0, 0)`, oldGuild, *deliveries)
		h.Exec(pastRows)
		h.Vacuum()
		h.Say("%d wallets, %d cases, a transcript of 10,000, %d deliveries and %d entrants, filled in %.0f s",
			h.wallets, h.wallets/10, *deliveries, *entrants, time.Since(begun).Seconds())
		w := &worstCalls{host: h, spent: map[string]map[string][]time.Duration{}, statuses: map[string]map[string]int{}}
		w.node = h.Serve("GUILDHALL_ROLES=api", "GUILDHALL_RATE_BOT=off", "GUILDHALL_RATE_LOGIN=off")
		w.begin()
		for n := range *samples {
			w.sample(n)
		}
		w.show()
	}
}

//go:embed worst.sql
var worstRows string

// worstCalls sends the worst requests, and keeps what they cost by operation and by what is
// asked for.
type worstCalls struct {
	*host
	key      string // of a bot
	pull     string // an endpoint whose events are fetched
	entry    string // an entry of the ledger
	spent    map[string]map[string][]time.Duration
	statuses map[string]map[string]int
}

// begin makes an endpoint with events that wait to be fetched, and a stream.
func (w *worstCalls) begin() {
	w.key = w.Key()
	ask := func(method, path, body string, into any, headers ...string) {
		w.Ask(w.node.HTTP, rig.Request(method, path, w.key, []byte(body), headers...), into)
	}
	of := "Guild-Id: " + guild(manyGuilds)
	var made struct{ ID string }
	ask("POST", "/webhooks", `{"delivery":"pull","events":["case.created"]}`, &made, of)
	w.pull = made.ID
	ask("PUT", "/bot/streams/mirror", `{"echo":true,"events":["case.created"]}`, nil)
	var changed struct {
		Entry struct{ ID string } `json:"ledger_entry"`
	}
	ask("POST", "/economy/adjust", `{"user_id":"1","delta":1}`, &changed, "Guild-Id: "+guildID)
	w.entry = changed.Entry.ID
	reason := strings.Repeat("🎉", 1000)
	for range 300 {
		ask("POST", "/cases", `{"user_id":"1","moderator_id":"2","type":"warn","reason":"`+reason+`"}`, nil, of)
	}
}

// sample sends each request once. Those that remove what others are about come last.
func (w *worstCalls) sample(n int) {
	doc, err := contract.Document()
	w.Must(err)
	legal, err := worst.Legal(doc, n, time.Now(), map[string]map[string]any{"writeRecords": w.records()})
	w.Must(err)
	requests := append(worst.Illegal(doc), legal...)
	last := func(r worst.Request) int {
		switch {
		case r.Operation == "removeGuild":
			return 2
		case r.Method == "DELETE", strings.HasPrefix(r.Operation, "forget"):
			return 1
		}
		return 0
	}
	slices.SortStableFunc(requests, func(a, b worst.Request) int { return last(a) - last(b) })
	caller := &rig.Caller{Address: w.node.HTTP}
	defer caller.Close()
	for _, r := range requests {
		request := w.request(r, n)
		before := w.node.Computed()
		a := caller.Send(w, request)
		spent := w.node.Computed() - before
		w.Need(a.Status != 0, "%s (%s) has no response", r.Operation, r.About)
		if w.spent[r.Operation] == nil {
			w.spent[r.Operation], w.statuses[r.Operation] = map[string][]time.Duration{}, map[string]int{}
		}
		w.spent[r.Operation][r.About] = append(w.spent[r.Operation][r.About], spent)
		if n == 0 {
			w.statuses[r.Operation][r.About] = a.Status
		}
		if n == 0 && strings.HasPrefix(r.About, "legal") && !rig.OK(a) {
			w.Say("%s, %s, is refused: %d %.300s", r.Operation, r.About, a.Status, &caller.Body)
		}
	}
}

// records are bodies of writeRecords, by kind: as many records of one kind as a call takes.
func (w *worstCalls) records() map[string]any {
	var file bytes.Buffer
	w.Must(guildfile.Demo(&file))
	kinds := map[string][]any{}
	for line := range bytes.Lines(file.Bytes()) {
		var record map[string]any
		w.Must(json.Unmarshal(line, &record))
		kind := record["record"].(string)
		delete(record, "guild_id")
		delete(record, "number") // taken
		if len(kinds[kind]) < 500 {
			kinds[kind] = append(kinds[kind], record)
		}
	}
	bodies := map[string]any{}
	for kind, records := range kinds {
		if kind != "guild" && kind != "network_listing" && kind != "settings" {
			bodies[kind] = map[string]any{"records": records}
		}
	}
	return bodies
}

// request is a request about things that are there: of each round n others, where the
// request changes them.
func (w *worstCalls) request(r worst.Request, n int) []byte {
	guildOf, ids := guildID, map[string]string{
		"userId": fmt.Sprint(member(50 + n)), "name": "mirror", "deliveryId": fmt.Sprintf("d%d", 700*n), "id": fmt.Sprintf("case-%d", 20*(n+1)),
	}
	area := strings.Split(r.Path, "/")[1]
	switch {
	case r.Operation == "removeGuild":
		guildOf = guild(1 + n)
	case r.Operation == "getLedgerEntry":
		ids["id"] = w.entry
	case r.Operation == "reopenTicket":
		ids["id"] = fmt.Sprintf("ticket-%d", 5000+50*n)
	case area == "tickets" && r.Method == "GET":
		ids["id"] = "ticket-50"
	case r.Operation == "closeTicket":
		ids["id"] = fmt.Sprintf("ticket-%d", 100+50*n)
	case area == "tickets":
		ids["id"] = fmt.Sprintf("ticket-%d", 500+50*n)
	case r.Operation == "pauseGiveaway":
		ids["id"] = fmt.Sprintf("giveaway-%d", 50+n)
	case r.Operation == "resumeGiveaway":
		ids["id"] = fmt.Sprintf("giveaway-%d", 60+n)
	case r.Operation == "updateGiveaway":
		ids["id"] = fmt.Sprintf("giveaway-%d", 70+n)
	case r.Operation == "cancelGiveaway":
		ids["id"] = fmt.Sprintf("giveaway-%d", 80+n)
	case area == "giveaways" && r.Operation != "endGiveaway":
		ids["id"] = "giveaway-99"
	case area == "giveaways":
		ids["id"] = fmt.Sprintf("giveaway-%d", n)
	case r.Operation == "createWebhookEndpoint", strings.Contains(r.Path, "/events/"):
		guildOf, ids["id"] = guild(manyGuilds), w.pull
	case area == "webhooks":
		guildOf, ids["id"] = oldGuild, endpoint
		if r.Method == "DELETE" {
			ids["id"] = fmt.Sprintf("e%d", 50+n)
		}
	case r.Operation == "answerBotWork":
		ids["id"] = fmt.Sprintf("work-%d", n)
	}
	path := r.Path
	for name, id := range ids {
		path = strings.ReplaceAll(path, "{"+name+"}", id)
	}
	if r.Query != "" {
		path += "?" + r.Query
	}
	return rig.Request(r.Method, path, w.key, r.Body, w.headers(r, guildOf)...)
}

// headers name the guild, for all but what a bot does beyond guilds.
func (w *worstCalls) headers(r worst.Request, guild string) []string {
	if strings.HasPrefix(r.Path, "/bot/") && r.Operation != "answerBotWork" {
		return nil
	}
	return []string{"Guild-Id: " + guild}
}

// show prints a line for each operation, and holds its median to mostCPU.
func (w *worstCalls) show() {
	w.Say("\nCPU of the server in ms, Postgres apart (at most %d)\n%-28s %8s  %-44s %8s  %s", mostCPU.Milliseconds(),
		"operation", "legal", "", "illegal", "")
	for _, operation := range slices.Sorted(maps.Keys(w.spent)) {
		cost, about := map[bool]time.Duration{}, map[bool]string{}
		for name, all := range w.spent[operation] {
			slices.Sort(all)
			median, legal := all[len(all)/2], strings.HasPrefix(name, "legal")
			if median >= cost[legal] {
				cost[legal], about[legal] = median, fmt.Sprintf("%d %s", w.statuses[operation][name], strings.TrimPrefix(strings.TrimPrefix(name, "legal"), ", "))
			}
		}
		w.Say("%-28s %8.1f  %-44s %8.1f  %s", operation, rig.Ms(cost[true]), about[true], rig.Ms(cost[false]), about[false])
		reason, known := dearer[operation]
		dearest := max(cost[true], cost[false])
		if dearest > mostCPU && !known {
			w.Hold(false, "%s costs %.1f ms, at most %s", operation, rig.Ms(dearest), mostCPU)
		} else if dearest > mostCPU {
			w.Say("    more than %s: %s", mostCPU, reason)
		}
	}
}
