package delivery

import (
	"cmp"
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// lease is longer than an attempt can take. When the lease of a delivery expires, another claim
	// may lease the delivery: nothing else is needed to recover the deliveries of a dead worker.
	lease = 20 * time.Second

	// claimSize bounds the endpoints of one poll, the sends of one claim, and the results of one
	// batch.
	claimSize = 64

	// parkSize bounds how many due deliveries one claim moves into the queue. The claim locks the
	// schedule rows meanwhile, and other claims wait for those locks.
	parkSize = 100
)

// The lanes of endpoints, as webhook_schedule computes them.
const (
	laneUrgent  = iota // has urgent deliveries
	laneWell           // the last attempt succeeded
	laneFailing        // the last attempt failed, and the endpoint has not been blocked since
	laneBlocked        // the endpoint has been blocked and has not answered since
	laneClosed         // the endpoint is disabled or deleted
)

// candidate is an endpoint that a poll has found: the endpoint has fresh deliveries, or its
// schedule is due.
type candidate struct {
	GuildID    string `db:"guild_id" json:"guild_id"`
	EndpointID string `db:"endpoint_id" json:"endpoint_id"`
	Lane       int    `db:"lane" json:"-"`
	Fresh      bool   `db:"fresh" json:"-"` // has fresh deliveries or expired leases
	Known      bool   `db:"known" json:"-"` // has a schedule
	Woken      bool   `db:"woken" json:"-"` // Wake was called for the guild

	take int // sends granted by the limiter
}

func (c *candidate) id() endpointID { return endpointID{c.GuildID, c.EndpointID} }

// sendable reports whether the limiter may grant sends to the endpoint.
func (c *candidate) sendable() bool { return c.Known && c.Lane < laneClosed }

// toQueue reports whether a claim moves the fresh deliveries of the endpoint into the queue when
// the limiter grants it no sends. A healthy endpoint only has no free slot now, so its deliveries
// stay fresh.
func (c *candidate) toQueue() bool {
	return c.Fresh && (!c.Known || c.Lane > laneWell)
}

// pollGuildsSQL is the statement of pollGuilds. With EXISTS, Postgres would first read all fresh
// deliveries.
var pollGuildsSQL = newStatement(`
		SELECT s.guild_id, s.endpoint_id, s.lane, w.fresh IS NOT NULL AS fresh, true AS known, true AS woken
		FROM jsonb_array_elements_text($2::jsonb) AS g (guild_id)
		JOIN webhook_schedule s ON s.guild_id = g.guild_id /*: $3 */
		LEFT JOIN LATERAL (
			SELECT w.fresh
			FROM webhook_deliveries w
			WHERE w.fresh AND w.state = 'pending' AND w.guild_id = s.guild_id /*: $3 */ AND w.endpoint_id = s.endpoint_id
			LIMIT 1
		) w ON true
		WHERE w.fresh OR s.next_due <= coalesce($1::timestamptz, now())`)

// pollGuilds finds the endpoints of the given guilds that have fresh deliveries or are due.
// pollGuilds takes no locks.
func pollGuilds(ctx context.Context, q db.Querier, oneGuild bool, now *time.Time, guilds []string) (found []*candidate, err error) {
	err = run(pollGuildsSQL, oneGuild, guilds, func(g string) string { return g }, func(query, in string, guild ...any) error {
		some, err := db.Select[*candidate](ctx, q, query, append([]any{now, in}, guild...)...)
		found = append(found, some...)
		return err
	})
	return found, fault.Wrap(err, "look at guilds")
}

// withFresh begins a statement that reads the table fresh: the first $3 endpoints after ($1, $2)
// that have fresh deliveries, however many deliveries each has.
const withFresh = `
		WITH RECURSIVE fresh AS (
			(
				SELECT guild_id, endpoint_id, 1 AS n
				FROM webhook_deliveries
				WHERE fresh AND state = 'pending' AND (guild_id, endpoint_id) > ($1, $2)
				ORDER BY guild_id, endpoint_id
				LIMIT 1
			)
			UNION ALL
			SELECT next.guild_id, next.endpoint_id, f.n + 1
			FROM fresh f
			CROSS JOIN LATERAL (
				SELECT w.guild_id, w.endpoint_id
				FROM webhook_deliveries w
				WHERE w.fresh AND w.state = 'pending' AND (w.guild_id, w.endpoint_id) > (f.guild_id, f.endpoint_id)
				ORDER BY w.guild_id, w.endpoint_id
				LIMIT 1
			) next
			WHERE f.n < $3
		)`

