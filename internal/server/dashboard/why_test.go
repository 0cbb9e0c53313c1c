package dashboard_test

import (
	"testing"

	"guildhall/internal/outbound/egress/egresstest"
)

// The overview, the list and the page of a failing endpoint say what is wrong, since when,
// after how many attempts, when the next follows, and lead to the last failed attempt. They say why
// an endpoint is disabled.
func TestPagesSayWhyAnEndpointFails(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.worker(t)
	receiver := egresstest.NewReceiver(t, egresstest.Respond(401, "no"))
	b := s.as(t, "owner")
	one := b.endpointAt(receiver.URL)
	b.get(one).wants(200, ">new</span>").lacks("The last failed attempt")
	failed := b.post(one+"/test", nil).wants(303).to
	for _, path := range []string{page(guildID), page(guildID, "webhooks"), one} {
		b.get(path).wants(200, ">failing</span>", "The receiver answered 401, so it does not know who asks", "Since ", "1 attempt.",
			"Next attempt", "ailed attempts: 1<", `<a href="`+failed+`">The last failed attempt</a>`)
	}
	receiver.RespondWith(egresstest.Respond(410, "gone"))
	b.post(failed+"/redeliver", nil).wants(303)
	for _, path := range []string{page(guildID), page(guildID, "webhooks"), one} {
		b.get(path).wants(200, ">disabled</span>",
			"The receiver answered 410, so the endpoint was disabled: enable it once it takes events again.")
	}
	b.post(one+"/enable", nil).wants(303)
	receiver.RespondWith(egresstest.Respond(200, "yes"))
	b.post(failed+"/redeliver", nil).wants(303)
	b.get(one).wants(200, ">healthy</span>").lacks("The last failed attempt")
}
