package guilds_test

import (
	"testing"

	"guildhall/internal/server/api/apitest"
)

// Package removal's tests prove what is removed, and when.
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
