package delivery

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/x509"
	"database/sql/driver"
	"encoding/base64"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/access/seal"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/outbound/event"
)

var testKey = bytes.Repeat([]byte{7}, seal.KeySize)

// deliveryDB is a database with a guild, and receivers that listen on loopback.
type deliveryDB struct {
	*dbtest.Database
	t     *testing.T
	guild string
	cfg   Config
}

func newDeliveryDB(t *testing.T) *deliveryDB {
	t.Helper()
	return deliveryDBIn(t, dbtest.New(t))
}

// deliveryDBIn returns a deliveryDB in an existing database.
func deliveryDBIn(t *testing.T, data *dbtest.Database) *deliveryDB {
	t.Helper()
	w := &deliveryDB{Database: data, t: t, guild: "197038439483310086", cfg: newConfig(t, data.DB)}
	dbtest.AddGuilds(w.t, w.DB, w.guild)
	return w
}

func newConfig(t *testing.T, d *db.DB) Config {
	t.Helper()
	box := sealtest.Box(t, 7)
	return Config{
		DB: d, Box: box, Guard: egress.NewGuard(egresstest.Loopback, nil), Schedule: Schedule{100 * time.Millisecond, 200 * time.Millisecond},
		Authorities: x509.NewCertPool(), Log: testLog(t), OneGuild: dbtest.Coordinator(t),
	}
}

// testLog returns a logger for a Deliverer that writes to the test's log.
func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// unit, exec and count call the functions of dbtest.
func (w *deliveryDB) unit(work func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	dbtest.Do(w.t, w.DB, work)
}

func (w *deliveryDB) exec(query string, args ...any) {
	w.t.Helper()
	dbtest.Exec(w.t, w.DB, query, args...)
}

func (w *deliveryDB) count(query string, args ...any) int {
	w.t.Helper()
	return dbtest.Value[int](w.t, w.DB, query, args...)
}

// endpoint identifies a registered endpoint.
type endpoint struct {
	GuildID, ID, URL string
}

// add registers an endpoint that subscribes to all events, and returns the endpoint and its secret.
func (w *deliveryDB) add(guild, url string) (endpoint, string) {
	w.t.Helper()
	e, secret := endpoint{GuildID: guild, ID: db.NewID(), URL: url}, newSecret()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
			VALUES ($1, $2, $3, $4, $5, '')`,
			guild, e.ID, url, db.Array(event.Types), w.cfg.Box.Seal([]byte(secret), BoundTo(guild, e.ID)))
		if err != nil {
			return err
		}
		return Register(ctx, tx, guild, e.ID, true, false)
	})
	return e, secret
}

// newSecret returns a new signing secret.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b)
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// enable enables or disables an endpoint.
func (w *deliveryDB) enable(e endpoint, on bool) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		if on {
			return Enable(ctx, tx, e.GuildID, e.ID)
		}
		return Disable(ctx, tx, e.GuildID, e.ID, "")
	})
}

// remove deletes an endpoint.
func (w *deliveryDB) remove(e endpoint) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM webhook_endpoints WHERE guild_id = $1 AND id = $2`, e.GuildID, e.ID); err != nil {
			return err
		}
		return Forget(ctx, tx, e.GuildID, e.ID)
	})
}

// rotate gives an endpoint a new secret; the old secrets still sign for a day.
func (w *deliveryDB) rotate(e endpoint) string {
	w.t.Helper()
	secret := newSecret()
	old := dbtest.Value[string](w.t, w.DB, `
		SELECT jsonb_build_array(jsonb_build_object(
		    'sealed', translate(encode(secret, 'base64'), E'\n', ''), 'until', now() + interval '24 hours'))
		FROM webhook_endpoints
		WHERE guild_id = $1 AND id = $2`, e.GuildID, e.ID)
	w.exec(`
		UPDATE webhook_endpoints
		SET secret = $3, old_secrets = $4::jsonb || old_secrets
		WHERE guild_id = $1 AND id = $2`, e.GuildID, e.ID, w.cfg.Box.Seal([]byte(secret), BoundTo(e.GuildID, e.ID)), old)
	return secret
}

// wakeAll makes the Deliverer poll everything.
func (d *Deliverer) wakeAll() { d.wakeups.addAll() }

// record records n events, each in a transaction of its own, or all in one.
func (w *deliveryDB) record(guild string, n int) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		for i := range n {
			if err := event.Record(ctx, tx, event.System(guild).On(time.Now()), event.BalanceChanged,
				map[string]any{"user_id": "42", "delta": i, "reason": "ünï<cödé> 🪙"}); err != nil {
				return err
			}
		}
		return nil
	})
}

// start runs a Deliverer until the test ends or stop is called.
func (w *deliveryDB) start(cfg Config) (d *Deliverer, stop func()) {
	w.t.Helper()
	if cfg.Metrics == nil {
		cfg.Metrics = prometheus.NewRegistry()
	}
	d, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return d, w.run(d)
}

// run runs a Deliverer until the test ends or stop is called.
func (w *deliveryDB) run(d *Deliverer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(stop)
	return stop
}

