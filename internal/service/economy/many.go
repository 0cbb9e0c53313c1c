package economy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/leaderboard"
)

// AdjustBalances makes adjustments in their order, all of them or none: the first that
// is refused refuses the call. It takes a statement for each step and not one for each
// change: the wallets are held, the changes judged, and what has become of wallets and
// ledger is written.
func (s *Service) AdjustBalances(ctx context.Context, r gen.AdjustBalancesRequestObject) (gen.AdjustBalancesResponseObject, error) {
	by, tx := auth.Acting(ctx), db.Write(ctx)
	m := newMany(by.GuildID, by.Note(), r.Body.Adjustments)
	if err := m.referencesDiffer(); err != nil {
		return nil, err
	}
	if err := m.read(ctx, tx); err != nil {
		return nil, err
	}
	if err := m.judge(); err != nil {
		return nil, err
	}
	told, err := m.write(ctx, tx, event.From(by).In(ctx))
	if err != nil {
		return nil, err
	}
	if told {
		s.listening.Add(by.GuildID)
	}
	return m.response(), nil
}

// many are the adjustments of one call.
type many struct {
	guild   string
	list    []one
	uses    map[string]entry    // of references that are used
	wallets map[string]*holding // by member
}

// one is an adjustment of a call: the ledger row that it asks for and, once it is
// judged, the one that tells of it.
type one struct {
	entry
	replayed bool // the row is that of an earlier request
}

// holding is a wallet that is held until the unit ends.
type holding struct {
	UserID  string    `db:"user_id"`
	Was     *int64    `db:"was"` // nil: there is none yet
	At      time.Time `db:"at"`  // of the change that comes next; once one is made, of the last
	Balance int64     `db:"balance"`
	changed bool
}

func newMany(guild, note string, asked []gen.AdjustBalanceRequest) *many {
	m := &many{guild: guild, list: make([]one, len(asked)), wallets: map[string]*holding{}}
	for i, a := range asked {
		m.list[i].entry = entry{UserID: a.UserID, Delta: a.Delta, Reason: a.Reason, Reference: a.Reference, Note: note}
	}
	return m
}

// place is where an adjustment stands in the request.
func place(i int) string { return fmt.Sprintf("body /adjustments/%d", i) }

// referencesDiffer refuses a call that names a reference twice.
func (m *many) referencesDiffer() error {
	first := map[string]int{}
	for i, o := range m.list {
		if o.Reference == nil {
			continue
		}
		if before, again := first[*o.Reference]; again {
			return fault.New(fault.Invalid, "invalid_request", "%s/reference: is that of /adjustments/%d; a call names a reference once", place(i), before)
		}
		first[*o.Reference] = i
	}
	return nil
}

// read holds the wallets, in the order in which all hold them, and looks up the
// references. One that is used later than that is found when it is written.
func (m *many) read(ctx context.Context, tx *db.Tx) error {
	users := map[string]bool{}
	var references []string
	for _, o := range m.list {
		users[o.UserID] = true
		if o.Reference != nil {
			references = append(references, *o.Reference)
		}
	}
	rows, err := db.Select[holding](ctx, tx, manyHeld, m.guild, db.Array(slices.Sorted(maps.Keys(users))))
	if err != nil {
		return fmt.Errorf("hold %d wallets of guild %s: %w", len(users), m.guild, err)
	}
	for i := range rows {
		m.wallets[rows[i].UserID] = &rows[i]
	}
	if len(references) > 0 {
		m.uses, err = usesOf(ctx, tx, m.guild, references)
	}
	return err
}

// manyHeld looks each wallet up and locks it by itself: a subquery that locks is not
// joined in another way. The clock is read once the wallet is held.
var manyHeld = `
		SELECT g.user_id, w.balance AS was, coalesce(w.balance, 0) AS balance, ` + db.Next("clock_timestamp()", "w.updated_at") + ` AS at
		FROM unnest((SELECT $2::text[])) AS g (user_id)
		LEFT JOIN LATERAL (
			SELECT balance, updated_at FROM wallets WHERE guild_id = $1 AND user_id = g.user_id FOR NO KEY UPDATE
		) w ON true`

// judge decides the adjustments in their order, each as AdjustBalance would after those
// before it, and returns the first refusal. Rows of one member are a millisecond apart.
func (m *many) judge() error {
	for i := range m.list {
		o := &m.list[i]
		if o.Reference != nil {
			if was, used := m.uses[*o.Reference]; used {
				if err := otherThan(o.entry, was); err != nil {
					return fault.At(place(i), err)
				}
				o.entry, o.replayed = was, true
				continue
			}
		}
		w := m.wallets[o.UserID]
		if err := beyond(w.Balance, o.Delta); err != nil {
			return fault.At(place(i), err)
		}
		if w.changed {
			w.At = w.At.Add(time.Millisecond)
		}
		w.changed, w.Balance = true, w.Balance+o.Delta
		o.ID, o.BalanceAfter, o.CreatedAt = db.NewIDAt(w.At), w.Balance, w.At
	}
	return nil
}

