package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"guildhall/internal/db"
)

// result is a verdict on its way into the database.
type result struct {
	GuildID    string    `json:"guild_id"`
	ID         string    `json:"id"`
	EndpointID string    `json:"endpoint_id"`
	LeaseGen   int       `json:"lease_gen"`
	State      string    `json:"state"`
	PauseMs    int64     `json:"pause_ms"`
	Step       int       `json:"step"`
	Logged     bool      `json:"logged"`
	StartedAt  time.Time `json:"started_at"`
	DurationMs int64     `json:"duration_ms"`
	Outcome    outcome   `json:"outcome"`
	Status     *int      `json:"status"`
	Excerpt    *string   `json:"excerpt"`
	Error      *string   `json:"error"`

	verdict verdict
	suspect bool // the endpoint was failing when this was claimed
}

// settle writes a batch of results: the new state of each delivery whose lease
// is still the one it was sent under, and the log row of each attempt, in one
// statement, so that log and state cannot part. It counts those that were
// settled. A result that comes too late changes nothing but the log.
func settle(ctx context.Context, tx *db.Tx, now *time.Time, batch []result) (int, error) {
	in, err := json.Marshal(batch)
	if err != nil {
		return 0, fmt.Errorf("render %d results: %w", len(batch), err)
	}
	var n int
	err = tx.GetContext(ctx, &n, `
		WITH r AS MATERIALIZED (
			SELECT *
			FROM jsonb_to_recordset($2::jsonb) AS r (
				guild_id text, id text, lease_gen int, state text, pause_ms bigint, step int, logged boolean,
				started_at timestamptz, duration_ms int, outcome text, status int, excerpt text, error text)
		), d AS (
			UPDATE webhook_deliveries d
			SET state = r.state, step = r.step, lease_until = NULL,
			    attempts = d.attempts + CASE WHEN r.logged THEN 1 ELSE 0 END,
			    lease_gen = CASE WHEN r.logged THEN d.lease_gen ELSE d.lease_gen - 1 END,
			    due_at = CASE WHEN r.state = 'pending' THEN coalesce($1::timestamptz, now()) + r.pause_ms * interval '1 millisecond' ELSE d.due_at END,
			    completed_at = CASE WHEN r.state IN ('delivered', 'failed') THEN coalesce($1::timestamptz, now()) END
			FROM r
			WHERE d.guild_id = r.guild_id AND d.id = r.id
			  AND d.lease_gen = r.lease_gen AND d.lease_until IS NOT NULL AND d.state = 'pending'
			RETURNING 1
		), a AS (
			INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, excerpt, error)
			SELECT guild_id, id, lease_gen, started_at, duration_ms, outcome, status, excerpt, error
			FROM r
			WHERE logged
			ON CONFLICT DO NOTHING
		)
		SELECT count(*) FROM d`, now, string(in))
	if err != nil {
		return 0, fmt.Errorf("settle %d deliveries: %w", len(batch), err)
	}
	return n, nil
}

// settleUnlogged is settle for when the log cannot be written: the attempts are
// kept in the deliveries' own rows, from where moveUnlogged takes them later.
func settleUnlogged(ctx context.Context, tx *db.Tx, now *time.Time, batch []result) (int, error) {
	in, err := json.Marshal(batch)
	if err != nil {
		return 0, fmt.Errorf("render %d results: %w", len(batch), err)
	}
	var n int
	err = tx.GetContext(ctx, &n, `
		WITH r AS MATERIALIZED (
			SELECT r.*, each.value AS whole
			FROM jsonb_array_elements($2::jsonb) each
			CROSS JOIN LATERAL jsonb_to_record(each.value) AS r (
				guild_id text, id text, lease_gen int, state text, pause_ms bigint, step int, logged boolean)
		), d AS (
			UPDATE webhook_deliveries d
			SET state = r.state, step = r.step, lease_until = NULL,
			    attempts = d.attempts + CASE WHEN r.logged THEN 1 ELSE 0 END,
			    lease_gen = CASE WHEN r.logged THEN d.lease_gen ELSE d.lease_gen - 1 END,
			    due_at = CASE WHEN r.state = 'pending' THEN coalesce($1::timestamptz, now()) + r.pause_ms * interval '1 millisecond' ELSE d.due_at END,
			    completed_at = CASE WHEN r.state IN ('delivered', 'failed') THEN coalesce($1::timestamptz, now()) END,
			    unlogged = CASE WHEN r.logged THEN coalesce(d.unlogged, '[]') || jsonb_build_array(r.whole) ELSE d.unlogged END
			FROM r
			WHERE d.guild_id = r.guild_id AND d.id = r.id
			  AND d.lease_gen = r.lease_gen AND d.lease_until IS NOT NULL AND d.state = 'pending'
			RETURNING 1
		)
		SELECT count(*) FROM d`, now, string(in))
	if err != nil {
		return 0, fmt.Errorf("settle %d deliveries without their log: %w", len(batch), err)
	}
	return n, nil
}

