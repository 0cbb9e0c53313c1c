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

// Keeper makes maps for large leaderboards and keeps them in shape. Any number
// of keepers may run against one database. It finds what is to be done without
// locks, and does it for one leaderboard at a time.
type Keeper struct {
	DB  *db.DB
	Log *slog.Logger

	Interval time.Duration // between two rounds, a quarter of it after one with work to do; 0 means a second
	Stretch  int           // rows between two marks; 0 means 256
	Least    int           // rows that a leaderboard with a map has at least; 0 means 512

	// Of the goroutine that runs it.
	last    boardID // up to where the requests were worked through
	drafted boardID // up to where the drafts were taken further
	swept   mapID   // up to which map moves were looked through
	round   int
	busy    bool // whether the last round had work to do
}

// boardID is a leaderboard that wants a look.
type boardID struct {
	GuildID string `db:"guild_id"`
	Board   string `db:"board"`
}

// mapID names a map.
type mapID struct {
	boardID
	Version int64 `db:"version"`
}

const (
	sliceSize   = 256 // leaderboards with requests read in one go
	roundSlices = 16  // such readings in one round
	draftSlice  = 64  // drafts read in one go
	maxGrowth   = 4   // stretches grown to so many times their length ask for a new map
	sweepRounds = 30  // rounds between two looks for moves without a map
	sweepSize   = 64  // maps whose moves are looked at then

	// unreadRequests is how many requests wait for a leaderboard with a map that nobody
	// reads: after some 2,000 changes. A rank adds up the moves until then by itself.
	unreadRequests = 32

	// draftTime is how long a round takes drafts further. After an upgrade there is one
	// for each large leaderboard of every guild; the moves of those that have a map wait
	// meanwhile to be added up.
	draftTime = time.Second
)

// Run keeps the maps until ctx ends. A fault of a round is logged, now and then, and the
// next round tries again.
func (k *Keeper) Run(ctx context.Context) error {
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
		if k.busy { // every rank reads the moves that are not added up yet
			timer.Reset(every / 4)
		} else {
			timer.Reset(every)
		}
	}
}

