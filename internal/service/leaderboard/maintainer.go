package leaderboard

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
)

// Maintainer creates rank indexes for large leaderboards and keeps them usable. Any number of
// Maintainers may run against one database. A Maintainer finds work without locks and does it
// for one leaderboard at a time.
type Maintainer struct {
	DB  *db.DB
	Log *slog.Logger

	Interval time.Duration // between two rounds; a quarter of it after a round with work; 0 means a second
	Stretch  int           // rows between two checkpoints; 0 means 256
	Least    int           // rows from which on a leaderboard gets a rank index; 0 means 512

	// Only the goroutine that runs the Maintainer uses these fields.
	last    boardID // the last leaderboard whose requests were served
	drafted boardID // the last leaderboard whose draft was advanced
	swept   indexID // the last rank index whose moves were checked
	round   int
	busy    bool // the last round had work to do
}

// boardID identifies a leaderboard of a guild.
type boardID struct {
	GuildID string `db:"guild_id"`
	Board   string `db:"board"`
}

// indexID identifies a rank index.
type indexID struct {
	boardID
	Version int64 `db:"version"`
}

const (
	sliceSize   = 256 // leaderboards whose requests one query reads
	roundSlices = 16  // maximum of queries for requests in one round
	draftSlice  = 64  // drafts that one query reads
	maxGrowth   = 4   // a gap between checkpoints of this many times Stretch requires a new rank index
	sweepRounds = 30  // rounds between two searches for moves without a rank index
	sweepSize   = 64  // rank indexes whose moves one search checks

	// unreadRequests is how many requests must wait before a rank index that nobody reads is
	// served: about 2,000 changes. Until then, a call of Rank adds up the moves.
	unreadRequests = 32

	// draftTime is how long one round works on drafts. The leaderboards of many guilds may need a
	// draft at once, and the moves of other rank indexes are not added up meanwhile.
	draftTime = time.Second
)

// Run runs rounds until ctx ends. Run logs the errors of failed rounds from time to time, and the
// next round tries again.
func (k *Maintainer) Run(ctx context.Context) error {
	every := cmp.Or(k.Interval, time.Second)
	timer := time.NewTimer(every)
	defer timer.Stop()
	var quietly logging.Sometimes
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		err := k.Maintain(ctx)
		now := time.Now() //nolint:forbidigo // how often the log hears, no instant
		if err != nil && ctx.Err() == nil && k.Log != nil && quietly.Due("round", now, logging.Interval) {
			k.Log.ErrorContext(ctx, "keep the leaderboards", "error", err)
		}
		if k.busy { // until the moves are added up, every call of Rank has to add them up
			timer.Reset(every / 4)
		} else {
			timer.Reset(every)
		}
	}
}

// Maintain runs one round. A new rank index takes a few rounds to come into use.
func (k *Maintainer) Maintain(ctx context.Context) error {
	k.round++
	k.busy = false
	failed := k.promote(ctx)
	for n, full := 0, true; full && n < roundSlices; n++ {
		var err error
		full, err = k.serve(ctx)
		failed = errors.Join(failed, err)
	}
	if k.round%sweepRounds == 1 {
		failed = errors.Join(failed, k.sweep(ctx))
	}
	return failed
}

// promote advances each draft by one step until no draft is left or draftTime has passed; the next
// round continues after the last draft.
func (k *Maintainer) promote(ctx context.Context) (failed error) {
	end := time.Now().Add(draftTime)                    //nolint:forbidigo // how long this process works or waits, no instant
	for full := true; full && time.Now().Before(end); { //nolint:forbidigo // how long this process works or waits, no instant
		var err error
		full, err = k.promoteSome(ctx)
		failed = errors.Join(failed, err)
	}
	return failed
}

