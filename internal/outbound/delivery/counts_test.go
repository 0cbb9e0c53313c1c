package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Random histories of a hundred deliveries each: the hourly numbers agree with the log, whether
// results come once, twice or too late.
func TestNumbersByHourAgreeWithTheLog(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	var guilds atomic.Int64
	start := time.Date(2026, 3, 1, 7, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		guild := strconv.FormatInt(600000000000000000+guilds.Add(1), 10)
		history{t, d, guild, start}.play()
		attemptsAgree(t, d, guild)
		agreeWithTheLog(t, d, guild, time.Time{})
	})
}

// attemptsAgree fails the test unless the hourly numbers have all failed attempts of the deliveries.
// The last attempt of a delivery that has arrived did not fail.
func attemptsAgree(t rapid.TB, d *db.DB, guild string) {
	const both = `
		SELECT coalesce(string_agg(format('%s counted %s, logged %s; ', endpoint_id, h.n, w.n), '' ORDER BY endpoint_id), '')
		FROM (SELECT endpoint_id, sum(failed_attempts) AS n FROM webhook_hours WHERE guild_id = $1 GROUP BY endpoint_id) h
		FULL JOIN (
			SELECT endpoint_id, sum(attempts) - count(*) FILTER (WHERE state = 'delivered') AS n
			FROM webhook_deliveries WHERE guild_id = $1 GROUP BY endpoint_id) w USING (endpoint_id)
		WHERE coalesce(h.n, 0) <> coalesce(w.n, 0)`
	if wrong, err := db.Get[string](context.Background(), d.Reader(), both, guild); err != nil || wrong != "" {
		t.Fatalf("failed attempts: %s%v", wrong, err)
	}
}

// agreeWithTheLog fails the test unless the hourly numbers since the given instant agree with the
// log.
func agreeWithTheLog(t rapid.TB, d *db.DB, guild string, since time.Time) {
	for _, outcome := range []string{StateDelivered, StateFailed} {
		const logged = `
			SELECT coalesce(string_agg(endpoint_id || at || n, ',' ORDER BY endpoint_id, at), '')
			FROM (
				SELECT endpoint_id, date_trunc('hour', completed_at) AS at, count(*) AS n
				FROM webhook_deliveries
				WHERE guild_id = $1 AND state = $2 AND completed_at >= $3
				GROUP BY endpoint_id, date_trunc('hour', completed_at)) x`
		const counted = `
			SELECT coalesce(string_agg(endpoint_id || hour || deliveries, ',' ORDER BY endpoint_id, hour), '')
			FROM webhook_hours
			WHERE guild_id = $1 AND outcome = $2 AND hour >= $3`
		ctx := context.Background()
		want, err := db.Get[string](ctx, d.Reader(), logged, guild, outcome, since)
		if err != nil {
			t.Fatal(err)
		}
		got, err := db.Get[string](ctx, d.Reader(), counted, guild, outcome, since)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("%s: counted are %s, the log has %s", outcome, got, want)
		}
	}
}