// Maintain is one round. A new map takes a few of them to come into use.
func (k *Keeper) Maintain(ctx context.Context) error {
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

// promote brings drafts a step further, as many as there are or a round has time for;
// the next round goes on behind them.
func (k *Keeper) promote(ctx context.Context) (failed error) {
	end := time.Now().Add(draftTime)                    //nolint:forbidigo // how long this process works or waits, no instant
	for full := true; full && time.Now().Before(end); { //nolint:forbidigo // how long this process works or waits, no instant
		var err error
		full, err = k.promoteSome(ctx)
		failed = errors.Join(failed, err)
	}
	return failed
}

// promoteSome brings the next drafts a step further, and says whether there may be more
// behind them. A draft is counted, and put into service,
// once every transaction that may have changed rows without noting it for the
// draft is over. These are the ones that write to the board's table now: a
// statement takes the table's lock before it looks at anything, and keeps it to
// the end of its transaction, so whoever takes it from now on sees the draft.
func (k *Keeper) promoteSome(ctx context.Context) (full bool, failed error) {
	type draft struct {
		mapID
		Awaited *db.Strings `db:"awaited"`
	}
	drafts, err := db.Select[draft](ctx, k.DB.Reader(), `
		SELECT guild_id, board, version, awaited
		FROM rank_maps
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
	writers := make(map[string][]string) // of a board, since the drafts were read
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
			isolation, step = "READ COMMITTED", func(ctx context.Context, tx *db.Tx, m mapID) error { return k.await(ctx, tx, m, now) }
		case d.Awaited != nil && slices.ContainsFunc(now, func(w string) bool { return slices.Contains(*d.Awaited, w) }):
			continue
		}
		k.busy = true
		if err := k.alone(ctx, d.boardID, isolation, func(ctx context.Context, tx *db.Tx) error { return step(ctx, tx, d.mapID) }); err != nil {
			failed = errors.Join(failed, err)
		}
	}
	return full, failed
}

// alone runs fn in a unit that no other keeper's on that leaderboard overlaps,
// or not at all. Walking through a million rows takes its time, so the limit on
// statements is lifted; and Postgres, which cannot know how few of the rows are
// wanted, is kept from sorting the table.
func (k *Keeper) alone(ctx context.Context, a boardID, isolation string, fn func(ctx context.Context, tx *db.Tx) error) error {
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

// writers are the transactions that write to a board's table at this moment.
func (k *Keeper) writers(ctx context.Context, board string) ([]string, error) {
	list, err := db.Select[string](ctx, k.DB.Reader(), `
		SELECT DISTINCT virtualtransaction
		FROM pg_locks
		WHERE locktype = 'relation'
		  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
		  AND relation = $1::regclass
		  AND mode = 'RowExclusiveLock'`, board)
	return list, fault.Wrap(err, "see who writes to the", board)
}

// await stores which transactions the draft has to wait for.
func (k *Keeper) await(ctx context.Context, tx *db.Tx, m mapID, writers []string) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE rank_maps
		SET awaited = $4
		WHERE guild_id = $1 AND board = $2 AND version = $3
		  AND awaited IS NULL`, m.GuildID, m.Board, m.Version, db.Array(writers))
	return fault.Wrap(err, "have the draft for the", m.Board, "of guild", m.GuildID, "wait")
}

// count puts a draft into service. All of it is one snapshot: the rows that are
// counted, and the noted moves that these rows have made already and that are
// therefore dropped. Moves that commit later are noted beside the new counts.
func (k *Keeper) count(ctx context.Context, tx *db.Tx, m mapID) error {
	ready, err := db.Get[bool](ctx, tx, `
		SELECT count(*) > 0
		FROM rank_maps
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
		{`DELETE FROM rank_maps WHERE guild_id = $1 AND board = $2 AND version <> $3`, []any{m.GuildID, m.Board, m.Version}},
		{boards[m.Board].count, []any{m.GuildID, m.Version}},
	} {
		if _, err := db.Exec(ctx, tx, step.statement, step.args...); err != nil {
			return fault.Wrap(err, "put a map of the", m.Board, "of guild", m.GuildID, "into service")
		}
	}
	return nil
}

// serve looks at the leaderboards of the next requests that are due, and says whether
// there may be more behind them.
func (k *Keeper) serve(ctx context.Context) (full bool, err error) {
	requests, err := db.Select[requested](ctx, k.DB.Reader(), readRequests, k.last.GuildID, k.last.Board, sliceSize)
	if err != nil {
		return false, fault.Wrap(err, "read which leaderboards want a look")
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
		if err != nil && !db.Missing(err) { // given up meanwhile: its requests stay for the next round
			k.last = a // which goes on behind it
			return false, err
		}
	}
	return full, nil
}

// requested is a leaderboard that has been asked for.
type requested struct {
	boardID
	Waiting int  `db:"waiting"` // requests
	Mapped  bool `db:"mapped"`
}

// due returns those that are to be looked at now: those without a map, those with
// many requests, and those that somebody has read lately, over whichever node.
func (k *Keeper) due(ctx context.Context, requests []requested) (list []boardID, err error) {
	var guilds []string
	for _, r := range requests {
		if r.Mapped && r.Waiting < unreadRequests {
			guilds = append(guilds, r.GuildID)
		}
	}
	read := make(map[boardID]bool)
	for name, b := range boards {
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

// look adds up what has moved in one leaderboard, and drafts a map where there
// is none and should be, or where stretches have grown long. The requests that
// asked for it go in the same transaction.
func (k *Keeper) look(ctx context.Context, tx *db.Tx, a boardID) error {
	b := boards[a.Board]
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
		FROM rank_maps
		WHERE guild_id = $1
		  AND board = $2`, a.GuildID, a.Board)
	if err != nil {
		return fault.Wrap(err, "read the maps of the", a.Board, "of guild", a.GuildID)
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
			return fault.Wrap(err, "look at the shape of the map of the", a.Board, "of guild", a.GuildID)
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

// drawUp drafts a map.
func (k *Keeper) drawUp(ctx context.Context, tx *db.Tx, a boardID) error {
	_, err := db.Exec(ctx, tx, boards[a.Board].draft, a.GuildID, k.stretch())
	return fault.Wrap(err, "draft a map of the", a.Board, "of guild", a.GuildID)
}

// sweep clears away moves that were noted while their map was being replaced or
// given up: of the next few maps that have moves at all, found by hopping
// through the index from one to the next.
func (k *Keeper) sweep(ctx context.Context) error {
	type moved struct {
		mapID
		Gone bool `db:"gone"`
	}
	moves := hopMoves
	if k.DB.Distributed() {
		moves = readMoves
	}
	found, err := db.Select[moved](ctx, k.DB.Reader(), moves, k.swept.GuildID, k.swept.Board, k.swept.Version, sweepSize)
	if err != nil {
		return fault.Wrap(err, "look for moves without a map")
	}
	k.swept = mapID{}
	if len(found) == sweepSize {
		k.swept = found[len(found)-1].mapID
	}
	for _, m := range found {
		if !m.Gone {
			continue
		}
		if err := k.alone(ctx, m.boardID, "READ COMMITTED", func(ctx context.Context, tx *db.Tx) error {
			_, err := db.Exec(ctx, tx, `DELETE FROM rank_moves WHERE guild_id = $1 AND board = $2 AND version = $3`, m.GuildID, m.Board, m.Version)
			return err
		}); err != nil {
			return fault.Wrap(err, "clear away moves in the", m.Board, "of guild", m.GuildID)
		}
	}
	return nil
}

func (k *Keeper) least() int {
	if k.Least == 0 {
		return 512
	}
	return k.Least
}

func (k *Keeper) stretch() int {
	if k.Stretch == 0 {
		return 256
	}
	return k.Stretch
}
