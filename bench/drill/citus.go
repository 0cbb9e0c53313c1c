package main

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"guildhall/bench/rig"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/service/guildfile"
)

// cluster is a Citus coordinator with two workers.
type cluster struct {
	*place
	servers [3]*embedded.Server // servers[0] is the coordinator
	guilds  [2]string           // the first guild is on the first worker, the second on the second
}

// citus kills one of two workers under three nodes that write, deliver and post for a guild on each
// worker, and restarts it. It starts its own servers with Citus.
func citus(p *place) {
	c := p.startCluster()
	p = c.place
	hook := p.Receiver()
	for _, guild := range c.guilds {
		p.LoadText(oneTicket, guild)
	}
	pair, err := certificate.Local(p.Folder())
	p.Must(err)
	var nodes [3]*rig.Node
	for i := range nodes {
		nodes[i] = p.Serve("GUILDHALL_HTTPS_LISTEN=127.0.0.1:0", "GUILDHALL_TLS_CERT="+pair.Cert, "GUILDHALL_TLS_KEY="+pair.Key)
	}
	p.stories(nodes[0], pair.CA)
	var all [2]*writers
	for i, guild := range c.guilds {
		p.Register(guild, hook.URL)
		all[i] = &writers{
			name: guild + "-", addresses: []string{nodes[i].HTTP, nodes[i+1].HTTP}, token: p.Token(guild), request: paysAndPosts,
		}
	}
	c.lose(all)
	for key, at := range all[1].done {
		all[0].done[key] = at
	}
	p.compare(all[0], hook)
}

// lose lets both guilds write before, during and after the second worker's outage.
func (c *cluster) lose(all [2]*writers) {
	length := sized(c.place, 6*time.Second, time.Second)
	stops := [2]func(){all[0].begin(c.place, 4), all[1].begin(c.place, 4)}
	rig.Pause(c, length)
	killed := time.Now()
	c.Must(c.servers[2].Kill())
	before := [2]int{all[0].responses.N(), all[1].responses.N()}
	rig.Pause(c, length)
	there, gone := all[0].responses.Since(before[0]), all[1].responses.Since(before[1])
	c.Must(c.servers[2].Restart(c))
	started := time.Now()
	c.Hold(c.Await(time.Minute, func() bool { return !all[1].firstAfter(started).IsZero() }),
		"writes of the guild on the worker that was gone succeed again")
	rig.Pause(c, length)
	stops[0]()
	stops[1]()
	c.Say("the worker was gone for %.1f s; the first write of its guild came %.2f s after its start",
		started.Sub(killed).Seconds(), all[1].firstAfter(started).Sub(started).Seconds())
	c.meanwhile(there, gone)
	for _, w := range all {
		c.checkWrites(w)
	}
}

// outageAnswer is when a request that cannot be served has to be answered at the latest. A
// statement times out after five seconds.
const outageAnswer = 8 * time.Second

// meanwhile checks the responses during the outage: of the guild on the running worker, and of the
// guild on the killed one.
func (c *cluster) meanwhile(there, gone *rig.Tally) {
	served := sized(c.place, 99, 50)
	n := there.N()
	c.Say("meanwhile, the guild on the other worker: %v", there)
	c.Hold(n > 0 && 100*there.Count(rig.OK) >= served*n, "the guild on the other worker is served all the while (%d of %d, at least %d %%)",
		there.Count(rig.OK), n, served)
	c.Say("meanwhile, the guild on the worker that is gone, whose refusals took at most %.1f ms: %v", rig.Ms(gone.At(1, rig.Failed)), gone)
	refused := gone.Count(func(a rig.Response) bool { return a.Status == 503 && a.RetryAfter != "" && a.Took < outageAnswer })
	done := gone.Count(rig.OK) // requests that were running when the worker was killed, and were still answered
	c.Hold(refused > 0 && refused+done == gone.N(), "the guild on the worker that is gone gets the answer 503 with Retry-After, within %s (%d of %d)",
		outageAnswer, refused, gone.N()-done)
}

// startCluster starts the servers, forms a cluster and distributes the tables. From then on the
// place is the coordinator.
func (p *place) startCluster() *cluster {
	c := &cluster{place: p}
	// The servers' account must be able to enter the directory. The servers accept one another
	// without a password, since they listen on loopback only.
	folder := p.Folder()
	p.Must(os.Chmod(folder, 0o755))
	hba := filepath.Join(folder, "hba")
	p.Must(os.WriteFile(hba, []byte("local all all trust\nhost all all 127.0.0.1/32 trust\n"), 0o644))
	var ports [3]string
	for i := range c.servers {
		server, err := embedded.Start(p, embedded.Config{TCP: true, Settings: []string{
			"shared_preload_libraries=citus", "citus.node_conninfo=sslmode=disable", "hba_file=" + hba, "max_prepared_transactions=100",
			// Settings of the workers: a coordinator's sessions do not pass theirs on.
			"lock_timeout=2s", "enable_seqscan=off", "jit=off",
			// Work over all guilds uses one connection to each worker, not one for each shard.
			"citus.shard_count=8", "citus.max_adaptive_executor_pool_size=1",
		}})
		if err != nil && strings.Contains(err.Error(), `could not access file "citus"`) {
			err = missing{"citus", "a Postgres with Citus, whose programs come first on the PATH"}
		}
		p.Must(err)
		p.Cleanup(server.Stop)
		c.servers[i] = server
		u, err := url.Parse(server.URL)
		p.Must(err)
		ports[i] = u.Port()
		p.At(server.URL).Exec(`CREATE EXTENSION IF NOT EXISTS citus`)
	}
	p = p.with(p.At(c.servers[0].URL))
	p.Exec(`SELECT citus_set_coordinator_host('127.0.0.1', $1::int)`, ports[0])
	p.Exec(`SELECT citus_add_node('127.0.0.1', $1::int), citus_add_node('127.0.0.1', $2::int)`, ports[1], ports[2])
	for range 2 {
		out, err := p.Output("migrate", "--distribute")
		p.Say("%s", out)
		p.Must(err)
	}
	c.place = p.with(p.At(p.URL)) // opened again, now that the tables are distributed
	for i := range c.guilds {
		p.Get(&c.guilds[i], `
			SELECT n::text
			FROM generate_series(197038439483310086, 197038439483310186) AS n
			JOIN pg_dist_placement p ON p.shardid = get_shard_id_for_distribution_column('guilds', n::text)
			JOIN pg_dist_node USING (groupid)
			WHERE nodeport = $1::int
			ORDER BY n
			LIMIT 1`, ports[i+1])
	}
	return c
}

// stories loads the demo guild and runs the example clients (examples/) against the server. The
// story of a client whose tools are missing fails.
func (p *place) stories(n *rig.Node, ca string) {
	var demo bytes.Buffer
	p.Must(guildfile.Demo(&demo))
	p.LoadText("%s", &demo)
	clients := sized(p, []string{"go", "openapi-fetch", "hey-api", "python", "java"}, nil)
	for _, client := range clients {
		cmd := exec.CommandContext(p, filepath.Join(p.Tool("git", "rev-parse", "--show-toplevel"), "examples", "run.sh"), client)
		cmd.Env = append(os.Environ(),
			"GUILDHALL_URL=https://"+n.HTTPS+"/api/v1", "GUILDHALL_TOKEN="+p.Token(guildfile.DemoGuild), "GUILDHALL_CA="+ca)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		p.Hold(err == nil, "the story of the client %s, in %.0f s", client, time.Since(began).Seconds())
		if err != nil {
			p.Say("%v\n%s", err, out)
		}
	}
}
