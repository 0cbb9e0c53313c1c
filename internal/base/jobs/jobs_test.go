package jobs_test

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
	"guildhall/internal/base/jobs"
	"guildhall/internal/base/testutil"
)

// errand is a kind of job.
type errand struct {
	Guild string `json:"guild_id"`
	Name  string `json:"name"`
}

// Kind names it.
func (errand) Kind() string { return "errand" }

// config runs errands.
func config(t *testing.T, base *dbtest.Database, do func(ctx context.Context, e errand) error) jobs.Config {
	t.Helper()
	pool, err := db.OpenSQL(base.URL, "guildhall-jobs", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return jobs.Config{DB: pool, Log: slog.New(slog.DiscardHandler), Work: []jobs.Work{jobs.Do(do)}}
}

// start runs the workers until stop, which returns when they are done, or
// until the test ends.
func start(t *testing.T, cfg jobs.Config) (stop func()) {
	t.Helper()
	r, err := jobs.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func enqueue(t *testing.T, base *dbtest.Database, list ...jobs.Args) {
	t.Helper()
	dbtest.Do(t, base.DB, func(ctx context.Context, tx *db.Tx) error {
		return jobs.Enqueue(ctx, tx, list...)
	})
}

// tally counts what was done under a name.
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

// counting counts the messages of a log.
type counting struct {
	slog.Handler
	n *tally
}

// Enabled lets everything through.
func (c counting) Enabled(context.Context, slog.Level) bool { return true }

// Handle counts.
func (c counting) Handle(_ context.Context, r slog.Record) error {
	c.n.add(r.Message)
	return nil
}

// WithAttrs keeps counting.
func (c counting) WithAttrs([]slog.Attr) slog.Handler { return c }

func TestEnqueue(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	var did tally
	undo := errors.New("undo")
	if err := base.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		if err := jobs.Enqueue(ctx, tx, errand{Name: "undone"}); err != nil {
			return err
		}
		return undo
	}); !errors.Is(err, undo) {
		t.Fatal(err)
	}
	once := func(list ...jobs.Args) {
		t.Helper()
		dbtest.Do(t, base.DB, func(ctx context.Context, tx *db.Tx) error {
			return jobs.EnqueueOnce(ctx, tx, list...)
		})
	}
	enqueue(t, base)
	enqueue(t, base, errand{Name: "twice"}, errand{Name: "twice"})
	once(errand{Name: "once"}, errand{Name: "other"})
	once(errand{Name: "once"})
	begun, release := make(chan struct{}, 1), make(chan struct{})
	start(t, config(t, base, func(_ context.Context, e errand) error {
		if did.add(e.Name) == 1 && e.Name == "once" {
			begun <- struct{}{}
			<-release
		}
		return nil
	}))
	<-begun
	once(errand{Name: "once"}) // it is at work
	close(release)
	testutil.Eventually(t, "the rest", func() bool { return did.of("twice") == 2 && did.of("other") == 1 })
	testutil.Eventually(t, "the end of the first", func() bool {
		var n int
		err := base.DB.Reader().GetContext(context.Background(), &n, `SELECT count(*) FROM river_job WHERE state <> 'completed'`)
		return err == nil && n == 0
	})
	if did.of("undone") != 0 || did.of("once") != 1 {
		t.Errorf("done: %v", did.n)
	}
	once(errand{Name: "once"}) // and now it is done
	testutil.Eventually(t, "the second time", func() bool { return did.of("once") == 2 })
}

// TestNoNotify: a NOTIFY takes a database-wide lock at commit, so enqueueing must
// not send one.
func TestNoNotify(t *testing.T) {
	t.Parallel()
	ctx, base := context.Background(), dbtest.New(t)
	line, err := db.Listen(ctx, base.URL, "guildhall-test", "public.river_insert")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(line.Close)
	enqueue(t, base, errand{Name: "i"})
	dbtest.Exec(t, base.DB, `SELECT pg_notify('public.river_insert', 'the test')`)
	if heard, err := line.Next(); err != nil || heard.Payload != "the test" {
		t.Errorf("heard %+v, %v before the test's own notification", heard, err)
	}
}

func TestWorkers(t *testing.T) {
	t.Parallel()

	t.Run("share the work, each job done once", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
		var did tally
		var total atomic.Int64
		do := func(_ context.Context, e errand) error {
			did.add(e.Name)
			total.Add(1)
			return nil
		}
		var list []jobs.Args
		for i := range 200 {
			list = append(list, errand{Name: fmt.Sprint(i)})
		}
		enqueue(t, base, list...)
		start(t, config(t, base, do))
		start(t, config(t, base, do))
		testutil.Eventually(t, "200 jobs", func() bool { return total.Load() >= 200 })
		for i := range 200 {
			if n := did.of(fmt.Sprint(i)); n != 1 {
				t.Errorf("job %d was done %d times", i, n)
			}
		}
	})

	t.Run("wait for a database that is away, at the start and later", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
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
		var did, logged tally
		cfg := config(t, base, func(_ context.Context, e errand) error {
			did.add(e.Name)
			return nil
		})
		cfg.Log = slog.New(counting{slog.DiscardHandler, &logged})
		away(true)
		start(t, cfg)
		testutil.Eventually(t, "a first attempt",
			func() bool { return logged.of("the job workers are not running, they start again in a second") > 0 })
		for _, name := range []string{"first", "second"} {
			away(false)
			testutil.Eventually(t, "the job to be stored", func() bool {
				return base.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
					return jobs.Enqueue(ctx, tx, errand{Name: name})
				}) == nil
			})
			testutil.Eventually(t, "the job", func() bool { return did.of(name) == 1 })
			away(true)
		}
		away(false)
	})

	t.Run("finish what they began when they are stopped", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
		begun, release := make(chan struct{}), make(chan struct{})
		var finished atomic.Bool
		cfg := config(t, base, func(ctx context.Context, _ errand) error {
			close(begun)
			<-release
			finished.Store(ctx.Err() == nil)
			return nil
		})
		enqueue(t, base, errand{Name: "slow"})
		stop := start(t, cfg)
		<-begun
		time.AfterFunc(300*time.Millisecond, func() { close(release) })
		stop()
		if !finished.Load() {
			t.Error("the job was cancelled, or Run did not wait for it")
		}
	})
}

