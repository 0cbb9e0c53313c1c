package lanes_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/lanes"
	"guildhall/internal/base/testutil"
)

const guild = "7"

// errands is a table made for these tests. Its column errand_at is when a row is due.
const errands = `CREATE TABLE errands (
	guild_id text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL,
	since timestamptz NOT NULL DEFAULT now(), due_at timestamptz DEFAULT now(), failures integer NOT NULL DEFAULT 0,
	PRIMARY KEY (guild_id, id))`

var queue = lanes.Queue{
	Table: "errands", At: "due_at", Failures: "failures", Condition: "due_at IS NOT NULL", Since: "since", MaxAge: 24 * time.Hour,
}

// newDatabase returns a database with the table errands.
func newDatabase(t *testing.T) *dbtest.Database {
	t.Helper()
	base := dbtest.New(t)
	dbtest.AddGuilds(t, base.DB, guild)
	dbtest.Fill(t, base.DB, errands, `CREATE INDEX errands_due ON errands (guild_id, due_at) WHERE due_at IS NOT NULL`)
	return base
}

// worker returns a worker that runs do for each due errand. The worker leases a row for a minute
// and clears its due time when do succeeds.
func worker(d *db.DB, do func(ctx context.Context, id string) error) *lanes.Worker {
	return &lanes.Worker{
		DB: d, Log: slog.New(slog.DiscardHandler), Outcomes: lanes.NewOutcomes(nil, "jobs", ""),
		Lanes: []lanes.Lane{{
			Kind: "errand", Queue: queue, Slots: 16, Interval: 50 * time.Millisecond,
			Do: func(ctx context.Context, guild, id string) error {
				n := 0
				err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
					n, err = db.Exec(ctx, tx, `
						UPDATE errands SET due_at = now() + interval '1 minute'
						WHERE guild_id = $1 AND id = $2 AND due_at <= now()`, guild, id)
					return err
				})
				if err != nil || n == 0 {
					return err
				}
				if err := do(ctx, id); err != nil {
					return err
				}
				return d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
					_, err := db.Exec(ctx, tx, `UPDATE errands SET due_at = NULL WHERE guild_id = $1 AND id = $2`, guild, id)
					return err
				})
			},
		}},
	}
}

// start runs w until the test calls stop or ends. stop returns when all running work has ended.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func add(t *testing.T, base *dbtest.Database, ids ...string) {
	t.Helper()
	for _, id := range ids {
		dbtest.Exec(t, base.DB, `INSERT INTO errands (guild_id, id) VALUES ($1, $2)`, guild, id)
	}
}

// tally counts calls by name.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name]++
	return c.n[name]
}

func (c *tally) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func TestWorkersShareTheWorkAndDoEachPieceOnce(t *testing.T) {
	t.Parallel()
	base := newDatabase(t)
	var did tally
	var total atomic.Int64
	dbtest.Exec(t, base.DB, `INSERT INTO errands (guild_id, id) SELECT $1, i::text FROM generate_series(0, 199) i`, guild)
	for range 2 {
		start(t, worker(base.DB, func(_ context.Context, id string) error {
			did.add(id)
			total.Add(1)
			return nil
		}).Run)
	}
	testutil.Eventually(t, "200 jobs", func() bool { return total.Load() >= 200 })
	for i := range 200 {
		if n := did.of(fmt.Sprint(i)); n != 1 {
			t.Errorf("job %d was done %d times", i, n)
		}
	}
}

func TestWorkersWaitForADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	base := newDatabase(t)
	u, err := url.Parse(base.URL)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin, err := db.OpenSQL(u.String(), "guildhall-test", 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	away := func(gone bool) {
		t.Helper()
		for _, statement := range []string{
			`ALTER DATABASE ` + name + ` ALLOW_CONNECTIONS ` + strconv.FormatBool(!gone),
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '` + name + `'`,
		} {
			if _, err := admin.ExecContext(context.Background(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	var did tally
	var log testutil.Log
	add(t, base, "first")
	away(true)
	w := worker(base.DB, func(_ context.Context, id string) error {
		did.add(id)
		return nil
	})
	w.Log = slog.New(slog.NewTextHandler(&log, nil))
	start(t, w.Run)
	testutil.Eventually(t, "a first poll", func() bool { return strings.Contains(log.String(), "polling for jobs failed") })
	away(false)
	testutil.Eventually(t, "the job", func() bool { return did.of("first") == 1 })
	away(true)
	away(false)
	testutil.Eventually(t, "the second job to be stored", func() bool {
		return base.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO errands (guild_id, id) VALUES ('7', 'second') ON CONFLICT DO NOTHING`)
			return err
		}) == nil
	})
	testutil.Eventually(t, "the second job", func() bool { return did.of("second") == 1 })
}

func TestWorkersFinishWhatTheyBeganWhenTheyAreStopped(t *testing.T) {
	t.Parallel()
	base := newDatabase(t)
	begun, release := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	add(t, base, "slow")
	stop := start(t, worker(base.DB, func(ctx context.Context, _ string) error {
		close(begun)
		<-release
		finished.Store(ctx.Err() == nil)
		return nil
	}).Run)
	<-begun
	time.AfterFunc(300*time.Millisecond, func() { close(release) })
	stop()
	if !finished.Load() {
		t.Error("the job was cancelled, or Run did not wait for it")
	}
}

