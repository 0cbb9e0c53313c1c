package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/logging"
	"guildhall/internal/outbound/event"
)

const (
	// recordInterval is how long a result waits for others, so that one batch holds several. With
	// claimInterval, an event needs few statements. The wait does not delay the event, which has
	// already arrived.
	recordInterval = 10 * time.Millisecond

	// recordTimeout is how long recording a batch is retried. Retrying for longer is useless: by
	// then the leases have expired and the deliveries are sent again.
	recordTimeout = 60 * time.Second

	// fewTries is the number of tries when the worker is stopping, or when Postgres refuses a row.
	fewTries = 3
)

// recordLoop records results in batches until the channel is closed.
func (d *Deliverer) recordLoop(ctx context.Context) {
	for first := range d.results {
		batch, wait := []result{first}, time.NewTimer(recordInterval)
	collect:
		for len(batch) < claimSize {
			select {
			case r, ok := <-d.results:
				if !ok {
					break collect
				}
				batch = append(batch, r)
			case <-wait.C:
				break collect
			}
		}
		wait.Stop()
		d.recordRetrying(ctx, batch)
		if d.limiter.recorded(batch) {
			d.wakeups.addAll()
		}
		d.remind(batch)
	}
}

// remind wakes the claim loop when failed deliveries are due again, if the endpoint will probably
// accept them: a poll of everything finds them only in their turn, which comes late while many
// endpoints that never answer are waiting.
func (d *Deliverer) remind(batch []result) {
	now := time.Now()
	for _, r := range batch {
		if r.State == StatePending && r.decision.Pause < provenFor && d.limiter.answers(r.id(), now) {
			time.AfterFunc(r.decision.Pause, func() { d.wakeups.add(r.GuildID) })
		}
	}
}

