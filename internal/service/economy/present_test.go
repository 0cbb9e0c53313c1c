package economy_test

import (
	"testing"

	"guildhall/internal/server/api/apitest"
)

// With present=true, the leaderboard and its ranks leave out members who have left the guild.
func TestEconomyLeaderboardWithoutThoseWhoLeft(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"1","delta":4},{"user_id":"2","delta":3},{"user_id":"3","delta":2}]}`).
		Want(t, 200, "")
	bot := api.Bot(t).In(api.Guild)
	bot.Do(t, "writeRecords", `{"records":[{"record":"member","user_id":"2","left_at":"2026-06-01T00:00:00Z"}]}`).Want(t, 200, "")
	present := func(value string) apitest.Arg { return apitest.Query("present", value) }
	api.Do(t, "getEconomyLeaderboard", "", present("true")).Want(t, 200,
		`{"data":[{"rank":1,"user_id":"1","balance":4},{"rank":2,"user_id":"3","balance":2}],"page":1,"per_page":25,"has_more":false}`)
	api.Do(t, "getEconomyLeaderboard", "", present("true"), apitest.Query("per_page", "1")).
		Want(t, 200, `{"data":[{"user_id":"1"}],"has_more":true}`)
	api.Do(t, "getEconomyLeaderboard", "", present("false")).Want(t, 200, `{"data":[{"user_id":"1"},{"user_id":"2"},{"user_id":"3"}]}`)
	rank := func(user, value string) *apitest.Response {
		return api.Do(t, "getEconomyRank", "", apitest.Path("userId", user), present(value))
	}
	rank("3", "true").Want(t, 200, `{"data":{"rank":2,"user_id":"3","balance":2,"of":2}}`)
	rank("3", "false").Want(t, 200, `{"data":{"rank":3,"of":3}}`)
	rank("2", "true").WantError(t, 404, "not_found")
	rank("4", "true").WantError(t, 404, "not_found")
	bot.Do(t, "writeRecords", `{"records":[{"record":"member","user_id":"2","joined_at":"2026-06-02T00:00:00Z"}]}`).Want(t, 200, "")
	rank("2", "true").Want(t, 200, `{"data":{"rank":2,"of":3}}`)
	for _, wrong := range []string{"yes", "1", "", "True"} {
		api.Do(t, "getEconomyLeaderboard", "", present(wrong)).WantError(t, 400, "invalid_request")
		rank("3", wrong).WantError(t, 400, "invalid_request")
	}
	api.Do(t, "getEconomyLeaderboard", "", present("true"), present("true")).WantError(t, 400, "invalid_request")
}
