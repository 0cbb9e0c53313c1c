package db

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/fault"
)

// Found identifies a row of a guild that work over all guilds has found.
type Found struct {
	GuildID string `db:"guild_id"`
	ID      string `db:"id"`
}

// Sweep is work over all guilds on rows that are due.
type Sweep struct {
	What   string // names the work in errors
	Due    string // a query for at most $1 due rows over all guilds, without locks
	Look   int    // the most rows that one query finds
	Chunk  int    // the most rows of one guild in one transaction
	AtOnce int    // the most concurrent transactions
	// Do works on the guild's given rows, as far as they are still due and not locked, and returns
	// how many it has worked on.
	Do func(ctx context.Context, tx *Tx, guild string, ids []string) (int, error)
}

// Run queries for due rows and works on them guild by guild, until a query finds no row that it can
// work on. A guild whose work fails does not stop the others. Rows that are locked are left for the
// next run; several runs may be concurrent.
func (s Sweep) Run(ctx context.Context, d *DB) error {
	for {
		list, err := Select[Found](ctx, d.Reader(), s.Due, s.Look)
		if err != nil {
			return fault.Wrap(err, "look for", s.What)
		}
		var done atomic.Int64
		groups := chunks(list, s.Chunk)
		errs := make([]error, len(groups))
		var wait errgroup.Group
		wait.SetLimit(s.AtOnce)
		for i, c := range groups {
			wait.Go(func() error {
				if ctx.Err() == nil { // otherwise the next run of the sweep continues
					errs[i] = d.Do(ctx, func(ctx context.Context, tx *Tx) error {
						n, err := s.Do(ctx, tx, c.guild, c.ids)
						done.Add(int64(n))
						return err
					})
				}
				return nil
			})
		}
		_ = wait.Wait()
		if err := errors.Join(errs...); err != nil || len(list) < s.Look || done.Load() == 0 {
			return err
		}
	}
}

// group is some rows of one guild.
type group struct {
	guild string
	ids   []string
}

// chunks groups rows by guild, at most size rows a group, in the order of each guild's first row.
func chunks(list []Found, size int) []group {
	var groups []group
	at := make(map[string]int)
	for _, r := range list {
		i, ok := at[r.GuildID]
		if !ok || len(groups[i].ids) == size {
			i = len(groups)
			at[r.GuildID] = i
			groups = append(groups, group{guild: r.GuildID})
		}
		groups[i].ids = append(groups[i].ids, r.ID)
	}
	return groups
}