// pollAll finds the endpoints that may have something to send, whichever node recorded or leased
// it: the due endpoints of each lane, those due the longest first, without the endpoints in full;
// endpoints with fresh deliveries, beginning after the given endpoint; and endpoints with expired
// leases. pollAll takes no locks and reads at most claimSize index entries of each kind, however
// many endpoints and deliveries are waiting.
func pollAll(ctx context.Context, q db.Querier, now *time.Time, after endpointID, full []string) ([]*candidate, error) {
	found, err := db.Select[*candidate](ctx, q, withFresh+`, expired AS (
			SELECT guild_id, endpoint_id
			FROM webhook_deliveries
			WHERE lease_until <= coalesce($4::timestamptz, now()) AND state = 'pending'
			ORDER BY lease_until
			LIMIT $3
		)
		SELECT d.guild_id, d.endpoint_id, lanes.lane, false AS fresh, true AS known
		FROM generate_series(0, 3) AS lanes (lane)
		CROSS JOIN LATERAL (
			SELECT s.guild_id, s.endpoint_id
			FROM webhook_schedule s
			WHERE s.lane = lanes.lane AND s.next_due <= coalesce($4::timestamptz, now()) AND s.endpoint_id NOT IN (SELECT unnest($5::text[]))
			ORDER BY s.next_due
			LIMIT $3
		) d
		UNION ALL
		SELECT f.guild_id, f.endpoint_id, coalesce(s.lane, 1), true, s.lane IS NOT NULL
		FROM (SELECT guild_id, endpoint_id FROM fresh UNION SELECT guild_id, endpoint_id FROM expired) f
		LEFT JOIN LATERAL (
			SELECT s.lane
			FROM webhook_schedule s
			WHERE s.guild_id = f.guild_id AND s.endpoint_id = f.endpoint_id
			LIMIT 1
		) s ON true
		ORDER BY 1, 2, fresh`, after.guild, after.endpoint, claimSize, now, db.Array(full))
	if err != nil {
		return nil, fault.Wrap(err, "look for what is due")
	}
	return merge(found), nil
}

// merge makes one candidate of two adjacent candidates of the same endpoint.
func merge(found []*candidate) []*candidate {
	out := found[:0]
	for _, c := range found {
		if last := len(out) - 1; last >= 0 && out[last].id() == c.id() {
			out[last].Fresh, out[last].Woken = out[last].Fresh || c.Fresh, out[last].Woken || c.Woken
			continue
		}
		out = append(out, c)
	}
	return out
}

// schedule is an endpoint's row of webhook_schedule.
type schedule struct {
	GuildID     string     `db:"guild_id"`
	EndpointID  string     `db:"endpoint_id"`
	Disposition string     `db:"disposition"`
	Urgent      bool       `db:"urgent"`
	Lane        int        `db:"lane"`
	NextDue     *time.Time `db:"next_due"`
	RecoveredAt *time.Time `db:"recovered_at"`     // the due_at of the deliveries that Recover has queued; nil if none of them is waiting
	Passes      bool       `db:"recovered_passes"` // the recovered deliveries ignore a block and a pause
	ReportedAt  *time.Time `db:"reported_at"`      // when webhook.failing was last emitted
	Now         time.Time  `db:"now"`
	health
}

// scheduleColumns are the columns of webhook_schedule that a schedule is read from.
const scheduleColumns = `s.guild_id, s.endpoint_id, s.disposition, s.urgent, s.lane, s.next_due, s.recovered_at, s.recovered_passes,
	       s.failures, s.refusals, s.refused_at, s.blocks, s.blocked_until, s.quiet_until, s.failing_since, s.failed_attempts, s.warned, s.reported,
	       s.reported_at`

func compareIDs(a, b endpointID) int {
	return cmp.Or(cmp.Compare(a.guild, b.guild), cmp.Compare(a.endpoint, b.endpoint))
}

