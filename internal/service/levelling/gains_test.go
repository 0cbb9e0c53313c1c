package levelling_test

import (
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/levelling"
)

// counted switches periods on in the guild, in a time zone where it is midday, so that the test ends in the week in
// which it begins. It returns a bot of the guild and the zone.
func counted(t testing.TB, a *apitest.API) (bot *apitest.API, zone string) {
	t.Helper()
	bot, zone = a.Bot(t).In(a.Guild), testutil.MiddayZone()
	bot.Do(t, "updateGuildSettings", `{"levelling":{"periods":true},"timezone":"`+zone+`"}`).
		Want(t, 200, `{"data":{"levelling":{"curve":{"base":100},"periods":true}}}`)
	a.WantEvent(t, "guild.updated", `{"data":{"settings":{"levelling":{"periods":true}},"changed":["levelling","timezone"]}}`)
	return bot, zone
}

func period(kind string, further ...apitest.Arg) []apitest.Arg {
	return append([]apitest.Arg{apitest.Query("period", kind)}, further...)
}

// What is gained is on the leaderboards of its week and month within two seconds.
func TestGainsAreListedByWeekAndMonth(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot, zone := counted(t, api)
	api.Do(t, "adjustXp", `{"user_id":"1","total_xp":5000}`).Want(t, 200, "")
	api.Do(t, "adjustXp", `{"user_id":"1","delta":20}`).Want(t, 200, "")
	api.Do(t, "adjustXpOfMembers", `{"adjustments":[{"user_id":"10","delta":30},{"user_id":"9","delta":30},
		{"user_id":"3","delta":5},{"user_id":"3","delta":-5}]}`).Want(t, 200, "")
	api.Key("k").Do(t, "adjustXp", `{"user_id":"9","delta":1}`).Want(t, 200, "")
	api.Key("k").Do(t, "adjustXp", `{"user_id":"9","delta":1}`).Want(t, 200, "")
	api.Do(t, "adjustXp", `{"user_id":"4","delta":7}`).Want(t, 200, "")
	api.Do(t, "adjustXp", `{"user_id":"4","delta":-8}`).WantError(t, 422, "xp_would_be_negative")
	bot.Do(t, "writeRecords", `{"records":[{"record":"level","user_id":"2","total_xp":9000},
		{"record":"member","user_id":"10","left_at":"2026-06-01T00:00:00Z"}]}`).Want(t, 200, "")
	if err := levelling.FoldMoves(t.Context(), api.DB()); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"week", "month"} {
		first := dbtest.Value[string](t, api.DB(), `SELECT date_trunc($1, now() AT TIME ZONE $2)::date::text`, kind, zone)
		past := dbtest.Value[string](t, api.DB(), `
			SELECT (date_trunc($1, now() AT TIME ZONE $2) + ('1 ' || $1)::interval)::date::text`, kind, zone)
		ends := `"period":{"start":"` + first + `","end":"` + past + `"}`
		list := func(args ...apitest.Arg) *apitest.Response {
			return api.Do(t, "getLevellingLeaderboard", "", period(kind, args...)...)
		}
		list().Want(t, 200, `{"data":[{"rank":1,"user_id":"9","total_xp":31,"level":0,"period_xp":31},
			{"rank":2,"user_id":"10","total_xp":30,"level":0,"period_xp":30},
			{"rank":3,"user_id":"1","total_xp":5020,"level":10,"period_xp":20},{"rank":4,"user_id":"4","total_xp":7,"level":0,"period_xp":7}],
			"page":1,"per_page":25,"has_more":false,`+ends+`}`)
		list(apitest.Query("per_page", "1"), apitest.Query("page", "2")).Want(t, 200, `{"data":[{"rank":2,"user_id":"10"}],"has_more":true}`)
		list(apitest.Query("present", "true")).
			Want(t, 200, `{"data":[{"rank":1,"user_id":"9"},{"rank":2,"user_id":"1"},{"rank":3,"user_id":"4"}]}`)
		list(apitest.Query("at", first)).Want(t, 200, `{"data":[{"user_id":"9"},{"user_id":"10"},{"user_id":"1"},{"user_id":"4"}],`+ends+`}`)
		list(apitest.Query("at", past)).Want(t, 200, `{"data":[],"has_more":false,"period":{"start":"`+past+`"}}`)
		list(apitest.Query("at", "2001-02-03")).Want(t, 200, `{"data":[]}`)
		rank := func(user string, args ...apitest.Arg) *apitest.Response {
			return api.Do(t, "getLevellingRank", "", period(kind, append(args, apitest.Path("userId", user))...)...)
		}
		rank("1").Want(t, 200, `{"data":{"rank":3,"user_id":"1","total_xp":5020,"level":10,"of":4,"period_xp":20},`+ends+`}`)
		rank("1", apitest.Query("present", "true")).Want(t, 200, `{"data":{"rank":2,"of":3}}`)
		rank("10", apitest.Query("present", "true")).WantError(t, 404, "not_found")
		rank("3").WantError(t, 404, "not_found")
		rank("2").WantError(t, 404, "not_found")
		rank("1", apitest.Query("at", "2001-02-03")).WantError(t, 404, "not_found")
	}
	api.Do(t, "getLevellingLeaderboard", "").Want(t, 200, `{"data":[{"user_id":"2","period_xp":null},{"user_id":"1","period_xp":null},
		{"user_id":"9"},{"user_id":"10"},{"user_id":"4"},{"user_id":"3"}],"period":null}`)
	api.Do(t, "getLevellingRank", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"rank":2,"period_xp":null},"period":null}`)
}

// What a guild counted stays where its time zone changes, and nothing counts while periods are
// off.
func TestPeriodsAreSwitchedOnAndOff(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	const sums = `SELECT string_agg(concat_ws(' ', user_id, kind, starts, xp), ', ' ORDER BY kind) FROM xp_periods`
	off := func(args ...apitest.Arg) {
		t.Helper()
		api.Do(t, "getLevellingLeaderboard", "", append(args, apitest.Query("period", "week"))...).WantError(t, 422, "periods_off")
		api.Do(t, "getLevellingRank", "", append(args, apitest.Query("period", "month"), apitest.Path("userId", "9"))...).
			WantError(t, 422, "periods_off")
	}
	off()
	api.Do(t, "adjustXp", `{"user_id":"9","delta":10}`).Want(t, 200, "")
	bot, _ := counted(t, api)
	api.Do(t, "adjustXp", `{"user_id":"9","delta":1}`).Want(t, 200, "")
	bot.Do(t, "updateGuildSettings", `{"timezone":"Pacific/Kiritimati"}`).Want(t, 200, "")
	if err := levelling.FoldMoves(t.Context(), api.DB()); err != nil {
		t.Fatal(err)
	}
	before := dbtest.Value[string](t, api.DB(), sums)
	kinds := dbtest.Value[string](t, api.DB(), `SELECT string_agg(concat_ws(' ', user_id, kind, xp), ', ' ORDER BY kind) FROM xp_periods`)
	if kinds != "9 month 1, 9 week 1" {
		t.Errorf("the sums are %s", before)
	}
	bot.Do(t, "updateGuildSettings", `{"levelling":{"periods":false}}`).Want(t, 200, "")
	api.Do(t, "adjustXp", `{"user_id":"9","delta":100}`).Want(t, 200, "")
	if err := levelling.FoldMoves(t.Context(), api.DB()); err != nil {
		t.Fatal(err)
	}
	off(apitest.Query("at", "2026-11-23"))
	if after := dbtest.Value[string](t, api.DB(), sums); after != before {
		t.Errorf("the sums were %s, and are %s", before, after)
	}
}

func TestWrongPeriodsAreRefused(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	counted(t, api)
	for query, message := range map[string]string{
		"period=day":                        "query period",
		"period=":                           "query period",
		"period=week&period=month":          "query period",
		"at=2026-11-23":                     "query at: needs period",
		"period=week&at=2026-02-30":         "query at: must be a date that there is",
		"period=week&at=2026-13-01":         "query at",
		"period=week&at=2026-1-1":           "query at",
		"period=week&at=1999-12-31":         "query at",
		"period=week&at=2026-11-23T10:00Z":  "query at",
		"period=week&at=today":              "query at",
		"period=week&at=":                   "query at",
		"period=month&at=2026-11-23&from=2": "query from",
	} {
		for _, path := range []string{"leaderboard", "rank/9"} {
			refused := api.Raw(t, "GET", "/api/v1/levelling/"+path+"?"+query, "").WantError(t, 400, "invalid_request")
			if got := refused.Str(t, "error.message"); !strings.Contains(got, message) {
				t.Errorf("%s of %s: %s", query, path, got)
			}
		}
	}
	api.Do(t, "getLevellingLeaderboard", "", period("week", apitest.Query("at", "2999-12-31"))...).
		Want(t, 200, `{"data":[],"period":{"start":"2999-12-30","end":"3000-01-06"}}`)
	api.As(t, "levelling:write").Do(t, "getLevellingLeaderboard", "", period("week")...).WantError(t, 403, "insufficient_scope")
}
