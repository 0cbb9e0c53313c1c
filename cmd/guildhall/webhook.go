package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/webhooks"
)

type webhookGroup struct {
	Add          webhookAdd        `cmd:"" help:"Register an endpoint and print its signing secret, once."`
	List         webhookList       `cmd:"" help:"List a guild's endpoints."`
	RotateSecret webhookRotate     `cmd:"" help:"Give an endpoint a new secret; the old one signs along for a while."`
	Test         webhookTest       `cmd:"" help:"Send a ping and print what the receiver answered. A worker must be running."`
	Deliveries   webhookDeliveries `cmd:"" help:"List an endpoint's newest deliveries."`
	Redeliver    webhookRedeliver  `cmd:"" help:"Queue the event of a delivery once more."`
	Recover      webhookRecover    `cmd:"" help:"After an outage of the receiver, queue once more what has failed since."`
	Remove       webhookRemove     `cmd:"" help:"Delete an endpoint."`
}

// receivers holds the settings of the webhook commands: which addresses may be called, and the
// secret key.
type receivers struct {
	connection
	SecretKey    string   `env:"GUILDHALL_SECRET_KEY" help:"The servers' own, as they have it. Default: that of the running guildhall dev." placeholder:"KEY"`
	Env          string   `env:"GUILDHALL_ENV" enum:"live,test," default:"" help:"The installation's environment: one for tests may have no key. Default: that of the running guildhall dev, else live."`
	WebhookAllow []string `env:"GUILDHALL_WEBHOOK_ALLOW" sep:"none" help:"CIDRs of otherwise refused addresses that webhooks may call." placeholder:"CIDR"`
	JSON         bool     `help:"Print JSON."`
}

type webhookAdd struct {
	receivers
	Guild       string   `required:"" help:"The guild's id." placeholder:"ID"`
	URL         string   `name:"url" required:"" help:"Where events are sent, https." placeholder:"URL"`
	Description string   `help:"What the endpoint is for, at most 200 characters." placeholder:"TEXT"`
	Event       []string `sep:"none" xor:"events" help:"An event type; repeat it, or list several with commas." placeholder:"EVENT"`
	AllEvents   bool     `xor:"events" help:"Every event type."`
}

func (c *webhookAdd) Run(ctx context.Context, io streams) error {
	events := wire.Items(c.Event...)
	if len(events) == 0 && !c.AllEvents {
		return usageError{errors.New("an endpoint needs --event or --all-events")}
	}
	cfg, err := c.config(ctx)
	if err != nil {
		return err
	}
	defer cfg.DB.Close()
	return c.showSecret(ctx, io, cfg, func(ctx context.Context, d db.Doer) (gen.WebhookEndpointWithSecret, error) {
		return webhooks.Add(ctx, cfg, d, c.Guild, c.URL, c.Description, events)
	})
}

// config opens the database and returns what managing endpoints needs.
func (r receivers) config(ctx context.Context) (webhooks.Config, error) {
	d, f, err := r.open(ctx)
	if err != nil {
		return webhooks.Config{}, err
	}
	s := Settings{SecretKey: cmp.Or(r.SecretKey, f.SecretKey), WebhookAllow: r.WebhookAllow}
	if len(s.WebhookAllow) == 0 && f.Env != "" { // a running dev
		s.WebhookAllow = []string{loopback}
	}
	b, err := box(s.SecretKey, cmp.Or(r.Env, f.Env))
	err = fault.Wrap(err, "GUILDHALL_SECRET_KEY")
	if err == nil {
		err = wantKey(ctx, d, b)
	}
	if err != nil {
		return webhooks.Config{}, errors.Join(err, d.Close())
	}
	c, err := s.receivers(b)
	if err != nil {
		return webhooks.Config{}, errors.Join(err, d.Close())
	}
	return webhooks.Config{DB: d, Box: c.Box, Guard: c.Guard}, nil
}

// showSecret prints the endpoint that change returns with its new secret.
func (r receivers) showSecret(
	ctx context.Context, io streams, cfg webhooks.Config, change func(ctx context.Context, d db.Doer) (gen.WebhookEndpointWithSecret, error),
) error {
	return showOnce(ctx, cfg.DB, func(ctx context.Context, d db.Doer) error {
		e, err := change(ctx, d)
		if err != nil {
			return err
		}
		return io.secret(r.JSON, e, "%s\n\nid      %s\nurl     %s\nevents  %s\n\nThe secret is shown this once. Keep it safe.", e.Secret, e.ID, e.URL, strings.Join(e.Events, " "))
	})
}