// write stores what the adjustments have made of wallets and ledger, and tells of each.
// It is db.Again when a wallet or a use of a reference has come meanwhile.
func (m *many) write(ctx context.Context, tx *db.Tx, by event.Origin) (told bool, err error) {
	var rows []entry
	for _, o := range m.list {
		if !o.replayed {
			rows = append(rows, o.entry)
		}
	}
	if len(rows) == 0 {
		return false, nil
	}
	var wallets []*holding
	for _, user := range slices.Sorted(maps.Keys(m.wallets)) {
		if m.wallets[user].changed {
			wallets = append(wallets, m.wallets[user])
		}
	}
	got, err := db.Get[manyStored](ctx, tx, manyWritten.For(len(wallets)), manyArguments(m.guild, by, wallets, rows)...)
	if err != nil {
		return false, fmt.Errorf("adjust %d balances of guild %s: %w", len(rows), m.guild, err)
	}
	references := 0
	for _, e := range rows {
		if e.Reference != nil {
			references++
		}
	}
	if got.Wallets != len(wallets) || got.References != references {
		return false, db.Again
	}
	return got.Told, nil
}

// manyStored is what the statement has written.
type manyStored struct {
	Wallets    int  `db:"wallets"`
	References int  `db:"refs"`
	Told       bool `db:"told"` // endpoints listen
}

func manyArguments(guild string, by event.Origin, wallets []*holding, rows []entry) []any {
	users, instants, balances := make([]string, len(wallets)), make([]string, len(wallets)), make([]int64, len(wallets))
	before, there := make([]int64, len(wallets)), make([]bool, len(wallets))
	for i, w := range wallets {
		users[i], balances[i], instants[i] = w.UserID, w.Balance, w.At.Format(time.RFC3339Nano)
		if there[i] = w.Was != nil; there[i] {
			before[i] = *w.Was
		}
	}
	n := len(rows)
	members, ids, ats, events := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	deltas, after, reasons, references := make([]int64, n), make([]int64, n), make([]*string, n), make([]*string, n)
	for i, e := range rows {
		members[i], deltas[i], after[i], ids[i], reasons[i], references[i] = e.UserID, e.Delta, e.BalanceAfter, e.ID, e.Reason, e.Reference
		ats[i], events[i] = e.CreatedAt.Format(time.RFC3339Nano), db.NewID()
	}
	return []any{
		guild, db.Array(users), db.Booleans(there), db.Integers(before), db.Integers(balances), db.Array(instants),
		db.Array(members), db.Integers(deltas), db.Integers(after), db.Array(ids), db.Texts(reasons), db.Texts(references),
		db.Array(ats), db.Array(events), rows[0].Note, by.JSON(), by.Trace,
	}
}

// manyWritten writes wallets as they stand after all changes (wallets_after), of which
// ranks know the first and the last balance, and a ledger row and an event for each
// change (moved). Those who hold references write them in one order.
var manyWritten = leaderboard.Wallets.Noted("wallets_after", "$1", func(note string) string {
	return `
		WITH wallets_after AS MATERIALIZED (
			SELECT user_id, CASE WHEN there THEN was END AS was, is_now, at
			FROM unnest((SELECT $2::text[]), $3::boolean[], $4::bigint[], $5::bigint[], $6::timestamptz[]) AS g (user_id, there, was, is_now, at)
		), moved AS MATERIALIZED (
			SELECT g.*, $15::text AS note, $16::text AS origin, $17::text AS trace
			FROM unnest((SELECT $7::text[]), $8::bigint[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::timestamptz[], $14::text[])
			     AS g (user_id, delta, is_now, id, reason, reference, updated_at, event_id)
		), changed AS (
			UPDATE wallets w
			SET balance = a.is_now, updated_at = a.at
			FROM wallets_after a
			WHERE w.guild_id = $1 AND w.user_id = a.user_id AND a.was IS NOT NULL
			RETURNING w.user_id
		), made AS (
			INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			SELECT $1 /*: home.id */, a.user_id, a.is_now, a.at
			FROM wallets_after a /*: a JOIN guilds home ON home.id = $1 */
			WHERE a.was IS NULL
			ON CONFLICT DO NOTHING
			RETURNING user_id
		), referenced AS (
			INSERT INTO ledger_references (guild_id, reference, entry_id)
			SELECT $1 /*: home.id */, m.reference, m.id
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
			WHERE m.reference IS NOT NULL
			ORDER BY m.reference
			ON CONFLICT DO NOTHING
			RETURNING reference
		), entered AS (
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, reason, note, created_at, reference)
			SELECT $1 /*: home.id */, m.id, m.user_id, m.delta, m.is_now, m.reason, m.note, m.updated_at, m.reference
			FROM moved m /*: m JOIN guilds home ON home.id = $1 */
		), ` + note + `, ` + telling("$1") + `
		SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM made) AS wallets, (SELECT count(*) FROM referenced) AS refs,
		       EXISTS (SELECT FROM event_listeners) AS told`
})

func (m *many) response() gen.AdjustBalancesResponseObject {
	list := make([]gen.BalanceAdjustmentOfMany, len(m.list))
	for i, o := range m.list {
		list[i] = gen.BalanceAdjustmentOfMany{BalanceAdjustment: adjusted(o.entry), Replayed: o.replayed}
	}
	return gen.AdjustBalances200JSONResponse{Data: list}
}
