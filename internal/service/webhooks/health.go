package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
)

// The states of an endpoint's health.
const (
	HealthNew      = "new"      // no attempt was made yet
	HealthHealthy  = "healthy"  // the last attempt succeeded
	HealthFailing  = "failing"  // the last attempt failed, whether or not further attempts are paused
	HealthDisabled = "disabled" // disabled, for whatever reason
)

// Health is the state of an endpoint and its reason. For a pull endpoint fetches count as attempts,
// to the minute, and acknowledgements as successes.
type Health struct {
	State           string
	FailingSince    *time.Time
	LastAttemptAt   *time.Time
	LastSuccessAt   *time.Time
	LastFailure     *Failure // kept after a success
	FailedAttempts  int      // since FailingSince
	OldestWaitingAt *time.Time
	NextAttemptAt   *time.Time // nil: nothing waits, or the endpoint is disabled
	Problem         string     // the current problem in a sentence; empty: none
}

// Failure is the last failed attempt of an endpoint.
type Failure struct {
	At         time.Time
	DeliveryID string
	Status     *int
	Error      string
	Problem    string // what went wrong and how to fix it
}

// healthRow holds the columns of standingQuery about an endpoint's health.
type healthRow struct {
	Failure         []byte     `db:"last_failure"`
	FailedAttempts  int        `db:"failed_attempts"`
	LastSuccessAt   *time.Time `db:"last_success_at"`
	OldestWaitingAt *time.Time `db:"oldest_waiting_at"`
	NextAttemptAt   *time.Time `db:"next_attempt_at"`
	BehindAt        *time.Time `db:"behind_at"` // when a pull endpoint started to count as failing
	OverflowedAt    *time.Time `db:"overflowed_at"`
}

// healthColumns are the columns of a healthRow, beside the joins of standingQuery. An
// acknowledgement counts as delivered, like a delivery that a receiver has taken. The newest hour
// has the last success: max(last_at) would read the hours of thirty days for each endpoint.
const healthColumns = `s.last_failure, coalesce(s.failed_attempts, 0) AS failed_attempts,
	       (SELECT h.last_at FROM webhook_hours h
	        WHERE h.guild_id = $1 AND h.endpoint_id = e.id AND h.outcome = 'delivered' AND h.last_at > coalesce(s.health_since, '-infinity')
	        ORDER BY h.hour DESC LIMIT 1) AS last_success_at,
	       least(w.oldest, b.oldest) AS oldest_waiting_at,
	       CASE
	           WHEN NOT e.enabled OR e.delivery = 'pull' OR w.waiting = 0 THEN NULL
	           WHEN s.urgent THEN s.next_due
	           ELSE greatest(coalesce(s.next_due, now()), s.not_before)
	       END AS next_attempt_at,
	       CASE WHEN e.delivery = 'pull' AND e.enabled AND w.oldest < now() - interval '` + behindAfter + `' THEN w.oldest + interval '` + behindAfter + `' END AS behind_at,
	       CASE WHEN s.overflowed_at > now() - interval '1 day' THEN s.overflowed_at END AS overflowed_at`

// behindAfter is how long the oldest event of a pull endpoint may wait until the endpoint
// counts as failing.
const behindAfter = "2 days"

// findFailing finds the guilds with an endpoint that fails or that the service has disabled.
const findFailing = `
	SELECT guild_id
	FROM (
		SELECT guild_id FROM webhook_schedule WHERE ` + delivery.Failing + `
		UNION
		SELECT guild_id FROM webhook_endpoints WHERE ` + delivery.SwitchedOff + `
		UNION
		SELECT e.guild_id
		FROM webhook_endpoints e
		WHERE e.enabled AND e.delivery = 'pull' AND EXISTS (
			SELECT FROM webhook_deliveries w
			WHERE w.state = 'pending' AND w.guild_id = e.guild_id AND w.endpoint_id = e.id AND w.event_at < now() - interval '` + behindAfter + `')
	) g
	WHERE cardinality($1::text[]) = 0 OR guild_id = ANY ($1)
	ORDER BY guild_id
	LIMIT $2`

// FailingGuilds returns at most limit guilds that have an endpoint that fails or that the service
// has disabled. It looks at the given guilds, or at all of them if there are none.
func FailingGuilds(ctx context.Context, q db.Querier, guilds []string, limit int) ([]string, error) {
	found, err := db.Select[string](ctx, q, findFailing, db.Array(guilds), limit)
	return found, fault.Wrap(err, "list the guilds with endpoints that fail")
}

