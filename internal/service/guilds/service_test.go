package guilds_test

import (
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Guild") }

func TestGetGuild(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("guild:read"))
	next := api.Next(t)
	dbtest.Exec(t, api.DB(), `
		UPDATE guilds
		SET name = 'Ravens 🐦', icon_url = 'https://cdn.example/icon.png', owner_id = '7', member_count = 12034, locale = 'de',
		    joined_at = '2026-02-03T04:05:06.1239Z', created_at = '2019-05-06T00:00:00+02:00'
		WHERE id = $1`, api.Guild)

	t.Run("shows the headline metadata of the token's guild", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getGuild", "").Want(t, 200, `{"data":{"id":"`+api.Guild+`",
			"name":"Ravens 🐦","icon_url":"https://cdn.example/icon.png","owner_id":"7","member_count":12034,"locale":"de",
			"joined_at":"2026-02-03T04:05:06.123Z","created_at":"2019-05-05T22:00:00.000Z"}}`)
		next.Do(t, "getGuild", "").Want(t, 200, `{"data":{"id":"`+next.Guild+`","name":"The Test Guild","icon_url":null}}`)
	})
	t.Run("takes no parameters", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getGuild", "", apitest.Query("guild_id", next.Guild)).WantError(t, 400, "invalid_request")
	})
}

func TestGetGuildSettings(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("guild:read"))
	next := api.Next(t)
	dbtest.Exec(t, api.DB(), `
		UPDATE guild_settings
		SET moderation = true, economy = false, levelling = true, tickets = false, giveaways = true, network = false,
		    currency_name = 'feathers', currency_symbol = '🪶', require_close_reason = true, close_action = 'delete',
		    timezone = 'Europe/Berlin', updated_at = '2026-01-02T03:04:05Z'
		WHERE guild_id = $1`, api.Guild)

	t.Run("shows toggles, currency, curve and ticket policy", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getGuildSettings", "").Want(t, 200, `{"data":{
			"modules":{"moderation":true,"economy":false,"levelling":true,"tickets":false,"giveaways":true,"network":false},
			"economy":{"currency_name":"feathers","currency_symbol":"🪶"},
			"levelling":{"curve":{"base":100,"linear":50,"quadratic":5},"periods":false},
			"tickets":{"require_close_reason":true,"close_action":"delete"},
			"timezone":"Europe/Berlin","updated_at":"2026-01-02T03:04:05.000Z"}}`)
	})
	t.Run("has defaults", func(t *testing.T) {
		t.Parallel()
		next.Do(t, "getGuildSettings", "").Want(t, 200, `{"data":{
			"modules":{"moderation":true,"economy":true,"levelling":true,"tickets":true,"giveaways":true,"network":true},
			"economy":{"currency_name":"coins","currency_symbol":"🪙"},
			"tickets":{"require_close_reason":false,"close_action":"archive"},"timezone":"UTC"}}`)
	})
	t.Run("inform only: a module that is off still answers", func(t *testing.T) {
		t.Parallel()
		api.As(t, "economy:read").Do(t, "getEconomyLeaderboard", "").Want(t, 200, `{"data":[]}`)
	})
	t.Run("takes no parameters", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getGuildSettings", "", apitest.Query("x", "1")).WantError(t, 400, "invalid_request")
	})
}