type webhookList struct {
	connection
	Guild string `required:"" help:"The guild's id." placeholder:"ID"`
	JSON  bool   `help:"Print a JSON array."`
}

func (c *webhookList) Run(ctx context.Context, io streams) error {
	d, err := c.openFor(ctx, c.Guild, false)
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := webhooks.List(ctx, d, c.Guild)
	if err != nil {
		return err
	}
	if c.JSON {
		return output.JSON(io.out, all)
	}
	rows := [][]string{{"ID", "URL", "STATE", "SINCE", "SECRET", "EVENTS", "PROBLEM"}}
	for _, e := range all {
		state, since, problem := e.Health.State, "", ""
		if e.DisabledReason != nil {
			state += " (" + *e.DisabledReason + ")"
		}
		if e.Health.FailingSince != nil {
			since = e.Health.FailingSince.String()
		}
		if e.Health.Problem != nil {
			problem = *e.Health.Problem
		}
		rows = append(rows, []string{e.ID, cmp.Or(e.URL, "("+e.Delivery+")"), state, since, e.SecretPreview, strings.Join(e.Events, " "), problem})
	}
	return output.Table(io.out, rows)
}

type webhookRotate struct {
	receivers
	ID                 string `arg:"" help:"The endpoint's id."`
	OldSecretExpiresIn string `default:"24h" help:"How long the old secret signs along: a number and a unit, s, m or h, at most 24h; 0 ends it at once." placeholder:"TIME"`
}

func (c *webhookRotate) Run(ctx context.Context, io streams) error {
	overlap, err := parseOverlap(c.OldSecretExpiresIn)
	if err != nil {
		return usageError{err}
	}
	cfg, err := c.config(ctx)
	if err != nil {
		return err
	}
	defer cfg.DB.Close()
	guild, err := webhooks.GuildOf(ctx, cfg.DB.Reader(), c.ID)
	if err != nil {
		return err
	}
	return c.showSecret(ctx, io, cfg, func(ctx context.Context, d db.Doer) (gen.WebhookEndpointWithSecret, error) {
		return webhooks.Rotate(ctx, cfg, d, guild, c.ID, overlap)
	})
}

// parseOverlap parses how long a replaced secret also signs.
func parseOverlap(s string) (time.Duration, error) {
	if s == "0" || s == "0s" {
		return 0, nil
	}
	d, err := auth.ParseExpiresIn(s)
	if err != nil || d > webhooks.MaxOverlap {
		return 0, fmt.Errorf("--old-secret-expires-in: %q is not a number and a unit, s, m or h, of at most 24h", s)
	}
	return d, nil
}

// endpointCommand is the common part of commands about one endpoint that need no secret key.
type endpointCommand struct {
	connection
	ID   string `arg:"" help:"The endpoint's id."`
	JSON bool   `help:"Print JSON."`
}

type webhookTest struct{ endpointCommand }

// Run sends a ping, prints the receiver's response, and fails if the receiver did not accept the
// ping.
func (c *webhookTest) Run(ctx context.Context, io streams) error {
	return c.with(ctx, func(d *db.DB, guild string) error {
		sent, err := webhooks.Test(ctx, d, guild, c.ID)
		if err != nil {
			return err
		}
		if err := c.printDelivery(io, sent.WebhookDelivery); err != nil {
			return err
		}
		switch {
		case sent.Status == "delivered":
			return nil
		case sent.AttemptCount > 0 || sent.Status == "failed":
			return errors.New(cmp.Or(sent.Problem, "the receiver did not accept the ping"))
		case c.JSON:
			return nil
		}
		return output.Say(io.out, "The endpoint is a pull endpoint: nobody calls it, and the ping waits to be fetched.")
	})
}

// with opens the database and calls do with the endpoint's guild.
func (c endpointCommand) with(ctx context.Context, do func(d *db.DB, guild string) error) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	guild, err := webhooks.GuildOf(ctx, d.Reader(), c.ID)
	if err != nil {
		return err
	}
	return do(d, guild)
}

type webhookDeliveries struct {
	endpointCommand
	Status        string `enum:"pending,delivered,failed,held," default:"" help:"Only those that are pending, delivered, failed or held."`
	EventType     string `help:"Only those of this event type." placeholder:"EVENT"`
	ResponseClass string `enum:"2xx,3xx,4xx,5xx,none," default:"" help:"Only those last answered with a status of this class; none: not answered."`
	Since         string `help:"Only those created since: an RFC 3339 time, or a number and a unit, s, m, h or d, as in 2h." placeholder:"TIME"`
	Limit         int    `default:"50" help:"How many at most."`
}

