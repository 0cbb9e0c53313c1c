package economy

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
	"guildhall/internal/idempotency"
	"guildhall/internal/leaderboard"
)

// maxBalance is the largest balance: the largest integer that every JSON reader
// holds exactly.
const maxBalance = 1<<53 - 1

// change is a change of one balance, and what has become of it. The ledger row's
// balance and instant are set when it is made.
type change struct {
	by    event.Origin
	entry entry
	key   *idempotency.Request // to be claimed by the statement that makes the change

	made    bool
	refusal error
}

// decision is what the statement says of one change.
type decision struct {
	Number  int        `db:"number"`
	Balance int64      `db:"balance"` // before
	At      *time.Time `db:"at"`      // of the change; nil: it was not made
	Spent   bool       `db:"spent"`   // the reference was used before
	SpentBy *string    `db:"spent_by"`
}

var claiming = idempotency.Claiming{Rows: "held"}

// adjustment is the statement that makes changes of balances, each of another
// wallet. It decides each by itself, so that one that is refused is no matter to
// the others, and says of each what it has found. What it says nothing of it has
// left alone.
//
// There are two forms. Collected, it takes the wallets that are there and that
// nobody holds, and waits for no other transaction longer than a few
// milliseconds. By itself, it waits for the wallet and makes the one that is
// missing. A change that is allowed and still not made has met a reference or a
// wallet that came while the statement ran.
//
// A wallet is judged as it stands once it is held; a reference that is seen to be
// used comes before that. The reference is claimed only for a change that the
// balance allows. Each wallet and reference is looked up by itself, whatever
// Postgres thinks of the size of guilds, in the order in which wallets are locked.
//
// The subquery around the first parameter hides how long the lists are. Postgres
// would otherwise plan the statement anew for each short one, which takes longer
// than running it.
//
// The changes are of one guild, which the statement names ($1), or of several.
func adjustment(collected, several bool) leaderboard.Noted {
	guilds, guild, list, moving, its := ``, `$1::text AS guild_id, `, ``, `$1`, `$1`
	if several {
		guilds, guild, list, moving, its = `guild_id, `, ``, `$1::text[], `, `moved.guild_id`, `g.guild_id`
	}
	wait, soon, missing, made, fresh := ``, `NULL`, ``, ``, ``
	if collected {
		wait, soon = ` SKIP LOCKED`, `set_config('lock_timeout', '10ms', true)`
	} else {
		missing = `
			UNION ALL
			SELECT g.*, 0, NULL FROM given g WHERE NOT EXISTS (SELECT FROM held)`
		made = `, made AS (
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			SELECT guild_id, user_id, delta, clock_timestamp() FROM cleared WHERE updated_at IS NULL
			ON CONFLICT DO NOTHING
			RETURNING balance, updated_at
		)`
		fresh = `
			UNION ALL
			SELECT g.*, NULL, m.balance, m.updated_at FROM made m, given g`
	}
	return leaderboard.Wallets.Noted("moved", moving, func(note string) string {
		return `
		WITH given AS MATERIALIZED (
			SELECT ` + guild + `g.*, (SELECT ` + soon + `) AS soon
			FROM unnest(` + list + `(SELECT $2::text[]), $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
			            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bytea[])
			     WITH ORDINALITY AS g (` + guilds + `user_id, delta, id, reason, note, reference,
			            event_id, head, middle, tail, token_id, key, fingerprint, number)
		), spent AS MATERIALIZED (
			SELECT g.number, r.entry_id
			FROM given g
			CROSS JOIN LATERAL (
				SELECT entry_id FROM ledger_references WHERE guild_id = ` + its + ` AND reference = g.reference LIMIT 1
			) r
			WHERE g.reference IS NOT NULL
		), held AS MATERIALIZED (
			SELECT g.*, w.balance, w.updated_at
			FROM (SELECT * FROM given ORDER BY guild_id, user_id) g
			CROSS JOIN LATERAL (
				SELECT balance, updated_at FROM wallets WHERE guild_id = ` + its + ` AND user_id = g.user_id LIMIT 1 FOR NO KEY UPDATE` + wait + `
			) w
		), ` + claiming.CTE() + `, ours AS MATERIALIZED (
			SELECT * FROM held WHERE ` + claiming.Granted() + missing + `
		), allowed AS MATERIALIZED (
			SELECT *
			FROM ours
			WHERE balance + delta BETWEEN 0 AND ` + strconv.Itoa(maxBalance) + `
			  AND number NOT IN (SELECT number FROM spent)
		), claimed AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT guild_id, reference, id FROM allowed WHERE reference IS NOT NULL ORDER BY guild_id, reference
			ON CONFLICT DO NOTHING
			RETURNING entry_id
		), cleared AS MATERIALIZED (
			SELECT * FROM allowed WHERE reference IS NULL OR id IN (SELECT entry_id FROM claimed)
		), changed AS (
			UPDATE wallets w
			SET balance = c.balance + c.delta, updated_at = ` + db.Next("c.updated_at") + `
			FROM cleared c
			WHERE w.guild_id = ` + strings.Replace(its, "g.", "c.", 1) + ` AND w.user_id = c.user_id
			RETURNING c.number, c.balance AS was, w.balance AS is_now, w.updated_at
		)` + made + `, moved AS MATERIALIZED (
			SELECT g.*, c.was, c.is_now, c.updated_at FROM changed c JOIN given g ON g.number = c.number` + fresh + `
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
			SELECT guild_id, id, user_id, delta, is_now, reason, note, updated_at, reference FROM moved
		), ` + note + `, ` + told(moving).CTEs() + `
		SELECT o.number, o.balance, m.updated_at AS at, s.number IS NOT NULL AS spent, s.entry_id AS spent_by
		FROM ours o
		LEFT JOIN moved m ON m.number = o.number
		LEFT JOIN spent s ON s.number = o.number`
	})
}