// hasLine reports whether a line of log holds all parts.
func hasLine(log *testutil.Log, parts ...string) bool {
	for line := range strings.Lines(log.String()) {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			return true
		}
	}
	return false
}

// A job that fails is seen: a warning says what it was about and why, a counter
// counts it, and it is tried again, whatever the failure, until it is a day old.
// RELIABILITY.md, Messages.
func TestFailuresAreSeenAndNotGivenUp(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	var log testutil.Log
	var did tally
	reg := prometheus.NewRegistry()
	cfg := config(t, base, func(_ context.Context, e errand) error {
		switch n := did.add(e.Name); {
		case e.Name == "panics" && n == 1:
			panic("a nil map")
		case e.Name == "refused", e.Name == "flaky" && n < 3:
			return errors.New("403 missing permission")
		}
		return nil
	})
	cfg.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.Metrics = reg
	enqueue(t, base, errand{"7", "flaky"}, errand{"7", "panics"}, errand{"7", "refused"})
	dbtest.Exec(t, base.DB, `UPDATE river_job SET created_at = now() - interval '23 hours 59 minutes' WHERE args ->> 'name' = 'refused'`)
	start(t, cfg)
	testutil.Eventually(t, "the third try", func() bool { return did.of("flaky") == 3 && did.of("panics") == 2 && did.of("refused") >= 2 })
	for _, want := range [][]string{
		{`"level":"WARN"`, "a job failed", `"kind":"errand"`, `"name":"flaky"`, `"guild_id":"7"`, "403 missing permission"},
		{"a job failed", `"name":"panics"`, "a nil map"},
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
	testutil.Eventually(t, "the age of the oldest job",
		func() bool { return testutil.Metric(t, reg, "guildhall_jobs_oldest_seconds", "kind=errand") > 86_000 })
	// The day is over.
	dbtest.Exec(t, base.DB, `
			UPDATE river_job SET created_at = created_at - interval '1 minute', scheduled_at = now(), state = 'available'
			WHERE args ->> 'name' = 'refused'`)
	testutil.Eventually(t, "the end of the tries", func() bool { return counted("given_up") == 1 })
	if !hasLine(&log, "a job is given up", `"name":"refused"`, "403 missing permission") {
		t.Errorf("no line says that the job is given up:\n%s", log.String())
	}
	testutil.Eventually(t, "the queue to know", func() bool {
		var state string
		err := base.DB.Reader().GetContext(context.Background(), &state, `SELECT state FROM river_job WHERE args ->> 'name' = 'refused'`)
		return err == nil && state == "cancelled"
	})
}

func TestSweeps(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	var did tally
	reg := prometheus.NewRegistry()
	cfg := config(t, base, func(context.Context, errand) error { return nil })
	cfg.Metrics = reg
	var log testutil.Log
	cfg.Log = slog.New(slog.NewJSONHandler(&log, nil))
	cfg.Sweeps = []jobs.Sweep{
		{Name: "broken", Interval: 50 * time.Millisecond, Run: func(context.Context) error {
			if did.add("broken") == 1 {
				panic("once")
			}
			return errors.New("always")
		}},
		{Name: "well", Interval: time.Hour, Run: func(context.Context) error {
			did.add("well")
			return nil
		}},
	}
	start(t, cfg)
	testutil.Eventually(t, "a sweep after a panic and an error", func() bool { return did.of("broken") >= 3 })
	testutil.Eventually(t, "the other sweep", func() bool { return did.of("well") == 1 })
	testutil.Eventually(t, "the counters", func() bool {
		return testutil.Metric(t, reg, "guildhall_sweeps_total", "outcome=failed") >= 3 &&
			testutil.Metric(t, reg, "guildhall_sweeps_total", "sweep=well") == 1
	})
	if !hasLine(&log, "a sweep failed", `"sweep":"broken"`, "panic: once", "jobs_test.go") {
		t.Errorf("no line says where the sweep has panicked:\n%s", log.String())
	}
	if n := strings.Count(log.String(), "a sweep failed"); n != 1 {
		t.Errorf("the log hears %d times at once of a sweep that goes on failing, want 1:\n%s", n, log.String())
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	cfg := config(t, dbtest.New(t), func(context.Context, errand) error { return nil })
	for name, spoil := range map[string]func(*jobs.Config){
		"no pool":              func(c *jobs.Config) { c.DB = nil },
		"no work":              func(c *jobs.Config) { c.Work = nil },
		"a sweep without work": func(c *jobs.Config) { c.Sweeps = []jobs.Sweep{{Name: "x", Interval: time.Second}} },
		"a sweep without interval": func(c *jobs.Config) {
			c.Sweeps = []jobs.Sweep{{Name: "x", Run: func(context.Context) error { return nil }}}
		},
	} {
		bad := cfg
		spoil(&bad)
		if _, err := jobs.New(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
