package main

import (
	"encoding/json"
	"strings"
	"testing"

	"guildhall/gen"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress/egresstest"
	"guildhall/internal/server/api/apitest"
)

// The webhook commands, with a node that is only a worker.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	receiver := egresstest.NewReceiver(t, egresstest.Respond(204, ""))
	// signature returns the signature of the newest request.
	signature := func() string { return receiver.Await(t, 1).Header.Get("Service-Signature") }
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	worker := begin(t, t.TempDir(), []string{
		"GUILDHALL_DATABASE_URL=" + url, "GUILDHALL_SECRET_KEY=" + key, "GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8",
		"GUILDHALL_ROLES=worker", "GUILDHALL_OPS_LISTEN=127.0.0.1:0", "GUILDHALL_DISCORD_URL=off",
	}, "serve")
	worker.says(t, `"msg":"ready","https":"","http":"","ops":"127.0.0.1:`)

	command := func(args ...string) result {
		return call(t, "", append([]string{"webhook", args[0], "--database-url", url}, args[1:]...)...)
	}
	add := []string{"add", "--guild", guild, "--secret-key", key, "--event", "case.created, case.updated", "--json", "--url"}
	command(append(add, receiver.URL)...).refused(t, 2, "https://")
	command(append(add, strings.Replace(receiver.URL, "http", "https", 1))...).refused(t, 1, "public")
	command(append(add, "https://example.net/\u00fc")...).refused(t, 2, "must write the character")
	command(append(add, "https://example.net/"+strings.Repeat("a", 5000))...).refused(t, 2, "at most 2048 characters")
	add = append(add, receiver.URL, "--webhook-allow", "127.0.0.0/8")
	var e gen.WebhookEndpointWithSecret
	if err := json.Unmarshal([]byte(command(add...).ok(t)), &e); err != nil {
		t.Fatal(err)
	}
	if e.ID == "" || e.URL != receiver.URL || !strings.HasPrefix(e.Secret, "whsec_") || len(e.Events) != 2 {
		t.Errorf("add prints %+v", e)
	}
	command("add", "--guild", guild, "--url", receiver.URL, "--webhook-allow", "127.0.0.0/8", "--secret-key", key,
		"--event", "case.eaten").refused(t, 2, "case.eaten")

	delivery := func(text string) (d gen.WebhookDelivery) {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return d
	}
	ping := delivery(command("test", e.ID, "--json").ok(t))
	if ping.Status != "delivered" || ping.ResponseStatus == nil || *ping.ResponseStatus != 204 || len(receiver.Calls()) != 1 {
		t.Errorf("test prints %+v after %d requests", ping, len(receiver.Calls()))
	}
	if s := signature(); !strings.HasPrefix(s, "t=") || !strings.Contains(s, ",v1=") {
		t.Errorf("the signature is %q", s)
	}
	if out := command("test", e.ID).ok(t); !strings.Contains(out, "delivered") || !strings.Contains(out, "204") {
		t.Errorf("test prints %q", out)
	}
	receiver.RespondWith(egresstest.Respond(500, "thanks"))
	r := command("test", e.ID)
	if r.code != 1 || !strings.Contains(r.out, "500") || !strings.Contains(r.out, "thanks") {
		t.Errorf("a refused ping: %+v", r)
	}
	receiver.RespondWith(egresstest.Respond(200, "thanks"))

	again := delivery(command("redeliver", e.ID, ping.ID, "--json").ok(t))
	if again.ID == ping.ID || again.EventID != ping.EventID {
		t.Errorf("redeliver prints %+v for %+v", again, ping)
	}
	var log []gen.WebhookDelivery
	if err := json.Unmarshal([]byte(command("deliveries", e.ID, "--status", "delivered", "--json").ok(t)), &log); err != nil || len(log) < 2 {
		t.Errorf("deliveries prints %+v, %v", log, err)
	}

	command("deliveries", e.ID, "--limit", "0").refused(t, 2, "at least 1")

	var rotated gen.WebhookEndpointWithSecret
	if err := json.Unmarshal([]byte(command("rotate-secret", e.ID, "--secret-key", key, "--json").ok(t)), &rotated); err != nil ||
		rotated.Secret == e.Secret || rotated.ID != e.ID {
		t.Errorf("rotate-secret prints %+v, %v", rotated, err)
	}
	command("rotate-secret", e.ID, "--secret-key", key, "--old-secret-expires-in", "25h").refused(t, 2, "24h")
	command("rotate-secret", e.ID, "--secret-key", key, "--old-secret-expires-in", "0", "--json").ok(t)
	command("test", e.ID).ok(t)
	if signatures := strings.Count(signature(), ",v1="); signatures != 1 {
		t.Errorf("%d secrets sign after the old ones were ended", signatures)
	}
	if out := command("list", "--guild", guild).ok(t); !strings.Contains(out, e.ID) || strings.Contains(out, rotated.Secret) {
		t.Errorf("list prints %s", out)
	}
	dbtest.Exec(t, dbtest.Open(t, url).DB, `UPDATE webhook_endpoints SET secret = '\x00' WHERE guild_id = $1`, guild)
	command("test", e.ID).refused(t, 1, "secret cannot be read")
	command("remove", e.ID).ok(t)
	command("remove", e.ID).refused(t, 1, "No such webhook endpoint.")
	if out := command("list", "--guild", guild, "--json").ok(t); strings.TrimSpace(out) != "[]" {
		t.Errorf("list prints %s", out)
	}
}

// A ping for a pull endpoint waits to be fetched, and the command says so.
func TestAPingThatIsFetchedIsNotRefused(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	id := api.Do(t, "createWebhookEndpoint", `{"delivery":"pull","events":["case.created"]}`).Want(t, 201, "").Str(t, "data.id")
	for status, change := range map[string]string{"pending": `{"enabled":true}`, "held": `{"enabled":false}`} {
		api.Do(t, "updateWebhookEndpoint", change, apitest.Path("id", id)).Want(t, 200, "")
		out := call(t, "", "webhook", "test", id, "--database-url", api.Server.DBURL).ok(t)
		if !strings.Contains(out, status) || !strings.Contains(out, "waits to be fetched") {
			t.Errorf("test prints %q", out)
		}
	}
}

// A test installation may have no secret key. The commands then use the same fallback key as its
// servers.
func TestWebhooksOfAnInstallationWithoutAKey(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	node := begin(t, t.TempDir(), []string{
		"GUILDHALL_DATABASE_URL=" + url, "GUILDHALL_ENV=test", "GUILDHALL_ROLES=worker", "GUILDHALL_OPS_LISTEN=127.0.0.1:0",
	}, "serve")
	node.says(t, `"msg":"ready"`)
	add := []string{
		"webhook", "add", "--database-url", url, "--guild", guild, "--all-events",
		"--url", "https://192.0.2.1/", "--webhook-allow", "192.0.2.0/24",
	}
	call(t, "", append(add, "--env", "test")...).ok(t)
	call(t, "", add...).refused(t, 1, "a key is needed to keep signing secrets: the one that the servers have")
}
