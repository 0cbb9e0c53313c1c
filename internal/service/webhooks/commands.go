package webhooks

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
)

// The functions of this file are for the command line, which knows only an endpoint's id and first
// looks up its guild.

// GuildOf returns the guild of an endpoint. Only the command line may use it: the API knows the
// guild from the token.
func GuildOf(ctx context.Context, q db.Querier, id string) (string, error) {
	guild, err := db.Get[string](ctx, q, `SELECT guild_id FROM webhook_endpoints WHERE id = $1`, id)
	if db.Missing(err) {
		return "", fault.New(fault.NotFound, "not_found", "No such webhook endpoint.")
	}
	return guild, fault.Wrap(err, "find endpoint", id)
}

// Add registers an endpoint for the given event types, or for all if there are none. The result
// shows its secret, which cannot be read later. doer runs the transaction.
func Add(ctx context.Context, cfg Config, doer db.Doer, guild, url, description string, events []string) (gen.WebhookEndpointWithSecret, error) {
	if len(events) == 0 {
		events = event.Types
	}
	return Create(ctx, cfg, doer, guild, Settings{URL: url, Description: description, Events: events, Enabled: true})
}

// List returns the guild's endpoints, newest first.
func List(ctx context.Context, d *db.DB, guild string) ([]gen.WebhookEndpoint, error) {
	rows, err := Standings(ctx, d.Reader(), guild)
	if err != nil {
		return nil, err
	}
	return page.Each(rows, Standing.show), nil
}

// Delivery is a delivery with the sentence that says why it has not arrived; empty: nothing is wrong.
type Delivery struct {
	gen.WebhookDelivery
	Problem string `json:"-"`
}

func withProblem(d Logged) Delivery { return Delivery{showDelivery(d), d.Problem()} }

// Deliveries returns the endpoint's newest deliveries that match the filter, at most limit.
func Deliveries(ctx context.Context, d *db.DB, guild, id string, f Filter, limit int) ([]Delivery, error) {
	for _, c := range []struct {
		value, what string
		known       []string
	}{
		{f.Status, "a status", Statuses},
		{f.EventType, "an event type", append(slices.Clone(event.Types), event.Ping)},
		{f.ResponseClass, "a class of responses", ResponseClasses},
	} {
		if c.value != "" && !slices.Contains(c.known, c.value) {
			return nil, fault.New(fault.Invalid, "invalid_request", "%q is not %s: %s.", c.value, c.what, strings.Join(c.known, ", "))
		}
	}
	rows, err := Log(ctx, d.Reader(), guild, id, f, limit)
	if err != nil {
		return nil, err
	}
	return page.Each(rows, withProblem), nil
}

// Redeliver queues the event of a delivery again.
func Redeliver(ctx context.Context, d *db.DB, guild, id, deliveryID string) (gen.WebhookDelivery, error) {
	fresh, err := SendAgain(ctx, d, guild, id, deliveryID)
	if err != nil {
		return gen.WebhookDelivery{}, err
	}
	row, err := oneDelivery(ctx, d.Reader(), guild, id, fresh)
	return showDelivery(row), err
}

// ErrNoWorker says that no worker made the attempt that Test waited for.
var ErrNoWorker = errors.New("no worker has made the attempt: is `guildhall serve` running with the role worker, on this database?")

// ErrNoSecret says that a worker was running but could not sign the ping of Test.
var ErrNoSecret = errors.New("the endpoint's signing secret cannot be read, so no attempt was made: is the GUILDHALL_SECRET_KEY of `guildhall serve` the one it was sealed with?")

// Test sends a ping to an endpoint and waits for the first attempt, which a running worker makes.
// It returns the delivery with the receiver's response. If no attempt was made in time, it returns
// ErrNoWorker or ErrNoSecret with the delivery, which stays queued. A pull endpoint's ping is not
// attempted by a worker; it waits to be fetched.
func Test(ctx context.Context, d *db.DB, guild, id string) (Delivery, error) {
	ping, err := SendPing(ctx, d, guild, id)
	if err != nil {
		return Delivery{}, err
	}
	if e, err := get(ctx, d.Reader(), guild, id); err != nil || e.Delivery == delivery.Pull {
		row, missing := oneDelivery(ctx, d.Reader(), guild, id, ping)
		return withProblem(row), errors.Join(err, missing)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, egress.AttemptTimeout+5*time.Second, ErrNoWorker)
	defer cancel()
	row, err := AwaitAttempt(waiting, d.Reader(), guild, id, ping)
	if err != nil && waiting.Err() != nil {
		err = context.Cause(waiting)
	}
	if err == nil && row.putOff() {
		err = ErrNoSecret
	}
	return withProblem(row), err
}