// A random history of 10,000 deliveries, with results that come once, twice or too late. Then two
// and a half days pass, in which deliveries held for too long fail and old rows are deleted. The
// hourly numbers agree with the log and, in each hour of that time, with the 24 hours that pages
// show.
func TestTenThousandDeliveriesAgreeWithTheLog(t *testing.T) {
	t.Parallel()
	const guild, all = "600000000000000000", 10_000
	d := dbtest.New(t).DB
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	at := time.Date(2026, 3, 1, 7, 0, 0, 0, time.UTC)
	dbtest.Exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'g', '1')`, guild)
	dbtest.Exec(t, d, `
		INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, fresh, lease_until, lease_gen, event_at)
		SELECT $1, 'd' || n, 'e' || n % 5, 'v' || n, false, now() + interval '1 hour', 1, $2::timestamptz - random() * interval '28 days'
		FROM generate_series(0, $3 - 1) n`, guild, at, all)
	states := []string{StateDelivered, StateDelivered, StateDelivered, StateFailed, StateHeld, StatePending}
	in := func(do func(context.Context, *db.Tx) error) {
		t.Helper()
		if err := d.Do(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	for n, order := 0, r.Perm(all); n < all; at = at.Add(time.Duration(r.IntN(90)) * time.Minute) {
		var batch []result
		for end := min(all, n+1+r.IntN(600)); n < end; n++ {
			batch = append(batch, outcomeOf(guild, order[n], states[r.IntN(len(states))], 1+r.IntN(20)/19, at))
			if again := order[r.IntN(n+1)]; again != order[n] && r.IntN(10) == 0 {
				batch = append(batch, outcomeOf(guild, again, states[r.IntN(len(states))], 1, at))
			}
		}
		in(func(ctx context.Context, tx *db.Tx) error {
			if err := planByIndex(ctx, tx); err != nil {
				return err
			}
			_, err := storeResults(ctx, tx, r.IntN(2) == 0 || d.Distributed(), &at, once(batch), r.IntN(4) == 0)
			return err
		})
	}
	attemptsAgree(t, d, guild)
	agreeWithTheLog(t, d, guild, time.Time{})
	var did [3]int
	for range 60 {
		at = at.Add(time.Hour)
		for n, step := range []func(context.Context, *db.Tx, *time.Time) (int, error){expireHeld, pruneDeliveries, pruneHours} {
			in(func(ctx context.Context, tx *db.Tx) error {
				rows, err := step(ctx, tx, &at)
				did[n] += rows
				return err
			})
		}
		agreeWithTheLog(t, d, guild, at.Truncate(time.Hour).Add(-23*time.Hour))
	}
	if did[0] == 0 || did[1] == 0 {
		t.Errorf("%d were given up and %d pruned", did[0], did[1])
	}
}

// outcomeOf returns the result of a delivery.
func outcomeOf(guild string, n int, state string, lease int, at time.Time) result {
	return result{
		GuildID: guild, ID: fmt.Sprint("d", n), EndpointID: fmt.Sprint("e", n%5), State: state, LeaseGen: lease, Logged: true, StartedAt: at,
		Outcome: attempted[state == StateDelivered],
	}
}

// attempted is the outcome of the attempt, by whether the delivery has arrived.
var attempted = map[bool]outcome{true: delivered, false: serverError}

// once returns the batch without second results of the same delivery.
func once(batch []result) []result {
	seen := map[string]bool{}
	return slices.DeleteFunc(batch, func(r result) bool {
		was := seen[r.ID]
		seen[r.ID] = true
		return was
	})
}

// history is a guild with deliveries that complete in various ways.
type history struct {
	*rapid.T
	db    *db.DB
	guild string
	start time.Time
}

func (h history) play() {
	const each = 100
	must := func(err error) {
		if err != nil {
			h.Fatal(err)
		}
	}
	ctx := context.Background()
	must(h.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, statement := range []string{
			`INSERT INTO guilds (id, name, owner_id) VALUES ($1, 'g', '1')`,
			`INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, fresh, lease_until, lease_gen, event_at)
			SELECT $1, 'd' || n, 'e' || n % 3, 'v' || n, false, now() + interval '1 hour', 1, '2026-03-01T07:00Z'
			FROM generate_series(0, ` + strconv.Itoa(each-1) + `) n`,
		} {
			if _, err := tx.ExecContext(ctx, statement, h.guild); err != nil {
				return err
			}
		}
		return nil
	}))
	states := rapid.SampledFrom([]string{StateDelivered, StateDelivered, StateFailed, StateHeld, StatePending})
	pause := func() time.Duration { return time.Duration(rapid.IntRange(60, 600).Draw(h.T, "minutes")) * time.Minute }
	for at := h.start; at.Before(h.start.Add(30 * time.Hour)); at = at.Add(pause()) {
		var batch []result
		seen := map[int]bool{}
		for range rapid.IntRange(1, 30).Draw(h.T, "results") {
			n := rapid.IntRange(0, each-1).Draw(h.T, "delivery")
			if seen[n] {
				continue
			}
			seen[n] = true
			state := states.Draw(h.T, "state")
			batch = append(batch, result{
				GuildID: h.guild, ID: fmt.Sprint("d", n), EndpointID: fmt.Sprint("e", n%3), State: state,
				LeaseGen: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(h.T, "lease"), Logged: true, StartedAt: at,
				Outcome: attempted[state == StateDelivered],
			})
		}
		oneGuild, putAside := rapid.Bool().Draw(h.T, "one guild") || h.db.Distributed(), rapid.Bool().Draw(h.T, "put aside")
		must(h.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := planByIndex(ctx, tx); err != nil {
				return err
			}
			_, err := storeResults(ctx, tx, oneGuild, &at, batch, putAside)
			return err
		}))
	}
	if rapid.Bool().Draw(h.T, "a month passes") {
		late := h.start.Add(keep + 48*time.Hour)
		must(h.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := expireHeld(ctx, tx, &late)
			return err
		}))
	}
}

// Old hourly numbers are deleted with the rest of the log, through their index.
func TestNumbersByHourArePruned(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Exec(t, d, `
		INSERT INTO webhook_hours (guild_id, endpoint_id, hour, outcome, deliveries)
		SELECT n::text, 'e', now() - age * interval '1 day', 'delivered', 1 FROM generate_series(1, 5) n, unnest(ARRAY[1, 40]) age`)
	var gone int
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		gone, err = pruneHours(ctx, tx, nil)
		return err
	})
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM webhook_hours`); err != nil || gone != 5 || n != 5 {
		t.Errorf("%d are gone, %d are left, %v", gone, n, err)
	}
	dbtest.WantIndex(t, d, "webhook_hours_age", strings.TrimSpace(`SELECT FROM webhook_hours WHERE hour < now() - interval '30 days'`))
}
