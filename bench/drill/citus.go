package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
)

// cluster is a Citus coordinator with two workers.
type cluster struct {
	folder  string
	servers [3]*embedded.Server // the coordinator first
}

// citusSize is how much of that there is.
type citusSize struct {
	length  time.Duration // of each of the three parts
	served  int           // of a hundred calls, how many are answered where no worker is lost
	stories []string      // by name of their folder in examples/
}

var fullCitus = citusSize{length: 6 * time.Second, served: 99, stories: []string{"go", "openapi-fetch", "hey-api", "python", "java"}}

// errNoCitus says that Postgres has no Citus here.
var errNoCitus = errors.New("this drill needs a Postgres with Citus, whose programs come first on the PATH")

// distributed kills one of two workers under three nodes that write, deliver and
// post for a guild on each worker, and starts it again. It needs servers of its
// own, of a Postgres that has Citus.
func distributed(ctx context.Context, p place, r *report, size citusSize) (err error) {
	c, err := startCluster(ctx)
	defer func() { err = errors.Join(err, c.stop()) }()
	if err != nil {
		if strings.Contains(err.Error(), `could not access file "citus"`) {
			err = fmt.Errorf("%w: %w", errNoCitus, err)
		}
		return err
	}
	p.databaseURL = c.servers[0].URL
	for range 2 {
		out, err := p.command(ctx, "migrate", "--distribute")
		r.say("%s", out)
		if err != nil {
			return err
		}
	}
	guilds, err := c.guilds(ctx)
	if err != nil {
		return err
	}
	hook := newReceiver()
	defer hook.Close()
	if err := p.load(ctx, func(w io.Writer) (err error) {
		for _, guild := range guilds {
			_, failed := fmt.Fprintf(w, `{"record":"guild","id":"%[1]s"}
{"record":"ticket","guild_id":"%[1]s","opener_id":"7","id":"the-ticket","channel_id":"77"}
`, guild)
			err = errors.Join(err, failed)
		}
		return err
	}); err != nil {
		return err
	}
	pair, err := certificate.Local(c.folder)
	if err != nil {
		return err
	}
	env := append([]string{"GUILDHALL_HTTPS_LISTEN=127.0.0.1:0", "GUILDHALL_TLS_CERT=" + pair.Cert, "GUILDHALL_TLS_KEY=" + pair.Key}, drillEnv...)
	var nodes [3]*server
	for i := range nodes {
		if nodes[i], err = p.serve(ctx, env...); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, nodes[i].Stop()) }()
	}
	if err := p.stories(ctx, r, nodes[0], pair.CA, size.stories); err != nil {
		return err
	}
	var all [2]*writers
	for i, guild := range guilds {
		if err := p.register(ctx, guild, hook); err != nil {
			return err
		}
		tokens, err := p.tokens(ctx, guild, 1)
		if err != nil {
			return err
		}
		all[i] = &writers{name: guild + "-", addresses: [2]string{nodes[i].HTTP, nodes[i+1].HTTP}, token: tokens[0], request: paysAndPosts}
	}
	return c.lose(ctx, p, r, all, hook, size)
}

// lose has both write while the second worker is there, is gone, and is there again.
func (c *cluster) lose(ctx context.Context, p place, r *report, all [2]*writers, hook *receiver, size citusSize) error {
	stops := []func(){all[0].begin(ctx, 4), all[1].begin(ctx, 4)}
	pause(ctx, size.length)
	killed := time.Now()
	if err := c.servers[2].Kill(); err != nil {
		return err
	}
	before := [2]int{len(all[0].responses.snapshot()), len(all[1].responses.snapshot())}
	pause(ctx, size.length)
	during := [2]tally{{all: all[0].responses.snapshot()[before[0]:]}, {all: all[1].responses.snapshot()[before[1]:]}}
	if err := c.servers[2].Restart(ctx); err != nil {
		return err
	}
	started := time.Now()
	r.hold(awaited(ctx, time.Minute, func() bool { return !all[1].firstAfter(started).IsZero() }), "writes of the guild on the worker that was gone succeed again")
	pause(ctx, size.length)
	for _, stop := range stops {
		stop()
	}
	r.say("the worker was gone for %.1f s; the first write of its guild came %.2f s after its start", started.Sub(killed).Seconds(), all[1].firstAfter(started).Sub(started).Seconds())
	meanwhile(r, &during[0], &during[1], size.served)
	for i, w := range all {
		r.say("guild %d, %d writes: %v", i+1, len(w.done), &w.responses)
		r.hold(w.unsettled == 0, "each write that got no answer settles when it is sent again (%d of %d did not)", w.unsettled, len(w.done)+w.unsettled)
		r.hold(w.responses.count(func(a response) bool { return a.code == "internal_error" }) == 0, "no answer is an internal error")
	}
	for key, at := range all[1].done {
		all[0].done[key] = at
	}
	return all[0].compare(ctx, p, r, hook)
}

