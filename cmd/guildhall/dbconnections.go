package main

import (
	"fmt"
	"strconv"
)

// connections is how many connections to Postgres a node uses for what. One
// more serves readiness and what has to be written whatever the load is, and in
// the role api another hears of revocations.
type connections struct {
	writes, reads        int // requests
	pageWrites, pageRead int // the dashboard's, where there is one
	lookups              int // of tokens, and of the database's clock
	workWrites, workRead int // webhooks, jobs, sweeps, the leaderboards' maintainer
}

// sum is how many connections a node with these has in all.
func (c connections) sum(api bool) int {
	n := 1 + c.pageWrites + c.pageRead + c.writes + c.reads + c.lookups + c.workWrites + c.workRead
	if api {
		n++
	}
	return n
}

// share is a part of a node's connections with its weight.
type share struct {
	n      *int
	weight int
}

// postgresConnections is the highest that max_connections of Postgres can be.
const postgresConnections = 262_143

// parseConnections divides what the setting says.
func parseConnections(setting string, r roles, pages bool) (connections, error) {
	total, err := strconv.Atoi(setting)
	if err != nil {
		return connections{}, usageError{fmt.Errorf("is %q: write a number", setting)}
	}
	if total > postgresConnections {
		return connections{}, fmt.Errorf("%d are more than a Postgres admits, which is %d", total, postgresConnections)
	}
	return divide(total, r, pages)
}

// divide divides all connections of a node. Each kind gets at least one; beyond
// that they are divided in the proportions that the default of 29 shows. Pages are
// those of a node with a dashboard: few of their own, so that whatever people do
// there takes none from the API's callers.
func divide(total int, r roles, pages bool) (connections, error) {
	var c connections
	fixed, shares := 1, []share{{&c.lookups, 2}} // readiness
	if r.api() {
		fixed++ // the listener
		shares = append(shares, share{&c.writes, 8}, share{&c.reads, 8})
		if pages {
			shares = append(shares, share{&c.pageWrites, 1}, share{&c.pageRead, 2})
		}
	}
	if r.worker() {
		shares = append(shares, share{&c.workWrites, 7}, share{&c.workRead, 2})
	}
	if least := fixed + len(shares); total < least {
		return connections{}, fmt.Errorf("a node in these roles needs at least %d connections, one of each kind; %d are too few", least, total)
	}
	for _, s := range shares {
		*s.n = 1
	}
	for range total - fixed - len(shares) {
		next := shares[0]
		for _, s := range shares[1:] {
			if s.weight*(*next.n+1) > next.weight*(*s.n+1) {
				next = s
			}
		}
		*next.n++
	}
	return c, nil
}
