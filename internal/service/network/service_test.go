package network_test

import (
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Network") }

func list(t testing.TB, d *db.DB) {
	t.Helper()
	dbtest.Exec(t, d, `
			INSERT INTO network_listings (user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at)
			VALUES ('666', 12, 9, 'scam', 'high', '2025-02-03T04:05:06.789999+02:00', '2026-10-11T12:13:14Z')`)
}

func TestLookupNetworkUser(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("network:read"))
	list(t, api.DB())

	t.Run("says nothing else of the unlisted", func(t *testing.T) {
		t.Parallel()
		got := api.Do(t, "lookupNetworkUser", "", apitest.Path("userId", "42")).Want(t, 200, ``)
		if want := `{"data":{"listed":false}}` + "\n"; string(got.Body) != want {
			t.Errorf("got %q, want %q", got.Body, want)
		}
	})
	t.Run("shows the public summary of the listed, and nothing else", func(t *testing.T) {
		t.Parallel()
		got := api.Do(t, "lookupNetworkUser", "", apitest.Path("userId", "666")).Want(t, 200, `{"data":{
			"listed":true,"user_id":"666","trust_score":12,"report_count":9,"category":"scam","severity":"high",
			"first_reported_at":"2025-02-03T02:05:06.789Z","last_reported_at":"2026-10-11T12:13:14.000Z"}}`)
		var body struct{ Data map[string]any }
		got.Into(t, &body)
		if len(body.Data) != 8 {
			t.Errorf("got %d members, want 8: %s", len(body.Data), got.Body)
		}
	})
	t.Run("answers every guild the same", func(t *testing.T) {
		t.Parallel()
		here := api.Do(t, "lookupNetworkUser", "", apitest.Path("userId", "666"))
		there := api.Next(t).Do(t, "lookupNetworkUser", "", apitest.Path("userId", "666"))
		if string(here.Body) != string(there.Body) {
			t.Errorf("one guild sees %s, another %s", here.Body, there.Body)
		}
	})
	t.Run("wants a snowflake", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"0", "01", "abc", "123456789012345678901"} {
			api.Do(t, "lookupNetworkUser", "", apitest.Path("userId", id)).WantError(t, 400, "invalid_request")
		}
	})
}
