package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
	"guildhall/internal/page"
	"guildhall/internal/wire"
)

// The functions of this file are the command line's: the operations of the API
// without a token, on any guild. Each is one unit of work, or a read.

// Endpoint is an endpoint as the command line shows it.
type Endpoint struct {
	ID             string    `json:"id"`
	URL            string    `json:"url"`
	Description    *string   `json:"description"`
	Events         []string  `json:"events"`
	Enabled        bool      `json:"enabled"`
	DisabledReason *string   `json:"disabled_reason"`
	SecretPreview  string    `json:"secret_preview"`
	CreatedAt      wire.Time `json:"created_at"`
	UpdatedAt      wire.Time `json:"updated_at"`
}

// NewEndpoint is what Add and RotateSecret show, the secret for the only time.
type NewEndpoint struct {
	ID     string   `json:"id"`
	URL    string   `json:"url"`
	Events []string `json:"events"`
	Secret string   `json:"secret"`
}

// Delivery is a delivery as the command line shows it.
type Delivery struct {
	ID              string     `json:"id"`
	EventID         string     `json:"event_id"`
	EventType       string     `json:"event_type"`
	Status          string     `json:"status"`
	AttemptCount    int        `json:"attempt_count"`
	NextAttemptAt   *wire.Time `json:"next_attempt_at"`
	ResponseStatus  *int       `json:"response_status"`
	ResponseExcerpt *string    `json:"response_excerpt"`
	Error           *string    `json:"error"`
	DurationMs      *int       `json:"duration_ms"`
	CreatedAt       wire.Time  `json:"created_at"`
	CompletedAt     *wire.Time `json:"completed_at"`
}

// Add registers an endpoint for the given event types, all of them if there are
// none.
func Add(ctx context.Context, cfg Config, guild, url string, events []string) (NewEndpoint, error) {
	if err := cfg.check(); err != nil {
		return NewEndpoint{}, err
	}
	if len(events) == 0 {
		events = event.Types
	}
	var e endpoint
	var secret string
	err := cfg.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		var err error
		e, secret, err = manager{cfg}.register(ctx, tx, guild, wish{URL: &url, Events: events})
		return err
	})
	return NewEndpoint{ID: e.ID, URL: e.URL, Events: e.Events, Secret: secret}, err
}

// List returns the guild's endpoints, newest first.
func List(ctx context.Context, d *db.DB, guild string) ([]Endpoint, error) {
	rows, err := list(ctx, d.Reader(), guild, page.Of(1, maxEndpoints))
	if err != nil {
		return nil, err
	}
	out := make([]Endpoint, len(rows))
	for i, e := range rows {
		out[i] = Endpoint{
			ID: e.ID, URL: e.URL, Description: e.Description, Events: e.Events, Enabled: e.Enabled, DisabledReason: e.DisabledReason,
			SecretPreview: e.SecretPreview, CreatedAt: wire.At(e.CreatedAt), UpdatedAt: wire.At(e.UpdatedAt),
		}
	}
	return out, nil
}

// RotateSecret gives an endpoint a new secret.
func RotateSecret(ctx context.Context, cfg Config, id string) (NewEndpoint, error) {
	if err := cfg.check(); err != nil {
		return NewEndpoint{}, err
	}
	var e endpoint
	var secret string
	err := onEndpoint(ctx, cfg.DB, id, func(ctx context.Context, tx *db.Tx, guild string) error {
		var err error
		e, secret, err = manager{cfg}.rotate(ctx, tx, guild, id)
		return err
	})
	return NewEndpoint{ID: e.ID, URL: e.URL, Events: e.Events, Secret: secret}, err
}

// Remove deletes an endpoint.
func Remove(ctx context.Context, d *db.DB, id string) error {
	return onEndpoint(ctx, d, id, func(ctx context.Context, tx *db.Tx, guild string) error { return remove(ctx, tx, guild, id) })
}

