package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"guildhall/bench/rig"
)

// host holds everything that runs while requests are measured.
type host struct {
	*rig.Place
	wallets int
	length  time.Duration
	rounds  int
	clients []int
	only    []string
	profile string
	against *host // another build, measured in place of the plainest program

	node            *rig.Node
	token           string
	tokens          []string // one token for each guild beside the measured one
	plainestAddress string
}

// requestBench loads a million wallets, starts `guildhall serve` and the plainest program
// (plainest.go), and measures them alternately, so that other load on the machine affects both. The
// ratio within a run is what matters; it prints medians of the rounds.
func requestBench(flags *flag.FlagSet) func(*rig.Run, string) {
	h := &host{}
	flags.IntVar(&h.wallets, "wallets", 1_000_000, "wallets and level records to load")
	seconds := flags.Float64("seconds", 3, "length of one measurement")
	flags.IntVar(&h.rounds, "rounds", 5, "measurements of each side, in turn")
	flags.StringVar(&h.profile, "profile", "", "operation to drive for 30 s with the last of -clients while `perf` or pprof looks on")
	clients := numbers(flags, "clients", []int{8, 32}, "numbers of connections")
	only := flags.String("only", "", "operations to measure, by the beginnings of their names; all when empty")
	short := flags.Bool("short", false, "a look that takes few minutes: 100,000 wallets, three rounds of a second")
	other := flags.String("against", "", "another build of the server `program`, to measure instead of the plainest program; every operation has a ratio then")
	address := flags.String("plainest", "", "serve the plainest program on this address; the program starts itself so")
	return func(r *rig.Run, server string) {
		if *address != "" {
			r.Must(servePlainest(r, *address))
			return
		}
		if *short {
			h.wallets, *seconds, h.rounds = 100_000, 1, 3
		}
		h.clients = *clients
		if h.profile != "" {
			*only, *seconds, h.rounds, h.clients = h.profile, 30, 1, h.clients[len(h.clients)-1:]
		}
		h.only, h.length = strings.Split(*only, ","), time.Duration(*seconds*float64(time.Second))
		// Not Fast: waiting for the disk is part of the measurement.
		h.Place = r.Place(rig.Config{Program: server})
		if *other != "" {
			r.Need(h.profile == "", "-profile drives one server alone: leave out -against")
			h.against = &host{wallets: h.wallets, length: h.length}
			h.against.Place = r.Place(rig.Config{Program: *other, Foreign: true})
			h.against.start()
		}
		h.start()
		h.measure()
	}
}

//go:embed besides.sql
var besidesRows string

// start loads a guild file and the guild's other data, creates the plainest program's tables from
// it, starts both programs, and waits for what a running installation has: rank indexes, current
// statistics, vacuumed tables, a checkpoint.
func (h *host) start() {
	begun := time.Now()
	h.Load(h.wealth)
	h.Say("imported %d wallets and level records in %.1f s", h.wallets, time.Since(begun).Seconds())
	h.Exec(besidesRows)
	if h.comparesPlainest() {
		h.Exec(plainestTables)
	}
	h.token = h.Token(guildID)
	for n := range manyGuilds {
		h.tokens = append(h.tokens, h.Token(guild(n+1)))
	}
	h.node = h.Serve()
	if h.comparesPlainest() {
		h.startPlainest()
	}
	h.Say("resident memory of the server: %d MB at rest after its start", h.node.Resident())
	begun = time.Now()
	h.Vacuum()
	h.Need(h.wallets < 512 || h.indexed(), "the server has made no rank indexes")
	h.Say("rank indexes and the rest ready after %.1f s", time.Since(begun).Seconds())
}

// indexed waits for the rank indexes of both leaderboards and reports whether they exist. The schema
// of another build may have no table rank_indexes. The build counts as ready once it has stopped
// working in the background.
func (h *host) indexed() bool {
	const limit = 3 * time.Minute
	if h.Has("rank_indexes") {
		return h.Becomes(limit, 2, `SELECT count(*) FROM rank_indexes WHERE state = 'live'`)
	}
	return h.Await(limit, func() bool {
		const span = 5 * time.Second
		spent := h.node.CPU() + h.CPU()
		return rig.Pause(h, span) && h.node.CPU()+h.CPU()-spent < span/20
	})
}

// beside returns the name of the side that the server is compared with.
func (h *host) beside() string {
	if h.against != nil {
		return "other"
	}
	return "plainest"
}

// comparesPlainest reports whether the server is compared with the plainest program.
func (h *host) comparesPlainest() bool { return h.against == nil && !h.Foreign }

// wealth writes the guild that most requests are about: a wallet and a level record of each member.
// Most members have little, few have much.
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
	for i := range h.wallets {
		xp := int64(math.Exp(6 + 1.6*random.NormFloat64()))
		fmt.Fprintf(w, `{"record":"level","guild_id":"%s","user_id":"%d","total_xp":%d}`+"\n", guildID, member(i+1), xp)
	}
}

// startPlainest starts the plainest program with the same tokens.
func (h *host) startPlainest() {
	tokens := map[string]string{h.token: guildID}
	for n, token := range h.tokens {
		tokens[token] = guild(n + 1)
	}
	known, err := json.Marshal(tokens)
	h.Must(err)
	h.plainestAddress = h.FreeAddress()
	self, err := os.Executable()
	h.Must(err)
	// Without a context, so that it is stopped in order after the measurements.
	cmd := exec.Command(self, "-plainest", h.plainestAddress)
	cmd.Stdin = bytes.NewReader(known)
	cmd.Env = append(os.Environ(), "GUILDHALL_DATABASE_URL="+h.URL)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	h.Must(cmd.Start())
	h.Cleanup(func() error {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()         // the exit status does not matter
		return nil
	})
	board := get(h.token, "/economy/leaderboard")(0, 0)
	answers := h.Await(30*time.Second, func() bool { return rig.OK(h.Send(h.plainestAddress, board)) })
	h.Need(answers, "the plainest program does not answer")
}