func (s schedule) id() endpointID { return endpointID{s.GuildID, s.EndpointID} }

// lockSchedules is the statement of lockIdle. Its settings apply to the later statements of the
// same transaction, too.
var lockSchedules = newStatement(`
		SELECT s.*, coalesce($1::timestamptz, now()) AS now
		FROM (SELECT set_config('synchronous_commit', 'off', true) || ` + byIndex + ` AS done) AS settings
		CROSS JOIN jsonb_to_recordset($2::jsonb) AS p (guild_id text, endpoint_id text)
		CROSS JOIN LATERAL (
			SELECT ` + scheduleColumns + `
			FROM webhook_schedule s
			WHERE s.guild_id = p.guild_id /*: $3 */ AND s.endpoint_id = p.endpoint_id
			FOR NO KEY UPDATE SKIP LOCKED
		) s
		WHERE settings.done <> ''`)

// lockIdle locks the schedules of endpoints for a claim, except schedules that another transaction
// has locked, and creates missing schedules: those of endpoints that a node of the previous release
// has registered.
//
// The commit of a claim does not wait for the disk: if a crash of the database loses a lease, the
// delivery is only sent twice, with the same id.
func lockIdle(ctx context.Context, tx *db.Tx, oneGuild bool, now *time.Time, of []*candidate) ([]schedule, error) {
	for _, c := range of {
		if c.Known {
			continue
		}
		if _, err := db.Exec(ctx, tx, `
			INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition)
			SELECT $1, $2, coalesce((
				SELECT CASE WHEN NOT e.enabled THEN 'hold' WHEN e.delivery = 'pull' THEN 'pull' ELSE 'send' END
				FROM webhook_endpoints e
				WHERE e.guild_id = $1 AND e.id = $2), 'drop')
			ON CONFLICT DO NOTHING`, c.GuildID, c.EndpointID); err != nil {
			return nil, fault.Wrap(err, "make the schedule of endpoint", c.EndpointID)
		}
	}
	var rows []schedule
	err := run(lockSchedules, oneGuild, of, func(c *candidate) string { return c.GuildID }, func(query, in string, guild ...any) error {
		held, err := db.Select[schedule](ctx, tx, query, append([]any{now, in}, guild...)...)
		rows = append(rows, held...)
		return err
	})
	return rows, fault.Wrap(err, "lock schedules")
}

// Which of an endpoint's deliveries a claim may take.
const (
	takeAll    = "all"
	takeUrgent = "urgent" // only tests and redeliveries: the endpoint is blocked or paused, or they are sent first
	takeTurns  = "turns"  // tests and redeliveries, then recovered deliveries and all others in turn
	takePassed = "passed" // tests, redeliveries and recovered deliveries: the endpoint is blocked or paused
	takeTests  = "tests"  // only tests: the endpoint is disabled
	takeNone   = "none"   // nothing: the endpoint is deleted
)

// order says which deliveries of one endpoint a claim takes. The claim has locked the endpoint's
// schedule.
type order struct {
	GuildID    string     `json:"guild_id"`
	EndpointID string     `json:"endpoint_id"`
	Mode       string     `json:"mode"`
	Take       int        `json:"take"`
	NotBefore  *time.Time `json:"not_before"`

	RecoveredAt    *time.Time `json:"recovered_at"`
	Passes         bool       `json:"passes"`
	RecoveredFirst bool       `json:"recovered_first"` // recovered deliveries are first in turn
}

// order decides which deliveries of an endpoint a claim takes when the limiter has granted it take
// sends.
func (s schedule) order(take int) order {
	o := order{GuildID: s.GuildID, EndpointID: s.EndpointID, Mode: takeAll, Take: take, RecoveredAt: s.RecoveredAt, Passes: s.Passes}
	closed, wait := s.Disposition != "send", s.notBefore()
	passing, waits := s.RecoveredAt != nil && s.Passes, wait.After(s.Now)
	switch {
	case s.Disposition == "drop":
		o.Mode, o.Take = takeNone, 0
	case closed:
		o.Mode = takeTests
	case passing && waits:
		o.Mode = takePassed
	case s.RecoveredAt != nil && (passing || !s.Urgent && !waits):
		o.Mode = takeTurns
	case s.Urgent:
		o.Mode = takeUrgent
	}
	if !closed && waits {
		o.NotBefore = &wait
	}
	if !s.Urgent && (closed || waits && !passing) {
		o.Take = 0
	}
	return o
}

