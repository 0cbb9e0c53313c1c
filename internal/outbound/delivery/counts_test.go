package delivery

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// Random histories, of a hundred deliveries each: what is counted by hour is what
// the log says, however results come, come twice, or come too late.
func TestNumbersByHourAgreeWithTheLog(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	var guilds atomic.Int64
	start := time.Date(2026, 3, 1, 7, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		guild := strconv.FormatInt(600000000000000000+guilds.Add(1), 10)
		history{t, d, guild, start}.play()
		for name, outcome := range map[string]string{"delivered": StateDelivered, "failed": StateFailed} {
			const logged = `
				SELECT coalesce(string_agg(endpoint_id || date_trunc('hour', completed_at) || n, ',' ORDER BY endpoint_id, at), '')
				FROM (
					SELECT endpoint_id, min(completed_at) AS completed_at, date_trunc('hour', completed_at) AS at, count(*) AS n
					FROM webhook_deliveries
					WHERE guild_id = $1 AND state = $2
					GROUP BY endpoint_id, date_trunc('hour', completed_at)) x`
			const counted = `
				SELECT coalesce(string_agg(endpoint_id || hour || deliveries, ',' ORDER BY endpoint_id, hour), '')
				FROM webhook_hours
				WHERE guild_id = $1 AND outcome = $2`
			ctx := context.Background()
			want, err := db.Get[string](ctx, d.Reader(), logged, guild, outcome)
			if err != nil {
				t.Fatal(err)
			}
			got, err := db.Get[string](ctx, d.Reader(), counted, guild, outcome)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Fatalf("%s: counted are %s, the log has %s", name, got, want)
			}
		}
	})
}

// history is a guild whose deliveries come to their ends in some way.
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
			batch = append(batch, result{
				GuildID: h.guild, ID: fmt.Sprint("d", n), EndpointID: fmt.Sprint("e", n%3), State: states.Draw(h.T, "state"),
				LeaseGen: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(h.T, "lease"), Logged: true, StartedAt: at, Outcome: delivered,
			})
		}
		oneGuild, putAside := rapid.Bool().Draw(h.T, "one guild"), rapid.Bool().Draw(h.T, "put aside")
		must(h.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if err := planByIndex(ctx, tx); err != nil {
				return err
			}
			_, err := settle(ctx, tx, oneGuild, &at, batch, putAside)
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

// Old numbers go with the rest of the log, by their index.
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
