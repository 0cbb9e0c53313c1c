package levelling_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
)

// asked is an adjustment in a request, which has one of the two fields.
type asked struct {
	UserID  string `json:"user_id"`
	Delta   *int64 `json:"delta,omitempty"`
	TotalXP *int64 `json:"total_xp,omitempty"`
}

func bodyOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// effect is the part of the response to an adjustment that does not depend on the time.
type effect struct {
	UserID        string `json:"user_id"`
	TotalXP       int64  `json:"total_xp"`
	Level         int    `json:"level"`
	PreviousLevel int    `json:"previous_level"`
	Progress      any    `json:"progress"`
}

// The adjustments of one call have the same effects and responses as single adjustments in the same
// order. If one is refused, the call returns its refusal and changes nothing. RELIABILITY.md,
// Writes.
func TestManyAdjustmentsAreThoseOneByOne(t *testing.T) {
	t.Parallel()
	server, guild := apitest.New(t), 2000
	bot := server.Bot(t)
	next := func() *apitest.API {
		guild++
		dbtest.AddGuilds(t, server.DB(), strconv.Itoa(guild))
		dbtest.Listen(t, server.DB(), strconv.Itoa(guild), event.Types)
		return bot.In(strconv.Itoa(guild))
	}
	rapid.Check(t, func(rt *rapid.T) {
		single, together := next(), next()
		for range rapid.IntRange(1, 4).Draw(rt, "calls") {
			list := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) asked {
				xp := rapid.Int64Range(-60, 400).Draw(rt, "xp")
				a := asked{UserID: strconv.Itoa(rapid.IntRange(1, 4).Draw(rt, "user")), Delta: &xp}
				if xp >= 0 && rapid.Bool().Draw(rt, "exactly") {
					a.Delta, a.TotalXP = nil, &xp
				}
				return a
			}), 1, 10).Draw(rt, "adjustments")
			var want []effect
			for i, a := range list {
				got := single.Do(t, "adjustXp", bodyOf(a))
				if got.Status != 200 {
					place := fmt.Sprintf(`"body /adjustments/%d: `, i)
					refused := together.Do(t, "adjustXpOfMembers", bodyOf(map[string]any{"adjustments": list})).WantError(t, 422, got.Code())
					if !strings.Contains(string(refused.Body), place) {
						rt.Fatalf("the message does not begin with %s: %s", place, refused.Body)
					}
					list = list[:i]
					break
				}
				var one struct{ Data effect }
				got.Into(t, &one)
				want = append(want, one.Data)
			}
			if len(list) > 0 {
				var got struct{ Data []effect }
				together.Do(t, "adjustXpOfMembers", bodyOf(map[string]any{"adjustments": list})).Want(t, 200, "").Into(t, &got)
				if !reflect.DeepEqual(got.Data, want) {
					rt.Fatalf("one by one\n%+v\nand together\n%+v", want, got.Data)
				}
			}
			for _, query := range []string{
				`SELECT coalesce(string_agg(concat_ws(':', user_id, total_xp, previous_xp), ' ' ORDER BY user_id), '') FROM levels WHERE guild_id = $1`,
				`SELECT coalesce(string_agg(concat_ws(':', type, event #>> '{origin}', event #>> '{data}'), ' '
						ORDER BY event #>> '{data,user_id}', occurred_at), '')
					FROM webhook_events, LATERAL (SELECT convert_from(payload, 'UTF8')::jsonb AS event) p WHERE guild_id = $1`,
			} {
				one, many := dbtest.Value[string](t, server.DB(), query, single.Guild), dbtest.Value[string](t, server.DB(), query, together.Guild)
				if one != many {
					rt.Fatalf("one by one\n%s\nand together\n%s\nby %s", one, many, query)
				}
			}
		}
	})
}

func TestAdjustXPOfMembers(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	t.Run("takes a hundred of one member, a millisecond apart", func(t *testing.T) {
		list := slices.Repeat([]string{`{"user_id":"9","delta":1}`}, 100)
		a := api.Do(t, "adjustXpOfMembers", `{"adjustments":[`+strings.Join(list, ",")+`]}`).Want(t, 200, "")
		instants := a.All(t, "updated_at")
		if slices.Sort(instants); len(slices.Compact(instants)) != 100 {
			t.Errorf("100 changes have %d instants", len(slices.Compact(instants)))
		}
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"total_xp":100,"updated_at":"`+instants[99]+`"}}`)
		api.Do(t, "adjustXpOfMembers", `{"adjustments":[`+strings.Join(append(list, list[0]), ",")+`]}`).WantError(t, 400, "invalid_request")
	})
	t.Run("refuses the call for one of them", func(t *testing.T) {
		body := `{"adjustments":[{"user_id":"5","delta":500},{"user_id":"6","delta":9007199254740991},{"user_id":"6","delta":1}]}`
		refused := api.Key("k").Do(t, "adjustXpOfMembers", body).WantError(t, 422, "xp_limit_exceeded")
		api.Key("k").Do(t, "adjustXpOfMembers", body).WantReplayOf(t, refused)
		api.Do(t, "getLevelRecord", "", apitest.Path("userId", "5")).Want(t, 200, `{"data":{"total_xp":0}}`)
		api.Do(t, "adjustXpOfMembers", `{"adjustments":[{"user_id":"5","delta":-1}]}`).WantError(t, 422, "xp_would_be_negative")
		api.Do(t, "adjustXpOfMembers", `{"adjustments":[{"user_id":"5","delta":1,"total_xp":1}]}`).WantError(t, 400, "invalid_request")
		api.As(t, "levelling:read").Do(t, "adjustXpOfMembers", body).WantError(t, 403, "insufficient_scope")
	})
}
