// Package lanes runs the background work that waits in rows: a row's own columns say
// what is to be done for it and when, so nothing is enqueued and nothing can be lost. A
// lane finds the rows of one queue that are due and works on them; any number of nodes
// may run the same lanes. Sweeps (sweep.go) are background work that runs at intervals.
// The work itself belongs to the domains.
//
// A piece of work must be safe to run twice, and at once on several nodes: it takes the
// row by an UPDATE that moves the row's due time ahead (a lease), and clears the due time
// when nothing is left to do. A node that dies leaves a row that is due when the lease is
// over.
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
	Kind     string // the work's name in the log and the metrics
	Queue    Queue
	Slots    int           // how many rows are worked on at once
	Interval time.Duration // between two polls
	Timeout  time.Duration // of a piece of work; 0: the work ends by itself
	Do       func(ctx context.Context, guild, id string) error
}

// Worker runs lanes on one node. Slots are shared by guild before they are shared by
// age: while other guilds wait, one guild has at most an eighth of a lane's slots (at
// least one); alone it has at most half.
type Worker struct {
	DB       *db.DB
	Log      *slog.Logger
	Tracer   *tracing.Tracer // nil: nothing is traced
	Outcomes *prometheus.CounterVec
	Lanes    []Lane
}

// The outcomes of a piece of work.
const (
	done    = "done"
	failed  = "failed"
	givenUp = "given_up"
)

// NewOutcomes returns the counter of pieces of work by kind and outcome: done, failed
// (tried again), given_up.
func NewOutcomes(reg prometheus.Registerer, name, help string) *prometheus.CounterVec {
	return promauto.With(reg).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"kind", "outcome"})
}

const (
	guildsPerScan = 500
	scansPerPoll  = 20
	// stopGrace is how long pieces of work that run when the worker stops may go on.
	stopGrace = 20 * time.Second
)

// Run works until ctx ends. Pieces of work that run then have stopGrace to end before
// their context is cancelled; Run returns when all have ended. A piece that fails is
// logged, counted, and tried again after growing pauses.
func (w *Worker) Run(ctx context.Context) error {
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, cancel) })()
	var all errgroup.Group
	for _, l := range w.Lanes {
		for _, outcome := range []string{done, failed, givenUp} { // the first failure is a step from 0
			w.Outcomes.WithLabelValues(l.Kind, outcome)
		}
		all.Go(func() error {
			w.shift(l).run(ctx, working)
			return nil
		})
	}
	return all.Wait()
}

// shift is one lane at work on this node. Only run's goroutine touches the fields below
// finished.
type shift struct {
	Lane
	*Worker
	scan, postpone string        // statements
	finished       chan db.Found // pieces of work that have ended, sent by their goroutines

	queue   []db.Found        // found due and not begun
	running map[db.Found]bool // begun
	used    map[string]int    // slots that each guild has
	after   string            // the guild after which the next scan begins
	quietly logging.Sometimes // how often failing polls are logged
}

func (w *Worker) shift(l Lane) *shift {
	return &shift{
		Lane: l, Worker: w, scan: l.Queue.Scan(w.DB.Distributed()), postpone: l.Queue.Postpone(),
		running: map[db.Found]bool{}, used: map[string]int{}, finished: make(chan db.Found, l.Slots),
	}
}

// run polls for due rows and begins work on them until ctx ends. The work's own context
// is working.
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
				continue // found twice
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

// do works on one row. A row whose work fails or panics is postponed. Where the failure
// has left nothing to do, or the row is too old, the row is given up.
func (s *shift) do(ctx context.Context, r db.Found) {
	ctx, span := s.Tracer.Work(ctx, "job "+s.Kind)
	defer span.End()
	err := s.attempt(ctx, r)
	if ctx.Err() != nil {
		return // stopped: the row is due again when its lease is over
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

// postponed postpones a row and reports whether the row still waits.
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

// poll scans for due rows, each once. It begins where the poll before ended, so that
// guilds with many rows that are not due hide no other guild, and ends when it has seen
// all guilds.
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
