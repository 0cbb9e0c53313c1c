package main

import (
	"fmt"
	"strconv"
)

// connections says how many connections to Postgres a node uses for what. One more is for readiness
// and for statements that must run under any load, and with the role api another is for the
// listener of revoked tokens.
type connections struct {
	writes, reads        int // requests
	pageWrites, pageRead int // for the dashboard, if there is one
	lookups              int // for looking up tokens and reading the database's clock
	workWrites, workRead int // for webhooks, lanes, sweeps and the leaderboards' maintainer
}

// sum returns the total of a node's connections.
func (c connections) sum(api bool) int {
	n := 1 + c.pageWrites + c.pageRead + c.writes + c.reads + c.lookups + c.workWrites + c.workRead
	if api {
		n++
	}
	return n
}

// share is one kind of connections with its weight.
type share struct {
	n      *int
	weight int
}

// postgresConnections is the largest value of Postgres' max_connections.
const postgresConnections = 262_143

// parseConnections parses the setting and divides the connections.
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

// divide divides all connections of a node. Each kind gets at least one; the rest is divided in the
// proportions of the default of 29. pages adds the dashboard's connections: it has a few of its
// own, so that it takes none from the API.
func divide(total int, r roles, pages bool) (connections, error) {
	var c connections
	fixed, shares := 1, []share{{&c.lookups, 2}} // for readiness
	if r.api() {
		fixed++ // for the listener
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
