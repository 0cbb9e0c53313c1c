package economy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// together are the statements that make changes of several wallets at once.
//
// The UPDATE locks, judges and changes. What it leaves is made alone: a wallet that is
// missing, a balance that forbids the change, a reference or a key under which
// something stands already. So is a change that an endpoint or a stream listens to, in the form
// that records no events. A reference or a key that somebody else is about to use
// fails the whole statement, and a row that somebody else holds does so after a few
// milliseconds: each change is made alone then.
//
// Wallet, ledger row and event carry one instant, later than that of the wallet's
// change before: its ledger stands in the order of effects. The ledger row's id
// begins with that instant: see getEntry.
type together struct {
	several bool // guilds; otherwise the statement names the one, $1
	tells   bool // of changes that endpoints listen to
	keyed   bool // some come with a key, which names its ledger entry from then on
}

var togetherTexts = func() map[together]leaderboard.Noted {
	all := make(map[together]leaderboard.Noted)
	for n := range 8 {
		t := together{several: n&1 > 0, tells: n&2 > 0, keyed: n&4 > 0}
		all[t] = t.text()
	}
	return all
}()

// guild is the guild of a row, as an expression.
func (t together) guild(row string) string { return batch.Form{Several: t.several}.Guild(row) }

// text is the statement. number BETWEEN … is batch.Few, and a subquery in brackets is
// looked up for each row by its index and not joined. The subquery around the first
// array hides how long the arrays are: Postgres would plan short lists anew each time.
func (t together) text() leaderboard.Noted {
	arrays, names := `(SELECT $2::text[])`, `user_id`
	first := `$1::text AS guild_id, `
	if t.several {
		first, arrays, names = ``, `(SELECT $1::text[]), $2::text[]`, `guild_id, user_id`
	}
	unheard, told := `
			  AND (SELECT count(*) FROM webhook_endpoints e
			       WHERE e.guild_id = `+t.guild("g")+` AND e.enabled AND '`+event.BalanceChanged+`' = ANY (e.events)) = 0
			  AND (SELECT count(*) FROM stream_listeners s
			       WHERE s.guild_id = `+t.guild("g")+` AND '`+event.BalanceChanged+`' = ANY (s.events) AND (s.echo OR NOT `+event.ByBot("g.origin")+`)) = 0`, ``
	if t.tells {
		unheard, told = ``, `, `+telling(t.guild("moved"), "moved.reference", traceOfMoved).CTEs()
	}
	unused, keyed := ``, ``
	if t.keyed {
		unused, keyed = `
			  AND `+idempotency.Unused(t.guild("g"), "g"), `, keyed AS (
			INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, entry_id, entry_at)
			SELECT home.id, m.token_id, m.key, m.fingerprint, 'done', 200, m.id, m.updated_at
			FROM moved m JOIN guilds home ON home.id = `+t.guild("m")+`
			WHERE m.key IS NOT NULL
		)`
	}
	return leaderboard.Wallets.Noted("moved", t.guild("moved"), func(note string) string {
		return `
		WITH given AS MATERIALIZED (
			SELECT ` + first + `g.*, clock_timestamp() AS at, (SELECT set_config('lock_timeout', '` + batch.Patience.String() + `', true)) AS soon
			FROM unnest(` + arrays + `, $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
			            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::bytea[])
			     WITH ORDINALITY AS g (` + names + `, delta, random, reason, note, reference,
			            event_id, origin, trace, token_id, key, fingerprint, number)
		), moved AS MATERIALIZED (
			UPDATE wallets w
			SET balance = w.balance + g.delta, updated_at = ` + db.Next("g.at", "w.updated_at") + `
			FROM given g
			WHERE w.guild_id = ` + t.guild("g") + ` AND w.user_id = g.user_id AND g.` + batch.Few + `
			  AND w.balance + g.delta BETWEEN 0 AND ` + strconv.Itoa(maxBalance) + `
			  AND (SELECT true FROM ledger_references r WHERE r.guild_id = ` + t.guild("g") + ` AND r.reference = g.reference) IS NULL` + unused + unheard + `
			RETURNING g.*, ` + entryID("w.updated_at", "g.random") + ` AS id, w.balance - g.delta AS was, w.balance AS is_now, w.updated_at
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
			SELECT home.id, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference
			FROM moved m JOIN guilds home ON home.id = ` + t.guild("m") + `
		), referenced AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT home.id, m.reference, m.id
			FROM moved m JOIN guilds home ON home.id = ` + t.guild("m") + `
			WHERE m.reference IS NOT NULL
		)` + keyed + `, ` + note + told + `
		SELECT number, id, is_now AS balance, updated_at AS at
		FROM moved`
	})
}

