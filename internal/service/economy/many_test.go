package economy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
	serverapi "guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// asked is an adjustment as a request has it.
type asked struct {
	UserID    string `json:"user_id"`
	Delta     int64  `json:"delta"`
	Reason    string `json:"reason,omitempty"`
	Reference string `json:"reference,omitempty"`
}

func (a asked) body() string {
	b, _ := json.Marshal(a)
	return string(b)
}

func bodyOf(list []asked) string {
	b, _ := json.Marshal(map[string]any{"adjustments": list})
	return string(b)
}

// effect is the part of an adjustment's result that does not depend on the time.
type effect struct {
	UserID   string `json:"user_id"`
	Balance  int64  `json:"balance"`
	Replayed bool   `json:"replayed"`
	Entry    struct {
		UserID       string  `json:"user_id"`
		Delta        int64   `json:"delta"`
		BalanceAfter int64   `json:"balance_after"`
		Reason       *string `json:"reason"`
		Reference    *string `json:"reference"`
		Note         string  `json:"note"`
	} `json:"ledger_entry"`
}

// The adjustments of one call have the same effects as single adjustments in the same order:
// responses, wallets, ledger, events and references. If one is refused, the call returns its
// refusal and changes nothing. RELIABILITY.md, Writes.
func TestManyAdjustmentsAreThoseOneByOne(t *testing.T) {
	t.Parallel()
	server, guild := apitest.New(t), 2000
	bot := server.Bot(t)
	next := func(listened bool) *apitest.API {
		guild++
		name := strconv.Itoa(guild)
		dbtest.AddGuilds(t, server.DB(), name)
		if listened {
			dbtest.Listen(t, server.DB(), name, []string{event.BalanceChanged})
		}
		return bot.In(name)
	}
	rapid.Check(t, func(rt *rapid.T) {
		listened := rapid.Bool().Draw(rt, "somebody listens")
		single, together := next(listened), next(listened)
		for range rapid.IntRange(1, 4).Draw(rt, "calls") {
			list := draw(rt)
			want, refused, code := oneByOne(t, single, list)
			if code != "" {
				got := together.Do(t, "adjustBalances", bodyOf(list)).WantError(t, 422, code)
				if place := fmt.Sprintf(`"body /adjustments/%d: `, refused); !strings.Contains(string(got.Body), place) {
					rt.Fatalf("the message does not begin with %s: %s", place, got.Body)
				}
				list = list[:refused]
			}
			if len(list) > 0 {
				var got struct{ Data []effect }
				together.Do(t, "adjustBalances", bodyOf(list)).Want(t, 200, "").Into(t, &got)
				if !reflect.DeepEqual(got.Data, want) {
					rt.Fatalf("one by one\n%+v\nand together\n%+v", want, got.Data)
				}
			}
			wantSameBooks(t, rt, single, together)
		}
	})
}

// draw draws a list of adjustments of few members with few references, each reference once.
func draw(rt *rapid.T) []asked {
	list := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) asked {
		return asked{
			UserID: strconv.Itoa(rapid.IntRange(1, 4).Draw(rt, "user")), Delta: rapid.Int64Range(-2, 6).Draw(rt, "delta"),
			Reason:    rapid.SampledFrom([]string{"", "pay", `"ü" <b>`}).Draw(rt, "reason"),
			Reference: rapid.SampledFrom([]string{"", "", "", "a", "b", "c", "d"}).Draw(rt, "reference"),
		}
	}), 1, 12).Draw(rt, "adjustments")
	seen := map[string]bool{"": true}
	for i, a := range list {
		switch {
		case a.Reference == "":
		case seen[a.Reference]:
			list[i].Reference = ""
		default: // the same member and delta, so that most repeated references are true repeats
			list[i].UserID, list[i].Delta = "1", int64(len(a.Reference))+rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(rt, "other")
		}
		seen[a.Reference] = true
	}
	return list
}

// oneByOne makes adjustments until one is refused, and returns the index and the code of the
// refusal.
func oneByOne(t *testing.T, api *apitest.API, list []asked) (effects []effect, refused int, code string) {
	for i, a := range list {
		got := api.Do(t, "adjustBalance", a.body())
		if got.Status != 200 {
			return effects, i, got.Code()
		}
		var one struct{ Data effect }
		got.Into(t, &one)
		one.Data.Replayed = got.Header.Get("Idempotent-Replay") == "true"
		effects = append(effects, one.Data)
	}
	return effects, 0, ""
}

