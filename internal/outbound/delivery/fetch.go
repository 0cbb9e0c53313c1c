package delivery

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

// A delivery that waits for a pull endpoint is never fresh, never urgent and never leased by a
// worker. The schedule of a pull endpoint has the disposition pull and is never due, so no poll,
// claim or repair finds the delivery. A fetch leases the delivery by its due_at alone, which lies
// in the future until the lease ends; lease_gen counts the fetches. Holding, releasing and dropping
// work as for every other endpoint.

const (
	// pullBytes bounds the size of the events in one response to a fetch, with the JSON around
	// them.
	pullBytes = 1<<20 - 256

	// fetchNoted is the precision with which the last fetch of an endpoint is stored.
	fetchNoted = time.Minute

	// unfetchedFor is the time without a fetch after which a pull endpoint is disabled.
	unfetchedFor = 7 * 24 * time.Hour

	// UnfetchedWarning is the time without a fetch after which operators are warned.
	UnfetchedWarning = 3 * 24 * time.Hour
)

// Fetched is the result of a fetch: the leased events.
type Fetched struct {
	Events [][]byte // the stored payloads, byte for byte
	More   bool     // more events can be fetched now
	// Complete is the instant since which the endpoint has lost none of its events: the commit of
	// its registration or of its enabling, or 30 days ago.
	Complete time.Time
	Stream   string // id of the stream; empty if the events belong to an endpoint

	bytes int
}

// JSON returns the response of the API. It holds the events as they are stored, byte for byte.
func (f Fetched) JSON() []byte {
	var b bytes.Buffer
	b.WriteString(`{"data":[`)
	b.Write(bytes.Join(f.Events, []byte(`,`)))
	fmt.Fprintf(&b, `],"has_more":%t,"complete_since":%q}`, f.More, wire.At(f.Complete))
	return b.Bytes()
}

// WriteJSON writes the response of the API.
func (f Fetched) WriteJSON(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(f.JSON())
	return err
}

// FetchOptions are the parameters of a fetch.
type FetchOptions struct {
	Limit int           // maximum of events
	Lease time.Duration // how long the events are leased
	Wait  time.Duration // how long the caller waits if there is no event
}

// NewFetchOptions returns the parameters of a request, with the default for each nil. lease and
// wait are in seconds.
func NewFetchOptions(limit, lease, wait *int) FetchOptions {
	a := FetchOptions{Limit: 100, Lease: time.Minute}
	if limit != nil {
		a.Limit = *limit
	}
	if lease != nil {
		a.Lease = time.Duration(*lease) * time.Second
	}
	if wait != nil {
		a.Wait = time.Duration(*wait) * time.Second
	}
	return a
}

// waiting is a delivery that a fetch has found.
type waiting struct {
	ID      string `db:"id"`
	Bytes   int    `db:"bytes"`
	Expired bool   `db:"expired"` // the event is older than the retention
}

// findWaiting finds the deliveries of an endpoint that can be fetched, in order, and locks them.
// The statement skips events that another caller is fetching. Each event is looked up on its own,
// as in takeDeliveries.
const findWaiting = `
	WITH due AS MATERIALIZED (
		SELECT w.id, w.event_id, w.event_at, w.due_at
		FROM webhook_deliveries w
		WHERE w.guild_id = $1 AND w.endpoint_id = $2 AND w.state = 'pending' AND w.due_at <= $3
		ORDER BY w.due_at, w.id
		LIMIT $4
		FOR NO KEY UPDATE SKIP LOCKED
	)
	SELECT due.id, coalesce(octet_length(v.payload), 0) AS bytes, v.id IS NULL OR due.event_at < $5 AS expired
	FROM due
	LEFT JOIN LATERAL (SELECT id, payload FROM webhook_events WHERE guild_id = $1 AND id = due.event_id OFFSET 0) v ON true
	ORDER BY due.due_at, due.id`

// leaseWaiting leases the deliveries to a caller until $3.
const leaseWaiting = `
	WITH leased AS (
		UPDATE webhook_deliveries d
		SET due_at = $3, lease_gen = d.lease_gen + 1
		WHERE d.guild_id = $1 AND d.id = ANY ($2)
		RETURNING d.event_id
	)
	SELECT v.payload
	FROM leased
	CROSS JOIN LATERAL (SELECT id, occurred_at, payload FROM webhook_events WHERE guild_id = $1 AND id = leased.event_id OFFSET 0) v
	ORDER BY v.occurred_at, v.id`

// Fetch leases the oldest waiting events of a pull endpoint that nobody has leased, at most limit,
// and stores who has fetched. Fetch returns no events for a disabled endpoint.
func Fetch(ctx context.Context, tx *db.Tx, guild, endpoint, by string, limit int, lease time.Duration) (Fetched, error) {
	return fetch(ctx, tx, nil, guild, endpoint, by, limit, lease)
}

