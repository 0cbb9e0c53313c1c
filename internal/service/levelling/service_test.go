package levelling_test

import (
	"fmt"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Levelling") }

// member gives a member of the guild XP through the API.
func member(t testing.TB, a *apitest.API, user string, xp int64) {
	t.Helper()
	dbtest.Exec(t, a.DB(), `INSERT INTO levels (guild_id, user_id, total_xp) VALUES ($1, $2, $3)`, a.Guild, user, xp)
}

func TestGetLevelRecord(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("levelling:read"))
	member(t, api, "42", 1387)
	member(t, api.Next(t), "77", 500)

	t.Run("shows XP, level and progress", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{
			"user_id":"42","total_xp":1387,"level":5,"progress":{"current_xp":237,"required_xp":475,"percent":49}}}`)
	})
	t.Run("has a zero record for anybody without activity", func(t *testing.T) {
		t.Parallel()
		const zero = `{"data":{"user_id":"77","total_xp":0,"level":0,` +
			`"progress":{"current_xp":0,"required_xp":100,"percent":0},"updated_at":null}}`
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "77")).Want(t, 200, zero)
	})
	t.Run("wants a snowflake", func(t *testing.T) {
		t.Parallel()
		for _, id := range []string{"0", "042", "-1", "+1", "x", "184467440737095516160", "４２"} {
			api.Do(t, "getLevelRecord", "", apitest.Path("userId", id)).WantError(t, 400, "invalid_request")
		}
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "99999999999999999999")).
			Want(t, 200, `{"data":{"user_id":"99999999999999999999"}}`)
	})
}

func TestGetLevellingLeaderboard(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("levelling:read"))
	for user, xp := range map[string]int64{"9": 255, "10": 255, "3": 23850, "100": 99, "5": 0} {
		member(t, api, user, xp)
	}
	member(t, api.Next(t), "1", 1_000_000)

	t.Run("is ordered by XP, ties by user id as a number", func(t *testing.T) {
		t.Parallel()
		api.Do(t, "getLevellingLeaderboard", "").Want(t, 200, `{"page":1,"per_page":25,"has_more":false,"data":[
			{"rank":1,"user_id":"3","total_xp":23850,"level":20},
			{"rank":2,"user_id":"9","total_xp":255,"level":2},
			{"rank":3,"user_id":"10","total_xp":255,"level":2},
			{"rank":4,"user_id":"100","total_xp":99,"level":0},
			{"rank":5,"user_id":"5","total_xp":0,"level":0}]}`)
	})
	t.Run("is paged", func(t *testing.T) {
		t.Parallel()
		at := func(page, size int) *apitest.Response {
			return api.Do(t, "getLevellingLeaderboard", "",
				apitest.Query("page", fmt.Sprint(page)), apitest.Query("per_page", fmt.Sprint(size)))
		}
		at(2, 2).Want(t, 200, `{"page":2,"per_page":2,"has_more":true,"data":[{"rank":3,"user_id":"10"},{"rank":4,"user_id":"100"}]}`)
		at(3, 2).Want(t, 200, `{"has_more":false,"data":[{"rank":5}]}`)
		at(1, 5).Want(t, 200, `{"has_more":false}`)
		at(100000, 100).Want(t, 200, `{"page":100000,"has_more":false,"data":[]}`)
		at(0, 25).WantError(t, 400, "invalid_request")
		at(1, 101).WantError(t, 400, "invalid_request")
	})
}

func TestAdjustXP(t *testing.T) {
	t.Parallel()

	t.Run("adds XP and says when the level rises", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write"))
		api.Do(t, "adjustXp", `{"user_id":"42","delta":99}`).Want(t, 200, `{"data":{
			"user_id":"42","total_xp":99,"level":0,"previous_level":0,"progress":{"current_xp":99,"required_xp":100,"percent":99}}}`)
		api.WantNoEvent(t)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":1}`).Want(t, 200, `{"data":{
			"total_xp":100,"level":1,"previous_level":0,"progress":{"current_xp":0,"required_xp":155,"percent":0}}}`)
		api.WantEvent(t, "xp.level_up", `{"origin":{"type":"api"},"data":{"user_id":"42","level":1,"previous_level":0,"total_xp":100}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":0}`).Want(t, 200, `{"data":{"total_xp":100,"level":1,"previous_level":1}}`)
		api.WantNoEvent(t)
	})
	t.Run("emits one event for several levels", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write"))
		api.Do(t, "adjustXp", `{"user_id":"42","delta":4675}`).Want(t, 200, `{"data":{"level":10,"previous_level":0}}`)
		api.WantEvent(t, "xp.level_up", `{"data":{"level":10,"previous_level":0,"total_xp":4675}}`)
		api.WantNoEvent(t)
	})
	t.Run("sets XP, and emits a rise and a fall", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write", "levelling:read"))
		api.Do(t, "adjustXp", `{"user_id":"42","total_xp":1150}`).Want(t, 200, `{"data":{"total_xp":1150,"level":5,"previous_level":0}}`)
		api.WantEvent(t, "xp.level_up", `{"data":{"level":5,"previous_level":0}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","total_xp":1149}`).Want(t, 200, `{"data":{"total_xp":1149,"level":4,"previous_level":5}}`)
		api.WantEvent(t, "xp.level_down", `{"data":{"level":4,"previous_level":5,"total_xp":1149}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":-1149}`).Want(t, 200, `{"data":{"total_xp":0,"level":0,"previous_level":4}}`)
		api.WantEvent(t, "xp.level_down", `{"data":{"level":0,"previous_level":4,"total_xp":0}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","total_xp":0}`).Want(t, 200, `{"data":{"total_xp":0,"level":0,"previous_level":0}}`)
		api.WantNoEvent(t)
		updated := api.Do(t, "getLevelRecord", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"total_xp":0}}`).Str(t, "data.updated_at")
		if updated == "" {
			t.Error("a member who had XP once has no updated_at")
		}
	})
	t.Run("never goes below zero", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write", "levelling:read"))
		api.Do(t, "adjustXp", `{"user_id":"42","delta":-1}`).WantError(t, 422, "xp_would_be_negative")
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"total_xp":0,"updated_at":null}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":5}`).Want(t, 200, ``)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":-6}`).WantError(t, 422, "xp_would_be_negative")
		api.Do(t, "adjustXp", `{"user_id":"42","delta":-9007199254740991}`).WantError(t, 422, "xp_would_be_negative")
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"total_xp":5}}`)
		api.WantNoEvent(t)
	})
	t.Run("never goes above what JSON readers hold exactly", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write"))
		api.Do(t, "adjustXp", `{"user_id":"42","total_xp":9007199254740990}`).
			Want(t, 200, `{"data":{"total_xp":9007199254740990,"level":175483}}`)
		api.WantEvent(t, "xp.level_up", `{"data":{"level":175483}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":1}`).Want(t, 200, `{"data":{"total_xp":9007199254740991}}`)
		api.Do(t, "adjustXp", `{"user_id":"42","delta":1}`).WantError(t, 422, "xp_limit_exceeded")
		api.Do(t, "adjustXp", `{"user_id":"42","delta":9007199254740991}`).WantError(t, 422, "xp_limit_exceeded")
		api.WantNoEvent(t)
	})
	t.Run("wants exactly one of delta and total_xp", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write", "levelling:read"))
		for _, body := range []string{
			`{"user_id":"42"}`,
			`{"user_id":"42","delta":1,"total_xp":1}`,
			`{"delta":1,"total_xp":1}`,
			`{"user_id":"42","delta":null}`,
			`{"user_id":"42","total_xp":null}`,
			`{"user_id":"42","total_xp":-1}`,
			`{"user_id":"42","delta":9007199254740992}`,
			`{"user_id":"42","delta":1.0}`,
			`{"user_id":"42","delta":1e3}`,
			`{"user_id":"42","delta":"5"}`,
			`{"user_id":42,"delta":5}`,
			`{"user_id":"42","xp":5}`,
		} {
			api.Do(t, "adjustXp", body).WantError(t, 400, "invalid_request")
		}
		nulls := apitest.New(t, apitest.Scopes("levelling:write"))
		nulls.Do(t, "adjustXp", `{"user_id":"42","delta":1,"total_xp":null}`).Want(t, 200, `{"data":{"total_xp":1}}`)
		both := api.Do(t, "adjustXp", `{"user_id":"42","delta":1,"total_xp":1}`)
		both.Want(t, 400, `{"error":{"message":"body: must have exactly one of delta and total_xp"}}`)
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"updated_at":null}}`)
		api.WantNoEvent(t)
	})
	t.Run("answers a repeated key with the first answer", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t, apitest.Scopes("levelling:write"))
		const body = `{"user_id":"42","delta":100}`
		first := api.Key("k1").Do(t, "adjustXp", body).Want(t, 200, `{"data":{"level":1}}`)
		api.Key("k1").Do(t, "adjustXp", body).WantReplayOf(t, first)
		api.WantEvent(t, "xp.level_up", `{"data":{"level":1}}`)
		api.WantNoEvent(t)
		refused := api.Key("k2").Do(t, "adjustXp", `{"user_id":"42","delta":-101}`).WantError(t, 422, "xp_would_be_negative")
		api.Do(t, "adjustXp", body).Want(t, 200, `{"data":{"total_xp":200}}`)
		api.Key("k2").Do(t, "adjustXp", `{"user_id":"42","delta":-101}`).WantReplayOf(t, refused)
	})
	t.Run("touches no other guild", func(t *testing.T) {
		t.Parallel()
		api := apitest.New(t)
		next := api.Next(t)
		api.Do(t, "adjustXp", `{"user_id":"42","total_xp":500}`).Want(t, 200, ``)
		next.Do(t, "getLevelRecord", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"total_xp":0,"updated_at":null}}`)
		next.Do(t, "getLevellingLeaderboard", "").Want(t, 200, `{"data":[]}`)
		next.WantNoEvent(t)
	})
}

