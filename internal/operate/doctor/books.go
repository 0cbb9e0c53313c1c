package doctor

import (
	"context"
	"slices"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
)

// How many wallets with their ledgers, and how many guilds, one statement reads at most.
const (
	walletStep = 200
	guildStep  = 500
)

// books checks that every balance equals the sum of its ledger and that every ledger has a wallet.
// It reads a few members at a time; each statement sees one state of the database, so concurrent
// writes cause no difference.
func (x *examination) books(ctx context.Context) Finding {
	var wrong []string
	var wallets int
	err := x.eachGuild(ctx, func(guild string) error {
		for after, more := "", true; more; {
			rows, err := balances(ctx, x.db.Reader(), guild, after)
			if err != nil {
				return err
			}
			for _, r := range rows {
				wallets++
				after = r.User
				if r.Balance != r.Sum {
					wrong = append(wrong, guild+"/"+r.User)
				}
			}
			more = len(rows) == walletStep
		}
		lost, err := withoutWallet(ctx, x.db.Reader(), guild)
		wallets += len(lost)
		wrong = append(wrong, lost...)
		return err
	})
	switch {
	case err != nil:
		return fail("the books could not be added up: %v", err)
	case len(wrong) > 0:
		return fail("of %s the balance of %d is not the sum of the ledger", output.Count(int64(wallets), "wallet"), len(wrong)).about(wrong)
	}
	return ok("%s: each is the sum of its ledger", output.Count(int64(wallets), "wallet"))
}

// balance is the balance of a wallet and the sum of its ledger. Each is null if there is no such
// row. Both are text, because a sum may exceed every integer type.
type balance struct {
	User    string `db:"user_id"`
	Balance string `db:"balance"`
	Sum     string `db:"sum"`
}

// balances returns the next wallets of a guild. The ledger of a member whose data is being deleted
// is incomplete, so its sum is taken to be correct.
func balances(ctx context.Context, q db.Querier, guild, after string) ([]balance, error) {
	rows, err := db.Select[balance](ctx, q, `
		SELECT w.user_id, w.balance::text,
		       CASE WHEN w.user_id IN (SELECT f.user_id FROM forgotten_members AS f WHERE f.guild_id = $1)
		            THEN w.balance ELSE coalesce(l.sum, 0) END::text AS sum
		FROM (SELECT user_id, balance FROM wallets
		      WHERE guild_id = $1 AND user_id > $2 ORDER BY user_id LIMIT $3) AS w
		CROSS JOIN LATERAL (SELECT sum(delta) FROM ledger_entries AS l
		                    WHERE l.guild_id = $1 AND l.user_id = w.user_id) AS l
		ORDER BY w.user_id`, guild, after, walletStep)
	return rows, fault.Wrap(err, "add up ledgers of guild", guild)
}

// withoutWallet returns members who have ledger entries but no wallet. It jumps from member to
// member in the ledger's index, so long ledgers do not make it slower.
func withoutWallet(ctx context.Context, q db.Querier, guild string) (lost []string, err error) {
	for after, more := "", true; more; {
		type member struct {
			User   string `db:"user_id"`
			Wallet bool   `db:"wallet"`
		}
		rows, err := db.Select[member](ctx, q, `
			WITH RECURSIVE member AS (
				(SELECT user_id, 1 AS n FROM ledger_entries
				 WHERE guild_id = $1 AND user_id > $2 ORDER BY user_id LIMIT 1)
				UNION ALL
				SELECT (SELECT l.user_id FROM ledger_entries AS l
				        WHERE l.guild_id = $1 AND l.user_id > m.user_id ORDER BY l.user_id LIMIT 1), m.n + 1
				FROM member AS m
				WHERE m.user_id IS NOT NULL AND m.n < $3
			)
			SELECT user_id, EXISTS (SELECT FROM wallets AS w WHERE w.guild_id = $1 AND w.user_id = m.user_id)
			       OR user_id IN (SELECT f.user_id FROM forgotten_members AS f WHERE f.guild_id = $1) AS wallet
			FROM member AS m
			WHERE user_id IS NOT NULL
			ORDER BY user_id`, guild, after, walletStep)
		if err != nil {
			return nil, fault.Wrap(err, "look for ledgers without a wallet in guild", guild)
		}
		for _, r := range rows {
			after = r.User
			if !r.Wallet {
				lost = append(lost, guild+"/"+r.User)
			}
		}
		more = len(rows) == walletStep
	}
	return lost, nil
}

// guilds returns the ids that were asked for and that no guild has.
func (x *examination) guilds(ctx context.Context) Finding {
	there, err := db.Select[string](ctx, x.db.Reader(), `SELECT id FROM guilds WHERE id = ANY ($1)`, db.Array(x.Guilds))
	if err != nil {
		return fail("the guilds could not be looked up: %v", err)
	}
	for _, g := range x.Guilds {
		if !slices.Contains(there, g) {
			return fail("There is no guild %s", g)
		}
	}
	return ok("there is each guild that was asked about")
}

// eachGuild calls do for each guild that is to be checked.
func (x *examination) eachGuild(ctx context.Context, do func(guild string) error) error {
	if len(x.Guilds) > 0 {
		for _, g := range x.Guilds {
			if err := do(g); err != nil {
				return err
			}
		}
		return nil
	}
	for after, more := "", true; more; {
		ids, err := db.Select[string](ctx, x.db.Reader(), `SELECT id FROM guilds WHERE id > $1 AND removed_at IS NULL ORDER BY id LIMIT $2`, after, guildStep)
		if err != nil {
			return fault.Wrap(err, "list the guilds")
		}
		for _, id := range ids {
			after = id
			if err := do(id); err != nil {
				return err
			}
		}
		more = len(ids) == guildStep
	}
	return nil
}