// promoteSome advances the next drafts by a step each, and reports whether there may be more
// drafts. A draft is counted and put into use once every transaction has ended that may have
// changed rows without recording moves for the draft. These are the transactions that hold a
// lock on the leaderboard's table now: a statement locks its table before it reads anything,
// and the lock lasts until the end of the transaction, so later transactions see the draft.
func (k *Maintainer) promoteSome(ctx context.Context) (full bool, failed error) {
	type draft struct {
		indexID
		Awaited *db.Strings `db:"awaited"`
	}
	drafts, err := db.Select[draft](ctx, k.DB.Reader(), `
		SELECT guild_id, board, version, awaited
		FROM rank_indexes
		WHERE state = 'draft'
		  AND (guild_id, board) > ($1, $2)
		ORDER BY guild_id, board
		LIMIT $3`, k.drafted.GuildID, k.drafted.Board, draftSlice)
	if err != nil {
		return false, fault.Wrap(err, "read the drafts of leaderboards")
	}
	k.drafted = boardID{}
	if full = len(drafts) == draftSlice; full {
		k.drafted = drafts[len(drafts)-1].boardID
	}
	writers := make(map[string][]string) // writers by board, since the drafts were read
	for _, d := range drafts {
		if _, ok := writers[d.Board]; !ok {
			if writers[d.Board], err = k.writers(ctx, d.Board); err != nil {
				return false, err
			}
		}
		now := writers[d.Board]
		isolation, step := "REPEATABLE READ", k.count
		switch {
		case d.Awaited == nil && len(now) > 0:
			isolation, step = "READ COMMITTED", func(ctx context.Context, tx *db.Tx, m indexID) error { return k.await(ctx, tx, m, now) }
		case d.Awaited != nil && slices.ContainsFunc(now, func(w string) bool { return slices.Contains(*d.Awaited, w) }):
			continue
		}
		k.busy = true
		if err := k.alone(ctx, d.boardID, isolation, func(ctx context.Context, tx *db.Tx) error { return step(ctx, tx, d.indexID) }); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return full, failed
}

// alone runs fn in a unit of work unless another Maintainer works on the same leaderboard. Reading
// a million rows takes long, so there is no statement timeout. Postgres cannot know how few rows
// are needed, so alone forbids the sort of a whole table.
func (k *Maintainer) alone(ctx context.Context, a boardID, isolation string, fn func(ctx context.Context, tx *db.Tx) error) error {
	return k.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := db.Exec(ctx, tx, `SET TRANSACTION ISOLATION LEVEL `+isolation+`; SET LOCAL statement_timeout = '5min';
			SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; SET LOCAL jit = off`); err != nil {
			return fault.Wrap(err, "begin with the", a.Board, "of guild", a.GuildID)
		}
		free, err := db.Get[bool](ctx, tx, `SELECT pg_try_advisory_xact_lock(hashtext('guildhall leaderboards'), hashtext($1))`, a.Board+a.GuildID)
		if err != nil {
			return fault.Wrap(err, "begin with the", a.Board, "of guild", a.GuildID)
		}
		if !free {
			return nil
		}
		return fn(ctx, tx)
	})
}

// writers returns the transactions that are writing to a leaderboard's table.
func (k *Maintainer) writers(ctx context.Context, board string) ([]string, error) {
	list, err := db.Select[string](ctx, k.DB.Reader(), `
		SELECT DISTINCT virtualtransaction
		FROM pg_locks
		WHERE locktype = 'relation'
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND relation = $1::regclass
		  AND mode = 'RowExclusiveLock'`, board)
	return list, fault.Wrap(err, "see who writes to the", board)
}

