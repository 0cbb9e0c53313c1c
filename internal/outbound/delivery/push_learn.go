package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"guildhall/internal/base/db"
)

// relevant returns the results of a batch that change the schedules of their endpoints: all except
// successes of healthy endpoints.
func relevant(batch []result) []result {
	failing := make(map[endpointID]bool)
	for _, r := range batch {
		if r.suspect || !r.decision.Healthy {
			failing[r.id()] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(batch), func(r result) bool { return !failing[r.id()] })
}

// change is the change of one endpoint's schedule by a batch of results.
type change struct {
	GuildID    string     `json:"guild_id"`
	EndpointID string     `json:"endpoint_id"`
	NextDue    *time.Time `json:"next_due"`
	Releasing  bool       `json:"releasing"` // held deliveries are to be sent after all
	Passes     bool       `json:"passes"`    // recovered deliveries ignore a block and a pause
	Failure    *Failure   `json:"failure"`   // the last failed attempt of the batch; nil if none failed
	ReportedAt *time.Time `json:"reported_at"`
	health

	failing, recovered bool // events to emit to the guild's other endpoints

	warned int    // before the batch
	url    string // URL of the last failed attempt
	at     time.Time
}

// learnSchedules is the statement of lockToLearn.
var learnSchedules = newStatement(`
		SELECT s.*, coalesce($1::timestamptz, clock_timestamp()) AS now
		FROM (
			SELECT DISTINCT guild_id, endpoint_id
			FROM jsonb_to_recordset($2::jsonb) AS p (guild_id text, endpoint_id text)
			ORDER BY guild_id, endpoint_id
		) p
		CROSS JOIN LATERAL (
			SELECT ` + scheduleColumns + `
			FROM webhook_schedule s
			WHERE s.guild_id = p.guild_id /*: $3 */ AND s.endpoint_id = p.endpoint_id
			FOR NO KEY UPDATE
		) s`)

// lockToLearn locks the schedules of the batch's endpoints, always in the same order.
func lockToLearn(ctx context.Context, tx *db.Tx, oneGuild bool, now *time.Time, batch []result) (rows []schedule, err error) {
	err = run(learnSchedules, oneGuild, batch, func(r result) string { return r.GuildID }, func(query, in string, guild ...any) error {
		held, err := db.Select[schedule](ctx, tx, query, append([]any{now, in}, guild...)...)
		rows = append(rows, held...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lock the schedules of %d results: %w", len(batch), err)
	}
	return rows, nil
}

// learn computes the change of each locked schedule from the results in their order. quiet says
// that no endpoint may be reported as failing now, because the fault may be the installation's.
func learn(held []schedule, batch []result, quiet bool) []change {
	news := make([]change, len(held))
	for i, s := range held {
		news[i] = s.learn(batch)
		if news[i].url != "" && !quiet {
			news[i].report(s.Now)
		}
	}
	return news
}

// learn computes the change of the schedule from the endpoint's results of a batch, in their order.
func (s schedule) learn(batch []result) change {
	c := change{GuildID: s.GuildID, EndpointID: s.EndpointID, NextDue: s.NextDue, Passes: s.Passes, health: s.health, warned: s.Warned, at: s.Now, ReportedAt: s.ReportedAt}
	before, look := s.notBefore(), false
	for _, r := range batch {
		if r.id() != s.id() {
			continue
		}
		was := c.Reported
		c.health = c.after(r.decision, s.Now, r.quiet)
		c.recovered = c.recovered || was && !c.Reported
		if r.decision.Failing {
			c.url = r.url
		}
		if f := r.failure(s.Now); f != nil {
			c.Failure = f
		}
		if r.decision.Failing || r.Later {
			c.Passes = c.Passes && (r.recoveredAt == nil || s.RecoveredAt == nil || !r.recoveredAt.Equal(*s.RecoveredAt))
		}
		c.Releasing = c.Releasing || r.State == StateHeld && s.Disposition == "send"
		look = look || r.State == StatePending && !r.Logged && r.decision.Quiet == 0 // the endpoint may still have urgent deliveries
		if due := s.Now.Add(time.Duration(r.PauseMs) * time.Millisecond); r.State == StatePending && (c.NextDue == nil || due.Before(*c.NextDue)) {
			c.NextDue = &due
		}
	}
	wait := c.notBefore()
	switch {
	case c.NextDue == nil:
	case look || s.Disposition != "send" || before.After(s.Now) && !wait.After(s.Now):
		c.NextDue = &s.Now // the endpoint is due now
	case !s.Urgent && wait.After(*c.NextDue):
		c.NextDue = &wait
	}
	return c
}

// storeChanges is the statement of store.
var storeChanges = newStatement(`
		UPDATE webhook_schedule s
		SET next_due = c.next_due, releasing = s.releasing OR c.releasing, recovered_passes = c.passes,
		    failures = c.failures, refusals = c.refusals, refused_at = c.refused_at, blocks = c.blocks, blocked_until = c.blocked_until, quiet_until = c.quiet_until, failing_since = c.failing_since,
		    failed_attempts = c.failed_attempts, warned = c.warned, reported = c.reported, reported_at = c.reported_at, last_failure = coalesce(c.failure, s.last_failure)
		FROM jsonb_to_recordset($1::jsonb) AS c (
			guild_id text, endpoint_id text, next_due timestamptz, releasing boolean, passes boolean,
			failures int, refusals int, refused_at timestamptz, blocks int, blocked_until timestamptz, quiet_until timestamptz, failing_since timestamptz,
			failed_attempts int, warned smallint, reported boolean, reported_at timestamptz, failure jsonb)
		WHERE s.guild_id = c.guild_id /*: $2 */ AND s.endpoint_id = c.endpoint_id`)

// store stores the changes. The rows must be locked.
func store(ctx context.Context, tx *db.Tx, oneGuild bool, news []change) error {
	err := run(storeChanges, oneGuild, news, func(c change) string { return c.GuildID }, func(query, in string, guild ...any) error {
		_, err := db.Exec(ctx, tx, query, append([]any{in}, guild...)...)
		return err
	})
	if err != nil {
		return fmt.Errorf("store what %d endpoints have shown: %w", len(news), err)
	}
	return nil
}

// react disables endpoints that have failed for too long, and warns of endpoints that soon will
// have. If disabling fails now, the next failed attempt tries again.
func (d *Deliverer) react(ctx context.Context, news []change) {
	for _, c := range news {
		if reason := c.disable(c.at); reason != "" && c.url != "" {
			if _, err := d.disable(ctx, endpointID{c.GuildID, c.EndpointID}, reason, c.url); err != nil {
				d.log.Error("disable webhook endpoint", "guild", c.GuildID, "endpoint", c.EndpointID, "error", err)
			}
		} else if c.Warned > c.warned {
			d.log.Warn("webhook endpoint keeps failing", "guild", c.GuildID, "endpoint", c.EndpointID,
				"failing_since", c.FailingSince, "percent_to_disabled", c.Warned)
		}
	}
}
