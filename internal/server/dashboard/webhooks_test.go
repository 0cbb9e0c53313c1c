package dashboard_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/dashboard"
)

// worker sends the deliveries of the site until the test ends.
func (s *site) worker(t *testing.T) {
	t.Helper()
	startWorkers(t, delivery.Config{DB: s.DB, Box: s.Config.Webhooks.Box})
}

// startWorkers starts a Deliverer that makes one attempt of each delivery, and the next attempt
// after an hour.
func startWorkers(t testing.TB, cfg delivery.Config) *delivery.Deliverer {
	t.Helper()
	cfg.Guard, cfg.Schedule, cfg.Log = egress.NewGuard(egresstest.Loopback, nil), delivery.Schedule{time.Hour}, slog.New(slog.DiscardHandler)
	d, err := delivery.New(cfg)
	must(t, err)
	background(t, d.Run)
	return d
}

// background runs a function until the test ends.
func background(t testing.TB, run func(context.Context) error) {
	t.Helper()
	ctx, stopped := t.Context(), make(chan struct{})
	go func() {
		defer close(stopped)
		_ = run(ctx)
	}()
	t.Cleanup(func() { <-stopped })
}

// Where webhooks need TLS, the first response to the form already says so, together with all other
// errors.
func TestPlainHTTPIsRefusedWithEverythingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *dashboard.Config) { c.Webhooks.Guard = egress.NewGuard(nil, nil) })
	s.as(t, "manager").post(page(guildID, "webhooks"), url.Values{"url": {"http://example.net/"}}).
		wants(422, "The address cannot be used: it must start with https://.", `id="events-error"`)
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(t)
	receiver := egresstest.NewReceiver(t, egresstest.Respond(500, hostile))
	b := s.as(t, "manager")
	hooks := page(guildID, "webhooks")

	b.get(hooks).wants(200, "Register an endpoint")
	b.post(hooks, url.Values{"url": {"http://192.168.0.1/"}, "description": {"keep me"}, "events": {"case.created"}}).
		wants(422, `id="url-error"`, "keep me", `value="case.created" checked`)
	b.post(hooks, url.Values{"url": {""}, "events": {"case.eaten"}}).wants(422, `id="url-error"`, `id="events-error"`)
	for address, wrong := range map[string]string{
		"ftp://example.net/": "The address cannot be used: it must start with https://.",
		"https://example.net/" + strings.Repeat("a", 5000): "it must have at most 2048 characters.",
		"https://example.net:024500/":                      "without zeros before it.",
		"https://example.net/\u00fc":                       "as %C3%BC.",
		"example.net":                                      "it is not a URL",
	} { // together with the other errors
		b.post(hooks, url.Values{"url": {address}}).wants(422, wrong, `id="url-error"`, `id="events-error"`)
	}
	once := regexp.MustCompile(`name="once" value="([^"]+)"`).FindStringSubmatch(b.get(hooks + "/new").wants(200).body)[1]
	form := url.Values{
		"url": {receiver.URL}, "description": {"<img src=x onerror=alert(1)>"}, "events": {"case.created", "ticket.closed"},
		"enabled": {"true"}, "once": {once},
	}
	secret := b.post(hooks, form).wants(201, "shown this once").secret()
	b.post(hooks, form).wants(303)
	if n := dbtest.Value[int](t, s.DB, `SELECT count(*) FROM webhook_endpoints`); n != 1 {
		t.Fatalf("sending the form twice makes %d endpoints", n)
	}
	everywhere(t, s, secret)
	id := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`)
	one := hooks + "/" + id
	b.get(one).wants(200, "&lt;img src=x").lacks("<img", secret)

	// A test shows the receiver's response as plain text, and a redelivery sends the same event
	// again.
	sent := b.post(one+"/test", nil).wants(303)
	first := b.get(sent.to).wants(200, "500", "&lt;script&gt;", "The receiver answered 500, so",
		"It is tried again by itself.", "curl -X POST").
		lacks("<script>alert", "Redeliver once")
	header := receiver.Await(t, 1).Header
	for name := range header {
		switch name {
		case "Accept-Encoding", "Content-Length", "Service-Signature", "Webhook-Signature", "Webhook-Timestamp":
		default:
			sent := name
			if strings.HasPrefix(name, "Service-") || strings.HasPrefix(name, "Webhook-") {
				sent = strings.ToLower(name) // as the service sends it; the receiver's server changes the case of names
			}
			first.wants(200, sent+": "+header.Get(name)+"\n")
		}
	}
	receiver.RespondWith(egresstest.Respond(200, hostile))
	again := b.post(sent.to+"/redeliver", nil).wants(303)
	b.get(again.to).wants(200, "delivered", "redelivery")
	if calls := receiver.Calls(); len(calls) != 2 || calls[0].Header.Get("Webhook-Id") != calls[1].Header.Get("Webhook-Id") {
		t.Errorf("the requests are %+v", calls)
	}

	// After a rotation, both secrets sign.
	newer := b.post(one+"/rotate", url.Values{"once": {"x"}}).wants(200, "signs along").secret()
	b.post(one+"/rotate", url.Values{"once": {"x"}}).wants(303)
	if newer == secret {
		t.Error("the secret is the old one")
	}
	b.post(one+"/test", nil).wants(303)
	if last := receiver.Await(t, 3).Header.Get("Service-Signature"); strings.Count(last, "v1=") != 2 {
		t.Errorf("signed by %s", last)
	}

	// Failed deliveries are counted, and then recovered once.
	dbtest.Exec(t, s.DB, `
		WITH ev AS (
			INSERT INTO webhook_events (guild_id, id, type, payload) SELECT $1, 'lost-' || n, 'case.created', '{}' FROM generate_series(1, 3) n
			RETURNING guild_id, id, type
		) INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, event_type, state, fresh, completed_at)
		SELECT guild_id, $2, id, type, 'failed', false, now() FROM ev`, guildID, id)
	since := url.Values{"since": {time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")}}
	b.get(one+"/recover?"+since.Encode()).wants(200, "<b>3</b> deliveries have failed")
	b.post(one+"/recover", since).wants(303)
	b.get(one).wants(200, "3 failed deliveries are queued again")
	b.get(one+"/recover?"+since.Encode()).wants(200, "Nothing has failed since")
	b.get(one+"/recover?since=yesterday").wants(422, `id="since-error"`)

	b.get(one+"?status=failed&event_type=case.created").wants(200, "case.created")
	b.get(one+"?status=held").wants(200, "No delivery fits")
	b.post(one+"/disable", nil).wants(303)
	b.get(one).wants(200, "disabled", ">Enable")
	b.post(one+"/enable", nil).wants(303)
	b.post(one+"/edit", url.Values{"url": {receiver.URL}, "events": {"case.updated"}, "enabled": {"true"}}).wants(303)

	// On every path, the ids of another guild do not exist here.
	other := page(neighbourID, "webhooks", id)
	delivery := strings.TrimPrefix(sent.to, one)
	for _, path := range []string{"", "/edit", "/recover?" + since.Encode(), delivery} {
		b.get(other + path).wants(404)
	}
	for _, path := range []string{"/edit", "/enable", "/disable", "/rotate", "/test", "/recover", "/remove", delivery + "/redeliver"} {
		b.post(other+path, since).wants(404)
	}
	b.get(one).wants(200, "data-refresh")
	// The response to a form is not a page that can be reloaded.
	b.post(one+"/remove", url.Values{"confirm": {"no"}}).wants(422, `id="confirm-error"`).lacks("data-refresh")
	b.post(one+"/remove", url.Values{"confirm": {receiver.URL}}).wants(303)
	b.get(one).wants(404)
	rows, err := audit.List(t.Context(), s.DB.Reader(), guildID, audit.Filter{Target: id}, 100)
	must(t, err)
	seen := map[string]bool{}
	for _, r := range rows {
		seen[r.Action] = true
	}
	for _, action := range []string{
		audit.WebhookCreated, audit.WebhookUpdated, audit.WebhookDeleted, audit.WebhookRotated,
		audit.WebhookTested, audit.WebhookRedeliver, audit.WebhookRecovered,
	} {
		if !seen[action] {
			t.Errorf("the audit log lacks %s", action)
		}
	}
	everywhere(t, s, newer)
}

// If the operator's bot has a key, the page of tokens shows the bot's streams: how many of the
// guild's events are waiting for each stream, and which key has fetched last.
func TestStreamsShowWhoFetches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	b.get(page(guildID, "tokens")).wants(200).lacks("Streams")
	key, err := auth.CreateKey(t.Context(), s.DB, auth.NewKey{Env: "test", Name: "bot"})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, s.DB, `INSERT INTO bot_streams (id, name, events, echo) VALUES ('s', 'mirror', '{case.created}', false)`)
	dbtest.Exec(
		t,
		s.DB,
		`INSERT INTO stream_deliveries (guild_id, stream_id, event_id, event_at) VALUES ($1, 's', 'v', now()), ('77', 's', 'w', now())`,
		guildID,
	)
	b.get(page(guildID, "tokens")).wants(200, "mirror", "1<span", "the oldest since", "by nobody yet", "work")
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		_, err := delivery.FetchStream(ctx, tx, delivery.Part{Stream: "mirror", Shards: 1}, key.ID, 10, time.Minute)
		return err
	})
	b.get(page(guildID, "tokens")).wants(200, "by <code>"+key.ID, `<code class="sub preview">`+key.Preview)
	// Even without an active key, the number of waiting events is shown.
	dbtest.Exec(t, s.DB, `UPDATE bot_keys SET revoked_at = now()`)
	b.get(page(guildID, "tokens")).wants(200, "mirror", "1<span", "nobody fetches").lacks("Keys of the operator", "<code>work</code>")
	dbtest.Exec(t, s.DB, `DELETE FROM stream_deliveries`)
	b.get(page(guildID, "tokens")).wants(200).lacks("Streams")
	dbtest.Exec(t, s.DB, `UPDATE bot_keys SET revoked_at = NULL`)
	dbtest.Exec(t, s.DB, `UPDATE bot_streams SET ended_at = now()`)
	b.get(page(guildID, "tokens")).wants(200, "The operator's bot has no stream.")
}

// A long list of event types is collapsed, so that the deliveries are not far below.
func TestManyTypesOfEventsAreFolded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	few := b.endpoint()
	dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET events = '{case.created}'`)
	b.get(few).wants(200, "<code>case.created</code>").lacks("types</summary>")
	dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET events = $1`, db.Array(event.Types))
	b.get(few).wants(200, fmt.Sprintf("<summary>%d types</summary><code>case.created</code>", len(event.Types)))
}

// A pull endpoint has no address: the pages show its id, who fetches from it, and how far the
// fetching is behind.
func TestAPullEndpointShowsWhoFetches(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id, key := db.NewID(), "bk_0123"
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO webhook_endpoints (guild_id, id, delivery, url, events, secret, secret_preview)
			VALUES ($1, $2, 'pull', '', '{case.created}', '', 'whsec_...1234')`, guildID, id)
		if err != nil {
			return err
		}
		return delivery.Register(ctx, tx, guildID, id, true, true)
	})
	b := s.as(t, "manager")
	one := page(guildID, "webhooks", id)
	b.get(page(guildID, "webhooks")).wants(200, "Pull endpoint "+id[len(id)-6:])
	b.get(one).wants(200, "Pull endpoint "+id[len(id)-6:], "Last fetched", "never: no program has fetched from it yet", "0 waiting",
		"nothing to fetch", "Add a test event", "Nothing has happened yet that this endpoint listens to.").
		lacks("nothing sent", "Send a test", `id="recover"`, `name="response_class"`)
	b.post(one+"/test", nil).wants(303)
	ping := dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_deliveries`)
	b.get(one+"/deliveries/"+ping).wants(200, "Waits to be fetched.").lacks("Not tried yet", "<h2>Request</h2>", "curl")
	b.get(one).wants(200, "0 acknowledged, 0 given up, 1 waiting").lacks(`data-label="Answer"`, `data-label="Attempts"`)
	b.get(one).wants(200, "1 waiting", "the oldest that can be fetched since")
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		_, err := delivery.Fetch(ctx, tx, guildID, id, key, 10, time.Minute)
		return err
	})
	b.get(one).wants(200, key).lacks("no program has fetched", "the oldest that can be fetched since")
	// A test of a pull endpoint has no attempt, so the page does not wait for one.
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
		event := dbtest.Value[string](t, s.DB, `SELECT event_id FROM webhook_deliveries`)
		_, _, err := delivery.Acknowledge(ctx, tx, guildID, id, []string{event}, nil)
		return err
	})
	b.get(one+"/deliveries/"+ping).wants(200, "Acknowledged")
	again := b.post(one+"/deliveries/"+ping+"/redeliver", nil).wants(303)
	b.get(again.to).wants(200, "can be fetched once more")
	b.post(one+"/disable", nil).wants(303)
	dbtest.Exec(t, s.DB, `UPDATE webhook_deliveries SET state = 'held' WHERE state = 'pending'`) // as a worker does
	b.get(one).wants(200, "1 held")
	b.post(one+"/enable", nil).wants(303)
	b.get(one).wants(200, "1 held event can be fetched now.")
	b.get(one+"/rotate").wants(200, "forwards").lacks("Requests to")
	b.get(one+"/edit").wants(200, `name="delivery" value="pull"`, "Nothing can be fetched from a disabled endpoint").
		lacks(`name="url"`, "is sent nothing")
	b.get(one+"?status=failed").wants(200, "type its name: Pull endpoint "+id[len(id)-6:], "31 days after its event").lacks("type its address")
	b.post(one+"/remove", url.Values{"confirm": {"other"}}).wants(422, "s name, Pull endpoint "+id[len(id)-6:]+", to remove it.")
	b.post(one+"/edit", url.Values{"delivery": {"pull"}, "description": {"a copy"}, "events": {"case.updated"}, "enabled": {"true"}}).
		wants(303)
	if got := dbtest.Value[string](t, s.DB,
		`SELECT description || url || array_to_string(events, ' ') FROM webhook_endpoints`); got != "a copycase.updated" {
		t.Errorf("after the edit it is %q", got)
	}
	dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET enabled = false, disabled_reason = 'not_fetched'`)
	b.get(one).wants(200, "Nobody fetched events for 7 days, so the endpoint was disabled")
	dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET disabled_reason = 'guild_removed'`)
	b.get(one).wants(200, "The server was to be removed, so the endpoint was disabled").lacks("guild_removed")
}