// health returns the endpoint's health.
func (s Standing) health() (Health, error) {
	h := Health{
		State: HealthHealthy, FailingSince: s.FailingSince, LastSuccessAt: s.row.LastSuccessAt, FailedAttempts: s.row.FailedAttempts,
		OldestWaitingAt: s.row.OldestWaitingAt, NextAttemptAt: s.row.NextAttemptAt, LastAttemptAt: s.row.LastSuccessAt,
	}
	f, err := delivery.ParseFailure(s.row.Failure)
	if err != nil {
		return Health{}, fault.Wrap(err, "read the last failure of endpoint", s.ID)
	}
	if f != nil {
		h.LastFailure = &Failure{At: f.At, DeliveryID: f.DeliveryID, Status: f.Status, Error: f.Error, Problem: problem(f.Outcome, f.Status)}
		if h.LastAttemptAt == nil || f.At.After(*h.LastAttemptAt) {
			h.LastAttemptAt = &h.LastFailure.At
		}
	}
	if s.Delivery == delivery.Pull {
		h.LastAttemptAt, h.FailingSince = nil, s.row.BehindAt
		if s.FetchedBy != nil {
			h.LastAttemptAt = s.FetchedAt
		}
	}
	switch {
	case !s.Enabled:
		h.State = HealthDisabled
	case h.FailingSince != nil:
		h.State = HealthFailing
	case h.LastAttemptAt == nil:
		h.State = HealthNew
	}
	h.Problem = s.problem(h)
	return h, nil
}

// problem returns the endpoint's current problem in a sentence.
func (s Standing) problem(h Health) string {
	switch {
	case h.State == HealthDisabled:
		return s.disabledProblem(h)
	case s.row.OverflowedAt != nil:
		return fmt.Sprintf("%d deliveries waited, so the oldest were deleted, last at %s: what is lost has to be read by other operations.",
			delivery.MaxWaiting, wire.At(*s.row.OverflowedAt))
	case h.State != HealthFailing:
		return ""
	case s.Delivery == delivery.Pull:
		return "Events have waited for more than two days: something must fetch and acknowledge them. An endpoint that nobody fetches from for 7 days is disabled."
	case h.LastFailure != nil:
		return h.LastFailure.Problem
	}
	return ""
}

func (s Standing) disabledProblem(h Health) string {
	if s.DisabledReason == nil {
		return "The endpoint was disabled by hand: enable it, and what is held for it goes out."
	}
	switch *s.DisabledReason {
	case "gone":
		return "The receiver answered 410, so the endpoint was disabled: enable it once it takes events again."
	case "failing":
		text := "Every attempt failed for five days, so the endpoint was disabled: enable it once that is mended."
		if h.LastFailure != nil {
			text += " " + h.LastFailure.Problem
		}
		return text
	case "address_not_allowed":
		return "The receiver’s name leads to an address that may not be called, so the endpoint was disabled: enable it once the name leads to a public one."
	case "not_fetched":
		return "Nobody fetched events for 7 days, so the endpoint was disabled: enable it when something fetches them."
	case delivery.ReasonRemoved:
		return "The server was to be removed, so the endpoint was disabled: enable it once the removal is taken back."
	}
	return ""
}

// Show returns the health in the API's form.
func (h Health) Show() gen.WebhookHealth {
	shown := gen.WebhookHealth{
		State: h.State, FailingSince: wire.AtPtr(h.FailingSince), LastAttemptAt: wire.AtPtr(h.LastAttemptAt), LastSuccessAt: wire.AtPtr(h.LastSuccessAt),
		FailedAttemptCount: h.FailedAttempts, OldestWaitingAt: wire.AtPtr(h.OldestWaitingAt), NextAttemptAt: wire.AtPtr(h.NextAttemptAt),
	}
	if h.Problem != "" {
		shown.Problem = &h.Problem
	}
	shown.LastFailure.SetNull()
	if f := h.LastFailure; f != nil {
		shown.LastFailure.Set(gen.WebhookFailure{At: wire.At(f.At), DeliveryID: f.DeliveryID, ResponseStatus: f.Status, Error: f.Error, Problem: f.Problem})
	}
	return shown
}

// MarshalJSON writes the health in the API's form.
func (h Health) MarshalJSON() ([]byte, error) { return json.Marshal(h.Show()) }
