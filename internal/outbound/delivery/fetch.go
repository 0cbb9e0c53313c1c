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

// A delivery that waits for a pull endpoint is never fresh, urgent or under a worker's
// lease, and the endpoint's schedule has the disposition pull and is never due: so no
// look, claim or repair finds it. It is leased to whoever fetches it by its due_at
// alone, which lies ahead until the lease ends; lease_gen counts how often it was
// fetched. Holding, releasing and giving up are the same as for any other endpoint.

const (
	// pullBytes bounds the events of one fetch, with what stands around them.
	pullBytes = 1<<20 - 256

	// fetchNoted is how exactly it is known when an endpoint was last asked for.
	fetchNoted = time.Minute

	// unfetchedFor is how long a pull endpoint may go without a fetch until it is
	// switched off.
	unfetchedFor = 7 * 24 * time.Hour

	// UnfetchedWarning is after how long of it operators are told.
	UnfetchedWarning = 3 * 24 * time.Hour
)

// Fetched is what a fetch has leased.
type Fetched struct {
	Events [][]byte // their exact payloads
	More   bool     // further ones can be fetched now
	// Complete is since when nothing is lost that the endpoint listens to: since its
	// registration or its enabling has committed, or since 30 days ago.
	Complete time.Time
	Stream   string // the id of the stream that they are of; empty: they are an endpoint's

	bytes int
}

// JSON is what was fetched as the API shows it: the events as they are stored, byte for byte.
func (f Fetched) JSON() []byte {
	var b bytes.Buffer
	b.WriteString(`{"data":[`)
	b.Write(bytes.Join(f.Events, []byte(`,`)))
	fmt.Fprintf(&b, `],"has_more":%t,"complete_since":%q}`, f.More, wire.At(f.Complete))
	return b.Bytes()
}

// WriteJSON writes that as a response.
func (f Fetched) WriteJSON(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(f.JSON())
	return err
}

// FetchOptions is how a caller fetches.
type FetchOptions struct {
	Limit int           // events at most
	Lease time.Duration // for which they are leased to it
	Wait  time.Duration // for which it would wait until there is one
}

// NewFetchOptions completes what a request says: nil is what it leaves to the defaults. The lease
// and the wait are in seconds.
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

// waiting is a delivery that can be fetched.
type waiting struct {
	ID      string `db:"id"`
	Bytes   int    `db:"bytes"`
	Expired bool   `db:"expired"` // its event happened too long ago
}

// findWaiting finds what can be fetched of an endpoint, in order, and locks it. It
// passes over events that another caller is fetching at the moment. Each event is
// looked up by itself, as in takeDeliveries.
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

// leaseWaiting gives them to a caller until $3.
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

// Fetch leases the oldest events that wait for a pull endpoint and are leased to nobody,
// at most limit of them, and notes who has asked. Of an endpoint that is disabled it
// finds none.
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
	// The statement's time, and not the transaction's: what had been recorded when the
	// statement began is due by then, so that no caller waits for it.
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

// choose takes limit of what was found, as long as it fits into one answer. It returns
// apart the events that are too old for that. A single event always fits.
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

// fetchedOf is the deliveries of events $3 to endpoint $2. OFFSET 0 has each event looked
// up by itself: a plan that is made for many would rather read all of the endpoint's log.
const fetchedOf = `
			SELECT w.id
			FROM unnest($3::text[]) AS named (event_id)
			CROSS JOIN LATERAL (
				SELECT w.id, w.endpoint_id FROM webhook_deliveries w WHERE w.guild_id = $1 AND w.event_id = named.event_id OFFSET 0
			) w
			WHERE w.endpoint_id = $2`

// settleFetched settles what an endpoint has fetched of some events, whether or not the
// lease has run out or the endpoint was disabled since.
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

// returnFetched ends the leases of some events.
const returnFetched = `
	WITH d AS (
		UPDATE webhook_deliveries d
		SET due_at = $4
		WHERE d.guild_id = $1 AND d.id = ANY (ARRAY(` + fetchedOf + `))
		  AND CASE WHEN d.state = 'pending' AND d.due_at > $4 THEN d.lease_gen > 0 END
		RETURNING d.event_id
	)
	SELECT count(DISTINCT event_id) FROM d`

// Acknowledge settles events that were fetched from a pull endpoint as delivered, and
// gives others back. It returns how many of each were still to be settled or under a
// lease. An event that the endpoint has not fetched stays as it is, in either list; of
// an event that stands in both, being settled counts.
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
		slices.Sort(do.events) // so that two who name the same lock them in the same order
		if *do.n, err = db.Get[int](ctx, tx, do.query, guild, endpoint, db.Array(do.events), *at); err != nil {
			return 0, 0, fmt.Errorf("acknowledge %d events of endpoint %s of guild %s: %w", len(do.events), endpoint, guild, err)
		}
	}
	return settled, returned, nil
}

// findUnfetched finds the pull endpoints that nobody has fetched from for longest.
const findUnfetched = `
	SELECT guild_id, endpoint_id
	FROM webhook_schedule
	WHERE disposition = 'pull' AND fetched_at < coalesce($1::timestamptz, now()) - $2 * interval '1 second'
	ORDER BY fetched_at
	LIMIT $3`

// disableUnfetched switches off the pull endpoints that nobody has fetched from for
// too long, so that what is kept for them ends.
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