// wantSameBooks fails the test unless two guilds have the same rows in their tables.
func wantSameBooks(t *testing.T, rt *rapid.T, single, together *apitest.API) {
	t.Helper()
	for _, query := range []string{
		`SELECT coalesce(string_agg(user_id || ':' || balance, ' ' ORDER BY user_id), '') FROM wallets WHERE guild_id = $1`,
		`SELECT coalesce(string_agg(concat_ws(':', user_id, delta, balance_after, reason, reference, note), ' ' ORDER BY user_id, created_at), '')
			FROM ledger_entries WHERE guild_id = $1`,
		`SELECT coalesce(string_agg(concat_ws(':', r.reference, e.user_id, e.delta, e.reference), ' ' ORDER BY r.reference), '')
			FROM ledger_references r JOIN ledger_entries e ON e.guild_id = r.guild_id AND e.id = r.entry_id WHERE r.guild_id = $1`,
		`SELECT coalesce(string_agg(concat_ws(':', type, event #>> '{origin}', (event -> 'data') - 'ledger_entry_id'), ' '
				ORDER BY event #>> '{data,user_id}', occurred_at), '')
			FROM webhook_events, LATERAL (SELECT convert_from(payload, 'UTF8')::jsonb AS event) p WHERE guild_id = $1`,
		`SELECT count(*) || ' of ' || count(DISTINCT event_id) FROM webhook_deliveries WHERE guild_id = $1`,
	} {
		one, many := dbtest.Value[string](t, single.DB(), query, single.Guild), dbtest.Value[string](t, single.DB(), query, together.Guild)
		if one != many {
			rt.Fatalf("one by one\n%s\nand together\n%s\nby %s", one, many, query)
		}
	}
	for _, query := range []string{
		// The ledger has the order of its instants, which wallets and events have too.
		`SELECT count(*) FROM (SELECT user_id, delta, balance_after,
				balance_after - delta - lag(balance_after, 1, 0::bigint) OVER w AS gap,
				date_trunc('milliseconds', created_at) <= date_trunc('milliseconds', lag(created_at) OVER w) AS late
			FROM ledger_entries WHERE guild_id = $1 WINDOW w AS (PARTITION BY user_id ORDER BY created_at)) e WHERE gap <> 0 OR late`,
		`SELECT count(*) FROM wallets w WHERE guild_id = $1 AND updated_at IS DISTINCT FROM
			(SELECT max(created_at) FROM ledger_entries e WHERE e.guild_id = $1 AND e.user_id = w.user_id)`,
		`SELECT count(*) FROM webhook_events v, LATERAL (SELECT convert_from(payload, 'UTF8')::jsonb AS event) p
			WHERE guild_id = $1 AND NOT EXISTS (
			SELECT FROM ledger_entries e WHERE e.guild_id = $1 AND e.id = event #>> '{data,ledger_entry_id}' AND e.created_at = v.occurred_at)`,
	} {
		if n := dbtest.Value[int](t, single.DB(), query, together.Guild); n > 0 {
			rt.Fatalf("%d rows are out of order by %s", n, query)
		}
	}
}