// recordRetrying retries until the batch is recorded, or until its deliveries are due again anyway.
// recordRetrying makes only a few tries after ctx has ended, or if Postgres works and refuses the
// batch: other results are waiting to be recorded.
func (d *Deliverer) recordRetrying(ctx context.Context, batch []result) {
	lasting := context.WithoutCancel(ctx)
	pause, until := 50*time.Millisecond, time.Now().Add(recordTimeout)
	for try := 1; ; try++ {
		left, err := d.recordOnce(lasting, batch)
		if err == nil {
			return
		}
		batch = left
		if time.Now().After(until) || try >= fewTries && (ctx.Err() != nil || !db.Unavailable(err)) {
			d.log.Error("results of webhook deliveries could not be recorded; they will be sent again", "count", len(batch), "error", err)
			return
		}
		if d.quietly.Due("record", time.Now(), logging.Interval) {
			d.log.Warn("record results of webhook deliveries", "count", len(batch), "error", err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 2*time.Second)
	}
}

// recordOnce disables the endpoints that have answered 410 and records the batch. On an error, the
// returned results are not recorded and can be tried again.
func (d *Deliverer) recordOnce(ctx context.Context, batch []result) (left []result, err error) {
	n, err := d.disableGone(ctx, batch)
	if n == 0 {
		return batch, err
	}
	left, failed := d.writeOnce(ctx, batch[:n])
	return slices.Concat(left, batch[n:]), cmp.Or(failed, err)
}

// writeOnce records the batch. If the log cannot be written, the attempts are stored in the
// deliveries' own rows; if a single row still fails, the others are recorded without it.
func (d *Deliverer) writeOnce(ctx context.Context, batch []result) (left []result, err error) {
	err = d.write(ctx, batch, false)
	if err == nil {
		return nil, nil
	}
	if db.Unavailable(err) {
		return batch, err
	}
	d.log.Warn("webhook attempts could not be logged, they are put aside", "count", len(batch), "error", err)
	err = d.write(ctx, batch, true)
	if err == nil {
		return nil, nil
	}
	if db.Unavailable(err) || len(batch) == 1 {
		return batch, err
	}
	err = nil
	for i := range batch {
		row, refused := d.writeOnce(ctx, batch[i:i+1])
		left, err = append(left, row...), cmp.Or(refused, err)
	}
	return left, err
}

// disableGone disables the endpoints that answered 410, before their deliveries are recorded as
// held. If the URL has changed since, the answer came from the old receiver: that delivery is tried
// again. disableGone moves the results of endpoints that cannot be disabled to the end; n is the
// number of the others.
func (d *Deliverer) disableGone(ctx context.Context, batch []result) (n int, err error) {
	for i, r := range batch {
		if r.decision.Disable != "" {
			off, failed := d.disable(ctx, r.id(), r.decision.Disable, r.url)
			if failed != nil && db.Unavailable(failed) && !db.LockTimeout(failed) {
				return 0, failed
			}
			if failed != nil {
				err = cmp.Or(err, failed)
				continue
			}
			if !off {
				d.anew(&batch[i])
			}
		}
		batch[n], batch[i] = batch[i], batch[n]
		n++
	}
	return n, err
}

// whereNow is the statement of forgetPauses.
var whereNow = newStatement(`
		SELECT e.guild_id, e.id AS endpoint_id, e.url
		FROM (
			SELECT DISTINCT guild_id, endpoint_id
			FROM jsonb_to_recordset($1::jsonb) AS p (guild_id text, endpoint_id text)
		) p
		JOIN webhook_endpoints e ON e.guild_id = p.guild_id /*: $2 */ AND e.id = p.endpoint_id`)

// forgetPauses drops the pauses of endpoints whose URL has changed since the attempt: the old
// receiver asked for the pause, and the new receiver must not wait for it (at most a day). The
// schedules are locked, and a statement that has waited for a lock sees other tables as they were
// before: so this is a separate statement. A later change of the URL waits for the lock and ends
// the pause.
func (d *Deliverer) forgetPauses(ctx context.Context, tx *db.Tx, batch []result) error {
	quieting := func(r result) bool { return r.decision.Failing && r.decision.Quiet > 0 }
	asked := slices.DeleteFunc(slices.Clone(batch), func(r result) bool { return !quieting(r) })
	now := make(map[endpointID]string)
	err := run(whereNow, d.oneGuild, asked, func(r result) string { return r.GuildID }, func(query, in string, guild ...any) error {
		type place struct {
			GuildID    string `db:"guild_id"`
			EndpointID string `db:"endpoint_id"`
			URL        string `db:"url"`
		}
		rows, err := db.Select[place](ctx, tx, query, append([]any{in}, guild...)...)
		for _, e := range rows {
			now[endpointID{e.GuildID, e.EndpointID}] = e.URL
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("see where the endpoints of %d results are now: %w", len(asked), err)
	}
	for i, r := range batch {
		if url, there := now[r.id()]; there && url != r.url && quieting(r) {
			d.anew(&batch[i])
		}
	}
	return nil
}

// anew restarts the retry schedule of a delivery whose answer says nothing about the endpoint.
func (d *Deliverer) anew(r *result) {
	v := d.schedule.again(decision{State: StatePending, Step: r.Step, Logged: true, Outcome: r.Outcome}, d.jitter())
	r.decision, r.State, r.PauseMs = v, v.State, v.Pause.Milliseconds()
}

// disable disables an endpoint if the endpoint still has the URL that failed. disable reports
// whether the endpoint is disabled now.
func (d *Deliverer) disable(ctx context.Context, id endpointID, reason, url string) (off bool, err error) {
	var was bool
	err = d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		off = false
		was, err = db.Get[bool](ctx, tx, `
			SELECT enabled FROM webhook_endpoints
			WHERE guild_id = $1 AND id = $2 AND url = $3
			FOR NO KEY UPDATE`, id.guild, id.endpoint, url)
		if db.Missing(err) {
			return nil
		}
		if off = true; err != nil || !was {
			return err
		}
		return d.disableAndEmit(ctx, tx, id, url, reason)
	})
	if err != nil {
		return false, fault.Wrap(err, "disable endpoint", id.endpoint, "of guild", id.guild)
	}
	if off && was {
		d.log.Warn("webhook endpoint disabled", "guild", id.guild, "endpoint", id.endpoint, "reason", reason)
	}
	return off, nil
}

// disableAndEmit disables an endpoint for a reason of the service, and records that for the guild's
// other endpoints and in the guild's audit log, with name as the endpoint's name.
func (d *Deliverer) disableAndEmit(ctx context.Context, tx *db.Tx, id endpointID, name, reason string) error {
	if err := Disable(ctx, tx, id.guild, id.endpoint, reason); err != nil {
		return err
	}
	at, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	if err := d.emitToOthers(ctx, tx, id, event.WebhookDisabled, at); err != nil {
		return err
	}
	return audit.Record(ctx, tx, audit.Change{
		Guild: id.guild, Action: audit.WebhookDisabled, Target: id.endpoint, Name: name,
		Before: map[string]any{"enabled": true}, After: map[string]any{"enabled": false, "disabled_reason": reason},
	})
}

// write records a batch, with or without the log, together with the changes of the endpoints'
// schedules. If an endpoint succeeded, but another worker has found it failing since the claim, its
// schedule was not locked before the deliveries; such endpoints follow in a separate unit of work.
func (d *Deliverer) write(ctx context.Context, batch []result, putAside bool) error {
	began, now := time.Now(), d.now()
	var news []change
	var written stored
	err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		news, written, err = d.writeIn(ctx, tx, now, batch, putAside)
		return err
	})
	if err != nil {
		return err
	}
	d.metrics.recorded(len(batch)-written.Count, time.Since(began))
	d.react(ctx, news)
	return d.clear(ctx, now, batch, written.Unwell)
}

