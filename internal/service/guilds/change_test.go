package guilds_test

import (
	"strings"
	"testing"

	"guildhall/internal/server/api/apitest"
)

func TestUpdateGuildSettings(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	t.Run("merges at both levels and says what changed", func(t *testing.T) {
		bot.Do(t, "updateGuildSettings", `{"modules":{"economy":false},"timezone":"Europe/Berlin"}`).
			Want(t, 200, `{"data":{"modules":{"economy":false,"levelling":true},"economy":{"currency_name":"coins"},"timezone":"Europe/Berlin"}}`)
		bot.WantEvent(t, "guild.updated", `{"origin":{"type":"bot"},"data":{"guild":{"id":"`+api.Guild+`","name":"The Test Guild"},
			"settings":{"modules":{"economy":false,"tickets":true},"levelling":{"curve":{"base":100}},"timezone":"Europe/Berlin"},
				"changed":["modules","timezone"]}}`)
	})
	t.Run("tells nothing where nothing is different", func(t *testing.T) {
		at := bot.Do(t, "getGuildSettings", "").Str(t, "data.updated_at")
		bot.Do(t, "updateGuildSettings", `{"modules":{"economy":false},"levelling":{"curve":{"base":100,"linear":50,"quadratic":5}}}`).
			Want(t, 200, `{"data":{"updated_at":"`+at+`"}}`)
		bot.WantNoEvent(t)
	})
	for body, message := range map[string]string{
		`{}`:                                    "",
		`{"timezone":"Mars/Olympus"}`:           "body /timezone: must be the name of an IANA time zone, such as Europe/London",
		`{"timezone":"Local"}`:                  "body /timezone: must be the name of an IANA time zone, such as Europe/London",
		`{"timezone":"Factory"}`:                "body /timezone: must be the name of an IANA time zone, such as Europe/London",
		`{"timezone":"posixrules"}`:             "body /timezone: must be the name of an IANA time zone, such as Europe/London",
		`{"timezone":"posix/Europe/London"}`:    "body /timezone: must be the name of an IANA time zone, such as Europe/London",
		`{"timezone":"right/Europe/London"}`:    "body /timezone: must be the name of an IANA time zone, such as Europe/London",
		`{"levelling":{"curve":{"linear":51}}}`: "body /levelling/curve/linear: must be 50: every guild has the same level curve",
	} {
		t.Run("refuses "+body, func(t *testing.T) {
			if got := bot.Do(t, "updateGuildSettings", body).
				WantError(t, 400, "invalid_request").Str(t, "error.message"); got != message && body != `{}` {
				t.Errorf("the message is %q, want %q", got, message)
			}
		})
	}
	t.Run("is the bot's alone", func(t *testing.T) {
		api.Do(t, "updateGuildSettings", `{"timezone":"UTC"}`).WantError(t, 403, "insufficient_scope")
	})
}

