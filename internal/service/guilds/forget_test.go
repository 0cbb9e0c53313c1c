package guilds_test

import (
	"testing"

	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/removal"
)

// The tests of package removal check what is deleted, and when.
func TestABotHasMembersForgotten(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	who := apitest.Path("userId", "190320984123768832")
	bot.Do(t, "forgetMember", "", who).Want(t, 202, `{"data":{"user_id":"190320984123768832"}}`)
	bot.Do(t, "forgetMember", `{"cases":true}`, who).Want(t, 202, `{"data":{"user_id":"190320984123768832"}}`)
	bot.Do(t, "forgetMember", `{"cases":"yes"}`, who).WantError(t, 400, "invalid_request")
	bot.Do(t, "forgetMemberEverywhere", "", who).Want(t, 202, `{"data":{"user_id":"190320984123768832"}}`)
	bot.Do(t, "forgetMemberEverywhere", `{"cases":"yes"}`, who).WantError(t, 400, "invalid_request")
}

// An adjustment that is made after the call creates a new wallet, which the worker does not delete.
// RELIABILITY.md, Guilds.
func TestAnAdjustmentAfterForgettingEverywhereIsKept(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	neighbour := api.Next(t)
	bot := api.Bot(t).In(api.Guild)
	who := apitest.Path("userId", "190320984123768832")
	for _, guild := range []*apitest.API{api, neighbour} {
		guild.Do(t, "adjustBalance", `{"user_id":"190320984123768832","delta":5}`).Want(t, 200, "")
		guild.Do(t, "adjustXp", `{"user_id":"190320984123768832","delta":5}`).Want(t, 200, "")
	}
	bot.Do(t, "forgetMemberEverywhere", `{"cases":true}`, who).Want(t, 202, "")
	body := `{"user_id":"190320984123768832","delta":7,"reference":"order-7"}`
	earned := make(map[*apitest.API]*apitest.Response)
	for _, guild := range []*apitest.API{api, neighbour} {
		earned[guild] = guild.Key("order-7").Do(t, "adjustBalance", body).Want(t, 200, `{"data":{"balance":7}}`)
		guild.Do(t, "adjustXp", `{"user_id":"190320984123768832","delta":7}`).Want(t, 200, `{"data":{"total_xp":7}}`)
	}
	if err := removal.Members(t.Context(), api.DB()); err != nil {
		t.Fatal(err)
	}
	for _, guild := range []*apitest.API{api, neighbour} {
		guild.Do(t, "getWallet", "", who).Want(t, 200, `{"data":{"balance":7}}`)
		guild.Do(t, "getLevelRecord", "", who).Want(t, 200, `{"data":{"total_xp":7}}`)
		guild.Do(t, "listLedgerEntries", "", apitest.Query("user_id", "190320984123768832")).
			Want(t, 200, `{"data":[{"delta":7,"balance_after":7}]}`)
		guild.Key("order-7").Do(t, "adjustBalance", body).WantReplayOf(t, earned[guild])
	}
}
