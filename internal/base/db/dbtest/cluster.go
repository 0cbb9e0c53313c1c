package dbtest

import (
	"bufio"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/db"
)

// If the test server is the coordinator of a Citus cluster, the tests run on distributed tables.
// Citus needs a database of the same name on every node, so the template and its copies are created
// on each node. The list of the nodes is stored in the database itself and is copied with it.
type cluster struct {
	url   string
	nodes []node // without the coordinator; if empty, the coordinator keeps the shards itself
}

type node struct {
	Host   string
	Port   int
	Shards bool
	admin  *sql.DB
}

// coordinated returns the cluster whose coordinator is at the URL, or nil for plain Postgres. It
// reads the list of nodes from the database that the URL names.
func coordinated(ctx context.Context, admin *sql.DB, server string) (*cluster, error) {
	var citus bool
	if err := admin.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`).Scan(&citus); err != nil || !citus {
		return nil, err
	}
	c := &cluster{url: server}
	rows, err := admin.QueryContext(ctx, `
		SELECT nodename, nodeport, shouldhaveshards FROM pg_dist_node WHERE noderole = 'primary' AND groupid <> 0 ORDER BY nodeid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n node
		if err := rows.Scan(&n.Host, &n.Port, &n.Shards); err != nil {
			return nil, err
		}
		if n.admin, err = db.OpenSQL(c.at(n, ""), "guildhall-dbtest", 4); err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, n)
	}
	return c, rows.Err()
}

// at returns the URL of a database on a node. An empty name means the coordinator's own database.
func (c *cluster) at(n node, name string) string {
	u, err := url.Parse(c.url)
	if err != nil {
		panic(err) // cannot fail: the pool was opened with this URL
	}
	u.Host = net.JoinHostPort(n.Host, fmt.Sprint(n.Port))
	if name != "" {
		u.Path = "/" + name
	}
	return u.String()
}

// everywhere runs a statement on the coordinator and on every worker.
func (s *server) everywhere(ctx context.Context, statement string) error {
	if s.cluster == nil {
		_, err := s.admin.ExecContext(ctx, statement)
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for _, pool := range s.servers() {
		all.Go(func() error {
			_, err := pool.ExecContext(ctx, statement)
			return err
		})
	}
	return all.Wait()
}

func (s *server) servers() []*sql.DB {
	pools := []*sql.DB{s.admin}
	if s.cluster != nil {
		for _, n := range s.cluster.nodes {
			pools = append(pools, n.admin)
		}
	}
	return pools
}

// join makes the databases of that name on all nodes a cluster. It uses few shards, since the tests
// are many and their data is small.
func (s *server) join(ctx context.Context, name string) error {
	if _, err := s.admin.ExecContext(ctx, `ALTER DATABASE `+name+` SET citus.shard_count = 2`); err != nil {
		return err
	}
	for _, n := range s.cluster.nodes {
		if err := once(ctx, s.cluster.at(n, name), `CREATE EXTENSION IF NOT EXISTS citus`); err != nil {
			return err
		}
	}
	own := urlOfDatabase(s.url, name)
	if err := once(ctx, own, `CREATE EXTENSION IF NOT EXISTS citus`); err != nil {
		return err
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	if err := once(ctx, own, `SELECT citus_set_coordinator_host($1, $2::int)`, u.Hostname(), u.Port()); err != nil {
		return err
	}
	if len(s.cluster.nodes) == 0 {
		return once(ctx, own, `SELECT citus_set_node_property($1, $2::int, 'shouldhaveshards', true)`, u.Hostname(), u.Port())
	}
	for _, n := range s.cluster.nodes {
		if err := once(ctx, own, `SELECT citus_add_node($1, $2)`, n.Host, n.Port); err != nil {
			return err
		}
		if err := once(ctx, own, `SELECT citus_set_node_property($1, $2, 'shouldhaveshards', $3)`, n.Host, n.Port, n.Shards); err != nil {
			return err
		}
	}
	return nil
}

// once runs a statement over a new connection.
func once(ctx context.Context, url, statement string, args ...any) error {
	pool, err := db.OpenSQL(url, "guildhall-dbtest", 1)
	if err != nil {
		return err
	}
	_, err = pool.ExecContext(ctx, statement, args...)
	return errors.Join(err, pool.Close())
}

// Coordinator reports whether the tests run on distributed tables.
func Coordinator(t testing.TB) bool {
	t.Helper()
	s, err := sharedServer()
	return err == nil && s.cluster != nil
}

// Apart lists the tests that do not run on a coordinator, one a line: the name and the reason. A
// subtest with its own database has its own line.
//
//go:embed apart.txt
var Apart string

var apartTests = sync.OnceValue(func() map[string]string {
	list := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(Apart)); lines.Scan(); {
		if name, reason, ok := strings.Cut(lines.Text(), ": "); ok && !strings.HasPrefix(name, "#") {
			list[name] = reason
		}
	}
	return list
})

// skipApart skips a listed test if the server is a coordinator.
func (s *server) skipApart(t testing.TB) {
	t.Helper()
	whole, _, _ := strings.Cut(t.Name(), "/")
	for _, name := range []string{whole, t.Name()} {
		if reason, ok := apartTests()[name]; ok && s.cluster != nil {
			t.Skipf("not on a coordinator: %s", reason)
		}
	}
}
