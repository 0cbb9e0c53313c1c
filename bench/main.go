// Command bench measures the program on one machine with a private Postgres. Only ratios within one
// run are meaningful.
//
//	make bench
//	go run ./bench -short -only getWallet,adjustBalance
//	go run ./bench webhooks -only claims -claims 10,1000 -seconds 2
//	go run ./bench growth -guilds 10,1000
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"guildhall/bench/rig"
)

// A bench declares its flags and returns the function to run once they are parsed.
type bench struct {
	name, about string
	declare     func(flags *flag.FlagSet) (run func(r *rig.Run, server string))
}

// benches lists all benchmarks; the first runs if none is named.
var benches = []bench{
	{"requests", "a real server against the plainest program that does the same work", requestBench},
	{"webhooks", "claims, latency and throughput of deliveries", webhookBench},
	{"dashboard", "time to the first byte of each page for people", dashboardBench},
	{"pull", "events that are fetched, from endpoints and from a stream", pullBench},
	{"worst", "CPU of the server for each operation's worst legal and worst illegal request", worstBench},
	{"growth", "cost for Postgres with few guilds and with many", growthBench},
}

func main() { rig.Main("bench", run) }

// run runs the named benchmark with the flags that follow, or all of them.
func run(ctx context.Context, args []string, out io.Writer) error {
	name := benches[0].name
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	known, found := "all", name == "all"
	for _, b := range benches {
		known += "\n  " + b.name + ": " + b.about
		if name != b.name && name != "all" {
			continue
		}
		found = true
		flags := flag.NewFlagSet("bench "+b.name, flag.ContinueOnError)
		server := flags.String("server", "bin/guildhall", "the server `program`")
		measure := b.declare(flags)
		if err := flags.Parse(args); err != nil {
			return err
		}
		if err := rig.Do(ctx, out, func(r *rig.Run) { measure(r, *server) }); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	if !found {
		return fmt.Errorf("there is no bench %q; there are\n  %s", name, known)
	}
	return nil
}

// section is a part of a benchmark that can be run alone.
type section struct {
	name string
	run  func()
}

// sections runs the sections in the comma-separated list wanted.
func sections(r *rig.Run, wanted string, all ...section) {
	for _, name := range strings.Split(wanted, ",") {
		i := slices.IndexFunc(all, func(s section) bool { return s.name == name })
		r.Need(i >= 0, "there is no part %q", name)
		all[i].run()
	}
}

// numbers declares a flag for a list of numbers.
func numbers(flags *flag.FlagSet, name string, list []int, usage string) *[]int {
	flags.Func(name, fmt.Sprintf("%s (default %v)", usage, list), func(text string) error {
		list = nil
		return json.Unmarshal([]byte("["+text+"]"), &list)
	})
	return &list
}