// await stores the transactions for which a draft has to wait.
func (k *Maintainer) await(ctx context.Context, tx *db.Tx, m indexID, writers []string) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE rank_indexes
		SET awaited = $4
		WHERE guild_id = $1 AND board = $2 AND version = $3
		  AND awaited IS NULL`, m.GuildID, m.Board, m.Version, db.Array(writers))
	return fault.Wrap(err, "have the draft for the", m.Board, "of guild", m.GuildID, "wait")
}

// count puts a draft into use, in one snapshot: count counts the rows, and deletes the recorded
// moves that these rows already include. Moves that commit later are added to the new numbers.
func (k *Maintainer) count(ctx context.Context, tx *db.Tx, m indexID) error {
	ready, err := db.Get[bool](ctx, tx, `
		SELECT count(*) > 0
		FROM rank_indexes
		WHERE guild_id = $1 AND board = $2 AND version = $3
		  AND state = 'draft'`, m.GuildID, m.Board, m.Version)
	if err != nil || !ready {
		return err
	}
	for _, step := range [...]struct {
		statement string
		args      []any
	}{
		{`DELETE FROM rank_moves WHERE guild_id = $1 AND board = $2`, []any{m.GuildID, m.Board}},
		{`DELETE FROM rank_indexes WHERE guild_id = $1 AND board = $2 AND version <> $3`, []any{m.GuildID, m.Board, m.Version}},
		{leaderboards[m.Board].count, []any{m.GuildID, m.Version}},
	} {
		if _, err := db.Exec(ctx, tx, step.statement, step.args...); err != nil {
			return fault.Wrap(err, "put a rank index of the", m.Board, "of guild", m.GuildID, "into use")
		}
	}
	return nil
}

// serve works on the leaderboards of the next due requests, and reports whether there may be
// more requests.
func (k *Maintainer) serve(ctx context.Context) (full bool, err error) {
	requests, err := db.Select[requested](ctx, k.DB.Reader(), readRequests, k.last.GuildID, k.last.Board, sliceSize)
	if err != nil {
		return false, fault.Wrap(err, "read the requests for leaderboards")
	}
	k.last = boardID{}
	if full = len(requests) == sliceSize; full {
		k.last = requests[len(requests)-1].boardID
	}
	due, err := k.due(ctx, requests)
	if err != nil {
		return false, err
	}
	k.busy = k.busy || len(due) > 0
	for _, a := range due {
		err := k.alone(ctx, a, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error { return k.look(ctx, tx, a) })
		if err != nil && !db.Missing(err) { // the rank index was deleted meanwhile: the requests stay for the next round
			k.last = a // the next round continues after this leaderboard
			return false, err
		}
	}
	return full, nil
}

// requested is a leaderboard with requests to the Maintainer.
type requested struct {
	boardID
	Waiting int  `db:"waiting"` // number of requests
	Mapped  bool `db:"mapped"`
}

// due returns the leaderboards to work on now: those without a rank index, those with many
// requests, and those that a node has read lately.
func (k *Maintainer) due(ctx context.Context, requests []requested) (list []boardID, err error) {
	var guilds []string
	for _, r := range requests {
		if r.Mapped && r.Waiting < unreadRequests {
			guilds = append(guilds, r.GuildID)
		}
	}
	read := make(map[boardID]bool)
	for name, b := range leaderboards {
		lately, err := usage.Lately(ctx, k.DB.Reader(), guilds, b.operations)
		if err != nil {
			return nil, err
		}
		for _, guild := range lately {
			read[boardID{guild, name}] = true
		}
	}
	for _, r := range requests {
		if !r.Mapped || r.Waiting >= unreadRequests || read[r.boardID] {
			list = append(list, r.boardID)
		}
	}
	return list, nil
}

// look adds up the moves of one leaderboard. If the leaderboard is large and has no rank index, or
// if its checkpoints are too far apart, look drafts a new rank index. look deletes the requests in
// the same transaction.
func (k *Maintainer) look(ctx context.Context, tx *db.Tx, a boardID) error {
	b := leaderboards[a.Board]
	if _, err := db.Exec(ctx, tx, `
		DELETE FROM rank_requests
		WHERE guild_id = $1
		  AND board = $2`, a.GuildID, a.Board); err != nil {
		return fault.Wrap(err, "take the requests for the", a.Board, "of guild", a.GuildID)
	}
	type drawn struct {
		Version int64  `db:"version"`
		State   string `db:"state"`
	}
	maps, err := db.Select[drawn](ctx, tx, `
		SELECT version, state
		FROM rank_indexes
		WHERE guild_id = $1
		  AND board = $2`, a.GuildID, a.Board)
	if err != nil {
		return fault.Wrap(err, "read the rank indexes of the", a.Board, "of guild", a.GuildID)
	}
	wanted, drafted := false, false
	for _, m := range maps {
		drafted = drafted || m.State == "draft"
		if m.State != "live" {
			continue
		}
		if _, err := db.Exec(ctx, tx, b.fold, a.GuildID, m.Version); err != nil {
			return fault.Wrap(err, "add up the moves of the", a.Board, "of guild", a.GuildID)
		}
		if wanted, err = db.Get[bool](ctx, tx, b.grown, a.GuildID, m.Version, maxGrowth*k.stretch()); err != nil {
			return fault.Wrap(err, "see how far apart the checkpoints are of the", a.Board, "of guild", a.GuildID)
		}
	}
	if len(maps) == 0 {
		if wanted, err = db.Get[bool](ctx, tx, b.big, a.GuildID, k.least()-1); err != nil {
			return fault.Wrap(err, "see how large the", a.Board, "of guild", a.GuildID, "are")
		}
	}
	if !wanted || drafted {
		return nil
	}
	return k.drawUp(ctx, tx, a)
}

// drawUp drafts a rank index.
func (k *Maintainer) drawUp(ctx context.Context, tx *db.Tx, a boardID) error {
	_, err := db.Exec(ctx, tx, leaderboards[a.Board].draft, a.GuildID, k.stretch())
	return fault.Wrap(err, "draft a rank index of the", a.Board, "of guild", a.GuildID)
}

// sweep deletes moves that were recorded while their rank index was being replaced or deleted.
// sweep checks the next few rank indexes with moves, found by skipping through the index of the
// moves.
func (k *Maintainer) sweep(ctx context.Context) error {
	type moved struct {
		indexID
		Gone bool `db:"gone"`
	}
	moves := hopMoves
	if k.DB.Distributed() {
		moves = readMoves
	}
	found, err := db.Select[moved](ctx, k.DB.Reader(), moves, k.swept.GuildID, k.swept.Board, k.swept.Version, sweepSize)
	if err != nil {
		return fault.Wrap(err, "look for moves without a rank index")
	}
	k.swept = indexID{}
	if len(found) == sweepSize {
		k.swept = found[len(found)-1].indexID
	}
	for _, m := range found {
		if !m.Gone {
			continue
		}
		if err := k.alone(ctx, m.boardID, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error {
			_, err := db.Exec(ctx, tx, `DELETE FROM rank_moves WHERE guild_id = $1 AND board = $2 AND version = $3`, m.GuildID, m.Board, m.Version)
			return err
		}); err != nil {
			return fault.Wrap(err, "delete moves of the", m.Board, "of guild", m.GuildID)
		}
	}
	return nil
}

func (k *Maintainer) least() int {
	if k.Least == 0 {
		return 512
	}
	return k.Least
}

func (k *Maintainer) stretch() int {
	if k.Stretch == 0 {
		return 256
	}
	return k.Stretch
}
