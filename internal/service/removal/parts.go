package removal

import (
	"context"
	"strings"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/service/leaderboard"
)

// part is one kind of rows that a guild has of a member. In its statements $1 is the guild, $2 the
// member and $3 the instant of the request. find selects at most $4 rows, without locks. changes
// change the rows listed in $4, so that find does not find them again.
type part struct {
	what    string
	cases   bool // only for requests that include cases
	most    int  // rows in a transaction
	find    string
	changes []string
}

// ahead is how far instants of rows can be ahead of the clock: rows of one call are a millisecond
// apart.
const ahead = `interval '1 second'`

// longestWrite is longer than any write takes. Ledger entries that were older than that at the
// request had been committed, and belong to the wallet that the request has deleted. Newer entries
// are deleted together with that wallet (dropRecent).
const longestWrite = `interval '15 seconds'`

// undrawn are the states of giveaways whose entries can still be taken out.
const undrawn = `('scheduled', 'active', 'paused', 'cancelled')`

// replaced returns the part that puts somebody in the place of the member in a column of a
// table, in rows that are as old as the request. at is the column of their instant.
func replaced(what, table, column, at string) part {
	where := `
		WHERE guild_id = $1 AND ` + column + ` = $2 AND ` + at + ` <= $3::timestamptz + ` + ahead
	return part{what: what, most: deleteLimit, find: `
		SELECT ctid::text
		FROM ` + table + where + ` AND $2 <> '` + somebody + `'
		LIMIT $4`, changes: []string{`
		UPDATE ` + table + `
		SET ` + column + ` = '` + somebody + `'` + where + ` AND ctid = ANY ($4::text[]::tid[])`}}
}