func fetch(ctx context.Context, tx *db.Tx, at *time.Time, guild, endpoint, by string, limit int, lease time.Duration) (out Fetched, err error) {
	type schedule struct {
		Disposition string    `db:"disposition"`
		Note        bool      `db:"note"`
		Complete    time.Time `db:"complete"`
		Oldest      time.Time `db:"oldest"`
		Now         time.Time `db:"now"`
	}
	// statement_timestamp() is used here, and not the transaction's time: every event recorded
	// before the statement started is due by then, so no caller waits for such an event.
	s, err := db.Get[schedule](ctx, tx, `
		SELECT s.disposition, n.now, n.now - $5 * interval '1 second' AS oldest, greatest(coalesce(s.complete_since, $3, clock_timestamp()), n.now - $5 * interval '1 second') AS complete,
		       s.fetched_by IS NULL OR s.complete_since IS NULL OR s.fetched_at < n.now - $4 * interval '1 second' AS note
		FROM (SELECT coalesce($3::timestamptz, statement_timestamp()) AS now, `+byIndexOrder+` AS done) AS n
		CROSS JOIN webhook_schedule s
		WHERE s.guild_id = $1 AND s.endpoint_id = $2 AND n.done <> ''`, guild, endpoint, at, fetchNoted.Seconds(), keep.Seconds())
	if err != nil {
		return out, fault.Wrap(err, "read the schedule of endpoint", endpoint, "of guild", guild)
	}
	out.Complete = s.Complete
	if s.Disposition != "pull" {
		return out, nil
	}
	if s.Note {
		if _, err := db.Exec(ctx, tx, `
			UPDATE webhook_schedule
			SET fetched_at = $3, fetched_by = $4, complete_since = coalesce(complete_since, $5)
			WHERE guild_id = $1 AND endpoint_id = $2`, guild, endpoint, s.Now, by, s.Complete); err != nil {
			return out, fault.Wrap(err, "note who fetches from endpoint", endpoint, "of guild", guild)
		}
	}
	found, err := db.Select[waiting](ctx, tx, findWaiting, guild, endpoint, s.Now, limit+1, s.Oldest)
	if err != nil {
		return out, fault.Wrap(err, "find what waits for endpoint", endpoint, "of guild", guild)
	}
	ids, expired, more := choose(found, limit)
	if len(expired) > 0 {
		if err := expire(ctx, tx, guild, expired, StatePending, at); err != nil {
			return out, fault.Wrap(err, "give up what has waited too long for endpoint", endpoint, "of guild", guild)
		}
	}
	if out.More = more; len(ids) == 0 {
		return out, nil
	}
	out.Events, err = db.Select[[]byte](ctx, tx, leaseWaiting, guild, db.Array(ids), s.Now.Add(lease))
	return out, fault.Wrap(err, "lease what waits for endpoint", endpoint, "of guild", guild)
}

// choose takes at most limit of the found deliveries, as long as they fit into one response. choose
// returns the expired deliveries separately. A single event always fits.
func choose(found []waiting, limit int) (ids, expired []string, more bool) {
	bytes := 0
	for _, w := range found {
		switch {
		case w.Expired:
			expired = append(expired, w.ID)
		case len(ids) == limit, len(ids) > 0 && bytes+w.Bytes >= pullBytes:
			return ids, expired, true
		default:
			ids, bytes = append(ids, w.ID), bytes+w.Bytes+1
		}
	}
	return ids, expired, len(found) > limit
}

// fetchedOf selects the deliveries of events $3 to endpoint $2. OFFSET 0 makes Postgres look up
// each event on its own: without it, a plan for many events reads the whole log of the endpoint.
const fetchedOf = `
			SELECT w.id
			FROM unnest($3::text[]) AS named (event_id)
			CROSS JOIN LATERAL (
				SELECT w.id, w.endpoint_id FROM webhook_deliveries w WHERE w.guild_id = $1 AND w.event_id = named.event_id OFFSET 0
			) w
			WHERE w.endpoint_id = $2`

// settleFetched marks fetched events as delivered, whether or not the lease has expired or the
// endpoint was disabled since the fetch.
const settleFetched = `
	WITH d AS (
		UPDATE webhook_deliveries d
		SET state = 'delivered', completed_at = $4, error = NULL
		WHERE d.guild_id = $1 AND d.id = ANY (ARRAY(` + fetchedOf + `))
		  AND CASE WHEN d.state IN ('pending', 'held') THEN d.lease_gen > 0 END
		RETURNING d.endpoint_id, d.event_id, d.completed_at
	), counted AS (
		INSERT INTO webhook_hours AS h (guild_id, endpoint_id, hour, outcome, deliveries, last_at)
		SELECT $1 /*: home.id */, d.endpoint_id, date_trunc('hour', d.completed_at), 'delivered', count(*), max(d.completed_at)
		FROM d /*: d JOIN guilds home ON home.id = $1 */
		GROUP BY d.endpoint_id /*: home.id, d.endpoint_id */, date_trunc('hour', d.completed_at)
		` + addToHour + `
	)
	SELECT count(DISTINCT event_id) FROM d`