// hasLine reports whether one line of the log contains all parts.
func hasLine(log *testutil.Log, parts ...string) bool {
	for line := range strings.Lines(log.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

// Work that fails is logged with its ids and the reason, counted, and retried whatever the failure,
// until the row is a day old. RELIABILITY.md, Messages.
func TestFailuresAreSeenAndNotGivenUp(t *testing.T) {
	t.Parallel()
	base := newDatabase(t)
	var log testutil.Log
	var did tally
	reg := prometheus.NewRegistry()
	w := worker(base.DB, func(_ context.Context, id string) error {
		switch n := did.add(id); {
		case id == "panics" && n == 1:
			panic("a nil map")
		case id == "refused", id == "flaky" && n < 3:
			return errors.New("403 missing permission")
		}
		return nil
	})
	w.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	w.Outcomes = lanes.NewOutcomes(reg, "guildhall_jobs_total", "Jobs.")
	add(t, base, "flaky", "panics", "refused")
	dbtest.Exec(t, base.DB, `UPDATE errands SET since = now() - interval '23 hours 59 minutes' WHERE id = 'refused'`)
	start(t, w.Run)
	testutil.Eventually(t, "the third try", func() bool { return did.of("flaky") == 3 && did.of("panics") == 2 && did.of("refused") >= 2 })
	for _, want := range [][]string{
		{`"level":"WARN"`, "a job failed", `"kind":"errand"`, `"id":"flaky"`, `"guild_id":"7"`, "403 missing permission"},
		{"a job failed", `"id":"panics"`, "a nil map"},
	} {
		if !hasLine(&log, want...) {
			t.Errorf("no line says %q:\n%s", want, log.String())
		}
	}
	counted := func(outcome string) float64 {
		t.Helper()
		return testutil.Metric(t, reg, "guildhall_jobs_total", "outcome="+outcome)
	}
	testutil.Eventually(t, "the counters", func() bool { return counted("failed") >= 5 && counted("done") >= 2 })
	if n, age, err := queue.Waiting(t.Context(), base.DB.Reader()); err != nil || n != 1 || age < 86_000*time.Second {
		t.Errorf("%d jobs wait, the oldest for %v: %v", n, age, err)
	}
	// The row is now a day old.
	dbtest.Exec(t, base.DB, `UPDATE errands SET since = now() - interval '24 hours', due_at = now() WHERE id = 'refused'`)
	testutil.Eventually(t, "the end of the tries", func() bool { return counted("given_up") == 1 })
	if !hasLine(&log, "a job is given up", `"id":"refused"`, "403 missing permission") {
		t.Errorf("no line says that the job is given up:\n%s", log.String())
	}
	if n, _, err := queue.Waiting(t.Context(), base.DB.Reader()); err != nil || n != 0 {
		t.Errorf("%d jobs wait: %v", n, err)
	}
}

// The pause doubles with each failure, up to 15 minutes.
func TestThePauseBetweenTwoTriesGrows(t *testing.T) {
	t.Parallel()
	base := newDatabase(t)
	add(t, base, "x")
	for failures, want := range map[int]float64{0: 1, 1: 2, 5: 32, 9: 512, 10: 900, 200: 900} {
		dbtest.Exec(t, base.DB, `UPDATE errands SET failures = $1`, failures)
		dbtest.Do(t, base.DB, func(ctx context.Context, tx *db.Tx) error {
			if again, err := db.Get[bool](ctx, tx, queue.Postpone(), guild, "x"); err != nil || !again {
				t.Errorf("after %d failures it is tried again: %v, %v", failures, again, err)
			}
			pause, err := db.Get[float64](ctx, tx, `
				SELECT extract(epoch FROM due_at - now())::float8 FROM errands WHERE guild_id = '7' AND failures = $1`, failures+1)
			if pause != want {
				t.Errorf("after %d failures the pause is %v s, want %v", failures, pause, want)
			}
			return err
		})
	}
}

func TestSweeps(t *testing.T) {
	t.Parallel()
	var did tally
	reg := prometheus.NewRegistry()
	var log testutil.Log
	sweeper, err := lanes.NewSweeper(slog.New(slog.NewJSONHandler(&log, nil)), reg,
		lanes.Sweep{Name: "broken", Interval: 50 * time.Millisecond, Run: func(context.Context) error {
			if did.add("broken") == 1 {
				panic("once")
			}
			return errors.New("always")
		}},
		lanes.Sweep{Name: "well", Interval: time.Hour, Run: func(context.Context) error {
			did.add("well")
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	start(t, sweeper.Run)
	testutil.Eventually(t, "a sweep after a panic and an error", func() bool { return did.of("broken") >= 3 })
	testutil.Eventually(t, "the other sweep", func() bool { return did.of("well") == 1 })
	testutil.Eventually(t, "the counters", func() bool {
		return testutil.Metric(t, reg, "guildhall_sweeps_total", "outcome=failed") >= 3 &&
			testutil.Metric(t, reg, "guildhall_sweeps_total", "sweep=well") == 1
	})
	if !hasLine(&log, "a sweep failed", `"sweep":"broken"`, "panic: once", "lanes_test.go") {
		t.Errorf("no line says where the sweep has panicked:\n%s", log.String())
	}
	if n := strings.Count(log.String(), "a sweep failed"); n != 1 {
		t.Errorf("the log hears %d times at once of a sweep that goes on failing, want 1:\n%s", n, log.String())
	}
}

func TestNewSweeper(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]lanes.Sweep{
		"a sweep without work":     {Name: "x", Interval: time.Second},
		"a sweep without interval": {Name: "x", Run: func(context.Context) error { return nil }},
	} {
		if _, err := lanes.NewSweeper(slog.New(slog.DiscardHandler), nil, bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