// meanwhile holds what the guild on the worker that runs, and the one on the worker
// that does not, were answered.
func meanwhile(r *report, there, gone *tally, served int) {
	n := len(there.all)
	r.say("meanwhile, the guild on the other worker: %d answers, p50 %.1f ms, p99 %.1f ms, %v", n, ms(there.at(0.5, ok)), ms(there.at(0.99, ok)), there)
	r.hold(n > 0 && 100*there.count(ok) >= served*n, "the guild on the other worker is served all the while (%d of %d, at least %d %%)", there.count(ok), n, served)
	r.say("meanwhile, the guild on the worker that is gone: %d answers, p99 %.1f ms, %v", len(gone.all), ms(gone.at(0.99, failed)), gone)
	told := gone.count(func(a response) bool { return a.status == 503 && a.retryAfter != "" && a.took < outageAnswer })
	done := gone.count(ok) // on their way when the worker went, and answered as it did
	r.hold(told > 0 && told+done == len(gone.all), "the guild on the worker that is gone is told so: 503 with Retry-After, within %s (%d of %d)", outageAnswer, told, len(gone.all)-done)
}

// outageAnswer is when whoever cannot be served is told so at the latest: a
// statement is given up after five seconds.
const outageAnswer = 8 * time.Second

// startCluster starts the servers and makes them know one another. The caller stops the
// cluster that it returns, also when it returns an error.
func startCluster(ctx context.Context) (_ *cluster, err error) {
	c := &cluster{}
	if c.folder, err = os.MkdirTemp("", "guildhall-drill-"); err != nil {
		return c, err
	}
	// Each server's account has to enter, and the servers let one another in: they
	// listen on the loopback address only.
	if err := os.Chmod(c.folder, 0o755); err != nil {
		return c, err
	}
	if err := os.WriteFile(c.hba(), []byte("local all all trust\nhost all all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		return c, err
	}
	for i := range c.servers {
		if c.servers[i], err = c.start(ctx); err != nil {
			return c, err
		}
		if err := c.run(ctx, i, `CREATE EXTENSION IF NOT EXISTS citus`); err != nil {
			return c, err
		}
	}
	for i, statement := range []string{`SELECT citus_set_coordinator_host('127.0.0.1', $1)`, `SELECT citus_add_node('127.0.0.1', $1)`, `SELECT citus_add_node('127.0.0.1', $1)`} {
		if err := c.run(ctx, 0, statement, c.port(i)); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *cluster) hba() string { return filepath.Join(c.folder, "hba") }

func (c *cluster) start(ctx context.Context) (*embedded.Server, error) {
	return embedded.Start(ctx, embedded.Config{TCP: true, Settings: []string{
		"shared_preload_libraries=citus", "citus.node_conninfo=sslmode=disable", "hba_file=" + c.hba(), "max_prepared_transactions=100",
		// A coordinator's sessions do not hand theirs on.
		"lock_timeout=2s", "enable_seqscan=off", "jit=off",
		// Work over all guilds asks each worker over one connection, not over one for each shard.
		"citus.shard_count=8", "citus.max_adaptive_executor_pool_size=1",
	}})
}

func (c *cluster) port(i int) int {
	u, err := url.Parse(c.servers[i].URL)
	if err != nil {
		return 0
	}
	port, _ := strconv.Atoi(u.Port())
	return port
}

func (c *cluster) run(ctx context.Context, i int, statement string, args ...any) error {
	pool, err := db.OpenSQL(c.servers[i].URL, "drill", 1)
	if err != nil {
		return err
	}
	_, err = pool.ExecContext(ctx, statement, args...)
	return errors.Join(err, pool.Close())
}

// guilds names one guild whose shard lies on the first worker, and one on the second.
func (c *cluster) guilds(ctx context.Context) (found [2]string, err error) {
	pool, err := db.OpenSQL(c.servers[0].URL, "drill", 1)
	if err != nil {
		return found, err
	}
	defer pool.Close()
	for i := range found {
		err = errors.Join(err, pool.QueryRowContext(ctx, `
			SELECT n::text
			FROM generate_series(197038439483310086, 197038439483310186) AS n
			JOIN pg_dist_placement p ON p.shardid = get_shard_id_for_distribution_column('guilds', n::text)
			JOIN pg_dist_node USING (groupid)
			WHERE nodeport = $1
			ORDER BY n
			LIMIT 1`, c.port(i+1)).Scan(&found[i]))
	}
	return found, err
}

func (c *cluster) stop() (err error) {
	for _, s := range c.servers {
		if s != nil {
			err = errors.Join(err, s.Stop())
		}
	}
	return errors.Join(err, os.RemoveAll(c.folder))
}
