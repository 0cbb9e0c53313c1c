// Package leaderboard reads leaderboards and keeps the maps that let a deep page
// of a large one cost about what the first one costs.
//
// A row's place is (depth, length(user_id), user_id), where depth is the negated
// balance or XP: all three ascend, so that one comparison of rows finds a place
// in the index. A map of a leaderboard (rank_maps) is a list of marks
// (rank_marks): places in its order, a few hundred rows apart, and how many rows
// lie ahead of each. A reader looks up the last mark that is not behind its page
// and walks from there.
//
// The counts are exact, not estimates: whoever changes a row of a mapped
// leaderboard notes in the same statement from where to where it went
// (rank_moves, Board.Noted). A reader sees rows, counts and moves in one
// snapshot, so they fit together, whatever is being changed meanwhile. Moves are
// only ever added and never waited for; the Keeper adds them to the counts, about
// every second while somebody reads the leaderboard and every 2,000 moves else, so a
// reader has few of them to go through.
//
// Without a map, or with one that is out of shape, pages and ranks are the same,
// only slower.
package leaderboard

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
)

// Board is one kind of leaderboard.
type Board struct {
	name, points            string // its table, which names it in rank_maps too, and the table's column
	first, deep, rank       string // the statements of Page and Rank
	draft, count, fold, big string // the keeper's
	grown                   string
	operations              []string // those that read it
}

// The boards.
var (
	Wallets = newBoard("wallets", "balance", "getEconomyLeaderboard", "getEconomyRank")
	Levels  = newBoard("levels", "total_xp", "getLevellingLeaderboard", "getLevellingRank")

	boards = map[string]Board{Wallets.name: Wallets, Levels.name: Levels}
)

func newBoard(name, points string, operations ...string) Board {
	b := Board{name: name, points: points, operations: operations}
	b.first, b.deep, b.rank = b.sql(firstPages), b.sql(deepPages), b.sql(rankOf)
	b.draft, b.count, b.fold = b.sql(drawMarks), b.sql(countRows), b.sql(foldMoves)
	b.big, b.grown = b.sql(isLarge), b.sql(hasGrown)
	return b
}

// sql is a statement about the board.
func (b Board) sql(text string) string { return db.With(text, "board", b.name, "points", b.points) }

// Row is a member of a leaderboard.
type Row struct {
	UserID string `db:"user_id"`
	Points int64  `db:"points"`
}

// Place is where a member stands on a leaderboard.
type Place struct {
	Rank   int64 `db:"rank"` // from 1
	Points int64 `db:"points"`
	Of     int64 `db:"of"` // how many stand there
}

// Page returns one page of the guild's leaderboard, the most points first and
// equal ones by user id, and one row more when there is one. A deep page costs
// little more than the first.
func (b Board) Page(ctx context.Context, q db.Querier, guild string, p page.P) ([]Row, error) {
	statement := b.first
	if p.Offset() >= page.Deep {
		statement = b.deep
	}
	rows, err := db.Select[Row](ctx, q, statement, guild, p.Limit(), p.Offset())
	return rows, fault.Wrap(err, "read a page of the", b.name, "of guild", guild)
}

// Query asks for a page, and has its rows once it is answered, one more than the
// page holds when there is one.
type Query struct {
	Guild string
	page.P
	Rows []Row
}

// Entries shows the rows of a query that is answered, each with its rank, and says
// whether there are more.
func Entries[E any](q *Query, entry func(rank int, r Row) E) (entries []E, more bool) {
	rows, more := page.Cut(q.Rows, q.P)
	entries = make([]E, len(rows))
	for i, r := range rows {
		entries[i] = entry(q.Offset()+i+1, r)
	}
	return entries, more
}

// Answer answers queries about one guild: pages that several ask for are read once.
func (b Board) Answer(ctx context.Context, q db.Querier, list []*Query) (err error) {
	pages := make(map[page.P][]Row)
	for _, a := range list {
		rows, read := pages[a.P]
		if !read {
			if rows, err = b.Page(ctx, q, a.Guild, a.P); err != nil {
				return err
			}
			pages[a.P] = rows
		}
		a.Rows = rows
	}
	return nil
}

// Rank returns the member's exact place in the guild's leaderboard. It is
// NotFound for a member without a row. With a map it walks from the last mark
// before the member and from the last of all; without one it counts the rows.
func (b Board) Rank(ctx context.Context, q db.Querier, guild, user string) (Place, error) {
	p, err := db.Get[Place](ctx, q, b.rank, guild, user)
	if db.Missing(err) {
		return Place{}, fault.New(fault.NotFound, "not_found", "The member is not on the leaderboard.")
	}
	return p, fault.Wrap(err, "rank", user, "on the", b.name, "of guild", guild)
}
