package delivery

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// Where tables are distributed by guild, the engine delivers for several guilds,
// after failures too, and each statement that locks or changes rows names one of
// them: the rules that every statement is held against know no exception here.
func TestDistributedClaimsAndResultsNameOneGuild(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	w.cfg.OneGuild = true
	var calls atomic.Int32
	r := w.receive(func(rw http.ResponseWriter, r *http.Request) {
		if calls.Add(1)%3 == 0 && r.Header.Get("Service-Attempt") == "1" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	const guilds, each = 7, 5
	for i := range guilds {
		guild := strings.Repeat("7", 5+i)
		dbtest.AddGuilds(w.t, w.DB, guild)
		w.add(guild, r.URL)
		w.record(guild, each)
	}
	d, _ := w.start(w.cfg)
	d.wakeAll()
	w.settled()
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`); n != guilds*each {
		t.Errorf("%d of %d deliveries arrived", n, guilds*each)
	}
	if n := w.count(`SELECT count(*) FROM webhook_attempts WHERE outcome = 'server_error'`); n == 0 {
		t.Error("no attempt failed: results that change a schedule were not tried")
	}
}

func TestAStatementOfOneGuildNamesNoOther(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]statement{
		"lockSchedules": lockSchedules, "takeDeliveries": takeDeliveries, "learnSchedules": learnSchedules, "storeChanges": storeChanges,
		"settleLogged": settleLogged, "settlePutAside": settlePutAside,
	} {
		if s.several == s.one || itsGuild.MatchString(s.one) {
			t.Errorf("%s has no form of its own for one guild:\n%s", name, s.one)
		}
	}
}
