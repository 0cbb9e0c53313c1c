package db

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/fault"
)

// Found names a row of a guild's that work over all guilds has found.
type Found struct {
	GuildID string `db:"guild_id"`
	ID      string `db:"id"`
}

// Sweep is work over all guilds on what is due.
type Sweep struct {
	What   string // is due, as an error names it
	Due    string // finds at most $1 of it, over all guilds and without locks
	Look   int    // how many one look finds
	Chunk  int    // how many of one guild one transaction takes
	AtOnce int    // how many transactions run side by side
	// Do does what is to be done with those of the guild's rows that are still due
	// and that nobody else holds, and returns how many these were.
	Do func(ctx context.Context, tx *Tx, guild string, ids []string) (int, error)
}

// Run looks for what is due and does it, guild by guild, until a look finds nothing
// more that can be done. A guild that fails does not keep the others from it. Work that
// another holds at the moment is left for the next time; several may run at once.
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
				if ctx.Err() == nil { // else the next sweep goes on
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

// chunks puts rows together by guild, at most size in each group, in the order in
// which the guilds come first.
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