var parts = []part{
	{what: "ledger", most: deleteLimit, find: `
		SELECT ctid::text
		FROM ledger_entries
		WHERE guild_id = $1 AND user_id = $2 AND created_at <= $3::timestamptz - ` + longestWrite + `
		LIMIT $4`, changes: []string{`
		DELETE FROM ledger_entries
		WHERE guild_id = $1 AND user_id = $2 AND created_at <= $3::timestamptz - ` + longestWrite + ` AND ctid = ANY ($4::text[]::tid[])`}},
	replaced("authors of ledger entries", "ledger_entries", "author_id", "created_at"),
	replaced("counterparties of ledger entries", "ledger_entries", "counterparty_id", "created_at"),
	{what: "entries of giveaways", most: 50, find: `
		SELECT g.id
		FROM giveaways g
		JOIN giveaway_entries e ON e.guild_id = $1 AND e.giveaway_id = g.id AND e.user_id = $2
		WHERE g.guild_id = $1 AND g.status IN ` + undrawn + ` AND e.entered_at <= $3
		LIMIT $4`, changes: []string{`
		SELECT g.id
		FROM giveaways g
		WHERE g.guild_id = $1 AND g.id = ANY ($4)
		  AND EXISTS (SELECT FROM giveaway_entries e WHERE e.guild_id = $1 AND e.giveaway_id = g.id AND e.user_id = $2 AND e.entered_at <= $3)
		ORDER BY g.id
		FOR NO KEY UPDATE`, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at), gone AS (
			DELETE FROM giveaway_entries e
			USING giveaways held
			WHERE held.guild_id = $1 AND held.id = ANY ($4) AND held.status IN ` + undrawn + `
			  AND e.guild_id = $1 AND e.giveaway_id = held.id AND e.user_id = $2 AND e.entered_at <= $3
			RETURNING e.giveaway_id, e.entries
		)
		UPDATE giveaways g
		SET entrant_count = g.entrant_count - 1, entry_count = g.entry_count - gone.entries, updated_at = ` + db.Next("instant.at", "g.updated_at") + `
		FROM gone, instant
		WHERE g.guild_id = $1 AND g.id = gone.giveaway_id`}},
	{what: "disqualifications", most: deleteLimit, find: `
		SELECT giveaway_id
		FROM giveaway_disqualified
		WHERE guild_id = $1 AND user_id = $2 AND disqualified_at <= $3::timestamptz + ` + ahead + `
		LIMIT $4`, changes: []string{`
		DELETE FROM giveaway_disqualified
		WHERE guild_id = $1 AND user_id = $2 AND disqualified_at <= $3::timestamptz + ` + ahead + ` AND giveaway_id = ANY ($4)`}},
	{what: "what waits to be posted", most: deleteLimit, find: `
		SELECT id
		FROM chat_intents
		WHERE guild_id = $1 AND author_id = $2 AND created_at <= $3 AND NOT (state = 'sending' AND lease_until > now())
		LIMIT $4`, changes: []string{`
		WITH refused AS (
			UPDATE bot_work w
			SET result = 'refused', reason = '` + removed + `', answered_at = now()
			FROM chat_intents i
			WHERE w.guild_id = $1 AND i.guild_id = $1 AND i.author_id = $2 AND i.created_at <= $3 AND i.id = ANY ($4) AND i.nonce = w.id
			  AND w.result IS NULL AND NOT (i.state = 'sending' AND i.lease_until > now())
			RETURNING w.event_id
		)
		DELETE FROM stream_deliveries
		WHERE guild_id = $1 AND stream_id = 'work' AND event_id IN (SELECT event_id FROM refused)`, `
		DELETE FROM chat_intents
		WHERE guild_id = $1 AND author_id = $2 AND created_at <= $3 AND id = ANY ($4)
		  AND (state IN ('pending', 'refused', 'unknown') OR state = 'sending' AND lease_until <= now())`, `
		UPDATE chat_intents
		SET author_id = NULL, content = '` + removed + `'
		WHERE guild_id = $1 AND author_id = $2 AND created_at <= $3 AND id = ANY ($4) AND state = 'sent'`}},
	{what: "what was written", most: deleteLimit, find: `
		SELECT id
		FROM ticket_messages
		WHERE guild_id = $1 AND author_id = $2 AND created_at <= $3::timestamptz + ` + ahead + ` AND kind IN ('message', 'note')
		LIMIT $4`, changes: []string{`
		UPDATE ticket_messages
		SET author_id = NULL, content = '` + removed + `', attachments = '[]', original_content = NULL
		WHERE guild_id = $1 AND author_id = $2 AND created_at <= $3::timestamptz + ` + ahead + ` AND id = ANY ($4)`}},
	// A worker that is changing the channel of such a ticket loses its lease and starts again
	// without the member. If the member is the placeholder (somebody), rows that were changed
	// already are not found.
	{what: "tickets", most: 50, find: `
		SELECT id
		FROM tickets
		WHERE guild_id = $1 AND opener_id = $2 AND created_at <= $3
		  AND ($2 <> '` + somebody + `' OR subject IS NOT NULL OR metadata <> '{}')
		LIMIT $4`, changes: []string{`
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at)
		UPDATE tickets
		SET subject = NULL, metadata = '{}', opener_id = '` + somebody + `', channel_lock = NULL, channel_lease_gen = channel_lease_gen + 1,
		    close_reason = CASE WHEN closed_by_id = $2 AND close_reason IS NOT NULL THEN '` + removed + `' ELSE close_reason END,
		    closed_by_id = CASE WHEN closed_by_id = $2 THEN '` + somebody + `' ELSE closed_by_id END,
		    updated_at = ` + db.Next("instant.at", "updated_at") + `
		FROM instant
		WHERE guild_id = $1 AND id = ANY ($4) AND opener_id = $2 AND created_at <= $3`, `
		UPDATE ticket_messages
		SET author_id = NULL, content = CASE WHEN content = '' THEN content ELSE '` + removed + `' END, attachments = '[]', original_content = NULL
		WHERE guild_id = $1 AND ticket_id = ANY ($4) AND author_id = $2 AND created_at <= $3`}},
	{what: "cases", cases: true, most: 200, find: `
		SELECT id
		FROM cases
		WHERE guild_id = $1 AND user_id = $2 AND created_at <= $3::timestamptz + ` + ahead + `
		  AND ($2 <> '` + somebody + `' OR status <> 'deleted' OR reason <> '' OR metadata <> '{}')
		LIMIT $4`, changes: []string{memberCases + `
		ORDER BY id
		FOR NO KEY UPDATE`, `
		DELETE FROM case_changes
		WHERE guild_id = $1 AND case_id IN (SELECT id FROM (` + memberCases + `) AS forgotten) AND changes <> '[]' AND NOT changes @? '` + textless + `'`, `
		UPDATE case_changes
		SET changes = jsonb_path_query_array(changes, '` + textless + `'), user_before = NULL
		WHERE guild_id = $1 AND case_id IN (SELECT id FROM (` + memberCases + `) AS forgotten) AND changes <> '[]'`, `
		WITH instant AS MATERIALIZED (SELECT clock_timestamp() AS at), was AS MATERIALIZED (
			` + memberCases + `
		), forgotten AS (
			UPDATE cases c
			SET status = 'deleted', reason = '', user_id = '` + somebody + `', metadata = '{}', updated_at = ` + db.Next("instant.at", "c.updated_at") + `
			FROM was, instant
			WHERE c.guild_id = $1 AND c.id = was.id
			RETURNING c.id, c.updated_at, was.status
		), noted AS (
			INSERT INTO case_changes (guild_id, case_id, at, origin, changes)
			SELECT home.id, forgotten.id, forgotten.updated_at, '` + auth.System("").Origin() + `',
				jsonb_build_array(jsonb_build_object('field', 'status', 'before', forgotten.status, 'after', 'deleted'))
			FROM forgotten JOIN guilds home ON home.id = $1
			WHERE forgotten.status <> 'deleted'
		)
		SELECT`}},
	replaced("authors of changes", "case_changes", "author_id", "at"),
	changesOf("members of changes", "user_id", "user_before"),
	changesOf("moderators of changes", "moderator_id", "moderator_before"),
}

// memberCases finds the cases about the member that are named in $4.
const memberCases = `
		SELECT id, status
		FROM cases
		WHERE guild_id = $1 AND id = ANY ($4) AND user_id = $2 AND created_at <= $3::timestamptz + ` + ahead

// textless is a JSON path to the differences of a change that hold no text about the member.
// The other differences go: then the changes begin with a case about somebody, without reason
// and metadata, and still lead to the case.
const textless = `$[*] ? (@.field != "reason" && @.field != "user_id" && !(@.field starts with "metadata."))`

// changesOf returns the part for the changes that set a field of a case to the member or from
// the member to another. The column before holds the replaced value of the field. While the
// field of the case is still the member, the change that set it stays as it is, so that the
// changes lead to the case.
func changesOf(what, field, before string) part {
	return part{what: what, most: 50, find: `
		SELECT DISTINCT case_id
		FROM case_changes
		WHERE guild_id = $1 AND ` + before + ` = $2 AND $2 <> '` + somebody + `' AND at <= $3::timestamptz + ` + ahead + `
		LIMIT $4`, changes: []string{`
		UPDATE case_changes c
		SET ` + before + ` = CASE WHEN c.` + before + ` = $2 THEN '` + somebody + `' ELSE c.` + before + ` END, changes = (
			SELECT jsonb_agg(CASE WHEN d ->> 'field' <> '` + field + `' THEN d ELSE jsonb_build_object('field', '` + field + `',
				'before', CASE WHEN d ->> 'before' = $2 THEN '` + somebody + `' ELSE d ->> 'before' END,
				'after', CASE WHEN d ->> 'after' = $2 AND c.at < last.at THEN '` + somebody + `' ELSE d ->> 'after' END) END ORDER BY n)
			FROM jsonb_array_elements(c.changes) WITH ORDINALITY AS e (d, n))
		FROM (
			SELECT case_id, max(at) AS at FROM case_changes
			WHERE guild_id = $1 AND case_id = ANY ($4) AND ` + before + ` = $2 AND at <= $3::timestamptz + ` + ahead + `
			GROUP BY case_id
		) AS last
		WHERE c.guild_id = $1 AND c.case_id = last.case_id AND c.at <= last.at AND c.changes <> '[]'`}}
}

// The statements that delete a member's wallet and level and record the rank moves. The points come
// from the DELETE's RETURNING: Postgres runs the DELETE first, so another CTE that read the row
// would find none.
var (
	dropRow = `
		WITH moved AS (
			DELETE FROM :board
			WHERE guild_id = $1 AND user_id = $2
			RETURNING user_id, :points AS was, NULL::bigint AS is_now
		), :rank
		SELECT count(*) FROM moved`

	dropWallet = leaderboard.Wallets.Noted("moved", "$1", dropRow)
	dropLevel  = leaderboard.Levels.Noted("moved", "$1", dropRow)
)

// The statements that delete what a member gained by week and month, after the level: a change
// under way has then ended. A sweep that adds up the member's moves holds their rows until the
// sums are stored, so the moves go first.
const (
	dropMoves = `
		UPDATE xp_moves
		SET (users, deltas) = (
			SELECT coalesce(array_agg(e.user_id), '{}'), coalesce(array_agg(e.delta), '{}')
			FROM unnest(users, deltas) AS e (user_id, delta)
			WHERE e.user_id <> $2
		)
		WHERE guild_id = $1 AND $2 = ANY (users)`

	dropPeriods = `DELETE FROM xp_periods WHERE guild_id = $1 AND user_id = $2`
)

const dropMember = `DELETE FROM members WHERE guild_id = $1 AND user_id = $2`

// dropRecent deletes the newest ledger entries of the wallet that the transaction has deleted,
// including entries ahead of the clock. A write that inserts a new wallet waits for the
// transaction.
const dropRecent = `DELETE FROM ledger_entries WHERE guild_id = $1 AND user_id = $2 AND created_at > now() - ` + longestWrite

// leaveBoards deletes the member's wallet and level. If there is no wallet, a wallet that a
// concurrent write inserts stays, with its ledger. It also deletes a rank index in which the member
// is a checkpoint, because the checkpoint would keep the id until the rank index is rebuilt.
func leaveBoards(ctx context.Context, tx *db.Tx, guild, user string) error {
	wallets, err := db.Get[int](ctx, tx, dropWallet.For(1), guild, user)
	if err != nil {
		return fault.Wrap(err, "delete a member's wallet in guild", guild)
	}
	if _, err := db.Get[int](ctx, tx, dropLevel.For(1), guild, user); err != nil {
		return fault.Wrap(err, "delete a member's level in guild", guild)
	}
	if wallets > 0 {
		if _, err := db.Exec(ctx, tx, dropRecent, guild, user); err != nil {
			return fault.Wrap(err, "take a member out of the ledger of guild", guild)
		}
	}
	for name, board := range map[string]leaderboard.Board{"wallets": leaderboard.Wallets, "levels": leaderboard.Levels} {
		marked, err := db.Get[bool](ctx, tx, `
			SELECT EXISTS (SELECT FROM rank_checkpoints WHERE guild_id = $1 AND board = $2 AND user_id = $3)`, guild, name, user)
		if err != nil {
			return fault.Wrap(err, "look for a member's mark in guild", guild)
		}
		if marked {
			if err := board.Reloaded(ctx, tx, guild); err != nil {
				return err
			}
		}
	}
	return nil
}

// knownGuilds selects the guilds that have a row of member $1, in the order of their ids. An empty
// $2 means every guild. A guild whose removal is scheduled is included until its deletion begins,
// since it may be restored.
var knownGuilds = `
	SELECT g.id
	FROM guilds g
	WHERE (cardinality($2::text[]) = 0 OR g.id = ANY ($2))
	  AND (g.removed_after IS NULL OR g.removed_after > now())
	  AND (` + strings.Join([]string{
	anyRow(`wallets r WHERE r.guild_id = g.id AND r.user_id = $1`),
	anyRow(`members r WHERE r.guild_id = g.id AND r.user_id = $1`),
	anyRow(`levels r WHERE r.guild_id = g.id AND r.user_id = $1`),
	anyRow(`ledger_entries r WHERE r.guild_id = g.id AND r.user_id = $1`),
	anyRow(`ledger_entries r WHERE r.guild_id = g.id AND r.author_id = $1`),
	anyRow(`tickets r WHERE r.guild_id = g.id AND r.opener_id = $1`),
	anyRow(`ticket_messages r WHERE r.guild_id = g.id AND r.author_id = $1`),
	anyRow(`chat_intents r WHERE r.guild_id = g.id AND r.author_id = $1`),
	anyRow(`cases r WHERE r.guild_id = g.id AND r.user_id = $1`),
	anyRow(`giveaway_disqualified r WHERE r.guild_id = g.id AND r.user_id = $1`),
}, " OR ") + ` OR EXISTS (
	        SELECT FROM giveaways r
	        JOIN giveaway_entries e ON e.guild_id = r.guild_id AND e.giveaway_id = r.id AND e.user_id = $1
	        WHERE r.guild_id = g.id AND r.status IN ` + undrawn + `))
	ORDER BY g.id`

// anyRow returns a condition that probes an index, guild by guild, for such rows. Without the
// OFFSET Postgres would read the whole table into a hash when there are many guilds: 1 s instead of
// 0.2 s for 100,000 guilds. Citus does not accept an OFFSET there.
func anyRow(rows string) string {
	return `EXISTS (SELECT FROM ` + rows + ` OFFSET 0) /*: (SELECT FROM ` + rows + `) */`
}