// claimed is one delivery that this worker has leased, with all data needed to send the delivery.
// URL is nil if the endpoint is deleted.
type claimed struct {
	GuildID    string    `db:"guild_id"`
	ID         string    `db:"id"`
	EndpointID string    `db:"endpoint_id"`
	EventID    string    `db:"event_id"`
	Cause      string    `db:"cause"`
	Attempts   int       `db:"attempts"`
	Step       int       `db:"step"`
	LeaseGen   int       `db:"lease_gen"`
	Expired    bool      `db:"expired"` // an earlier lease has expired: its worker died or was frozen
	Recovered  bool      `db:"recovered"`
	More       bool      `db:"more"` // the endpoint has more due deliveries
	Type       string    `db:"type"`
	OccurredAt time.Time `db:"occurred_at"`
	Payload    []byte    `db:"payload"` // nil if the event is deleted
	Trace      string    `db:"trace"`   // traceparent of the request that recorded the event; empty if unknown
	URL        *string   `db:"url"`
	Enabled    *bool     `db:"enabled"`
	Secret     []byte    `db:"secret"`
	OldSecrets []byte    `db:"old_secrets"`

	RecoveredAt *time.Time // recovered_at of the endpoint, if Recover has queued this delivery

	Lane    int        // lane of the endpoint
	Quiet   *time.Time // end of the endpoint's pause, as the claim knew it
	Suspect bool       // the endpoint was not healthy
	Now     time.Time  // time of the database at the claim
	Locked  time.Time  // time of this node before the claim
}

func (c claimed) id() endpointID { return endpointID{c.GuildID, c.EndpointID} }

// inTurn selects the deliveries of an endpoint if order o takes more than the due ones by time:
// first tests, then redeliveries, then alternately a recovered delivery and another one, each kind
// in its own order. All recovered deliveries have the same due_at, so the statement finds the
// others before and after that due_at, however many recovered deliveries there are.
const inTurn = `SELECT x.id, x.lease_until, x.recovered
				FROM (
					(
						SELECT w.id, w.lease_until, 0 AS turn, false AS recovered
						FROM webhook_deliveries w
						WHERE w.urgent AND w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
						  AND (o.mode <> 'tests' OR w.cause = 'test')
						  AND (w.lease_until IS NULL OR w.lease_until <= $1)
						ORDER BY w.cause = 'test' DESC, w.due_at, w.id
						LIMIT o.take
					)
					UNION ALL
					SELECT r.id, r.lease_until, 2 * row_number() OVER (ORDER BY r.id) - o.recovered_first::int, true
					FROM (
						SELECT w.id, w.lease_until
						FROM webhook_deliveries w
						WHERE o.mode IN ('turns', 'passed') AND w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
						  AND w.due_at = o.recovered_at AND NOT w.urgent
						  AND (w.lease_until IS NULL OR w.lease_until <= $1)
						ORDER BY w.due_at, w.id
						LIMIT o.take
					) r
					UNION ALL
					SELECT l.id, l.lease_until, 2 * row_number() OVER (ORDER BY l.due_at, l.id) - 1 + o.recovered_first::int, false
					FROM (
						(
							SELECT w.id, w.lease_until, w.due_at
							FROM webhook_deliveries w
							WHERE o.mode = 'turns' AND w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
							  AND w.due_at <= $1 AND w.due_at < o.recovered_at AND NOT w.urgent
							  AND (w.lease_until IS NULL OR w.lease_until <= $1)
							ORDER BY w.due_at, w.id
							LIMIT o.take
						)
						UNION ALL
						(
							SELECT w.id, w.lease_until, w.due_at
							FROM webhook_deliveries w
							WHERE o.mode = 'turns' AND w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
							  AND w.due_at <= $1 AND w.due_at > o.recovered_at AND NOT w.urgent
							  AND (w.lease_until IS NULL OR w.lease_until <= $1)
							ORDER BY w.due_at, w.id
							LIMIT o.take
						)
					) l
				) x
				ORDER BY x.turn
				LIMIT o.take`

