// Package lanes runs background work whose queue is a table's own rows: columns of a row say what
// is to be done and when, so nothing is enqueued and no job can be lost. A lane polls one queue for
// due rows and works on them; any number of nodes may run the same lanes. Sweeps (sweep.go) are
// background work that runs at intervals. The work itself belongs to the domain packages.
//
// The work on a row must be safe to run twice, and at once on several nodes. It takes the row by an
// UPDATE that moves the row's due time ahead (a lease), and clears the due time when nothing is
// left to do. If a node dies, the row is due again when the lease ends.
package lanes

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/base/tracing"
)

// Lane is one kind of work on the rows of a queue.
type Lane struct {
	Kind     string // the name of the work in the log and in metrics
	Queue    Queue
	Slots    int           // rows that are worked on concurrently, at most
	Interval time.Duration // time between two polls
	Timeout  time.Duration // limit for the work on one row; 0: the work limits itself
	Do       func(ctx context.Context, guild, id string) error
}

// Worker runs lanes on one node. Slots are shared among guilds first, and by age within a guild:
// while other guilds wait, a guild has at most an eighth of a lane's slots (at least one slot);
// otherwise it has at most half.
type Worker struct {
	DB       *db.DB
	Log      *slog.Logger
	Tracer   *tracing.Tracer // nil: no traces
	Outcomes *prometheus.CounterVec
	Lanes    []Lane
}

// The outcomes of the work on a row.
const (
	done    = "done"
	failed  = "failed"
	givenUp = "given_up"
)

// NewOutcomes returns the counter of worked rows by kind and outcome: done, failed (will be
// retried), given_up.
func NewOutcomes(reg prometheus.Registerer, name, help string) *prometheus.CounterVec {
	return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind", "outcome"})
}

const (
	guildsPerScan = 500
	scansPerPoll  = 20
	// stopGrace is how long running work may continue after the worker has been stopped.
	stopGrace = 20 * time.Second
)

// Run works on due rows until ctx ends. Work that runs then has stopGrace to end before its context
// is cancelled; Run returns when all work has ended. Failed work is logged, counted and retried
// after growing pauses.
func (w *Worker) Run(ctx context.Context) error {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	var all errgroup.Group
	for _, l := range w.Lanes {
		for _, outcome := range []string{done, failed, givenUp} { // with a counter at 0 from the start, the first failure is visible as an increase
			w.Outcomes.WithLabelValues(l.Kind, outcome)
		}
		all.Go(func() error {
			w.shift(l).run(ctx, working)
			return nil
		})
	}
	return all.Wait()
}

// shift is one lane while it runs on this node. Only the goroutine of run uses the fields below
// finished.
type shift struct {
	Lane
	*Worker
	scan, postpone string        // SQL statements
	finished       chan db.Found // rows whose work has ended, sent by the goroutines that did the work

	queue   []db.Found        // due rows that were found and wait for a slot
	running map[db.Found]bool // rows that are being worked on
	used    map[string]int    // slots in use by guild
	after   string            // the guild after which the next scan begins
	quietly logging.Sometimes // limits how often failing polls are logged
}

func (w *Worker) shift(l Lane) *shift {
	return &shift{
		Lane: l, Worker: w, scan: l.Queue.Scan(w.DB.Distributed()), postpone: l.Queue.Postpone(),
		running: map[db.Found]bool{}, used: map[string]int{}, finished: make(chan db.Found, l.Slots),
	}
}

// run polls for due rows and starts work on them until ctx ends. The work gets the context working,
// which ends later.
func (s *shift) run(ctx, working context.Context) {
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	for {
		s.poll(ctx)
		s.begin(working)
		for again := false; !again; {
			select {
			case <-ctx.Done():
				for len(s.running) > 0 {
					s.end(<-s.finished)
				}
				return
			case r := <-s.finished:
				s.end(r)
				s.begin(working)
				again = len(s.queue) == 0 && len(s.running) == 0
			case <-tick.C:
				again = len(s.running) < s.Slots
			}
		}
	}
}

