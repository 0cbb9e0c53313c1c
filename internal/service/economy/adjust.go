package economy

import (
	"strconv"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// maxBalance is the largest balance: the largest integer that every JSON reader
// holds exactly.
const maxBalance = 1<<53 - 1

// change is a change of one balance. The ledger row's balance and instant are set
// when it is made.
type change struct {
	batch.Change
	entry entry
	told  bool // endpoints listen
}

// decision is what the statement says of one change.
type decision struct {
	batch.Decision
	ID      *string `db:"id"`      // of the ledger row
	Balance int64   `db:"balance"` // before
	Spent   bool    `db:"spent"`   // the reference was used before
	Told    bool    `db:"told"`
}

// statement makes one change of a balance: see the package batch. A change that is allowed and still not made has met a reference or a
// wallet that came while the statement ran.
//
// A wallet is judged as it stands once it is held; a reference that is seen to be
// used comes before that. The reference is claimed only for a change that the
// balance allows. A wallet that was not there to be held is made and never changed:
// the steps of a coordinator see what was committed between them.
//
// Wallet, ledger row and event carry one instant, later than that of the wallet's
// change before: its ledger stands in the order of effects. The ledger row's id
// begins with that instant: see getEntry.
type statement struct{ batch.Changes[*change] }

var statements = batch.AloneOf[*change, decision](true, columns,
	func(c batch.Changes[*change]) leaderboard.Noted { return statement{c}.noted() })

// Referenced says whether the change has a reference.
func (c *change) Referenced() bool { return c.entry.Reference != nil }

func columns(f batch.Form) []batch.Column[*change] {
	list := []batch.Column[*change]{
		batch.Texts("user_id", func(c *change) string { return c.entry.UserID }),
		batch.Integers("delta", func(c *change) int64 { return c.entry.Delta }),
		batch.Texts("random", func(*change) string { return db.NewID() }),
		batch.Nullable("reason", func(c *change) *string { return c.entry.Reason }),
		batch.Texts("note", func(c *change) string { return c.entry.Note }),
		batch.Texts("event_id", func(*change) string { return db.NewID() }),
		batch.Texts("origin", func(c *change) string { return c.By.JSON() }),
	}
	if f.Referenced {
		list = append(list, batch.Nullable("reference", func(c *change) *string { return c.entry.Reference }))
	}
	if f.Traced {
		list = append(list, batch.Texts("trace", func(c *change) string { return c.By.Trace }))
	}
	return list
}

// noted is the text of the statement. Its CTEs: the changes (given), the wallets
// that are held, the changes to be judged (ours), those that are to be made
// (cleared), and those that are made (moved). By itself the statement makes the
// wallet that is missing.
func (s statement) noted() leaderboard.Noted {
	find, claim, reference, spent := s.references()
	trace := ""
	if s.Traced {
		trace = traceOfMoved
	}
	ours, moved := `
			SELECT * FROM held
			UNION ALL
			SELECT g.*, 0, NULL FROM given g WHERE NOT EXISTS (SELECT FROM held)`, `, made AS (
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			SELECT home.id, c.user_id, c.delta, c.at FROM cleared c JOIN guilds home ON home.id = `+s.Guild("c")+` WHERE c.updated_at IS NULL
			ON CONFLICT DO NOTHING
			RETURNING balance, updated_at
		), moved AS MATERIALIZED (
			SELECT * FROM changed WHERE `+batch.Few+`
			UNION ALL
			SELECT `+s.Names("g")+`, c.id, NULL, m.balance, m.updated_at FROM made m, cleared c, given g
		)`
	return leaderboard.Wallets.Noted("moved", s.Guild("moved"), func(note string) string {
		return `
		WITH ` + s.Given() + find + `, held AS MATERIALIZED (
			SELECT g.*, w.balance, w.updated_at
			FROM given g
			CROSS JOIN LATERAL (
				SELECT balance, updated_at FROM wallets WHERE guild_id = ` + s.Guild("g") + ` AND user_id = g.user_id ` + s.Lock() + `
			) w
		), ours AS (` + ours + `
		)` + claim + `, changed AS MATERIALIZED (
			UPDATE wallets w
			SET balance = c.balance + c.delta, updated_at = c.at
			FROM cleared c
			WHERE w.guild_id = ` + s.Guild("c") + ` AND w.user_id = c.user_id AND c.updated_at IS NOT NULL
			RETURNING ` + s.Names("c") + `, c.id, c.balance AS was, w.balance AS is_now, w.updated_at
		)` + moved + `, entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
			SELECT home.id, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, ` + reference + `
			FROM moved m JOIN guilds home ON home.id = ` + s.Guild("m") + `
		), ` + note + `, ` + telling(s.Guild("moved"), reference, trace).CTEs() + `
		SELECT o.number, o.balance, m.id, m.updated_at AS at, EXISTS (SELECT FROM event_listeners) AS told, ` + spent + ` AS spent
		FROM ours o
		LEFT JOIN moved m ON m.number = o.number`
	})
}

// references are the CTEs that find references that are used (spent), and that
// claim those of allowed changes (cleared); the column of the reference; and the
// column that says whether a change's reference is used.
func (s statement) references() (find, claim, column, spent string) {
	allowed := `
			SELECT o.*, ` + entryID("o.at", "o.random") + ` AS id
			FROM (
				SELECT *, ` + db.Next("clock_timestamp()", "updated_at") + ` AS at FROM ours WHERE balance + delta BETWEEN 0 AND ` + strconv.Itoa(maxBalance)
	if !s.Referenced {
		return ``, `, cleared AS MATERIALIZED (` + allowed + `
			) o
		)`, `NULL::text`, `false`
	}
	return `, spent AS MATERIALIZED (
			SELECT g.number
			FROM given g
			CROSS JOIN LATERAL (
				SELECT FROM ledger_references WHERE guild_id = ` + s.Guild("g") + ` AND reference = g.reference OFFSET 0
			) r
			WHERE g.reference IS NOT NULL
		)`, `, allowed AS MATERIALIZED (` + allowed + `
				  AND number NOT IN (SELECT number FROM spent)
			) o
		), claimed AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT home.id, a.reference, a.id
			FROM allowed a JOIN guilds home ON home.id = ` + s.Guild("a") + `
			WHERE a.reference IS NOT NULL
			ORDER BY home.id, a.reference
			ON CONFLICT DO NOTHING
			RETURNING entry_id
		), cleared AS MATERIALIZED (
			SELECT * FROM allowed WHERE reference IS NULL OR id IN (SELECT entry_id FROM claimed)
		)`, `reference`, `o.number IN (SELECT number FROM spent)`
}

const traceOfMoved = "nullif(moved.trace, '')"

// telling is the event of a change, whose data are known once it is made.
func telling(guild, reference, trace string) event.Telling {
	return event.Telling{
		Rows: "moved", Guild: guild, Type: "'" + event.BalanceChanged + "'", ID: "moved.event_id", At: "moved.updated_at", Trace: trace, Origin: "moved.origin",
		Payload: event.SQL(event.BalanceChanged, "moved.event_id", "moved.updated_at", guild, "moved.origin",
			`'{"user_id":"' || moved.user_id || '","balance":' || moved.is_now || ',"previous_balance":' || moved.is_now - moved.delta
			 || ',"delta":' || moved.delta || ',"reason":' || coalesce(to_json(moved.reason)::text, 'null')
			 || ',"reference":' || coalesce(to_json(`+reference+`)::text, 'null') || ',"ledger_entry_id":"' || moved.id || '"}'`),
	}
}

// Judge sets what a change has come to. It is refused when the result is outside the
// limits and when the guild has used the reference before; see repeated.
func (c *change) Judge(v decision) {
	c.told = v.Told
	switch {
	case v.At != nil:
		c.Made, c.entry.ID, c.entry.BalanceAfter, c.entry.CreatedAt = true, *v.ID, v.Balance+c.entry.Delta, *v.At
	case v.Spent:
		c.Refusal = errSpent
	default:
		c.Refusal = beyond(v.Balance, c.entry.Delta)
	}
}

// beyond is the refusal of a change whose result would be outside the limits.
func beyond(balance, delta int64) error {
	switch after := balance + delta; {
	case after < 0:
		return fault.New(fault.Refused, "balance_would_be_negative", "The balance is %d and does not cover a change by %d.", balance, delta)
	case after > maxBalance:
		return fault.New(fault.Refused, "balance_limit_exceeded", "The balance would exceed %d.", int64(maxBalance))
	}
	return nil
}

// errSpent says that the reference is used; by what, otherThan tells.
var errSpent = fault.New(fault.Refused, "reference_already_used", "The reference is used.")

// otherThan refuses a change whose reference is that of the ledger row, unless it is
// the change that the row tells of. Reasons are not compared.
func otherThan(c, was entry) error {
	refuse := func(format string, args ...any) error {
		return fault.New(fault.Refused, "reference_already_used", format, args...)
	}
	switch member, delta := c.UserID != was.UserID, c.Delta != was.Delta; {
	case was.ID == "":
		return refuse("The reference was used by a change that is not here any more: before the guild moved here, or of a member who is forgotten.")
	case member && delta:
		return refuse("The reference is that of the ledger entry %s, which is another member's and by %d, not by %d.", was.ID, was.Delta, c.Delta)
	case member:
		return refuse("The reference is that of the ledger entry %s, which is another member's.", was.ID)
	case delta:
		return refuse("The reference is that of the ledger entry %s, which is by %d, not by %d.", was.ID, was.Delta, c.Delta)
	}
	return nil
}