// takeDeliveries is the statement of take. A queued delivery changes only under the lock of its
// schedule. A delivery with an expired lease can only change when the late result of its worker is
// recorded, and that ends the lease: so it is enough to compare the lease to see that a delivery is
// unchanged since it was found. Each event is looked up on its own: Postgres assumes one delivery
// and a hundred endpoints, and would otherwise read all events of the guild for each delivery.
var takeDeliveries = newStatement(`
		WITH o AS MATERIALIZED (
			SELECT guild_id, endpoint_id, mode, take, not_before, recovered_at, passes, recovered_first
			FROM jsonb_to_recordset($2::jsonb) AS o (
				guild_id text, endpoint_id text, mode text, take int, not_before timestamptz,
				recovered_at timestamptz, passes boolean, recovered_first boolean)
		), due AS MATERIALIZED (
			SELECT o.guild_id, w.id, w.lease_until, false AS recovered
			FROM o
			CROSS JOIN LATERAL (
				SELECT w.id, w.lease_until
				FROM webhook_deliveries w
				WHERE w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
				  AND w.due_at <= $1 AND (w.lease_until IS NULL OR w.lease_until <= $1)
				ORDER BY w.due_at, w.id
				LIMIT o.take
			) w
			WHERE o.mode = 'all'
			UNION ALL
			SELECT o.guild_id, w.id, w.lease_until, w.recovered
			FROM o
			CROSS JOIN LATERAL (
				` + inTurn + `
			) w
			WHERE o.mode IN ('urgent', 'tests', 'turns', 'passed')
		), leased AS (
			UPDATE webhook_deliveries d
			SET lease_until = $1 + $3 * interval '1 second', lease_gen = d.lease_gen + 1, fresh = false
			FROM due
			WHERE d.guild_id = due.guild_id /*: $5 */ AND d.id = due.id AND d.lease_until IS NOT DISTINCT FROM due.lease_until
			RETURNING d.guild_id, d.id, d.endpoint_id, d.event_id, d.event_type, d.event_at, d.cause, d.attempts, d.step, d.lease_gen,
			          due.lease_until IS NOT NULL AS expired, due.recovered
		), parked AS (
			UPDATE webhook_deliveries d
			SET fresh = false, lease_until = NULL
			FROM (
				SELECT o.guild_id, w.id, w.lease_until
				FROM o
				CROSS JOIN LATERAL (
					SELECT w.id, w.lease_until
					FROM webhook_deliveries w
					WHERE w.fresh AND w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
					  AND (w.lease_until IS NULL OR w.lease_until <= $1)
					LIMIT $4
				) w
				WHERE o.take = 0
				UNION
				SELECT o.guild_id, w.id, w.lease_until
				FROM o
				JOIN (
					SELECT guild_id, endpoint_id, id, lease_until
					FROM webhook_deliveries
					WHERE guild_id IN (SELECT guild_id FROM o) /*: ($5) */ AND lease_until <= $1 AND state = 'pending'
					ORDER BY lease_until
					LIMIT $4
				) w ON w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
				WHERE NOT EXISTS (SELECT FROM due WHERE due.guild_id = w.guild_id /*: $5 */ AND due.id = w.id)
				LIMIT $4
			) p
			WHERE d.guild_id = p.guild_id /*: $5 */ AND d.id = p.id AND d.lease_until IS NOT DISTINCT FROM p.lease_until
		), rest AS MATERIALIZED (
			SELECT o.guild_id, o.endpoint_id, o.not_before, o.mode IN ('tests', 'none') AS closed,
			       o.mode <> 'none' AND EXISTS (
			           SELECT FROM webhook_deliveries w
			           WHERE w.urgent AND w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
			             AND (o.mode <> 'tests' OR w.cause = 'test')
			             AND (w.lease_until IS NULL OR w.lease_until <= $1)
			             AND NOT EXISTS (SELECT FROM due WHERE due.guild_id = w.guild_id /*: $5 */ AND due.id = w.id)) AS urgent,
			       o.mode NOT IN ('tests', 'none') AND o.recovered_at IS NOT NULL AND EXISTS (
			           SELECT FROM webhook_deliveries w
			           WHERE w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id AND w.due_at = o.recovered_at
			             AND (w.lease_until IS NULL OR w.lease_until <= $1)
			             AND NOT EXISTS (SELECT FROM due WHERE due.guild_id = w.guild_id /*: $5 */ AND due.id = w.id)) AS recovers,
			       o.recovered_at, o.passes, (
			           SELECT w.due_at
			           FROM webhook_deliveries w
			           WHERE w.state = 'pending' AND w.guild_id = o.guild_id /*: $5 */ AND w.endpoint_id = o.endpoint_id
			             AND (w.lease_until IS NULL OR w.lease_until <= $1)
			             AND NOT EXISTS (SELECT FROM due WHERE due.guild_id = w.guild_id /*: $5 */ AND due.id = w.id)
			           ORDER BY w.due_at, w.id
			           LIMIT 1
			       ) AS due_at
			FROM o
		), plan AS (
			SELECT guild_id, endpoint_id, urgent OR recovers AND passes AS urgent,
			       CASE WHEN urgent OR recovers AND passes OR closed THEN $1 WHEN due_at IS NOT NULL THEN greatest(due_at, not_before, $1) END AS next_due,
			       CASE WHEN recovers THEN recovered_at END AS recovered_at, recovers AND passes AS passes
			FROM rest
		), planned AS (
			UPDATE webhook_schedule s
			SET urgent = plan.urgent, next_due = plan.next_due, recovered_at = plan.recovered_at, recovered_passes = plan.passes
			FROM plan
			WHERE s.guild_id = plan.guild_id /*: $5 */ AND s.endpoint_id = plan.endpoint_id
			  AND (s.urgent, s.next_due, s.recovered_at, s.recovered_passes)
			      IS DISTINCT FROM (plan.urgent, plan.next_due, plan.recovered_at, plan.passes)
		)
		SELECT l.guild_id, l.id, l.endpoint_id, l.event_id, l.cause, l.attempts, l.step, l.lease_gen, l.expired, l.recovered,
		       coalesce(plan.next_due <= $1, false) AS more,
		       coalesce(ev.type, l.event_type, '') AS type, coalesce(ev.occurred_at, l.event_at, $1) AS occurred_at, ev.payload, coalesce(ev.trace, '') AS trace,
		       e.url, e.enabled, e.secret, e.old_secrets
		FROM leased l
		JOIN plan ON plan.guild_id = l.guild_id /*: $5 */ AND plan.endpoint_id = l.endpoint_id
		LEFT JOIN LATERAL (
			SELECT type, occurred_at, payload, trace FROM webhook_events WHERE guild_id = l.guild_id /*: $5 */ AND id = l.event_id OFFSET 0
		) ev ON true
		LEFT JOIN webhook_endpoints e ON e.guild_id = l.guild_id /*: $5 */ AND e.id = l.endpoint_id`)

// take leases the deliveries that the orders ask for, those due the longest first. take moves into
// the queue the fresh deliveries of endpoints that get no sends, and deliveries left by a dead
// worker, so that later polls do not find them again and again. take also stores when each endpoint
// is next due: a disabled or deleted endpoint at once, because its waiting deliveries may not be
// updated yet. The other fresh deliveries of an endpoint stay fresh: queueing many deliveries costs
// more than sending them. An earlier statement has locked the endpoint's schedule, so this
// statement sees every delivery that was queued for the endpoint.
func take(ctx context.Context, tx *db.Tx, oneGuild bool, now time.Time, lease time.Duration, orders []order) ([]claimed, error) {
	var rows []claimed
	err := run(takeDeliveries, oneGuild, orders, func(o order) string { return o.GuildID }, func(query, in string, guild ...any) error {
		leased, err := db.Select[claimed](ctx, tx, query, append([]any{now, in, lease.Seconds(), parkSize}, guild...)...)
		rows = append(rows, leased...)
		return err
	})
	return rows, fault.Wrap(err, "lease deliveries")
}
