package delivery

import (
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
)

// Where tables are distributed by guild, events of several guilds are delivered, also after
// failures, and each statement that locks or changes rows names one guild. The check of all
// statements allows no exception here.
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
	w.drain()
	if n := w.count(`SELECT count(*) FROM webhook_deliveries WHERE state = 'delivered'`); n != guilds*each {
		t.Errorf("%d of %d deliveries arrived", n, guilds*each)
	}
	if n := w.count(`SELECT count(*) FROM webhook_attempts WHERE outcome = 'server_error'`); n == 0 {
		t.Error("no attempt failed: results that change a schedule were not tried")
	}
}

var statements = map[string]statement{
	"pollGuildsSQL": pollGuildsSQL, "lockSchedules": lockSchedules, "takeDeliveries": takeDeliveries, "learnSchedules": learnSchedules,
	"storeChanges": storeChanges, "storeLogged": storeLogged, "storePutAside": storePutAside,
	"leaseStreamed": leaseStreamed, "settleStreamed": settleStreamed, "returnStreamed": returnStreamed,
}

func TestAStatementOfOneGuildNamesNoOther(t *testing.T) {
	t.Parallel()
	ofARow := regexp.MustCompile(`(guild_id|home\.id) (= \w+\.guild_id|IN \(SELECT guild_id FROM \w+\))`)
	for name, s := range statements {
		if s.several == s.one || ofARow.MatchString(s.one) {
			t.Errorf("%s has no form of its own for one guild:\n%s", name, s.one)
		}
	}
}

// Postgres can plan each statement of the package in both forms. With -v the test prints the
// statements.
func TestEachStatementIsPlannedInBothForms(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	texts := map[string]string{}
	for name, s := range statements {
		texts[name] = s.several
	}
	dbtest.WantPlanned(t, w.DB, texts)
}