// made is what the statement says of a change that it has made.
type made struct {
	batch.Decision
	ID      string `db:"id"`
	Balance int64  `db:"balance"`
}

// make makes changes in one statement and leaves those that have to be made alone.
func (t together) make(ctx context.Context, q db.Querier, changes []*change) error {
	for _, c := range changes { // the unit may have been run before
		c.Made = false
	}
	if tx, ok := q.(*db.Tx); ok && tx.Distributed {
		if err := tx.WaitLess(ctx, batch.Patience); err != nil {
			return err
		}
	}
	var rows []made
	if err := q.SelectContext(ctx, &rows, togetherTexts[t].For(len(changes)), t.arguments(changes)...); err != nil {
		return fmt.Errorf("change %d wallets: %w", len(changes), err)
	}
	for _, m := range rows {
		c := changes[m.Number-1]
		c.Made, c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = true, m.ID, m.Balance, *m.At
	}
	return nil
}

func (t together) arguments(changes []*change) []any {
	texts := func(of func(*change) string) any { return db.Array(batch.Each(changes, of)) }
	nullable := func(of func(*change) *string) any { return db.Texts(batch.Each(changes, of)) }
	guild := any(changes[0].By.GuildID)
	if t.several {
		guild = texts(func(c *change) string { return c.By.GuildID })
	}
	args := []any{
		guild,
		texts(func(c *change) string { return c.entry.UserID }),
		db.Integers(batch.Each(changes, func(c *change) int64 { return c.entry.Delta })),
		texts(func(*change) string { return db.NewID() }),
		nullable(func(c *change) *string { return c.entry.Reason }),
		texts(func(c *change) string { return c.entry.Note }),
		nullable(func(c *change) *string { return c.entry.Reference }),
	}
	none, events, traces := db.Array(nil), any(db.Array(nil)), any(db.Array(nil))
	if t.tells {
		events, traces = texts(func(*change) string { return db.NewID() }), texts(func(c *change) string { return c.By.Trace })
	}
	args = append(args, events, texts(func(c *change) string { return c.By.JSON() }), traces)
	if !t.keyed {
		return append(args, none, none, none)
	}
	key := func(of func(*idempotency.Request) *string) any {
		return nullable(func(c *change) *string {
			if c.Key == nil {
				return nil
			}
			return of(c.Key)
		})
	}
	return append(args,
		key(func(r *idempotency.Request) *string { return &r.TokenID }), key(func(r *idempotency.Request) *string { return &r.Key }),
		db.ByteArray(batch.Each(changes, func(c *change) []byte {
			if c.Key == nil {
				return nil
			}
			return c.Key.Fingerprint
		})))
}

// inOrder are the changes in the order in which their wallets are locked everywhere,
// without those whose reference an earlier one has: two of them would fail the statement.
func inOrder(list []*change) []*change {
	changes := slices.Clone(list)
	slices.SortFunc(changes, func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.By.GuildID, b.By.GuildID), cmp.Compare(a.entry.UserID, b.entry.UserID))
	})
	type named struct{ guild, reference string }
	seen := map[named]bool{}
	return slices.DeleteFunc(changes, func(c *change) bool {
		if c.entry.Reference == nil {
			return false
		}
		name := named{c.By.GuildID, *c.entry.Reference}
		again := seen[name]
		seen[name] = true
		return again
	})
}

// listening are guilds in which an endpoint has listened, as far as this process has
// seen. It only chooses the statement: the other one leaves what would have to be told.
type listening struct {
	mu     sync.RWMutex
	guilds map[string]bool
}

// maxListening bounds what is remembered; then it is found out anew.
const maxListening = 10_000

func (l *listening) has(guild string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.guilds[guild]
}

func (l *listening) add(guild string) {
	if l.has(guild) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guilds == nil || len(l.guilds) >= maxListening {
		l.guilds = make(map[string]bool)
	}
	l.guilds[guild] = true
}