// until waits for a condition, and fails the test if the condition does not come true.
func (w *deliveryDB) until(what string, ok func() bool) {
	w.t.Helper()
	reached := false
	defer func() {
		if !reached {
			w.t.Log("deliveries:", w.states())
		}
	}()
	testutil.Eventually(w.t, what, ok)
	reached = true
}

// states returns the number of deliveries in each state.
func (w *deliveryDB) states() string {
	var rows []struct {
		State string `db:"state"`
		N     int    `db:"n"`
	}
	if err := w.DB.Reader().SelectContext(context.Background(), &rows,
		`SELECT state, count(*) AS n FROM webhook_deliveries GROUP BY state ORDER BY state`); err != nil {
		return err.Error()
	}
	return fmt.Sprint(rows)
}

// stored returns the endpoint's schedule and deliveries with all columns.
func (w *deliveryDB) stored(e endpoint) string {
	w.t.Helper()
	return dbtest.Value[string](w.t, w.DB, `
		SELECT to_jsonb(s)::text || (SELECT string_agg(to_jsonb(d)::text, ' ' ORDER BY id) FROM webhook_deliveries d WHERE endpoint_id = $1)
		FROM webhook_schedule s
		WHERE endpoint_id = $1`, e.ID)
}

func (w *deliveryDB) inState(state string) int {
	return w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = $1`, state)
}

// drain waits until no delivery is pending.
func (w *deliveryDB) drain() {
	w.t.Helper()
	w.until("nothing pending", func() bool { return w.inState(StatePending) == 0 })
}

// receiver is an HTTP server that stores the requests it gets.
type receiver struct{ *egresstest.Receiver }

type call = egresstest.Call

// receive starts a receiver. A nil handler answers with status 204.
func (w *deliveryDB) receive(handler http.HandlerFunc) *receiver {
	w.t.Helper()
	r := egresstest.NewTLSReceiver(w.t, orNoContent(handler))
	w.cfg.Authorities.AddCert(r.Certificate())
	return &receiver{r}
}

// receiveHTTP is receive without TLS, for workers in other processes.
func (w *deliveryDB) receiveHTTP(handler http.HandlerFunc) *receiver {
	w.t.Helper()
	return &receiver{egresstest.NewReceiver(w.t, orNoContent(handler))}
}

func orNoContent(handler http.HandlerFunc) http.HandlerFunc {
	if handler == nil {
		return status(http.StatusNoContent)
	}
	return handler
}

// workUntilKilled runs the worker process.
func workUntilKilled(url string) error {
	ctx := context.Background()
	schema, err := db.CheckSchema(ctx, url)
	if err != nil {
		return err
	}
	pool, err := db.Open(db.Config{URL: url, Name: "guildhall-test-worker", Distributed: schema.Distributed})
	if err != nil {
		return err
	}
	box, err := seal.New(testKey)
	if err != nil {
		return err
	}
	d, err := New(Config{DB: pool, Box: box, Guard: egress.NewGuard(egresstest.Loopback, nil)})
	if err != nil {
		return err
	}
	d.lease = time.Second
	return d.Run(ctx)
}

// respondWith replaces the receiver's handler.
func (r *receiver) respondWith(handler http.HandlerFunc) { r.RespondWith(orNoContent(handler)) }

func (r *receiver) got() []call { return r.Calls() }

// distinct returns the number of different events received.
func (r *receiver) distinct() int {
	ids := make(map[string]bool)
	for _, c := range r.got() {
		ids[c.Header.Get(headerStandardID)] = true
	}
	return len(ids)
}

func status(code int) http.HandlerFunc { return egresstest.Respond(code, "") }

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// advanceIdle advances a clock while no send is running, because the lease of a running send would
// expire. A claim starts its sends before its leases are visible, and locks the schedules of their
// endpoints until then: so advanceIdle locks the schedules while the clock advances.
func (w *deliveryDB) advanceIdle(c *clock, d time.Duration) {
	w.t.Helper()
	w.unit(func(ctx context.Context, tx *db.Tx) error {
		var guilds []string
		if err := tx.SelectContext(ctx, &guilds, `SELECT DISTINCT guild_id FROM webhook_schedule ORDER BY guild_id`); err != nil {
			return err
		}
		for _, guild := range guilds {
			var held, all int
			err := errors.Join(
				tx.GetContext(ctx, &held, `SELECT count(*) FROM (SELECT 1 FROM webhook_schedule WHERE guild_id = $1 FOR UPDATE SKIP LOCKED) s`, guild),
				tx.GetContext(ctx, &all, `SELECT count(*) FROM webhook_schedule WHERE guild_id = $1`, guild))
			if err != nil || held != all {
				return err
			}
		}
		var leased int
		err := tx.GetContext(ctx, &leased, `SELECT count(*) FROM webhook_deliveries WHERE lease_until IS NOT NULL`)
		if leased == 0 && err == nil {
			c.advance(d)
		}
		return err
	})
}

// blackHole listens on loopback, accepts connections and never answers.
func blackHole(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func quietLog() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }

func dbArray(list []string) driver.Valuer { return db.Array(list) }