// writeIn is the unit of work of write.
func (d *Deliverer) writeIn(ctx context.Context, tx *db.Tx, now *time.Time, batch []result, putAside bool) (news []change, written stored, err error) {
	if err = planByIndex(ctx, tx); err != nil {
		return nil, written, err
	}
	held, err := lockToLearn(ctx, tx, d.oneGuild, now, relevant(batch))
	if err != nil {
		return nil, written, err
	}
	if err = d.forgetPauses(ctx, tx, batch); err != nil {
		return nil, written, err
	}
	if written, err = storeResults(ctx, tx, d.oneGuild, now, batch, putAside); err != nil {
		return nil, written, err
	}
	news = learn(held, slices.DeleteFunc(slices.Clone(batch), func(r result) bool { return slices.Contains(written.Late, r.ID) }), d.egressHealth.broken(d.time()))
	if err := store(ctx, tx, d.oneGuild, news); err != nil {
		return nil, written, err
	}
	return news, written, d.emit(ctx, tx, news)
}

// clear marks endpoints as healthy again that were found failing while their success was being
// recorded.
func (d *Deliverer) clear(ctx context.Context, now *time.Time, batch []result, unwell []endpointID) error {
	late := slices.DeleteFunc(slices.Clone(batch), func(r result) bool {
		return !r.decision.Healthy || r.suspect || !slices.Contains(unwell, r.id())
	})
	if len(late) == 0 {
		return nil
	}
	return d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		held, err := lockToLearn(ctx, tx, d.oneGuild, now, late)
		if err != nil {
			return err
		}
		news := learn(held, late, true)
		if err := store(ctx, tx, d.oneGuild, news); err != nil {
			return err
		}
		return d.emit(ctx, tx, news)
	})
}

// stored is the result of storeResults.
type stored struct {
	Count  int          // deliveries that still had the lease under which they were sent
	Late   []string     // the others: another result counts, or this result was already recorded
	Unwell []endpointID // endpoints with a success whose schedule says that they fail
}

// storeResultsSQL returns the statement of storeResults, with log as the step that writes the log;
// empty for no such step. A delivery is found by its primary key. The other conditions are inside a
// CASE, which the planner cannot use: with statistics from a time without waiting deliveries, the
// planner would otherwise choose the index of waiting deliveries and read all of it for each row.
// The CASE of a worker calls only immutable functions, so that a coordinator can pass the UPDATE
// on. The step counted adds completed deliveries and failed attempts to the hourly numbers of the
// endpoint, which the dashboard shows, so the numbers always agree with the log.
func storeResultsSQL(log string) string {
	return `
		WITH r AS MATERIALIZED (
			SELECT guild_id, id, endpoint_id, lease_gen, state, pause_ms, step, logged, later, started_at, duration_ms, outcome, status,
			       response_class, excerpt, error, reason
			FROM jsonb_to_recordset($2::jsonb) AS r (
				guild_id text, id text, endpoint_id text, lease_gen int, state text, pause_ms bigint, step int, logged boolean, later boolean,
				started_at timestamptz, duration_ms int, outcome text, status int, response_class text, excerpt text, error text, reason text)
		), timed AS MATERIALIZED (
			SELECT r.*, instant.at + r.pause_ms * interval '1 millisecond' AS due, coalesce($1::timestamptz, now()) AS completed,
			       CASE WHEN $3 AND r.logged THEN jsonb_build_array(to_jsonb(r)) END AS line
			FROM r, (SELECT coalesce($1::timestamptz, clock_timestamp()) AS at) instant
		), d AS (
			UPDATE webhook_deliveries d
			SET state = r.state, step = r.step, lease_until = NULL, fresh = false,
			    urgent = d.urgent AND NOT r.logged AND NOT r.later,
			    attempts = d.attempts + CASE WHEN r.logged THEN 1 ELSE 0 END,
			    lease_gen = CASE WHEN r.logged THEN d.lease_gen ELSE d.lease_gen - 1 END,
			    due_at = CASE WHEN r.state = 'pending' AND r.logged THEN r.due ELSE d.due_at END,
			    completed_at = CASE WHEN r.state IN ('delivered', 'failed') THEN r.completed END,
			    response_class = coalesce(r.response_class, d.response_class),
			    error = r.reason,
			    unlogged = CASE WHEN r.line IS NOT NULL THEN coalesce(d.unlogged, '[]') || r.line ELSE d.unlogged END
			FROM timed r
			WHERE d.guild_id = r.guild_id /*: $4 */ AND d.id = r.id
			  AND d.lease_gen = r.lease_gen AND CASE WHEN d.state = 'pending' THEN d.lease_until IS NOT NULL END
			RETURNING d.guild_id, d.id, d.endpoint_id, d.completed_at, r.completed AS at,
			          CASE WHEN d.completed_at IS NULL THEN 'open' ELSE d.state END AS outcome,
			          r.logged AND r.outcome NOT IN ('delivered', 'invalid_payload', 'internal') AS attempt_failed
		), counted AS (
			INSERT INTO webhook_hours AS h (guild_id, endpoint_id, hour, outcome, deliveries, last_at, failed_attempts)
			SELECT d.guild_id /*: home.id */, d.endpoint_id, date_trunc('hour', d.at), d.outcome, count(d.completed_at), max(d.completed_at),
			       count(*) FILTER (WHERE d.attempt_failed)
			FROM d /*: d JOIN guilds home ON home.id = $4 */
			WHERE d.completed_at IS NOT NULL OR d.attempt_failed
			GROUP BY d.guild_id /*: home.id */, d.endpoint_id, date_trunc('hour', d.at), d.outcome
			ORDER BY d.guild_id /*: home.id */, d.endpoint_id, date_trunc('hour', d.at), d.outcome
			` + addToHour + `
		)` + log + `
		SELECT (SELECT count(*) FROM d) AS stored,
		       coalesce((SELECT jsonb_agg(r.id) FROM r WHERE r.id NOT IN (SELECT id FROM d)), '[]') AS late,
		       coalesce((
		           SELECT jsonb_agg(jsonb_build_object('guild_id', s.guild_id, 'endpoint_id', s.endpoint_id))
		           FROM (SELECT DISTINCT guild_id, endpoint_id FROM r WHERE state = 'delivered') ok
		           JOIN webhook_schedule s ON s.guild_id = ok.guild_id /*: $4 */ AND s.endpoint_id = ok.endpoint_id
		           WHERE s.failing_since IS NOT NULL), '[]') AS unwell`
}