// measure measures every operation and prints the table.
func (h *host) measure() {
	const head = "%-27s %3s  %9s %7s %7s  %9s %7s %7s  %6s %5s  %8s %8s"
	h.Say("\n"+head, "", "", h.beside(), "p50", "p99", "server", "p50", "p99", "", "", "CPU/req", "CPU/req")
	h.Say(head, "operation", "", "/s", "ms", "ms", "/s", "ms", "ms", "ratio", "goal", "server", "Postgres")
	wanted := slices.DeleteFunc(operations(h), func(op operation) bool {
		named := slices.ContainsFunc(h.only, func(beginning string) bool { return strings.HasPrefix(op.name, beginning) })
		return !named || h.profile != "" && op.name != h.profile
	})
	h.Need(len(wanted) > 0, "there is no such operation")
	for _, op := range wanted {
		var theirs operation
		if h.against != nil {
			all := operations(h.against)
			theirs = all[slices.IndexFunc(all, func(o operation) bool { return o.name == op.name })]
			op.beside, op.goals = nil, nil
		}
		if h.profile != "" {
			h.Say("server process %d, profiles at http://%s/debug/pprof/", h.node.PID, h.node.Ops)
			op.plain, op.beside = false, nil
		}
		h.Part(func(p *rig.Place) {
			if h.against != nil && !h.against.has(theirs) {
				return
			}
			if op.prepare != nil {
				h.Must(op.prepare(p))
			}
			clients := h.clients
			if op.clients != nil {
				clients = op.clients
			}
			for _, c := range clients {
				h.line(op, theirs, c)
			}
		})
	}
	h.Say("resident memory of the server: %d MB after all requests", h.node.Resident())
}

// has prepares an operation of another build and reports whether the build has the operation. A
// build from before the operation refuses the preparation, or answers 404 or 405.
func (h *host) has(op operation) bool {
	if op.prepare != nil {
		if err := op.prepare(h.Place); err != nil {
			h.Say("%-27s left out, the other program refuses what comes before it: %.160s", op.name, err)
			return false
		}
	}
	status := h.Send(h.node.HTTP, op.request(0, 0)).Status
	if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		h.Say("%-27s left out, the other program answers %d", op.name, status)
		return false
	}
	return true
}

// load sends requests for a while. All must succeed.
func (h *host) load(address string, request call, clients int) *rig.Tally {
	t := new(rig.Tally).Run(h, rig.Load{Address: address, Connections: clients, For: h.length, Request: request})
	h.Need(t.AllOK(), "requests fail: %v", t)
	return t
}

// cost is the CPU time that requests have taken, with the deliveries of their changes.
type cost struct {
	server, postgres time.Duration
	requests         int
}

// String returns the cost of a request.
func (c cost) String() string {
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(max(c.requests, 1)) }
	return fmt.Sprintf("%5.0f us %5.0f us", per(c.server), per(c.postgres))
}

// turn sends an operation's requests to the host's server for a while, and adds their cost to c.
func (h *host) turn(op operation, clients int, c *cost) *rig.Tally {
	c.server, c.postgres = c.server-h.node.CPU(), c.postgres-h.CPU()
	t := h.load(h.node.HTTP, op.request, clients)
	if op.prepare != nil {
		h.delivered()
	}
	c.server, c.postgres = c.server+h.node.CPU(), c.postgres+h.CPU()
	c.requests += t.N()
	return t
}

// line measures one operation with one number of clients, alternating between the sides. other is
// the same operation of the other program, if there is one.
func (h *host) line(op, other operation, clients int) {
	var theirs, ours []*rig.Tally
	var ratios []float64
	var theirCost, ourCost cost
	for range h.rounds {
		switch {
		case h.against != nil:
			theirs = append(theirs, h.against.turn(other, clients, &theirCost))
		case op.beside != nil:
			theirs = append(theirs, h.load(h.node.HTTP, op.beside, clients))
		case op.plain:
			theirs = append(theirs, h.load(h.plainestAddress, op.request, clients))
		}
		t := h.turn(op, clients, &ourCost)
		ours = append(ours, t)
		if op.beside != nil {
			ratios = append(ratios, t.Ms(0.5)/theirs[len(theirs)-1].Ms(0.5))
		} else if len(theirs) > 0 {
			ratios = append(ratios, t.Rate()/theirs[len(theirs)-1].Rate())
		}
	}
	beside, ratio, goal, costs := fmt.Sprintf("%25s", ""), "", "", ourCost.String()
	if len(ratios) > 0 {
		beside, ratio = shown(theirs), fmt.Sprintf("%.2f", median(ratios))
	}
	if g := op.goals[clients]; g > 0 {
		goal = fmt.Sprintf("%.2f", g)
	}
	if h.against != nil {
		costs += "  other " + theirCost.String()
	}
	h.Say("%-27s %3d  %s  %s  %6s %5s  %s", op.name, clients, beside, shown(ours), ratio, goal, costs)
}

// delivered waits until the deliveries of the changes have ended.
func (h *host) delivered() {
	ended := h.Becomes(5*time.Minute, 0, `SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'`)
	h.Need(ended, "deliveries of the changes wait for five minutes")
}

// shown formats the medians of some rounds: rate, p50 and p99.
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