func (s *shift) end(r db.Found) {
	delete(s.running, r)
	if s.used[r.GuildID]--; s.used[r.GuildID] == 0 {
		delete(s.used, r.GuildID)
	}
}

// begin gives free slots to queued rows: first to guilds that have less than an eighth
// of the slots, then to guilds that have less than half.
func (s *shift) begin(working context.Context) {
	for _, share := range [...]int{max(1, s.Slots/8), max(1, s.Slots/2)} {
		rest := s.queue[:0]
		for _, r := range s.queue {
			if s.running[r] {
				continue // a scan found a row that is queued or running already
			}
			if len(s.running) >= s.Slots || s.used[r.GuildID] >= share {
				rest = append(rest, r)
				continue
			}
			s.running[r] = true
			s.used[r.GuildID]++
			go func() {
				s.do(working, r)
				s.finished <- r
			}()
		}
		s.queue = rest
	}
}

// do works on one row. If the work fails or panics, do postpones the row. If the failure is final
// or the row is older than MaxAge, the row is given up.
func (s *shift) do(ctx context.Context, r db.Found) {
	ctx, span := s.Tracer.Work(ctx, "job "+s.Kind)
	defer span.End()
	err := s.attempt(ctx, r)
	if ctx.Err() != nil {
		return // the worker stops: the row is due again when its lease ends
	}
	if err == nil || fault.Is(err, "not_found") {
		s.Outcomes.WithLabelValues(s.Kind, done).Inc()
		return
	}
	span.Fail("failed")
	about := []any{"kind", s.Kind, "guild_id", r.GuildID, "id", r.ID, "error", err}
	again, postponing := s.postponed(ctx, r)
	switch {
	case postponing != nil:
		s.Outcomes.WithLabelValues(s.Kind, failed).Inc()
		s.Log.WarnContext(ctx, "a job failed and could not be postponed", append(about, "postponing", postponing)...)
	case again:
		s.Outcomes.WithLabelValues(s.Kind, failed).Inc()
		s.Log.WarnContext(ctx, "a job failed and will be tried again", about...)
	default:
		s.Outcomes.WithLabelValues(s.Kind, givenUp).Inc()
		s.Log.WarnContext(ctx, "a job is given up", about...)
	}
}

func (s *shift) attempt(ctx context.Context, r db.Found) error {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	return fault.Caught(func() error { return s.Do(ctx, r.GuildID, r.ID) })
}

// postponed runs the Postpone statement and reports whether the row still waits.
func (s *shift) postponed(ctx context.Context, r db.Found) (again bool, err error) {
	err = s.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		again, err = db.Get[bool](ctx, tx, s.postpone, r.GuildID, r.ID)
		if db.Missing(err) {
			again = false
			return nil
		}
		return err
	})
	return again, err
}

// poll scans all guilds once for due rows and queues each row once. It starts after the guild at
// which the previous poll ended, so guilds with many rows that are not due cannot hide other
// guilds.
func (s *shift) poll(ctx context.Context) {
	s.queue = s.queue[:0]
	begun, around := s.after, false
	for scans := 0; scans < scansPerPoll && len(s.queue) < 16*s.Slots; scans++ {
		found, err := db.Select[db.Found](ctx, s.DB.Reader(), s.scan, s.after, guildsPerScan, s.Slots)
		if err != nil {
			if ctx.Err() == nil && s.quietly.Due("poll", time.Now(), logging.Interval) { //nolint:forbidigo // how often the log hears, no instant
				s.Log.WarnContext(ctx, "polling for jobs failed", "kind", s.Kind, "error", err)
			}
			return
		}
		guilds, last := 0, ""
		for _, r := range found {
			if around && r.GuildID > begun {
				s.after = begun
				return
			}
			if r.GuildID != last {
				guilds, last = guilds+1, r.GuildID
			}
			if r.ID != "" && !s.running[r] {
				s.queue = append(s.queue, r)
			}
		}
		s.after = last
		if guilds < guildsPerScan {
			if s.after = ""; around || begun == "" {
				return
			}
			around = true
		}
	}
}