func TestGetLevellingRank(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	for user, xp := range map[string]int{"100": 255, "99": 255, "7": 0} {
		api.Do(t, "adjustXp", fmt.Sprintf(`{"user_id":"%s","total_xp":%d}`, user, xp)).Want(t, 200, "")
	}
	for user, want := range map[string]string{
		"99":  `{"data":{"rank":1,"user_id":"99","total_xp":255,"level":2,"of":3}}`,
		"100": `{"data":{"rank":2,"user_id":"100","total_xp":255,"level":2,"of":3}}`,
		"7":   `{"data":{"rank":3,"user_id":"7","total_xp":0,"level":0,"of":3}}`,
	} {
		api.Do(t, "getLevellingRank", "", apitest.Path("userId", user)).Want(t, 200, want)
	}
	api.Do(t, "getLevellingRank", "", apitest.Path("userId", "8")).WantError(t, 404, "not_found")
	api.Next(t).Do(t, "getLevellingRank", "", apitest.Path("userId", "7")).WantError(t, 404, "not_found")
	api.Do(t, "getLevellingRank", "", apitest.Path("userId", "007")).WantError(t, 400, "invalid_request")
}

// With present=true, the leaderboard and its ranks leave out members who have left the guild.
func TestLevellingLeaderboardWithoutThoseWhoLeft(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustXpOfMembers", `{"adjustments":[{"user_id":"1","delta":400},{"user_id":"2","delta":3},{"user_id":"3","delta":2}]}`).
		Want(t, 200, "")
	api.Bot(t).In(api.Guild).Do(t, "writeRecords", `{"records":[{"record":"member","user_id":"1","left_at":"2026-06-01T00:00:00Z"}]}`).
		Want(t, 200, "")
	present := apitest.Query("present", "true")
	api.Do(t, "getLevellingLeaderboard", "", present).Want(t, 200,
		`{"data":[{"rank":1,"user_id":"2","total_xp":3,"level":0},{"rank":2,"user_id":"3","total_xp":2,"level":0}],"has_more":false}`)
	api.Do(t, "getLevellingRank", "", apitest.Path("userId", "3"), present).
		Want(t, 200, `{"data":{"rank":2,"user_id":"3","total_xp":2,"level":0,"of":2}}`)
	api.Do(t, "getLevellingRank", "", apitest.Path("userId", "1"), present).WantError(t, 404, "not_found")
	api.Do(t, "getLevellingLeaderboard", "", apitest.Query("present", "no")).WantError(t, 400, "invalid_request")
	api.Do(t, "getLevellingRank", "", apitest.Path("userId", "3"), apitest.Query("present", "no")).WantError(t, 400, "invalid_request")
}

// Several records are read in one statement and returned in the order of the request.
func TestListLevelRecords(t *testing.T) {
	t.Parallel()
	api := apitest.New(t, apitest.Scopes("levelling:read"))
	member(t, api, "42", 1387)
	member(t, api, "43", 100)
	ids := func(list string) apitest.Arg { return apitest.Query("user_ids", list) }
	api.Do(t, "listLevelRecords", "", ids("43,9,42,43")).Want(t, 200, `{"data":[{"user_id":"43","total_xp":100,"level":1},
		{"user_id":"9","total_xp":0,"updated_at":null},{"user_id":"42","total_xp":1387}],"page":1,"per_page":100,"has_more":false}`)
	for _, args := range [][]apitest.Arg{{}, {ids("")}, {ids("42,x")}, {ids("42"), apitest.Query("per_page", "1")}} {
		api.Do(t, "listLevelRecords", "", args...).WantError(t, 400, "invalid_request")
	}
	api.As(t, "levelling:write").Do(t, "listLevelRecords", "", ids("42")).WantError(t, 403, "insufficient_scope")
}
