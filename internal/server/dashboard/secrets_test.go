package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress/egresstest"
)

// A replaced secret ends when its owner chooses: now, in an hour or in a day. While the secret
// still signs, the page shows until when, and has a button to end it.
func TestAnOldSecretEndsWhenItsOwnerSays(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(t)
	r := egresstest.NewReceiver(t, egresstest.Respond(204, ""))
	b := s.as(t, "manager")
	b.post(page(guildID, "webhooks"), url.Values{"url": {r.URL}, "events": {"case.created"}, "enabled": {"true"}}).wants(201)
	one := page(guildID, "webhooks", dbtest.Value[string](t, s.DB, `SELECT id FROM webhook_endpoints`))
	sent := 0
	signatures := func() int {
		t.Helper()
		b.post(one+"/test", nil).wants(303)
		sent++
		return strings.Count(r.Await(t, sent).Header.Get("Service-Signature"), "v1=")
	}
	rotate := func(in string) got {
		t.Helper()
		return b.post(one+"/rotate", url.Values{"old_secret_expires_in": {in}})
	}
	b.get(one+"/rotate").wants(200, `value="86400" checked`, `value="3600"`, `value="0"`)
	b.get(one).wants(200).lacks("signs along", "End now")

	rotate("3600").wants(200, "The old one signs along until")
	if !dbtest.Value[bool](t, s.DB, `
		SELECT (old_secrets -> 0 ->> 'until')::timestamptz BETWEEN now() AND now() + interval '1 hour'
		FROM webhook_endpoints`) {
		t.Error("the old secret does not end within the hour")
	}
	b.get(one).wants(200, "An old one signs along until", "End now")
	if n := signatures(); n != 2 {
		t.Errorf("%d secrets sign within the hour", n)
	}
	b.post(one+"/end-old-secrets", nil).wants(303)
	b.get(one).wants(200, "The old secret has ended").lacks("signs along", "End now")
	if n := signatures(); n != 1 {
		t.Errorf("%d secrets sign after the old one was ended", n)
	}
	rotate("86400").wants(200, "signs along until")
	rotate("0").wants(200, "The old one has ended")
	if n := signatures(); n != 1 {
		t.Errorf("%d secrets sign after a rotation that ends the old ones now", n)
	}
	for _, wrong := range []string{"", "86401", "-1", "never"} {
		rotate(wrong).wants(422, `id="old_secret_expires_in-error"`)
	}
	b.get(page(guildID, "audit")).wants(200, "webhook.old_secrets_ended", "webhook.secret_rotated")
	other := page(neighbourID, "webhooks") + strings.TrimPrefix(one, page(guildID, "webhooks"))
	b.get(other + "/rotate").wants(404)
	b.post(other+"/end-old-secrets", nil).wants(404)
}

// Before an endpoint is disabled, a page explains the effects and asks.
func TestDisablingSaysFirstWhatItCosts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "manager")
	one := b.endpoint()
	b.get(one).wants(200, `href="`+one+`/disable"`).lacks(`action="` + one + `/disable"`)
	b.get(one+"/disable").wants(200, "events that happen are lost to it for good", `action="`+one+`/disable"`)
	if !dbtest.Value[bool](t, s.DB, `SELECT enabled FROM webhook_endpoints`) {
		t.Error("asking has disabled the endpoint")
	}
	b.post(one+"/disable", nil).wants(303)
	if dbtest.Value[bool](t, s.DB, `SELECT enabled FROM webhook_endpoints`) {
		t.Error("the endpoint is enabled")
	}
}

// If the form of an endpoint disables the endpoint, a page asks first, as for the button, and then
// saves all values of the form.
func TestDisablingByTheFormAsksFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.as(t, "owner")
	one := b.endpoint()
	enabled := func() bool { return dbtest.Value[bool](t, s.DB, `SELECT enabled FROM webhook_endpoints`) }
	form := url.Values{"url": {"http://127.0.0.1:9/other"}, "description": {"of <b>mine</b>"}, "events": {"case.created", "case.updated"}}
	asked := b.post(one+"/edit", form).wants(200, "lost to it for good", `name="description" value="of &lt;b&gt;mine&lt;/b&gt;"`,
		`name="events" value="case.created"`, `name="events" value="case.updated"`, "Save and disable")
	asked.lacks("<b>mine")
	if !enabled() {
		t.Fatal("it was disabled without having asked")
	}
	form.Set("disable", "no")
	b.post(one+"/edit", form).wants(200, `value="http://127.0.0.1:9/other"`, `value="case.updated" checked`)
	if !enabled() {
		t.Fatal("it was disabled against its owner's word")
	}
	form.Set("disable", "yes")
	b.post(one+"/edit", form).wants(303)
	if enabled() || dbtest.Value[string](t, s.DB, `SELECT url FROM webhook_endpoints`) != "http://127.0.0.1:9/other" {
		t.Error("the form was not saved")
	}
	form.Del("disable")
	b.post(one+"/edit", form).wants(303) // it is already disabled
}
