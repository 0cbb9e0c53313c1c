package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"guildhall/internal/chat"
	"guildhall/internal/db"
	"guildhall/internal/db/dbtest"
	"guildhall/internal/jobs"
)

// idle is a config whose work does nothing.
func idle(t *testing.T, base *dbtest.Database) jobs.Config {
	t.Helper()
	pool, err := db.OpenSQL(base.URL, "guildhall-jobs", 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	nothing := func(context.Context) error { return nil }
	return jobs.Config{
		DB: pool, Log: slog.New(slog.DiscardHandler),
		Draw:        func(context.Context, string, string, int) error { return nil },
		Announce:    func(context.Context, string, string) error { return nil },
		SyncChannel: func(context.Context, string, string) error { return nil },
		Transitions: nothing, SweepIntents: nothing, SweepChannels: nothing, ExpireCases: nothing, Prune: nothing,
	}
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

func enqueue(t *testing.T, base *dbtest.Database, list ...river.JobArgs) {
	t.Helper()
	if err := base.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		for _, args := range list {
			if err := jobs.Enqueue(ctx, tx, args, nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
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

	t.Run("belongs to the unit", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
		var did tally
		cfg := idle(t, base)
		cfg.Draw = func(_ context.Context, guild, giveaway string, round int) error {
			did.add(fmt.Sprint(guild, giveaway, round))
			return nil
		}
		undo := errors.New("undo")
		if err := base.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			if err := jobs.Enqueue(ctx, tx, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "undone", Round: 1}, nil); err != nil {
				return err
			}
			return undo
		}); !errors.Is(err, undo) {
			t.Fatal(err)
		}
		enqueue(t, base, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "g", Round: 1}, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "g", Round: 1})
		start(t, cfg)
		eventually(t, "the draw", func() bool { return did.of("1g1") > 0 })
		enqueue(t, base, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "g", Round: 1}, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "g", Round: 2})
		eventually(t, "the second round", func() bool { return did.of("1g2") > 0 })
		if did.of("1undone") != 0 || did.of("1g1") != 1 || did.of("1g2") != 1 {
			t.Errorf("done: %v", did.n)
		}
	})
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
	enqueue(t, base, jobs.AnnounceGiveaway{GuildID: "1", IntentID: "i"})
	if err := base.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `SELECT pg_notify('public.river_insert', 'the test')`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
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
		cfg := idle(t, base)
		cfg.Announce = func(_ context.Context, _, intent string) error {
			did.add(intent)
			total.Add(1)
			return nil
		}
		var list []river.JobArgs
		for i := range 200 {
			list = append(list, jobs.AnnounceGiveaway{GuildID: "1", IntentID: fmt.Sprint(i)})
		}
		enqueue(t, base, list...)
		second := idle(t, base)
		second.Announce = cfg.Announce
		start(t, cfg)
		start(t, second)
		eventually(t, "200 jobs", func() bool { return total.Load() >= 200 })
		for i := range 200 {
			if n := did.of(fmt.Sprint(i)); n != 1 {
				t.Errorf("job %d was done %d times", i, n)
			}
		}
	})

	t.Run("try again after a failure, and not after a lasting refusal", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
		var did tally
		cfg := idle(t, base)
		cfg.SyncChannel = func(_ context.Context, _, ticket string) error {
			switch n := did.add(ticket); {
			case ticket == "refused":
				return &chat.Failure{Status: 403, Code: chat.CodeMissingPermission}
			case n < 3:
				return &chat.Failure{Status: 503, Uncertain: true}
			}
			return nil
		}
		enqueue(t, base, jobs.SyncTicketChannel{GuildID: "1", TicketID: "refused"}, jobs.SyncTicketChannel{GuildID: "1", TicketID: "flaky"})
		start(t, cfg)
		eventually(t, "the third try", func() bool { return did.of("flaky") == 3 })
		if n := did.of("refused"); n != 1 {
			t.Errorf("the refused job was tried %d times", n)
		}
		eventually(t, "the queue to know", func() bool {
			var state string
			if err := base.DB.Reader().GetContext(context.Background(), &state, `
				SELECT state FROM river_job WHERE args->>'ticket_id' = 'refused'`); err != nil {
				t.Fatal(err)
			}
			return state == "cancelled"
		})
	})

	t.Run("draw while the platform hangs", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
		release := make(chan struct{})
		var hanging atomic.Int64
		var did tally
		cfg := idle(t, base)
		cfg.SyncChannel = func(ctx context.Context, _, _ string) error {
			hanging.Add(1)
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		}
		cfg.Draw = func(context.Context, string, string, int) error {
			did.add("draw")
			return nil
		}
		var list []river.JobArgs
		for i := range 40 {
			list = append(list, jobs.SyncTicketChannel{GuildID: "1", TicketID: fmt.Sprint(i)})
		}
		enqueue(t, base, list...)
		start(t, cfg)
		eventually(t, "all slots to hang", func() bool { return hanging.Load() == 16 })
		enqueue(t, base, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "g", Round: 1})
		eventually(t, "the draw", func() bool { return did.of("draw") == 1 })
		close(release)
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
		cfg := idle(t, base)
		cfg.Log = slog.New(counting{slog.DiscardHandler, &logged})
		cfg.Draw = func(_ context.Context, _, giveaway string, _ int) error {
			did.add(giveaway)
			return nil
		}
		away(true)
		start(t, cfg)
		eventually(t, "a first attempt", func() bool { return logged.of("the job workers are not running, they start again in a second") > 0 })
		for _, giveaway := range []string{"first", "second"} {
			away(false)
			eventually(t, "the job to be stored", func() bool {
				return base.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
					return jobs.Enqueue(ctx, tx, jobs.DrawGiveaway{GuildID: "1", GiveawayID: giveaway, Round: 1}, nil)
				}) == nil
			})
			eventually(t, "the draw", func() bool { return did.of(giveaway) == 1 })
			away(true)
		}
		away(false)
	})

	t.Run("finish what they began when they are stopped", func(t *testing.T) {
		t.Parallel()
		base := dbtest.New(t)
		begun, release := make(chan struct{}), make(chan struct{})
		var finished atomic.Bool
		cfg := idle(t, base)
		cfg.Draw = func(ctx context.Context, _, _ string, _ int) error {
			close(begun)
			<-release
			finished.Store(ctx.Err() == nil)
			return nil
		}
		enqueue(t, base, jobs.DrawGiveaway{GuildID: "1", GiveawayID: "g", Round: 1})
		stop := start(t, cfg)
		<-begun
		time.AfterFunc(300*time.Millisecond, func() { close(release) })
		stop()
		if !finished.Load() {
			t.Error("the job was cancelled, or Run did not wait for it")
		}
	})
}