// moveUnlogged writes the log rows that settleUnlogged put aside and counts the
// deliveries they belong to, at most limit.
func moveUnlogged(ctx context.Context, tx *db.Tx, limit int) (int, error) {
	var n int
	err := tx.GetContext(ctx, &n, `
		WITH d AS MATERIALIZED (
			SELECT guild_id, id, unlogged
			FROM webhook_deliveries
			WHERE unlogged IS NOT NULL
			ORDER BY guild_id, id
			LIMIT $1
			FOR UPDATE SKIP LOCKED
		), a AS (
			INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, excerpt, error)
			SELECT d.guild_id, d.id, r.lease_gen, r.started_at, r.duration_ms, r.outcome, r.status, r.excerpt, r.error
			FROM d
			CROSS JOIN LATERAL jsonb_to_recordset(d.unlogged) AS r (
				lease_gen int, started_at timestamptz, duration_ms int, outcome text, status int, excerpt text, error text)
			ON CONFLICT DO NOTHING
		), u AS (
			UPDATE webhook_deliveries w
			SET unlogged = NULL
			FROM d
			WHERE w.guild_id = d.guild_id AND w.id = d.id
			RETURNING 1
		)
		SELECT count(*) FROM u`, limit)
	if err != nil {
		return 0, fmt.Errorf("write put-aside attempts: %w", err)
	}
	return n, nil
}

// sick is an endpoint that noteHealth found on its way to being disabled.
type sick struct {
	GuildID      string    `db:"guild_id"`
	EndpointID   string    `db:"endpoint_id"`
	FailingSince time.Time `db:"failing_since"`
	Refusals     int       `db:"refusals"`
	Now          time.Time `db:"now"`
	Warned       int       `db:"warned"`
	WarnedBefore int       `db:"warned_before"`
}

// disableReason is why the endpoint is to be disabled now, if it is. The failure
// that is being noted and the first of the row make two, so the five days
// between them are also the span that two failures must have.
func (s sick) disableReason() string {
	switch {
	case s.Refusals >= refusedLimit:
		return reasonAddress
	case s.Now.Sub(s.FailingSince) >= max(disableAfter, disableSpan):
		return reasonFailing
	}
	return ""
}

// noteHealth adds a batch's successes and failures to what is known of its
// endpoints, and returns those that fail now. A failure blocks the endpoint from
// the blockAfter-th in a row on, each time for longer; failures that arrive
// while it is blocked do not lengthen the block.
func noteHealth(ctx context.Context, tx *db.Tx, now *time.Time, batch []health) ([]sick, error) {
	in, err := json.Marshal(batch)
	if err != nil {
		return nil, fmt.Errorf("render health: %w", err)
	}
	var rows []sick
	err = tx.SelectContext(ctx, &rows, `
		WITH f AS MATERIALIZED (
			SELECT h.guild_id, h.endpoint_id, h.warned AS warned_before, f.quiet_ms,
			       CASE WHEN f.reset THEN 0 ELSE h.failures END + f.blocking AS failures,
			       CASE WHEN f.reset THEN 0 ELSE h.refusals END + f.refused AS refusals,
			       CASE WHEN f.reset THEN 0 ELSE h.blocks END AS blocks,
			       CASE WHEN f.reset THEN NULL ELSE h.blocked_until END AS blocked_until,
			       CASE
			           WHEN f.failed = 0 THEN NULL
			           WHEN f.reset THEN coalesce($1::timestamptz, now())
			           ELSE coalesce(h.failing_since, $1::timestamptz, now())
			       END AS failing_since,
			       f.blocking > 0 AS blocking, h.quiet_until, coalesce($1::timestamptz, now()) AS now
			FROM jsonb_to_recordset($2::jsonb) AS f (
				guild_id text, endpoint_id text, reset boolean, failed int, blocking int, refused int, quiet_ms bigint)
			JOIN webhook_health h ON h.guild_id = f.guild_id AND h.endpoint_id = f.endpoint_id
			WHERE f.failed > 0 OR h.failures > 0 OR h.failing_since IS NOT NULL
			ORDER BY h.guild_id, h.endpoint_id
			FOR NO KEY UPDATE OF h
		), b AS (
			SELECT f.*, blocking AND failures >= $3 AND coalesce(blocked_until <= now, true) AS block
			FROM f
		)
		UPDATE webhook_health h
		SET failures = b.failures, refusals = b.refusals, failing_since = b.failing_since,
		    blocks = b.blocks + CASE WHEN b.block THEN 1 ELSE 0 END,
		    blocked_until = CASE
		        WHEN b.block THEN b.now + least($4 * power(2, least(b.blocks, 30)), $5) * interval '1 second'
		        ELSE b.blocked_until
		    END,
		    quiet_until = CASE WHEN b.quiet_ms > 0 THEN greatest(b.quiet_until, b.now + b.quiet_ms * interval '1 millisecond') ELSE b.quiet_until END,
		    warned = CASE
		        WHEN b.failing_since IS NULL THEN 0
		        WHEN b.now - b.failing_since >= $6 * interval '0.9 second' THEN 90
		        WHEN b.now - b.failing_since >= $6 * interval '0.5 second' THEN 50
		        ELSE 0
		    END
		FROM b
		WHERE h.guild_id = b.guild_id AND h.endpoint_id = b.endpoint_id
		RETURNING h.guild_id, h.endpoint_id, coalesce(h.failing_since, b.now) AS failing_since, h.refusals, b.now, h.warned, b.warned_before`,
		now, string(in), blockAfter, firstBlock.Seconds(), longestBlock.Seconds(), disableAfter.Seconds())
	if err != nil {
		return nil, fmt.Errorf("note the health of %d endpoints: %w", len(batch), err)
	}
	return rows, nil
}
