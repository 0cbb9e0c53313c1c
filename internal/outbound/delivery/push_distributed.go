package delivery

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// pollDistributed does the same as pollAll where the tables are distributed by guild. There, a
// statement cannot step from one guild's index entries to the next guild's, or join rows of
// different machines. Each machine finds claimSize endpoints of each kind; for endpoints with fresh
// deliveries, the statement reads all endpoints after the given one.
func pollDistributed(ctx context.Context, q db.Querier, now *time.Time, after endpointID, full []string) ([]*candidate, error) {
	var found []*candidate
	for lane := laneUrgent; lane < laneClosed; lane++ {
		due, err := db.Select[*candidate](ctx, q, `
			SELECT guild_id, endpoint_id, lane, false AS fresh, true AS known
			FROM webhook_schedule
			WHERE lane = $2 AND next_due <= coalesce($1::timestamptz, now()) AND endpoint_id <> ALL ($3::text[])
			ORDER BY next_due
			LIMIT $4`, now, lane, db.Array(full), claimSize)
		if err != nil {
			return nil, fmt.Errorf("look for what is due in lane %d: %w", lane, err)
		}
		found = append(found, due...)
	}
	fresh, err := db.Select[*candidate](ctx, q, `
		SELECT DISTINCT guild_id, endpoint_id
		FROM webhook_deliveries
		WHERE fresh AND state = 'pending' AND (guild_id, endpoint_id) > ($1, $2)
		ORDER BY guild_id, endpoint_id
		LIMIT $3`, after.guild, after.endpoint, claimSize)
	if err != nil {
		return nil, fault.Wrap(err, "look for fresh deliveries")
	}
	expired, err := db.Select[*candidate](ctx, q, `
		SELECT guild_id, endpoint_id
		FROM webhook_deliveries
		WHERE lease_until <= coalesce($1::timestamptz, now()) AND state = 'pending'
		ORDER BY lease_until
		LIMIT $2`, now, claimSize)
	if err != nil {
		return nil, fault.Wrap(err, "look for leases that have run out")
	}
	fresh = append(fresh, expired...)
	if err := readLanes(ctx, q, fresh); err != nil {
		return nil, err
	}
	found = append(found, fresh...)
	slices.SortStableFunc(found, func(a, b *candidate) int { return compareIDs(a.id(), b.id()) })
	return merge(found), nil
}

// readLanes reads the schedules of candidates with fresh deliveries.
func readLanes(ctx context.Context, q db.Querier, fresh []*candidate) error {
	if len(fresh) == 0 {
		return nil
	}
	in, err := json.Marshal(fresh)
	if err != nil {
		return fault.Wrap(err, "render endpoints")
	}
	lanes, err := db.Select[schedule](ctx, q, `
		SELECT s.guild_id, s.endpoint_id, s.lane
		FROM jsonb_to_recordset($1::jsonb) AS p (guild_id text, endpoint_id text)
		JOIN webhook_schedule s ON s.guild_id = p.guild_id AND s.endpoint_id = p.endpoint_id`, string(in))
	if err != nil {
		return fault.Wrap(err, "read the lanes of endpoints")
	}
	known := make(map[endpointID]int, len(lanes))
	for _, s := range lanes {
		known[s.id()] = s.Lane
	}
	for _, c := range fresh {
		lane, ok := known[c.id()]
		if !ok {
			lane = laneWell
		}
		c.Lane, c.Fresh, c.Known = lane, true, ok
	}
	return nil
}