func TestSweeps(t *testing.T) {
	t.Parallel()
	base := dbtest.New(t)
	var did tally
	cfg := idle(t, base)
	cfg.Transitions = func(context.Context) error {
		if did.add("transitions") == 1 {
			panic("once")
		}
		return errors.New("always")
	}
	for name, run := range map[string]*func(context.Context) error{
		"intents": &cfg.SweepIntents, "channels": &cfg.SweepChannels, "cases": &cfg.ExpireCases, "prune": &cfg.Prune,
	} {
		*run = func(context.Context) error {
			did.add(name)
			return nil
		}
	}
	start(t, cfg)
	eventually(t, "a sweep after a panic and an error", func() bool { return did.of("transitions") >= 3 })
	for _, name := range []string{"intents", "channels", "cases", "prune"} {
		if did.of(name) == 0 {
			t.Errorf("no sweep for %s", name)
		}
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	cfg := idle(t, dbtest.New(t))
	for name, spoil := range map[string]func(*jobs.Config){
		"no pool":  func(c *jobs.Config) { c.DB = nil },
		"no draw":  func(c *jobs.Config) { c.Draw = nil },
		"no sweep": func(c *jobs.Config) { c.Transitions = nil },
	} {
		bad := cfg
		spoil(&bad)
		if _, err := jobs.New(bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