func TestRecordsKeepTheGuildTrue(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	bot.Do(t, "writeRecords", `{"records":[
		{"record":"settings","tickets":{"close_action":"delete"}},
		{"record":"guild","id":"`+api.Guild+`","name":"Ravens","icon_url":"https://cdn.example/i.png","member_count":4,
			"created_at":"2001-01-01T00:00:00Z"}]}`).
		Want(t, 200, `{"data":[{"record":"settings","id":"`+api.Guild+`","result":"updated"},{"record":"guild","id":"`+api.Guild+`",
			"updated_at":null,"result":"updated"}]}`)
	bot.WantEvent(t, "guild.updated",
		`{"data":{"guild":{"name":"Ravens"},"settings":{"tickets":{"close_action":"delete"}},"changed":["name","icon_url"]}}`)
	bot.WantEvent(t, "guild.updated", `{"data":{"guild":{"name":"Ravens"},"changed":["tickets"]}}`)
	bot.Do(t, "writeRecords", `{"records":[{"record":"guild","icon_url":null,"member_count":5}]}`).Want(t, 200, "")
	bot.WantEvent(t, "guild.updated", `{"data":{"guild":{"icon_url":null,"member_count":5},"changed":["icon_url"]}}`)
	bot.Do(t, "writeRecords", `{"records":[{"record":"guild","member_count":6}]}`).Want(t, 200, `{"data":[{"result":"updated"}]}`)
	bot.WantNoEvent(t)
	bot.Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"Ravens","owner_id":"`+api.Guild+`","member_count":6}}`)
	for body, message := range map[string]string{
		`{"record":"guild","id":"5"}`: "body /records/0/id: must be left " +
			"out, or be the guild of the call, " + api.Guild,
		`{"record":"settings","guild_id":"5"}`: "body /records/0/guild_id: must be " +
			"left out, or be the guild of the call, " + api.Guild,
		`{"record":"guild","name":"a\nb"}`: "body /records/0/name: must not " +
			"hold control characters or line breaks",
		`{"record":"guild","if_updated_at":"2026-01-01T00:00:00Z"}`: "body /records/0/if_updated_at: must " +
			"be null: a guild shows no updated_at",
		`{"record":"settings","timezone":"Mars"}`: "body /records/0/timezone: must be the name " +
			"of an IANA time zone, such as Europe/London",
		`{"record":"guild","name":"x"},{"record":"guild","member_count":12}`: "body /records/1: what it names stands in this call already",
	} {
		for _, refusal := range []string{"all", "skip"} {
			got := bot.Do(t, "writeRecords", `{"on_refusal":"`+refusal+`","records":[`+body+`]}`).
				WantError(t, 400, "invalid_request").Str(t, "error.message")
			if got != message {
				t.Errorf("%s: the message is %q, want %q", body, got, message)
			}
		}
	}
	bot.Do(t, "writeRecords", `{"records":[{"record":"guild","name":"x","if_updated_at":null}]}`).WantError(t, 422, "record_changed")
}

// A currency symbol can be the longest custom emoji of the platform.
func TestACurrencySymbolHoldsACustomEmoji(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	longest := "<a:" + strings.Repeat("e", 32) + ":" + strings.Repeat("9", 20) + ">"
	for symbol, status := range map[string]int{longest: 200, strings.Repeat("🐚", 64): 200, strings.Repeat("🐚", 65): 400} {
		economy := `"economy":{"currency_symbol":"` + symbol + `"}`
		bot.Do(t, "updateGuildSettings", `{`+economy+`}`).Want(t, status, "")
		bot.Do(t, "writeRecords", `{"records":[{"record":"settings",`+economy+`}]}`).Want(t, status, "")
		if status == 200 {
			api.Do(t, "getGuildSettings", "").Want(t, 200, `{"data":{`+economy+`}}`)
		}
	}
}

func TestARecordMakesAGuild(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In("77")
	bot.Do(t, "getGuild", "").WantError(t, 404, "not_found")
	bot.Do(t, "writeRecords", `{"records":[{"record":"settings","timezone":"Europe/Paris"}]}`).WantError(t, 404, "not_found")
	bot.Do(t, "writeRecords", `{"records":[{"record":"wallet","user_id":"1","balance":3},{"record":"settings","timezone":"Europe/Paris"},
		{"record":"guild","name":"New","if_updated_at":null}]}`).
		Want(t, 200, `{"data":[{"result":"created"},{"result":"updated"},{"record":"guild","id":"77","result":"created"}]}`)
	bot.Do(t, "getGuild", "").Want(t, 200, `{"data":{"id":"77","name":"New","owner_id":"77"}}`)
	bot.Do(t, "getGuildSettings", "").Want(t, 200, `{"data":{"timezone":"Europe/Paris","modules":{"economy":true}}}`)
	api.Bot(t, "78").In("77").Do(t, "writeRecords", `{"records":[{"record":"guild"}]}`).WantError(t, 404, "not_found")
	api.Bot(t, "78").In("78").Do(t, "writeRecords", `{"records":[{"record":"guild"}]}`).
		Want(t, 200, `{"data":[{"id":"78","result":"created"}]}`)
}
