package giveaways

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
	"guildhall/internal/outbound/chat"
)

// Worker does what giveaways need and nobody waits for: it draws them, reads
// who has reacted to their messages, adds the bot's own reaction, and has the message
// say that a giveaway has ended, and who has won. The giveaways' own rows say what is
// to be done, so nothing can be lost, and any number of workers may run.
//
// The work is shared by guild before it is shared by age: while others wait, one
// guild has at most an eighth of the slots of a kind (at least one), alone at
// most half.
type Worker struct {
	DB      *db.DB
	Chat    chat.Platform
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: nobody counts
}

// The slots of each kind of work, and how often it is looked for. A draw holds a
// connection; the others hold none while they wait for the platform.
const (
	drawSlots     = 4
	gatherSlots   = 16
	reactSlots    = 8
	editSlots     = 8
	drawInterval  = 200 * time.Millisecond
	slowInterval  = time.Second
	guildsPerLook = 500
	looksPerTick  = 20
)

// lane is one kind of work.
type lane struct {
	name     string
	slots    int
	interval time.Duration
	due      looks  // finds what is to be done
	postpone string // makes a giveaway due again after a growing pause
	work     func(ctx context.Context, guild, id string) error
}

// dueBy is the statement that finds what is due by the instant at, where the
// condition holds: guild by guild, beginning after guild $1, in at most $2 guilds
// that have anything in that state, and at most $3 giveaways of each. A guild
// where nothing is due, or that is being removed, has a row without an id, so the last row always says
// where the next look begins. Each step of it reads an index that begins with
// the guild.
//
// Where the tables are distributed it cannot step from guild to guild, and reads
// all that is due; it finds only that.
func dueBy(at, condition string) looks {
	with := func(text string) string { return db.With(text, "at", at, "condition", condition) }
	return looks{distributed: with(`
		SELECT guild_id, id
		FROM (
			SELECT guild_id, id, row_number() OVER (PARTITION BY guild_id ORDER BY :at) AS place
			FROM giveaways
			WHERE guild_id > $1
			  AND :condition
			  AND :at <= now()
			  AND NOT EXISTS (SELECT FROM guilds h WHERE h.id = guild_id AND h.removed_at IS NOT NULL)
		) due
		WHERE place <= $3
		ORDER BY guild_id, place
		LIMIT $2::int * $3::int`), walking: with(`
		WITH RECURSIVE walk AS (
			(SELECT guild_id, 1 AS n
			FROM giveaways
			WHERE guild_id > $1
			  AND :condition
			ORDER BY guild_id
			LIMIT 1)
			UNION ALL
			SELECT (
				SELECT g.guild_id
				FROM giveaways g
				WHERE g.guild_id > walk.guild_id
				  AND :condition
				ORDER BY g.guild_id
				LIMIT 1
			), n + 1
			FROM walk
			WHERE guild_id IS NOT NULL
			  AND n < $2
		)
		SELECT walk.guild_id, coalesce(found.id, '') AS id
		FROM walk
		LEFT JOIN LATERAL (
			SELECT g.id, g.:at
			FROM giveaways g
			WHERE g.guild_id = walk.guild_id
			  AND :condition
			  AND g.:at <= now()
			  AND NOT EXISTS (SELECT FROM guilds h WHERE h.id = walk.guild_id AND h.removed_at IS NOT NULL)
			ORDER BY g.:at
			LIMIT $3
		) found ON true
		WHERE walk.guild_id IS NOT NULL
		ORDER BY walk.n, found.:at`)}
}

// looks are the two forms of a statement that finds what is due.
type looks struct{ walking, distributed string }

// The conditions of the partial indexes that the lanes read.
const (
	toDraw   = `status = 'drawing' AND pot <> 'gathering'`
	toGather = `status = 'drawing' AND pot = 'gathering'`
	toReact  = `react_at IS NOT NULL`
	toEdit   = `edit_at IS NOT NULL`
)

var (
	drawsDue     = dueBy("redraw_at", toDraw)
	gatheringDue = dueBy("redraw_at", toGather)
	reactionsDue = dueBy("react_at", toReact)
	editsDue     = dueBy("edit_at", toEdit)
)

// Run works until ctx ends, and returns when nothing of it is running any more.
// A failure is logged, and what failed is tried again after growing pauses.
func (w *Worker) Run(ctx context.Context) error {
	done := promauto.With(w.Metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "guildhall_giveaway_work_total", Help: "Work on giveaways by kind (draw, gather, react, edit) and outcome (done, failed).",
	}, []string{"kind", "outcome"})
	background := chat.Background(ctx)
	var all errgroup.Group
	for _, l := range w.lanes() {
		all.Go(func() error {
			w.shift(l, done).run(background)
			return nil
		})
	}
	return all.Wait()
}