// returnFetched ends the leases of events.
const returnFetched = `
	WITH d AS (
		UPDATE webhook_deliveries d
		SET due_at = $4
		WHERE d.guild_id = $1 AND d.id = ANY (ARRAY(` + fetchedOf + `))
		  AND CASE WHEN d.state = 'pending' AND d.due_at > $4 THEN d.lease_gen > 0 END
		RETURNING d.event_id
	)
	SELECT count(DISTINCT event_id) FROM d`

// Acknowledge marks events that were fetched from a pull endpoint as delivered, and returns other
// events (back) to the queue. Acknowledge returns how many of the first were not yet delivered, and
// how many of the second were leased. An event that the endpoint has not fetched stays unchanged,
// in either list. An event in both lists is marked as delivered.
func Acknowledge(ctx context.Context, tx *db.Tx, guild, endpoint string, events, back []string) (settled, returned int, err error) {
	return acknowledge(ctx, tx, nil, guild, endpoint, events, back)
}

func acknowledge(ctx context.Context, tx *db.Tx, at *time.Time, guild, endpoint string, events, back []string) (settled, returned int, err error) {
	if err := planByIndex(ctx, tx); err != nil {
		return 0, 0, err
	}
	if at == nil {
		now, err := tx.Now(ctx)
		if err != nil {
			return 0, 0, err
		}
		at = &now
	}
	for _, do := range []struct {
		query  string
		events []string
		n      *int
	}{{settleFetched, events, &settled}, {returnFetched, back, &returned}} {
		if len(do.events) == 0 {
			continue
		}
		slices.Sort(do.events) // two callers that name the same events lock them in the same order
		if *do.n, err = db.Get[int](ctx, tx, do.query, guild, endpoint, db.Array(do.events), *at); err != nil {
			return 0, 0, fmt.Errorf("acknowledge %d events of endpoint %s of guild %s: %w", len(do.events), endpoint, guild, err)
		}
	}
	return settled, returned, nil
}

// findUnfetched finds the pull endpoints with the oldest last fetch.
const findUnfetched = `
	SELECT guild_id, endpoint_id
	FROM webhook_schedule
	WHERE disposition = 'pull' AND fetched_at < coalesce($1::timestamptz, now()) - $2 * interval '1 second'
	ORDER BY fetched_at
	LIMIT $3`

// disableUnfetched disables the pull endpoints that nobody has fetched from for unfetchedFor, so
// that no more events are stored for them.
func (d *Deliverer) disableUnfetched(ctx context.Context) error {
	found, err := db.Select[backlog](ctx, d.db.Reader(), findUnfetched, d.now(), unfetchedFor.Seconds(), chunk)
	if err != nil {
		return fault.Wrap(err, "look for endpoints that nobody fetches from")
	}
	for _, b := range found {
		if err := d.disableIfUnfetched(ctx, b); err != nil {
			return fault.Wrap(err, "disable endpoint", b.EndpointID, "of guild", b.GuildID)
		}
	}
	return nil
}

func (d *Deliverer) disableIfUnfetched(ctx context.Context, b backlog) error {
	off := false
	err := d.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		off = false
		enabled, err := db.Get[bool](ctx, tx, `
			SELECT enabled FROM webhook_endpoints
			WHERE guild_id = $1 AND id = $2
			FOR NO KEY UPDATE`, b.GuildID, b.EndpointID)
		if db.Missing(err) {
			return nil
		}
		if err != nil || !enabled {
			return err
		}
		off, err = db.Get[bool](ctx, tx, `
			SELECT disposition = 'pull' AND fetched_at < coalesce($3::timestamptz, now()) - $4 * interval '1 second'
			FROM webhook_schedule
			WHERE guild_id = $1 AND endpoint_id = $2
			FOR NO KEY UPDATE`, b.GuildID, b.EndpointID, d.now(), unfetchedFor.Seconds())
		if err != nil || !off {
			return err
		}
		return d.disableAndEmit(ctx, tx, endpointID{b.GuildID, b.EndpointID}, "", reasonUnfetched)
	})
	if err == nil && off {
		d.log.Warn("webhook endpoint disabled", "guild", b.GuildID, "endpoint", b.EndpointID, "reason", reasonUnfetched)
	}
	return err
}
