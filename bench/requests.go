package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"guildhall/bench/rig"
)

type requestOptions struct {
	wallets int
	length  time.Duration
	rounds  int
	clients []int
	only    []string
	profile string
}

// requestBench loads a million wallets, starts `guildhall serve` and the plainest
// program (plainest.go), and drives one after the other, again and again, so that
// what else the machine does falls on both. The ratio within a run is what counts;
// medians of the rounds are shown.
func requestBench(flags *flag.FlagSet) func(*rig.Run, string) {
	var o requestOptions
	flags.IntVar(&o.wallets, "wallets", 1_000_000, "wallets and level records to load")
	seconds := flags.Float64("seconds", 3, "length of one measurement")
	flags.IntVar(&o.rounds, "rounds", 5, "measurements of each side, in turn")
	flags.StringVar(&o.profile, "profile", "", "operation to drive for 30 s with the last of -clients while `perf` or pprof looks on")
	clients := numbers(flags, "clients", 1, []int{8, 32}, "numbers of connections")
	only := names(flags, "only", "", "operations to measure, by the beginnings of their names; all when empty")
	short := flags.Bool("short", false, "a look that takes few minutes: 100,000 wallets, three rounds of a second")
	address := flags.String("plainest", "", "serve the plainest program on this address; the program starts itself so")
	tokens := flags.String("tokens", "", "its tokens, a `file`")
	return func(r *rig.Run, server string) {
		if *address != "" {
			r.Must(servePlainest(r, *address, *tokens))
			return
		}
		if *short {
			o.wallets, *seconds, o.rounds = 100_000, 1, 3
		}
		o.clients, o.only, o.length = *clients, *only, time.Duration(*seconds*float64(time.Second))
		// Not Fast: what is measured includes waiting for the disk.
		h := &host{requestOptions: o, Place: r.Place(rig.Config{Program: server})}
		h.start()
		h.measure()
	}
}

// host is everything that runs while requests are measured.
type host struct {
	requestOptions
	*rig.Place
	node            *rig.Node
	token           string
	tokens          []string // one for each of the further guilds
	plainestAddress string
}

// start loads two guild files, makes the plainest program's tables of them, starts both
// programs, and waits until what a running installation has anyway is there: the
// leaderboards' maps, fresh statistics, a vacuumed table, a checkpoint.
func (h *host) start() {
	begun := time.Now()
	n := h.Load(h.wealth) + h.Load(h.rest)
	h.Say("imported %d records in %.1f s", n, time.Since(begun).Seconds())
	h.Fill(plainestTables)
	h.token = h.Token(guildID)
	for n := range manyGuilds {
		h.tokens = append(h.tokens, h.Token(guild(n+1)))
	}
	h.node = h.Serve()
	h.startPlainest()
	h.Say("resident memory of the server: %d MB at rest after its start", h.node.Resident())
	begun = time.Now()
	h.Vacuum()
	if h.wallets >= 512 && !h.Becomes(3*time.Minute, 2, `SELECT count(*) FROM rank_maps WHERE state = 'live'`) {
		h.Must(errors.New("the server has made no maps of the leaderboards"))
	}
	h.Say("maps of the leaderboards and the rest ready after %.1f s", time.Since(begun).Seconds())
}