func (w *Worker) lanes() []lane {
	return []lane{
		{"draw", drawSlots, drawInterval, drawsDue, postponed("redraw_at", "failures", toDraw), func(ctx context.Context, guild, id string) error {
			return Draw(ctx, w.DB, guild, id)
		}},
		{"gather", gatherSlots, slowInterval, gatheringDue, postponed("redraw_at", "failures", toGather), func(ctx context.Context, guild, id string) error {
			return Gather(ctx, w.DB, w.Chat, guild, id)
		}},
		{"react", reactSlots, slowInterval, reactionsDue, postponed("react_at", "failures", toReact), func(ctx context.Context, guild, id string) error {
			return React(ctx, w.DB, w.Chat, guild, id)
		}},
		{"edit", editSlots, slowInterval, editsDue, postponed("edit_at", "edit_failures", toEdit), func(ctx context.Context, guild, id string) error {
			return Edit(ctx, w.DB, w.Chat, guild, id)
		}},
	}
}

// postponed is the statement that makes a giveaway due again after a pause that
// grows with each failure, up to a quarter of an hour.
func postponed(at, failures, condition string) string {
	return db.With(`
		WITH instant AS MATERIALIZED (SELECT now() AS at)
		UPDATE giveaways
		SET :failures = :failures + 1,
		    :at = (instant.at AT TIME ZONE 'UTC' + make_interval(secs => least(power(2, least(:failures, 10)), 900))) AT TIME ZONE 'UTC'
		FROM instant
		WHERE guild_id = $1
		  AND id = $2
		  AND :condition`, "at", at, "failures", failures, "condition", condition)
}

// shift is one lane at work on this node. Only run touches its fields.
type shift struct {
	lane
	w        *Worker
	outcomes *prometheus.CounterVec
	finished chan db.Found // from those that work, whom it has begun

	// Of the goroutine that runs the shift.
	queue   []db.Found        // found due and not begun
	running map[db.Found]bool // begun
	used    map[string]int    // slots that each guild has
	after   string            // the guild after which the next look begins
	quietly logging.Sometimes // trouble with looks
}

func (w *Worker) shift(l lane, outcomes *prometheus.CounterVec) *shift {
	return &shift{lane: l, w: w, outcomes: outcomes, running: map[db.Found]bool{}, used: map[string]int{}, finished: make(chan db.Found, l.slots)}
}

// run looks for work and hands it out until ctx ends.
func (s *shift) run(ctx context.Context) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		s.look(ctx)
		s.begin(ctx)
		for again := false; !again; {
			select {
			case <-ctx.Done():
				for len(s.running) > 0 {
					s.end(<-s.finished)
				}
				return
			case r := <-s.finished:
				s.end(r)
				s.begin(ctx)
				again = len(s.queue) == 0 && len(s.running) == 0
			case <-tick.C:
				again = len(s.running) < s.slots
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

// begin hands queued work to free slots: first to guilds that have less than
// their share while others wait, then to those that wait alone.
func (s *shift) begin(ctx context.Context) {
	for _, share := range [...]int{max(1, s.slots/8), max(1, s.slots/2)} {
		rest := s.queue[:0]
		for _, r := range s.queue {
			if s.running[r] {
				continue // found twice
			}
			if len(s.running) >= s.slots || s.used[r.GuildID] >= share {
				rest = append(rest, r)
				continue
			}
			s.running[r] = true
			s.used[r.GuildID]++
			go func() {
				s.do(ctx, r)
				s.finished <- r
			}()
		}
		s.queue = rest
	}
}

// do does one piece of work. A piece that fails, or panics, is postponed.
func (s *shift) do(ctx context.Context, r db.Found) {
	err := s.attempt(ctx, r)
	if ctx.Err() != nil {
		return
	}
	if err == nil || fault.Is(err, "not_found") {
		s.outcomes.WithLabelValues(s.name, "done").Inc()
		return
	}
	s.outcomes.WithLabelValues(s.name, "failed").Inc()
	s.w.Log.WarnContext(ctx, "work on a giveaway failed and will be tried again", "kind", s.name, "guild_id", r.GuildID, "giveaway_id", r.ID, "error", err)
	if err := s.w.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, s.postpone, r.GuildID, r.ID)
		return err
	}); err != nil {
		s.w.Log.WarnContext(ctx, "work on a giveaway could not be postponed", "kind", s.name, "guild_id", r.GuildID, "giveaway_id", r.ID, "error", err)
	}
}

func (s *shift) attempt(ctx context.Context, r db.Found) error {
	return fault.Caught(func() error { return s.work(ctx, r.GuildID, r.ID) })
}

// look finds what is due, each once. It goes on where the look before it ended, so that
// guilds with much that is not due yet hide nobody, and all the way round at most.
func (s *shift) look(ctx context.Context) {
	s.queue = s.queue[:0]
	begun, around := s.after, false
	for looks := 0; looks < looksPerTick && len(s.queue) < 16*s.slots; looks++ {
		found, err := db.Select[db.Found](ctx, s.w.DB.Reader(), s.due.on(s.w.DB), s.after, guildsPerLook, s.slots)
		if err != nil {
			if ctx.Err() == nil && s.quietly.Due("look", time.Now(), logging.Interval) { //nolint:forbidigo // how often the log hears, no instant
				s.w.Log.WarnContext(ctx, "looking for work on giveaways failed", "kind", s.name, "error", err)
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
		if guilds < guildsPerLook {
			if s.after = ""; around || begun == "" {
				return
			}
			around = true
		}
	}
}

func (l looks) on(d *db.DB) string {
	if d.Distributed() {
		return l.distributed
	}
	return l.walking
}
