package delivery

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// followsWithin is the maximum time until the schedule of a disabled or deleted endpoint is due
// while deliveries are waiting, with a margin.
const followsWithin = "5 s"

// findStranded finds endpoints whose schedule is missing, disagrees with the endpoint, or is due
// addLater than the oldest queued delivery. Polls read schedules, so nothing else finds the waiting
// deliveries of such an endpoint.
const findStranded = `
	SELECT s.guild_id, s.endpoint_id
	FROM webhook_schedule s
	LEFT JOIN webhook_endpoints e ON e.guild_id = s.guild_id AND e.id = s.endpoint_id
	WHERE s.disposition <> CASE
	          WHEN e.enabled AND e.delivery = 'pull' THEN 'pull'
	          WHEN e.enabled THEN 'send'
	          WHEN e.enabled IS NULL THEN 'drop'
	          ELSE 'hold'
	      END
	   OR CASE
	          WHEN s.disposition = 'pull' THEN false
	          WHEN s.disposition = 'send' THEN coalesce(s.next_due, 'infinity') > now() AND coalesce((
	              SELECT greatest(w.due_at, s.not_before)
	              FROM webhook_deliveries w
	              WHERE w.state = 'pending' AND w.guild_id = s.guild_id AND w.endpoint_id = s.endpoint_id
	                AND w.lease_until IS NULL AND NOT w.fresh
	              ORDER BY w.due_at, w.id
	              LIMIT 1) < coalesce(s.next_due, 'infinity'), false)
	          ELSE coalesce(s.next_due, 'infinity') > now() + interval '` + followsWithin + `' AND (s.disposition = 'drop' OR EXISTS (
	              SELECT FROM webhook_deliveries w
	              WHERE w.state = 'pending' AND w.guild_id = s.guild_id AND w.endpoint_id = s.endpoint_id))
	      END
	ORDER BY s.guild_id, s.endpoint_id
	LIMIT $1`

// findUnscheduled finds endpoints with waiting deliveries and no schedule. The statement reads all
// waiting deliveries.
const findUnscheduled = `
	SELECT DISTINCT w.guild_id, w.endpoint_id
	FROM webhook_deliveries w
	LEFT JOIN webhook_schedule s ON s.guild_id = w.guild_id AND s.endpoint_id = w.endpoint_id
	WHERE w.state IN ('pending', 'held') AND s.endpoint_id IS NULL
	ORDER BY w.guild_id, w.endpoint_id
	LIMIT $1`

// Stranded is an endpoint whose waiting deliveries no worker finds.
type Stranded struct {
	GuildID    string `db:"guild_id"`
	EndpointID string `db:"endpoint_id"`
}

// FindStranded returns at most limit endpoints whose waiting deliveries no worker finds, because
// the endpoint's schedule is missing or wrong. There should never be such an endpoint; a property
// test of the endpoint's life cycle checks that. FindStranded reads every schedule and all waiting
// deliveries, so only guildhall doctor calls it, and no worker.
func FindStranded(ctx context.Context, q db.Querier, limit int) ([]Stranded, error) {
	var found []Stranded
	for _, query := range []string{findStranded, findUnscheduled} {
		some, err := db.Select[Stranded](ctx, q, query, limit-len(found))
		if err != nil {
			return nil, fault.Wrap(err, "look for endpoints whose deliveries no worker finds")
		}
		found = append(found, some...)
	}
	return found, nil
}
