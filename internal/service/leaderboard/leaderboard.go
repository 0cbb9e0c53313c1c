// Package leaderboard reads the leaderboards of wallets and of levels, and maintains the rank
// indexes that let a deep page of a large leaderboard cost about as much as its first page.
//
// A leaderboard is ordered by (depth, length(user_id), user_id), where depth is the negated
// balance or XP. All three columns ascend, so one comparison of rows finds a position in the
// table's index. A rank index (rank_indexes) is a list of checkpoints (rank_checkpoints):
// positions a few hundred rows apart, with the number of rows ahead of each. A reader looks up
// the last checkpoint that is not behind its page, and reads the table from there.
//
// The numbers are exact, not estimates. A statement that changes rows of a leaderboard with a
// rank index records in the same statement from which position to which each row moved
// (rank_moves, Board.Noted). A reader sees rows, numbers and moves in one snapshot, so they
// agree whatever is being changed meanwhile. Moves are only inserted, and no writer waits for
// another. The Maintainer adds the moves to the numbers: about every second while somebody
// reads the leaderboard, and else after every 2,000 moves, so that a reader has few moves to
// add up.
//
// Without a rank index, or with one whose checkpoints have grown far apart, pages and ranks
// are the same, only slower.
package leaderboard

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// Board is one kind of leaderboard.
type Board struct {
	name, points            string // the table, whose name is also a value in rank_indexes, and the column that the table is ordered by
	first, deep, rank       string // statements of Page and Rank
	draft, count, fold, big string // statements of the Maintainer
	grown                   string
	operations              []string // the operations that read the leaderboard
	present                 Top      // the leaderboard without those who have left the guild
}

// The leaderboards.
var (
	Wallets = newBoard("wallets", "balance", "getEconomyLeaderboard", "getEconomyRank")
	Levels  = newBoard("levels", "total_xp", "getLevellingLeaderboard", "getLevellingRank")

	leaderboards = map[string]Board{Wallets.name: Wallets, Levels.name: Levels}
)

func newBoard(name, points string, operations ...string) Board {
	b := Board{name: name, points: points, operations: operations}
	b.first, b.deep, b.rank = b.sql(firstPages), b.sql(deepPages), b.sql(rankOf)
	b.draft, b.count, b.fold = b.sql(placeCheckpoints), b.sql(countRows), b.sql(foldMoves)
	b.big, b.grown = b.sql(isLarge), b.sql(hasGrown)
	b.present = NewTop(name, "guild_id = $1", points, true)
	return b
}

// sql returns a statement with the table and column of the leaderboard.
func (b Board) sql(text string) string { return db.With(text, "board", b.name, "points", b.points) }

// Row is a member of a leaderboard.
type Row struct {
	UserID string `db:"user_id"`
	Points int64  `db:"points"`
}

// Place is the position of a member on a leaderboard.
type Place struct {
	Rank   int64 `db:"rank"` // from 1
	Points int64 `db:"points"`
	Of     int64 `db:"of"` // number of members on the leaderboard
}

// Page returns one page of the guild's leaderboard, ordered by points (most first), then by user
// id. If there are more rows, Page returns one row more than the page has. A deep page costs little
// more than the first page. With present, Page leaves out members who have left the guild, and
// lists the first 10,000 members only (see Top).
func (b Board) Page(ctx context.Context, q db.Querier, guild string, p page.P, present bool) ([]Row, error) {
	if present {
		return b.present.Page(ctx, q, guild, p)
	}
	statement := b.first
	if p.Offset() >= page.Deep {
		statement = b.deep
	}
	rows, err := db.Select[Row](ctx, q, statement, guild, p.Limit(), p.Offset())
	return rows, fault.Wrap(err, "read a page of the", b.name, "of guild", guild)
}

// Query is a request for a page of a leaderboard. Answer sets Rows to the rows of the page, plus
// one if there are more.
type Query struct {
	Guild string
	page.P
	Present bool // without the members who have left the guild
	Rows    []Row
}

// Entries returns an entry for each row of an answered query, with the row's rank, and whether
// there are more rows.
func Entries[E any](q *Query, entry func(rank int, r Row) E) (entries []E, more bool) {
	rows, more := page.Cut(q.Rows, q.P)
	entries = make([]E, len(rows))
	for i, r := range rows {
		entries[i] = entry(q.Offset()+i+1, r)
	}
	return entries, more
}

// Answer reads the pages of queries about one guild. If several queries request the same page,
// Answer reads the page once.
func (b Board) Answer(ctx context.Context, q db.Querier, list []*Query) (err error) {
	type shown struct {
		page.P
		present bool
	}
	pages := make(map[shown][]Row)
	for _, a := range list {
		of := shown{a.P, a.Present}
		rows, read := pages[of]
		if !read {
			if rows, err = b.Page(ctx, q, a.Guild, a.P, a.Present); err != nil {
				return err
			}
			pages[of] = rows
		}
		a.Rows = rows
	}
	return nil
}

var errNotListed = fault.New(fault.NotFound, "not_found", "The member is not on the leaderboard.")

// Rank returns the member's exact place on the guild's leaderboard. If the member has no row, the
// error is NotFound. With a rank index, Rank counts the rows from the last checkpoint before the
// member, and from the last checkpoint of the leaderboard; without a rank index, Rank counts all
// rows. With present, Rank counts only members who have not left the guild (see Top).
func (b Board) Rank(ctx context.Context, q db.Querier, guild, user string, present bool) (Place, error) {
	if present {
		return b.present.Rank(ctx, q, guild, user)
	}
	p, err := db.Get[Place](ctx, q, b.rank, guild, user)
	if db.Missing(err) {
		return Place{}, errNotListed
	}
	return p, fault.Wrap(err, "rank", user, "on the", b.name, "of guild", guild)
}