// wealth is the guild that most requests are about, and a thousand further ones.
func (h *host) wealth(w io.Writer) {
	fmt.Fprintf(w, `{"record":"guild","id":"%s","name":"Bench"}`+"\n", guildID)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range h.wallets {
		balance := int64(math.Exp(6 + 1.4*random.NormFloat64()))
		if random.IntN(12) == 0 {
			balance = 0
		}
		fmt.Fprintf(w, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":%d}`+"\n", guildID, member(i+1), balance)
	}
	for n := range manyGuilds {
		fmt.Fprintf(w, `{"record":"guild","id":"%s","name":"Bench"}`+"\n", guild(n+1))
		for m := range guildMembers {
			fmt.Fprintf(w, `{"record":"wallet","guild_id":"%s","user_id":"%d","balance":1000}`+"\n", guild(n+1), member(m+1))
		}
	}
}

// rest is what the guild has besides.
func (h *host) rest(w io.Writer) {
	random := rand.New(rand.NewPCG(3, 4))
	begun := time.Now().AddDate(-2, 0, 0)
	for i := range h.wallets {
		of := fmt.Sprintf(`"guild_id":"%s","user_id":"%d"`, guildID, member(i+1))
		at := begun.Add(time.Duration(i) * time.Second).Format(time.RFC3339)
		fmt.Fprintf(w, `{"record":"level",%s,"total_xp":%d}`+"\n", of, int64(math.Exp(6+1.6*random.NormFloat64())))
		if i%20 == 0 {
			kind := []string{"note", "warn", "mute", "ban"}[random.IntN(4)]
			fmt.Fprintf(w, `{"record":"case",%s,"moderator_id":"7","type":"%s","reason":"loaded","created_at":"%s"}`+"\n", of, kind, at)
		}
		if i%50 == 0 {
			fmt.Fprintf(w, `{"record":"ticket","guild_id":"%s","id":"ticket-%d","number":%d,"opener_id":"%d",`, guildID, i, 1+i/50, member(i+1))
			fmt.Fprintf(w, `"subject":"Loaded","status":"open","created_at":"%s"}`+"\n", at)
		}
		if i%100 == 0 {
			fmt.Fprintf(w, `{"record":"network_listing","user_id":"%d","trust_score":%d,"report_count":3,`, member(i+1), random.IntN(100))
			fmt.Fprintf(w, `"category":"spam","severity":"low","first_reported_at":"%s","last_reported_at":"%s"}`+"\n", at, at)
		}
	}
}

// startPlainest starts the plainest program, which knows the same tokens.
func (h *host) startPlainest() {
	tokens := map[string]string{h.token: guildID}
	for n, token := range h.tokens {
		tokens[token] = guild(n + 1)
	}
	known, err := json.Marshal(tokens)
	h.Must(err)
	file := filepath.Join(h.Folder(), "tokens.json")
	h.Must(os.WriteFile(file, known, 0o600))
	h.plainestAddress = h.FreeAddress()
	self, err := os.Executable()
	h.Must(err)
	// Without a context: it is stopped in order, after the measurements.
	cmd := exec.Command(self, "-plainest", h.plainestAddress, "-tokens", file)
	cmd.Env = append(os.Environ(), "GUILDHALL_DATABASE_URL="+h.URL)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	h.Must(cmd.Start())
	h.Cleanup(func() error {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // how it ends says nothing about the measurements
		return nil
	})
	board := get(h.token, "/economy/leaderboard")(0, 0)
	if !h.Await(30*time.Second, func() bool { return rig.OK(h.Send(h.plainestAddress, board)) }) {
		h.Must(errors.New("the plainest program does not answer"))
	}
}

// listen registers a receiver that hears of every change of a balance.
func (h *host) listen(p *rig.Place) {
	var made struct{ ID string }
	body := fmt.Appendf(nil, `{"url":"%s","events":["economy.balance_changed"]}`, p.Receiver().URL)
	p.Ask(h.node.HTTP, rig.Request("POST", "/webhooks", h.token, body), &made)
	p.Cleanup(func() error {
		h.Ask(h.node.HTTP, rig.Request("DELETE", "/webhooks/"+made.ID, h.token, nil), nil)
		return nil
	})
}

// measure runs every operation and prints the table.
func (h *host) measure() {
	if h.profile != "" {
		h.drive()
		return
	}
	h.Say("\n%-27s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s",
		"", "", "plainest", "p50", "p99", "server", "p50", "p99", "", "", "CPU/req", "CPU/req")
	h.Say("%-27s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s",
		"operation", "", "/s", "ms", "ms", "/s", "ms", "ms", "ratio", "goal", "server", "Postgres")
	for _, op := range operations(h) {
		if len(h.only) > 0 && !slices.ContainsFunc(h.only, func(beginning string) bool { return strings.HasPrefix(op.name, beginning) }) {
			continue
		}
		h.Part(func(p *rig.Place) {
			if op.prepare != nil {
				op.prepare(p)
			}
			clients := h.clients
			if op.clients != nil {
				clients = op.clients
			}
			for _, c := range clients {
				h.line(op, c)
			}
		})
	}
	h.Say("resident memory of the server: %d MB after all requests", h.node.Resident())
}

// load sends requests for a while, each of which must succeed.
func (h *host) load(address string, request call, clients int, length time.Duration) *rig.Tally {
	t := rig.Load{Address: address, Connections: clients, For: length, Request: request}.Run(h)
	if !t.AllOK() {
		h.Must(errors.Join(context.Cause(h), fmt.Errorf("requests fail: %v", t)))
	}
	return t
}

// line measures one operation with one number of clients, each side in turn.
func (h *host) line(op operation, clients int) {
	address, request := h.plainestAddress, op.request
	if op.page != nil {
		address, request = h.node.HTTP, op.page
	}
	var theirs, ours []*rig.Tally
	var ratios []float64
	var server, postgres time.Duration
	n := 0
	for range h.rounds {
		if op.plain || op.page != nil {
			theirs = append(theirs, h.load(address, request, clients, h.length))
		}
		server, postgres = server-h.node.CPU(), postgres-h.CPU()
		t := h.load(h.node.HTTP, op.request, clients, h.length)
		server, postgres = server+h.node.CPU(), postgres+h.CPU()
		ours = append(ours, t)
		n += t.N()
		if op.plain {
			ratios = append(ratios, t.Rate()/theirs[len(theirs)-1].Rate())
		} else if op.page != nil {
			ratios = append(ratios, t.Ms(0.5)/theirs[len(theirs)-1].Ms(0.5))
		}
	}
	other, ratio, goal := fmt.Sprintf("%25s", ""), "", ""
	if len(ratios) > 0 {
		other, ratio = shown(theirs), fmt.Sprintf("%.2f", median(ratios))
	}
	if g := op.goals[clients]; g > 0 {
		goal = fmt.Sprintf("%.2f", g)
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(n, 1)) }
	h.Say("%-27s %3d  %s  %s  %6s %5s  %5.0f us %5.0f us", op.name, clients, other, shown(ours), ratio, goal, per(server), per(postgres))
}

// shown is the medians of some rounds: rate, p50 and p99.
func shown(rounds []*rig.Tally) string {
	var rates, halves, tails []float64
	for _, t := range rounds {
		rates, halves, tails = append(rates, t.Rate()), append(halves, t.Ms(0.5)), append(tails, t.Ms(0.99))
	}
	return fmt.Sprintf("%9.0f %7.3f %7.3f", median(rates), median(halves), median(tails))
}

func median(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// drive drives one operation for a while.
func (h *host) drive() {
	for _, op := range operations(h) {
		if op.name == h.profile {
			h.Say("driving %s, server process %d, profiles at http://%s/debug/pprof/", op.name, h.node.PID, h.node.Ops)
			h.Say("%.0f /s", h.load(h.node.HTTP, op.request, h.clients[len(h.clients)-1], 30*time.Second).Rate())
			return
		}
	}
	h.Must(fmt.Errorf("there is no operation %q", h.profile))
}
