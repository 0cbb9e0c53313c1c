package delivery

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

const (
	// upgradeVariable names, in the environment, how many deliveries there are
	// before the upgrade: 1000000 to measure it.
	upgradeVariable = "GUILDHALL_TEST_UPGRADE_DELIVERIES"
)

// A database of the last release, full of deliveries in every state, is migrated
// while the nodes of that release go on recording. Then everything that waited is
// sent once, and everything else is as it was.
// RELIABILITY.md, Operation.
func TestAnUpgradeLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	total, err := strconv.Atoi(cmp.Or(os.Getenv(upgradeVariable), "50000"))
	if err != nil {
		t.Fatal(err)
	}
	url := dbtest.At(t, dbtest.Released)
	old, err := db.OpenSQL(url, "release-before", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Close() })
	u := &upgrade{t: t, old: old, total: total}
	pool, err := db.Open(db.Config{URL: url, Writers: 8, Name: "release-after"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	w := &deliveryDB{Database: &dbtest.Database{URL: url, DB: pool}, t: t, guild: "g1", cfg: newConfig(t, pool)}
	r := w.receive(nil)
	u.fill(w, r.URL)

	probe := u.record()
	begun := time.Now()
	dbtest.Upgrade(t, url, dbtest.Expanded)
	took := time.Since(begun)
	recorded := probe.stop()
	if err := db.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	u.report(took, probe)
	u.unchanged()

	w.start(w.cfg)
	sent := u.count(`SELECT count(*) FROM before b WHERE b.fate = 'sent'`) + recorded
	for got := 0; got < sent; {
		w.until("more of what waited is sent", func() bool {
			before := got
			got = r.requests()
			return got > before
		})
	}
	w.settled()
	times := make(map[string]int)
	for _, c := range r.got() {
		times[c.Header.Get(headerDelivery)]++
	}
	if len(times) != sent || len(r.got()) != sent {
		t.Errorf("%d deliveries were sent in %d requests, want %d in as many", len(times), len(r.got()), sent)
	}
	if n := u.count(`
		SELECT count(*) FROM before b LEFT JOIN webhook_deliveries d ON d.guild_id = b.guild_id AND d.id = b.id
		WHERE d.state IS DISTINCT FROM CASE b.fate WHEN 'sent' THEN 'delivered' WHEN 'given up' THEN 'failed' ELSE b.state END`); n != 0 {
		t.Errorf("%d deliveries did not end as they had to", n)
	}
}

// upgrade is a database of the last release.
type upgrade struct {
	t     *testing.T
	old   *sql.DB
	total int
}

func (u *upgrade) exec(query string, args ...any) {
	u.t.Helper()
	if _, err := u.old.ExecContext(u.t.Context(), query, args...); err != nil {
		u.t.Fatalf("%s: %v", query, err)
	}
}

func (u *upgrade) count(query string) (n int) {
	u.t.Helper()
	if err := u.old.QueryRowContext(u.t.Context(), query).Scan(&n); err != nil {
		u.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// fill makes 50 guilds with two endpoints each. Of the endpoints every tenth is
// disabled, of the deliveries every tenth waits or is held; those of an endpoint
// that is gone come on top.
func (u *upgrade) fill(w *deliveryDB, receiver string) {
	const guilds = 50
	u.exec(`INSERT INTO guilds (id, name, owner_id) SELECT 'g' || i, 'x', '1' FROM generate_series(1, $1) AS i`, guilds)
	for i := range 2 * guilds {
		guild, id := fmt.Sprintf("g%d", 1+i/2), fmt.Sprintf("e%d", i)
		u.exec(`
			INSERT INTO webhook_endpoints (guild_id, id, url, events, enabled, secret, secret_preview)
			VALUES ($1, $2, $3, '{case.created}', $4, $5, '')`,
			guild, id, receiver, i%10 != 9, w.cfg.Box.Seal([]byte(newSecret()), BoundTo(guild, id)))
	}
	u.exec(`
		INSERT INTO webhook_health (guild_id, endpoint_id, failures, failing_since)
		SELECT guild_id, id, 3, now() - interval '1 day' FROM webhook_endpoints WHERE id IN ('e0', 'e9')`)
	u.exec(`
		INSERT INTO webhook_events (guild_id, id, type, occurred_at, payload)
		SELECT 'g' || 1 + i % $2, 'v' || i, 'case.created', now() - (i % 20) * interval '1 day', '{}'
		FROM generate_series(1, $1) AS i`, u.total/2, guilds)
	// Both endpoints of the guild have a delivery of each event.
	u.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state, attempts, due_at, lease_until, lease_gen, created_at,
		completed_at)
		SELECT v.guild_id, e.id, v.id,
		       CASE WHEN n % 10 > 0 THEN CASE WHEN n % 10 > 7 THEN 'failed' ELSE 'delivered' END
		            WHEN e.enabled AND n % 100 > 0 THEN 'pending' ELSE 'held' END,
		       (n % 3)::int, now() + CASE WHEN n % 30 = 0 THEN interval '1 second' ELSE '0' END,
		       CASE WHEN n % 50 = 10 AND e.enabled THEN now() + interval '1 second' END, (n % 3)::int, v.occurred_at,
		       CASE WHEN n % 10 > 0 THEN now() END
		FROM (SELECT *, substr(id, 2)::int AS n FROM webhook_events) v
		JOIN webhook_endpoints e ON e.guild_id = v.guild_id`)
	u.exec(`
		INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status)
		SELECT guild_id, id, 1, created_at, 10, 'x', CASE WHEN attempts = 1 THEN 500 END FROM webhook_deliveries WHERE attempts > 0`)
	u.exec(`
		INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state)
		SELECT guild_id, 'gone', id, CASE WHEN random() < 0.5 THEN 'held' ELSE 'pending' END FROM webhook_events WHERE guild_id = 'g2' LIMIT 100`)
	u.exec(`
		CREATE TABLE before AS
		SELECT d.*, CASE
		           WHEN d.endpoint_id = 'gone' THEN 'given up'
		           WHEN d.state = 'pending' OR d.state = 'held' AND e.enabled THEN 'sent'
		           ELSE 'stays' END AS fate
		FROM webhook_deliveries d
		LEFT JOIN webhook_endpoints e ON e.guild_id = d.guild_id AND e.id = d.endpoint_id`)
	u.exec(`ALTER TABLE before ADD PRIMARY KEY (guild_id, id)`)
	u.exec(`VACUUM ANALYZE`)
	for _, fate := range []string{"sent", "stays", "given up"} {
		n := u.count(`SELECT count(*) FROM before WHERE fate = '` + fate + `'`)
		if n == 0 {
			u.t.Fatalf("no delivery that is %s", fate)
		}
		u.t.Logf("%d deliveries: %s", n, fate)
	}
}

// recording is what a node of the release before does meanwhile.
type recording struct {
	stop func() (recorded int)

	mu    sync.Mutex
	waits map[time.Time]time.Duration // how long recording took, by when it was done
}

// record records events as that release does, again and again.
func (u *upgrade) record() *recording {
	ctx, cancel := context.WithCancel(u.t.Context())
	p := &recording{waits: make(map[time.Time]time.Duration)}
	n, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			begun := time.Now()
			// Not broken off in the middle: what is counted is there.
			_, err := u.old.ExecContext(context.WithoutCancel(ctx), `SELECT record_event('g1', $1, 'case.created', '{}', '{}')`,
				fmt.Sprintf("meanwhile-%d", n))
			if err != nil {
				u.t.Errorf("the release before cannot record: %v", err)
				return
			}
			n++
			p.mu.Lock()
			p.waits[time.Now()] = time.Since(begun)
			p.mu.Unlock()
			time.Sleep(10 * time.Millisecond) // the load, not a wait for anything
		}
	}()
	p.stop = func() int {
		cancel()
		<-done
		return 2 * n // the guild's endpoints
	}
	return p
}

// report says how long each migration took, and how long it kept the release
// before from recording.
func (u *upgrade) report(took time.Duration, p *recording) {
	rows, err := u.old.QueryContext(u.t.Context(), `SELECT version_id, tstamp AT TIME ZONE current_setting('TimeZone') FROM goose_db_version
		WHERE version_id > $1 ORDER BY id`, dbtest.Released)
	if err != nil {
		u.t.Fatal(err)
	}
	defer rows.Close()
	var from time.Time
	for rows.Next() {
		var version int64
		var done time.Time
		if err := rows.Scan(&version, &done); err != nil {
			u.t.Fatal(err)
		}
		longest := time.Duration(0)
		for at, wait := range p.waits {
			if at.Add(-wait).Before(done) && at.After(from) {
				longest = max(longest, wait)
			}
		}
		if !from.IsZero() {
			u.t.Logf("migration %d: %.1f s, recording waited %.0f ms at most", version, done.Sub(from).Seconds(), float64(longest.Milliseconds()))
		}
		from = done
	}
	if err := rows.Err(); err != nil {
		u.t.Fatal(err)
	}
	u.t.Logf("all migrations: %.1f s beside %d recordings", took.Seconds(), len(p.waits))
}

// unchanged looks at the tables between the migration and the first worker.
func (u *upgrade) unchanged() {
	for what, query := range map[string]string{
		"deliveries lost or changed": `
			SELECT count(*) FROM before b LEFT JOIN webhook_deliveries d ON d.guild_id = b.guild_id AND d.id = b.id
			WHERE (d.endpoint_id, d.event_id, d.cause, d.state, d.attempts, d.step, d.lease_gen)
				IS DISTINCT FROM (b.endpoint_id, b.event_id, b.cause, b.state, b.attempts, b.step, b.lease_gen)
			   OR (d.due_at, d.lease_until, d.created_at, d.completed_at) IS DISTINCT FROM (b.due_at, b.lease_until, b.created_at, b.completed_at)`,
		"deliveries without the type and time of their event": `
			SELECT count(*) FROM webhook_deliveries d JOIN webhook_events v ON v.guild_id = d.guild_id AND v.id = d.event_id
			WHERE (d.event_type, d.event_at) IS DISTINCT FROM (v.type, v.occurred_at) AND v.id NOT LIKE 'meanwhile%'`,
		"deliveries with attempts and without a class": `
			SELECT count(*) FROM before b JOIN webhook_deliveries d ON d.guild_id = b.guild_id AND d.id = b.id
			WHERE d.response_class IS DISTINCT FROM CASE WHEN b.attempts = 1 THEN '5xx' WHEN b.attempts > 1 THEN 'none' END`,
		"endpoints whose schedule differs": `
			SELECT count(*) FROM webhook_endpoints e LEFT JOIN webhook_schedule s ON s.guild_id = e.guild_id AND s.endpoint_id = e.id
			WHERE s.disposition IS DISTINCT FROM CASE WHEN e.enabled THEN 'send' ELSE 'hold' END
			   OR s.failures <> CASE WHEN e.id IN ('e0', 'e9') THEN 3 ELSE 0 END`,
	} {
		if n := u.count(query); n != 0 {
			u.t.Errorf("%s: %d", what, n)
		}
	}
}