// told puts the two balances, which only the statement knows, into the payload.
func told(guild string) event.Telling {
	return event.Telling{
		Rows: "moved", Guild: guild, Type: "'" + event.BalanceChanged + "'", ID: "moved.event_id", At: "moved.updated_at",
		Payload: `moved.head || ` + event.Stamp("moved.updated_at") + ` || moved.middle || moved.is_now || ',"previous_balance":' || moved.is_now - moved.delta || moved.tail`,
	}
}

var (
	ownAdjustment     = adjustment(false, false)
	guildsAdjustments = adjustment(true, false)
	adjustments       = adjustment(true, true)
)

// adjustEach makes changes of several wallets in one statement, and sets what has
// become of each: made or refused. It leaves alone those whose wallet is missing
// or held by somebody else, and those whose key is not to be had; of them neither
// is set. raced says that one of those has claimed its key, so that a unit that
// made them has to be given up.
func adjustEach(ctx context.Context, q db.Querier, changes []*change) (raced bool, err error) {
	for _, c := range changes {
		if c.by.GuildID != changes[0].by.GuildID {
			return run(ctx, q, adjustments, true, changes)
		}
	}
	return run(ctx, q, guildsAdjustments, false, changes)
}

// adjust makes one change, whatever it has to wait for. It is Refused, and changes
// nothing, when the result is outside the limits and when the guild has used the
// reference before.
//
// Wallet, ledger row and event carry one instant, later than that of the wallet's
// change before: its ledger stands in the order of effects.
func adjust(ctx context.Context, tx *db.Tx, c *change) error {
	_, err := run(ctx, tx, ownAdjustment, false, []*change{c})
	switch {
	case err != nil:
		return err
	case !c.made && c.refusal == nil:
		return db.Again
	}
	return c.refusal
}

func run(ctx context.Context, q db.Querier, statement leaderboard.Noted, several bool, changes []*change) (raced bool, err error) {
	for _, c := range changes { // the unit may have been run before
		c.made, c.refusal = false, nil
	}
	var decisions []decision
	if err := q.SelectContext(ctx, &decisions, statement.For(len(changes)), arguments(several, changes)...); err != nil {
		return false, fmt.Errorf("adjust %d wallets: %w", len(changes), err)
	}
	for _, v := range decisions {
		c := changes[v.Number-1]
		if c.made, c.refusal = c.judge(v); !c.made && c.refusal == nil {
			raced = raced || c.key != nil
		}
	}
	return raced, nil
}

// judge is what a change has come to.
func (c *change) judge(v decision) (made bool, refusal error) {
	switch after := v.Balance + c.entry.Delta; {
	case v.At != nil:
		c.entry.BalanceAfter, c.entry.CreatedAt = after, *v.At
		return true, nil
	case v.Spent && v.SpentBy == nil:
		return false, fault.New(fault.Refused, "reference_already_used", "The guild used this reference before it moved here.")
	case v.Spent:
		return false, fault.New(fault.Refused, "reference_already_used", "The reference is that of the ledger entry %s.", *v.SpentBy)
	case after < 0:
		return false, fault.New(fault.Refused, "balance_would_be_negative", "The balance is %d and does not cover a change by %d.", v.Balance, c.entry.Delta)
	case after > maxBalance:
		return false, fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed %d.", int64(maxBalance))
	}
	return false, nil
}

// arguments are the changes as the columns of the statement.
func arguments(several bool, changes []*change) []any {
	n := len(changes)
	texts := make([]string, 8*n)
	column := func(i int) []string { return texts[i*n : (i+1)*n : (i+1)*n] }
	guilds, users, ids, notes, events, heads, middles, tails := column(0), column(1), column(2), column(3), column(4), column(5), column(6), column(7)
	deltas, reasons, references, keys := make([]int64, n), make([]*string, n), make([]*string, n), make([]*idempotency.Request, n)
	for i, c := range changes {
		e := c.entry
		guilds[i], users[i], deltas[i], ids[i] = c.by.GuildID, e.UserID, e.Delta, e.ID
		reasons[i], notes[i], references[i], keys[i] = e.Reason, e.Note, e.Reference, c.key
		events[i] = db.NewID()
		envelope := event.NewEnvelope(c.by, events[i], event.BalanceChanged)
		head, tail := eventData(e)
		heads[i], middles[i], tails[i] = envelope.Head, envelope.Middle+head, tail+event.Tail
	}
	guild := any(changes[0].by.GuildID)
	if several {
		guild = db.Array(guilds)
	}
	return append([]any{
		guild, db.Array(users), db.Integers(deltas), db.Array(ids), db.Texts(reasons), db.Array(notes), db.Texts(references),
		db.Array(events), db.Array(heads), db.Array(middles), db.Array(tails),
	}, idempotency.Columns(keys)...)
}

// eventData is the data of economy.balance_changed around the two balances,
// which only the statement knows.
func eventData(e entry) (head, tail string) {
	reason, err := json.Marshal(e.Reason)
	if err != nil {
		panic(err) // a string or null
	}
	reference, err := json.Marshal(e.Reference)
	if err != nil {
		panic(err)
	}
	return `{"user_id":"` + e.UserID + `","balance":`,
		`,"delta":` + strconv.FormatInt(e.Delta, 10) + `,"reason":` + string(reason) + `,"reference":` + string(reference) + `,"ledger_entry_id":"` + e.ID + `"}`
}