// Deliveries returns a page of an endpoint's newest deliveries, of one status
// or of all.
func Deliveries(ctx context.Context, d *db.DB, id, status string, limit int) ([]Delivery, error) {
	guild, err := guildOf(ctx, d.Reader(), id)
	if err != nil {
		return nil, err
	}
	var only *string
	switch status {
	case "":
	case statePending, stateDelivered, stateFailed, stateHeld:
		only = &status
	default:
		return nil, fmt.Errorf("%q is not a status: pending, delivered, failed or held", status)
	}
	p := page.Of(1, limit)
	rows, err := deliveries(ctx, d.Reader(), guild, id, only, p)
	if err != nil {
		return nil, err
	}
	rows, _ = page.Cut(rows, p)
	out := make([]Delivery, len(rows))
	for i, r := range rows {
		out[i] = printable(r)
	}
	return out, nil
}

// Redeliver queues the event of a delivery once more.
func Redeliver(ctx context.Context, d *db.DB, id, deliveryID string) (Delivery, error) {
	var out Delivery
	err := onEndpoint(ctx, d, id, func(ctx context.Context, tx *db.Tx, guild string) error {
		fresh, err := redeliver(ctx, tx, guild, id, deliveryID)
		if err != nil {
			return err
		}
		row, err := oneDelivery(ctx, tx, guild, id, fresh)
		out = printable(row)
		return err
	})
	return out, err
}

// ErrNoWorker says that nobody made the attempt that Test waited for.
var ErrNoWorker = errors.New("no worker has made the attempt: is `guildhall serve` running with the role worker, on this database?")

// Test sends a ping to an endpoint and waits for the first attempt, which a
// running worker makes. It returns what the receiver answered. Without an
// attempt in time it is ErrNoWorker, with the delivery, which stays queued.
func Test(ctx context.Context, d *db.DB, id string) (Delivery, error) {
	var row delivery
	var guild string
	err := onEndpoint(ctx, d, id, func(ctx context.Context, tx *db.Tx, g string) error {
		fresh, err := ping(ctx, tx, event.System(g), id)
		if err != nil {
			return err
		}
		guild = g
		row, err = oneDelivery(ctx, tx, g, id, fresh)
		return err
	})
	if err != nil {
		return Delivery{}, err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(attemptLimit + 5*time.Second)
	defer late.Stop()
	for row.State == statePending && row.Attempts == 0 {
		select {
		case <-ctx.Done():
			return printable(row), ctx.Err()
		case <-late.C:
			return printable(row), ErrNoWorker
		case <-tick.C:
		}
		if row, err = oneDelivery(ctx, d.Reader(), guild, id, row.ID); err != nil {
			return Delivery{}, err
		}
	}
	return printable(row), nil
}

// onEndpoint runs do in a unit, with the guild that the endpoint belongs to.
func onEndpoint(ctx context.Context, d *db.DB, id string, do func(ctx context.Context, tx *db.Tx, guild string) error) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		guild, err := guildOf(ctx, tx, id)
		if err != nil {
			return err
		}
		return do(ctx, tx, guild)
	})
}

// guildOf finds the guild of an endpoint. Only the command line may ask: the
// API knows its guild from the token.
func guildOf(ctx context.Context, q db.Querier, id string) (string, error) {
	var guild string
	err := q.GetContext(ctx, &guild, `SELECT guild_id FROM webhook_endpoints WHERE id = $1`, id)
	if db.Missing(err) {
		return "", fault.New(fault.NotFound, "not_found", "No such webhook endpoint.")
	}
	if err != nil {
		return "", fmt.Errorf("find endpoint %s: %w", id, err)
	}
	return guild, nil
}

func printable(d delivery) Delivery {
	return Delivery{
		ID: d.ID, EventID: d.EventID, EventType: d.EventType, Status: d.State, AttemptCount: d.Attempts,
		NextAttemptAt: wire.AtPtr(d.NextAttemptAt), ResponseStatus: d.Status, ResponseExcerpt: d.Excerpt, Error: d.Error,
		DurationMs: d.DurationMs, CreatedAt: wire.At(d.CreatedAt), CompletedAt: wire.AtPtr(d.CompletedAt),
	}
}