func (c *webhookDeliveries) Run(ctx context.Context, io streams) error {
	if c.Limit < 1 {
		return usageError{fmt.Errorf("--limit: %d is not at least 1", c.Limit)}
	}
	f := webhooks.Filter{Status: c.Status, EventType: c.EventType, ResponseClass: c.ResponseClass}
	if c.Since != "" {
		var err error
		if f.Since, err = parseSince(c.Since); err != nil {
			return usageError{err}
		}
	}
	return c.with(ctx, func(d *db.DB, guild string) error {
		all, err := webhooks.Deliveries(ctx, d, guild, c.ID, f, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return output.JSON(io.out, all)
		}
		rows := [][]string{{"ID", "EVENT", "STATUS", "ATTEMPTS", "ANSWER", "CREATED", "PROBLEM"}}
		for _, d := range all {
			rows = append(rows, []string{d.ID, d.EventType, d.Status, strconv.Itoa(d.AttemptCount), receiverResponse(d.WebhookDelivery), d.CreatedAt.String(), d.Problem})
		}
		return output.Table(io.out, rows)
	})
}

type webhookRedeliver struct {
	endpointCommand
	Delivery string `arg:"" help:"The delivery's id."`
}

func (c *webhookRedeliver) Run(ctx context.Context, io streams) error {
	return c.with(ctx, func(d *db.DB, guild string) error {
		sent, err := webhooks.Redeliver(ctx, d, guild, c.ID, c.Delivery)
		if err != nil {
			return err
		}
		return c.printDelivery(io, sent)
	})
}

type webhookRecover struct {
	endpointCommand
	Since string `required:"" help:"When the outage began: an RFC 3339 time, or a number and a unit, s, m, h or d, as in 2h." placeholder:"TIME"`
}

func (c *webhookRecover) Run(ctx context.Context, io streams) error {
	since, err := parseSince(c.Since)
	if err != nil {
		return usageError{err}
	}
	return c.with(ctx, func(d *db.DB, guild string) error {
		n, err := webhooks.Requeue(ctx, d, guild, c.ID, since)
		if err != nil {
			return err
		}
		return io.result(c.JSON, gen.WebhookRecovery{QueuedCount: n}, "Queued %s again.", output.Count(int64(n), "delivery"))
	})
}

// parseSince parses an instant, or a time before now. It refuses an instant in the future, which
// would be a typing error and always give an empty result; clocks may differ by a minute.
func parseSince(s string) (time.Time, error) {
	if t, err := wire.ParseTime(s); err == nil {
		if time.Until(t) > time.Minute {
			return time.Time{}, fmt.Errorf("--since: %s lies ahead", s)
		}
		return t, nil
	}
	ago, err := auth.ParseExpiresIn(s)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since: %q is neither an RFC 3339 time nor a number and a unit, s, m, h or d, as in 2h", s)
	}
	return time.Now().Add(-ago), nil
}

type webhookRemove struct{ endpointCommand }

func (c *webhookRemove) Run(ctx context.Context, io streams) error {
	return c.with(ctx, func(d *db.DB, guild string) error {
		if err := webhooks.Delete(ctx, d, guild, c.ID); err != nil {
			return err
		}
		return io.result(c.JSON, map[string]any{"id": c.ID, "removed": true}, "Endpoint %s is removed.", c.ID)
	})
}

func (c endpointCommand) printDelivery(io streams, d gen.WebhookDelivery) error {
	return io.result(c.JSON, d, "delivery  %s\nevent     %s (%s)\nstatus    %s\nanswer    %s", d.ID, d.EventType, d.EventID, d.Status, receiverResponse(d))
}

// receiverResponse returns the receiver's response, or why there was none.
func receiverResponse(d gen.WebhookDelivery) string {
	var parts []string
	if d.ResponseStatus != nil {
		parts = append(parts, strconv.Itoa(*d.ResponseStatus))
	}
	if d.Error != nil {
		parts = append(parts, *d.Error)
	}
	if d.DurationMs != nil {
		parts = append(parts, fmt.Sprintf("in %d ms", *d.DurationMs))
	}
	if d.ResponseExcerpt != nil && *d.ResponseExcerpt != "" {
		parts = append(parts, strconv.Quote(*d.ResponseExcerpt))
	}
	if len(parts) == 0 {
		return "none yet"
	}
	return strings.Join(parts, " ")
}
