package jobs

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/chat"
)

type txOf = *sql.Tx

// Timing of the workers. A job that outlives its timeout and the rescue was
// left by a node that is gone.
const (
	poll        = 150 * time.Millisecond
	cooldown    = 50 * time.Millisecond
	jobTimeout  = 30 * time.Second
	rescueAfter = 60 * time.Second
	softStop    = 20 * time.Second
)

// Config holds the work behind each kind of job and each sweep. All of it is
// safe to run twice and on several nodes at once.
type Config struct {
	// DB is a pool for the workers alone; three connections are enough.
	DB  *sql.DB
	Log *slog.Logger

	Draw        func(ctx context.Context, guild, giveaway string, round int) error
	Announce    func(ctx context.Context, guild, intent string) error
	SyncChannel func(ctx context.Context, guild, ticket string) error

	// Transitions moves giveaways whose time has come, and draws those whose
	// job was lost. Each second.
	Transitions func(ctx context.Context) error
	// SweepIntents finishes messages whose sender has vanished. Every 5 s.
	SweepIntents func(ctx context.Context) error
	// SweepChannels does for tickets' channels what lost jobs left. Every 30 s.
	SweepChannels func(ctx context.Context) error
	// ExpireCases expires what has run out. Every 5 s.
	ExpireCases func(ctx context.Context) error
	// Prune deletes what nobody can ask for any more. Every 10 minutes.
	Prune func(ctx context.Context) error
}

// Runner works the jobs and sweeps of one node.
type Runner struct {
	cfg    Config
	sweeps []sweep
}

// New returns a runner. Every piece of work must be there.
func New(cfg Config) (*Runner, error) {
	if cfg.DB == nil || cfg.Draw == nil || cfg.Announce == nil || cfg.SyncChannel == nil {
		return nil, errors.New("jobs: DB and the work of every job must be given")
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Runner{cfg: cfg, sweeps: []sweep{
		{"giveaway transitions", time.Second, cfg.Transitions},
		{"chat intents", 5 * time.Second, cfg.SweepIntents},
		{"ticket channels", 30 * time.Second, cfg.SweepChannels},
		{"case expiry", 5 * time.Second, cfg.ExpireCases},
		{"pruning", 10 * time.Minute, cfg.Prune},
	}}
	for _, s := range r.sweeps {
		if s.run == nil {
			return nil, errors.New("jobs: the work of the sweep " + s.name + " must be given")
		}
	}
	return r, nil
}

// Run works until ctx ends. Jobs that run then may finish for twenty seconds
// before they are cancelled; Run returns when nothing of it is running any
// more. A database that is away is waited for.
func (r *Runner) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return r.work(ctx) })
	for _, s := range r.sweeps {
		group.Go(func() error {
			s.loop(ctx, r.cfg.Log)
			return nil
		})
	}
	return group.Wait()
}

// work runs River's workers.
func (r *Runner) work(ctx context.Context) error {
	for {
		client, err := river.NewClient(quiet{riverdatabasesql.New(r.cfg.DB)}, &river.Config{
			Queues: map[string]river.QueueConfig{
				queueDraws: {MaxWorkers: 4},
				queueChat:  {MaxWorkers: 16},
			},
			Workers:                     r.workers(),
			Logger:                      slog.New(warnings{r.cfg.Log.Handler()}),
			PollOnly:                    true,
			FetchCooldown:               cooldown,
			FetchPollInterval:           poll,
			JobTimeout:                  jobTimeout,
			RescueStuckJobsAfter:        rescueAfter,
			RetryPolicy:                 soon{},
			SoftStopTimeout:             softStop,
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
		r.cfg.Log.WarnContext(ctx, "the job workers are not running, they start again in a second", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

func (r *Runner) workers() *river.Workers {
	w := river.NewWorkers()
	river.AddWorker(w, river.WorkFunc(func(ctx context.Context, job *river.Job[DrawGiveaway]) error {
		return r.cfg.Draw(ctx, job.Args.GuildID, job.Args.GiveawayID, job.Args.Round)
	}))
	river.AddWorker(w, river.WorkFunc(func(ctx context.Context, job *river.Job[AnnounceGiveaway]) error {
		return final(r.cfg.Announce(ctx, job.Args.GuildID, job.Args.IntentID))
	}))
	river.AddWorker(w, river.WorkFunc(func(ctx context.Context, job *river.Job[SyncTicketChannel]) error {
		return final(r.cfg.SyncChannel(ctx, job.Args.GuildID, job.Args.TicketID))
	}))
	return w
}

// final keeps a job from being tried again where the platform has refused for
// good.
func final(err error) error {
	if f := (*chat.Failure)(nil); errors.As(err, &f) && f.Lasting() {
		return river.JobCancel(err)
	}
	return err
}

// warnings drops what River has to say when all is well.
type warnings struct{ slog.Handler }

// Enabled reports whether a record of this level is kept.
func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

// WithAttrs keeps the restriction.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the restriction.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