func TestAdjustBalances(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	t.Run("takes a hundred and not more", func(t *testing.T) {
		list := slices.Repeat([]asked{{UserID: "9", Delta: 1}}, 100)
		api.Do(t, "adjustBalances", bodyOf(list)).Want(t, 200, "")
		api.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":100}}`)
		api.Do(t, "adjustBalances", bodyOf(append(list, list[0]))).WantError(t, 400, "invalid_request")
		api.Do(t, "adjustBalances", `{"adjustments":[]}`).WantError(t, 400, "invalid_request")
		api.Do(t, "adjustBalances", `[]`).WantError(t, 400, "invalid_request")
		id := api.Do(t, "adjustBalances", bodyOf(list[:1])).Want(t, 200, "").All(t, "ledger_entry")
		if len(id) != 1 {
			t.Errorf("one adjustment is answered with %v", id)
		}
	})
	t.Run("takes its largest body", func(t *testing.T) {
		long := strings.Repeat("🎲", 1000)
		body := bodyOf(slices.Repeat([]asked{{UserID: "18446744073709551615", Delta: -0, Reason: long}}, 100))
		if len(body) < 400_000 {
			t.Fatalf("the body has %d bytes", len(body))
		}
		api.Do(t, "adjustBalances", body).Want(t, 200, "")
		api.Do(t, "adjustBalances", body+strings.Repeat(" ", 512<<10+1-len(body))).WantError(t, 413, "payload_too_large")
	})
	t.Run("refuses the call for one of them", func(t *testing.T) {
		list := make([]asked, 100)
		for i := range list {
			list[i] = asked{UserID: strconv.Itoa(100 + i), Delta: 1, Reference: fmt.Sprint("payday ", i)}
		}
		list[57].Delta = -1
		before := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM ledger_entries`)
		refused := api.Key("payday").Do(t, "adjustBalances", bodyOf(list)).WantError(t, 422, "balance_would_be_negative")
		if want := `"body /adjustments/57: The balance is 0 and does not cover a change by -1."`; !strings.Contains(string(refused.Body), want) {
			t.Errorf("the refusal is %s, want %s", refused.Body, want)
		}
		api.Key("payday").Do(t, "adjustBalances", bodyOf(list)).WantReplayOf(t, refused)
		if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM ledger_entries`); n != before {
			t.Errorf("%d rows came of a refused call", n-before)
		}
		list[57].Delta = 1
		first := api.Key("payday-2").Do(t, "adjustBalances", bodyOf(list)).Want(t, 200, "")
		api.Key("payday-2").Do(t, "adjustBalances", bodyOf(list)).WantReplayOf(t, first)
		again := api.Do(t, "adjustBalances", bodyOf(list)).Want(t, 200, `{"data":`+strings.ReplaceAll(
			string(first.Body[len(`{"data":`):len(first.Body)-2]), `"replayed":false`, `"replayed":true`)+`}`)
		if h := again.Header.Get("Idempotent-Replay"); h != "" {
			t.Errorf("Idempotent-Replay is %q without a key", h)
		}
	})
	t.Run("refuses a reference that stands twice", func(t *testing.T) {
		a := api.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"5","delta":1,"reference":"twice"},{"user_id":"6","delta":1},
			{"user_id":"5","delta":1,"reference":"twice"}]}`).WantError(t, 400, "invalid_request")
		if want := "body /adjustments/2/reference: is that of /adjustments/0"; !strings.Contains(string(a.Body), want) {
			t.Errorf("the refusal is %s, want %s", a.Body, want)
		}
	})
	t.Run("names what a reference belongs to", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"5","delta":7,"reference":"spent"}`).Want(t, 200, "")
		a := api.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"6","delta":1},{"user_id":"5","delta":8,"reference":"spent"}]}`).
			WantError(t, 422, "reference_already_used")
		if !strings.Contains(string(a.Body), `"body /adjustments/1: `) || !strings.Contains(string(a.Body), "whose delta is 7, not 8") {
			t.Errorf("the refusal is %s", a.Body)
		}
		api.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"45","delta":9007199254740991},{"user_id":"45","delta":1}]}`).
			WantError(t, 422, "balance_limit_exceeded")
	})
	t.Run("is one write of the rate limit", func(t *testing.T) {
		bounded := apitest.New(t, apitest.With(func(c *serverapi.Config) { c.Quotas.Write = ratelimit.Quota{Limit: 3, Window: time.Hour} }))
		a := bounded.Do(t, "adjustBalances", bodyOf(slices.Repeat([]asked{{UserID: "9", Delta: 1}}, 100))).Want(t, 200, "")
		if left := a.Header.Get("X-RateLimit-Remaining"); left != "2" {
			t.Errorf("of 3 writes %q are left", left)
		}
	})
	t.Run("needs the scope", func(t *testing.T) {
		api.As(t, "economy:read").Do(t, "adjustBalances", bodyOf([]asked{{UserID: "1"}})).WantError(t, 403, "insufficient_scope")
	})
}

// Concurrent calls with the same members, in any order and with the same references, and concurrent
// single changes: each payment is made once, and no calls deadlock. RELIABILITY.md, Writes.
func TestManyAdjustmentsRace(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	const members, rounds = 12, 6
	many, single := apitest.Find(t, "adjustBalances"), apitest.Find(t, "adjustBalance")
	var wg sync.WaitGroup
	answer := func(op apitest.Operation, body string) {
		for end := time.Now().Add(time.Minute); ; {
			a, err := api.Retry(op, body)
			switch {
			case err != nil:
				t.Error(err)
				return
			case a.Status == 200:
				return
			case a.Status != 503 || time.Now().After(end):
				t.Errorf("%d %s", a.Status, a.Body)
				return
			}
		}
	}
	for caller := range 6 {
		wg.Go(func() {
			for round := range rounds {
				list := make([]asked, members)
				for i := range list {
					list[i] = asked{UserID: strconv.Itoa(1 + i), Delta: 1, Reference: fmt.Sprintf("round %d of %d", round, i)}
				}
				if caller%2 > 0 {
					slices.Reverse(list)
				}
				answer(many, bodyOf(list))
				answer(single, list[caller].body())
			}
		})
	}
	wg.Wait()
	for i := range members {
		api.Do(t, "getWallet", "", apitest.Path("userId", strconv.Itoa(1+i))).Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, rounds))
	}
}

// References are inserted in sorted order, whatever the order of the adjustments: a call that waits
// for its first reference has inserted no later one. RELIABILITY.md, Writes.
func TestManyAdjustmentsClaimTheirReferencesInOneOrder(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	op := apitest.Find(t, "adjustBalances")
	waited := make(chan *apitest.Response, 1)
	err := api.DB().Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'b')`, api.Guild); err != nil {
			return err
		}
		go func() {
			a, err := api.Retry(op, bodyOf([]asked{{UserID: "1", Delta: 1, Reference: "c"}, {UserID: "2", Delta: 1, Reference: "b"}}))
			if err != nil {
				t.Error(err)
			}
			waited <- a
		}()
		testutil.Eventually(t, "the call waits", func() bool { return dbtest.Waiting(t, api.DB()) == 1 })
		return api.DB().Do(context.Background(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '100ms'`); err != nil { // no lock needs to wait that long
				return err
			}
			_, err := tx.ExecContext(ctx, `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'c')`, api.Guild)
			return err
		})
	})
	if err != nil {
		t.Errorf("behind a call that waits for a reference: %v", err)
	}
	if a := <-waited; a != nil && a.Status < 400 {
		t.Errorf("the call that has waited is answered %d", a.Status)
	}
}
