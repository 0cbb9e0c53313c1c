package cases

import (
	"context"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/db"
	"guildhall/internal/event"
)

const (
	// batchSize is how many overdue cases are looked for at a time.
	batchSize = 2000
	// unitSize is how many cases of a guild expire in one transaction: an edit of
	// one of them waits for the whole of it.
	unitSize = 200
	// unitsAtOnce is how many guilds are worked on side by side.
	unitsAtOnce = 3
)

// Expire turns every active case whose expiry has passed into an expired one,
// and tells the guild's endpoints. It is the background job's work: the status
// is a stored change, so that reading a case and editing it never alter it.
// Several may run at once. A case that someone else holds at the moment is left
// for the next time.
func Expire(ctx context.Context, d *db.DB) error {
	for {
		due, err := overdue(ctx, d.Reader(), batchSize)
		if err != nil {
			return err
		}
		n, err := expireBatch(ctx, d, due)
		if err != nil || n == 0 || len(due) < batchSize {
			return err
		}
	}
}

// expireBatch expires what is due, guild by guild, and says how many it turned.
func expireBatch(ctx context.Context, d db.Doer, due []ref) (int, error) {
	byGuild := make(map[string][]string)
	for _, c := range due {
		byGuild[c.GuildID] = append(byGuild[c.GuildID], c.ID)
	}
	turned := make(chan int, len(due))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(unitsAtOnce)
	for guild, ids := range byGuild {
		g.Go(func() error {
			for len(ids) > 0 {
				n := min(unitSize, len(ids))
				done, err := expireUnit(ctx, d, guild, ids[:n])
				if err != nil {
					return err
				}
				turned <- done
				ids = ids[n:]
			}
			return nil
		})
	}
	err := g.Wait()
	close(turned)
	sum := 0
	for n := range turned {
		sum += n
	}
	return sum, err
}

// expireUnit expires those of the guild's cases that are due and that nobody
// holds, each with its event.
func expireUnit(ctx context.Context, d db.Doer, guild string, ids []string) (n int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := expire(ctx, tx, guild, ids)
		if n = len(rows); err != nil || n == 0 {
			return err
		}
		changes := make([]event.Change, n)
		for i, c := range rows {
			changes[i] = event.Change{At: c.UpdatedAt.Time, Data: showChange(c, []string{"status"})}
		}
		return event.RecordEach(ctx, tx, event.System(guild), event.CaseUpdated, changes)
	})
	return n, err
}
