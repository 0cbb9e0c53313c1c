package jobs

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/tracing"
)

type txOf = *sql.Tx

// Timing of the workers. A job that outlives its timeout and the rescue was
// left by a node that is gone.
const (
	pollInterval    = 150 * time.Millisecond
	fetchCooldown   = 50 * time.Millisecond
	jobTimeout      = 30 * time.Second
	rescueAfter     = 60 * time.Second
	softStopTimeout = 20 * time.Second
	workers         = 16
	gaugesInterval  = 15 * time.Second
)

// Work is the work of one kind of job.
type Work struct {
	kind string
	add  func(*Runner, *river.Workers)
}

// Do is the work of the jobs of type A: do is called with each, may be called
// again with one that has succeeded, and on several nodes at once. When it
// fails, it is called again after growing pauses until the job is a day old.
func Do[A Args](do func(ctx context.Context, args A) error) Work {
	var kind A
	return Work{kind: kind.Kind(), add: func(r *Runner, w *river.Workers) {
		river.AddWorker(w, river.WorkFunc(func(ctx context.Context, job *river.Job[A]) error {
			return r.attempt(ctx, job.JobRow.CreatedAt, job.Kind, job.Args, func(ctx context.Context) error { return do(ctx, job.Args) })
		}))
	}}
}

// Config holds the work behind each kind of job, and the sweeps. All of it is
// safe to run twice and on several nodes at once.
type Config struct {
	// DB is a pool for the workers alone; three connections are enough.
	DB      *sql.DB
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: nobody counts
	Tracer  *tracing.Tracer       // nil: nothing is traced
	Work    []Work
	Sweeps  []Sweep
}

// Runner works the jobs and sweeps of one node.
type Runner struct {
	cfg     Config
	metrics metrics
}

// New returns a runner. Every piece of work must be there.
func New(cfg Config) (*Runner, error) {
	if cfg.DB == nil || len(cfg.Work) == 0 {
		return nil, errors.New("jobs: DB and the work of every job must be given")
	}
	for _, s := range cfg.Sweeps {
		if s.Run == nil || s.Interval <= 0 {
			return nil, fmt.Errorf("jobs: the work of the sweep %q and its interval must be given", s.Name)
		}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Runner{cfg: cfg, metrics: newMetrics(cfg.Metrics, cfg.Work, cfg.Sweeps)}, nil
}

// Run works until ctx ends. Jobs that run then may finish for twenty seconds
// before they are cancelled; Run returns when nothing of it is running any
// more. A database that is away is waited for.
func (r *Runner) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return r.work(ctx) })
	for _, s := range append(r.cfg.Sweeps, Sweep{"gauges of the jobs", gaugesInterval, r.gauge}) {
		group.Go(func() error {
			r.loop(ctx, s)
			return nil
		})
	}
	return group.Wait()
}

// work runs River's workers.
func (r *Runner) work(ctx context.Context) error {
	var quietly logging.Sometimes
	for {
		client, err := river.NewClient(driver{riverdatabasesql.New(r.cfg.DB)}, &river.Config{
			Queues:                      map[string]river.QueueConfig{queueName: {MaxWorkers: workers}},
			Workers:                     r.workers(),
			Logger:                      slog.New(newWarnings(r.cfg.Log.Handler())),
			PollOnly:                    true,
			FetchCooldown:               fetchCooldown,
			FetchPollInterval:           pollInterval,
			JobTimeout:                  jobTimeout,
			RescueStuckJobsAfter:        rescueAfter,
			RetryPolicy:                 growing{},
			SoftStopTimeout:             softStopTimeout,
			CompletedJobRetentionPeriod: time.Hour,
		})
		if err != nil {
			return err
		}
		if err = client.Start(ctx); err == nil {
			<-client.Stopped()
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // stopped as asked
		}
		if quietly.Due("start", time.Now(), logging.Interval) {
			r.cfg.Log.WarnContext(ctx, "the job workers are not running, they start again in a second", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (r *Runner) workers() *river.Workers {
	w := river.NewWorkers()
	for _, work := range r.cfg.Work {
		work.add(r, w)
	}
	return w
}

// attempt makes one attempt of a job, counts how it ended, and says what went
// wrong and with what: River itself keeps that below the level of warnings. A
// job that fails when it is a day old is given up.
func (r *Runner) attempt(ctx context.Context, created time.Time, kind string, args Args, do func(context.Context) error) error {
	ctx, span := r.cfg.Tracer.Work(ctx, "job "+kind)
	defer span.End()
	err := fault.Caught(func() error { return do(ctx) })
	if err != nil {
		span.Fail("failed")
	}
	switch age := time.Since(created); {
	case err == nil:
		r.metrics.jobs.WithLabelValues(kind, "done").Inc()
	case age >= maxAge:
		r.metrics.jobs.WithLabelValues(kind, "given_up").Inc()
		r.cfg.Log.WarnContext(ctx, "a job is given up", "kind", kind, "about", args, "age", age.Round(time.Second).String(), "error", err)
		return river.JobCancel(err)
	default:
		r.metrics.jobs.WithLabelValues(kind, "failed").Inc()
		r.cfg.Log.WarnContext(ctx, "a job failed and will be tried again", "kind", kind, "about", args, "age", age.Round(time.Second).String(), "error", err)
	}
	return err
}

// gauge measures what waits.
func (r *Runner) gauge(ctx context.Context) error {
	rows, err := r.cfg.DB.QueryContext(ctx, `
		SELECT kind, extract(epoch FROM now() - min(created_at))::float8
		FROM river_job
		WHERE queue = $1
		  AND state IN ('available', 'pending', 'retryable', 'running', 'scheduled')
		GROUP BY kind`, queueName)
	if err != nil {
		return fault.Wrap(err, "look for the oldest job")
	}
	defer rows.Close()
	oldest := make(map[string]float64, len(r.cfg.Work))
	for _, w := range r.cfg.Work {
		oldest[w.kind] = 0
	}
	for rows.Next() {
		var kind string
		var age float64
		if err := rows.Scan(&kind, &age); err != nil {
			return fault.Wrap(err, "read the oldest job")
		}
		oldest[kind] = max(age, 0)
	}
	for kind, age := range oldest {
		r.metrics.oldest.WithLabelValues(kind).Set(age)
	}
	return rows.Err()
}

// warnings drops what River has to say when all is well, and what it has just said: while
// the database is away it tries to fetch jobs six times a second.
type warnings struct {
	slog.Handler
	quietly *logging.Sometimes
}

func newWarnings(h slog.Handler) warnings { return warnings{h, new(logging.Sometimes)} }

// Handle passes on a sentence that was not said a moment ago.
func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if !w.quietly.Due(r.Message, r.Time, logging.Interval) {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}

// Enabled reports whether a record of this level is kept.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the restriction.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs), w.quietly}
}

// WithGroup keeps the restriction.
func (w warnings) WithGroup(name string) slog.Handler {
	return warnings{w.Handler.WithGroup(name), w.quietly}
}