// addToHour ends an INSERT INTO webhook_hours AS h: addToHour adds to an existing row.
const addToHour = `ON CONFLICT (guild_id, endpoint_id, hour, outcome) DO UPDATE
			SET deliveries = h.deliveries + excluded.deliveries, last_at = greatest(h.last_at, excluded.last_at),
			    failed_attempts = h.failed_attempts + excluded.failed_attempts`

// logStep is the step that writes the log, a separate table. If the log cannot be written, the
// attempts are stored in the deliveries' own rows, and moveUnlogged moves them later. An attempt of
// a claim that did not commit is left out: the next claim has the same attempt number.
const logStep = `, a AS (
			INSERT INTO webhook_attempts (guild_id, delivery_id, number, started_at, duration_ms, outcome, status, excerpt, error)
			SELECT r.guild_id /*: home.id */, r.id, r.lease_gen, r.started_at, r.duration_ms, r.outcome, r.status, r.excerpt, r.error
			FROM r /*: r JOIN guilds home ON home.id = $4 */
			JOIN webhook_deliveries w ON w.guild_id = r.guild_id /*: home.id */ AND w.id = r.id
			WHERE r.logged AND w.lease_gen >= r.lease_gen
			ON CONFLICT DO NOTHING
		)`

var (
	storeLogged   = newStatement(storeResultsSQL(logStep))
	storePutAside = newStatement(storeResultsSQL(""))
)

// storeResults records a batch of results in one statement: the new state of each delivery that
// still has the lease under which it was sent, and the log of each attempt, or the attempt in the
// delivery's own row. One statement keeps log and state consistent. A result that comes too late
// changes only the log.
func storeResults(ctx context.Context, tx *db.Tx, oneGuild bool, now *time.Time, batch []result, putAside bool) (out stored, err error) {
	how := storeLogged
	if putAside {
		how = storePutAside
	}
	err = run(how, oneGuild, batch, func(r result) string { return r.GuildID }, func(query, in string, guild ...any) error {
		type outcome struct {
			Stored int    `db:"stored"`
			Late   []byte `db:"late"`
			Unwell []byte `db:"unwell"`
		}
		row, err := db.Get[outcome](ctx, tx, query, append([]any{now, in, putAside}, guild...)...)
		if err != nil {
			return err
		}
		var late []string
		var unwell []order
		if err := errors.Join(json.Unmarshal(row.Unwell, &unwell), json.Unmarshal(row.Late, &late)); err != nil {
			return fault.Wrap(err, "read which endpoints fail, and what came too late")
		}
		out.Late = append(out.Late, late...)
		out.Count += row.Stored
		for _, e := range unwell {
			out.Unwell = append(out.Unwell, endpointID{e.GuildID, e.EndpointID})
		}
		return nil
	})
	if err != nil {
		return stored{}, fmt.Errorf("record %d results: %w", len(batch), err)
	}
	return out, nil
}
