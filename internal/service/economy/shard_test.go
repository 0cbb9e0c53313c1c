package economy

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// An adjustment with an idempotency key touches only the shard of its guild: the key, the ledger
// and the event are all stored there.
func TestAKeyedAdjustmentRunsOnOneShard(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	d := base.DB
	if !dbtest.Coordinator(t) {
		testutil.Without(t, "citus", "only a coordinator has shards")
	}
	server, err := url.Parse(base.URL)
	if err != nil {
		t.Fatal(err)
	}
	reference := "r"
	c := &change{
		Change: batch.Change{By: event.System("7"), Key: &idempotency.Request{GuildID: "7", TokenID: "t", Key: "k"}},
		entry:  entry{ID: "e", UserID: "1", Delta: 1, Note: "test", Reference: &reference},
	}
	explain := func(name string, s form, changes int) {
		var plan []string
		if err := d.Reader().SelectContext(context.Background(), &plan, "EXPLAIN (COSTS OFF) "+s.text.For(changes),
			s.arguments([]*change{c})...); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tasks, nodes, local := 0, map[string]bool{}, regexp.MustCompile(`Task Count: (\d+)|Node: (.*)`)
		for _, line := range plan {
			m := local.FindStringSubmatch(line)
			switch {
			case m == nil:
			case strings.Contains(m[2], "port="+server.Port()+" "): // steps that read no table run on the coordinator itself
			case m[2] != "":
				nodes[m[2]] = true
			case m[1] == "1":
				tasks++
			default:
				t.Errorf("%s: a step has %s tasks", name, m[1])
			}
		}
		if tasks < 5 || len(nodes) > 1 {
			t.Errorf("%s: %d steps of one task, on the nodes %v", name, tasks, nodes)
		}
	}
	for name, s := range forms() {
		explain(name, s, 0)
		explain(name+", and asks for the maintainer", s, 64)
	}
}
