package economy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/removal"
	balances "guildhall/internal/service/transfer"
)

// transfer is the body of a transfer.
func transfer(from, to string, amount int64, reference string) string {
	body := fmt.Sprintf(`{"from_user_id":"%s","to_user_id":"%s","amount":%d`, from, to, amount)
	if reference != "" {
		body += `,"reference":"` + reference + `"`
	}
	return body + "}"
}

func TestTransferBalance(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":100}`).Want(t, 200, "")
	api.WantEvent(t, "economy.balance_changed", "{}")
	first := api.Do(t, "transferBalance",
		`{"from_user_id":"42","to_user_id":"43","amount":30,"reason":"Boat","reference":"boat","author_id":"42"}`).
		Want(t, 200, `{"data":{
			"from":{"user_id":"42","balance":70,
				"ledger_entry":{"delta":-30,"balance_after":70,"reason":"Boat","reference":"boat","counterparty_id":"43","author_id":"42"}},
			"to":{"user_id":"43","balance":30,
				"ledger_entry":{"delta":30,"balance_after":30,"reason":"Boat","reference":null,"counterparty_id":"42","author_id":"42"}}}}`)
	if from, to := first.Str(t, "data.from.updated_at"), first.Str(t, "data.to.updated_at"); from != to {
		t.Errorf("the wallets changed at %s and %s", from, to)
	}
	api.WantEvent(t, "economy.balance_changed", `{"data":{"user_id":"42","balance":70,"delta":-30,"reference":"boat"}}`)
	api.WantEvent(t, "economy.balance_changed", `{"data":{"user_id":"43","balance":30,"delta":30,"reference":null}}`)
	again := api.Do(t, "transferBalance", transfer("42", "43", 30, "boat")).Want(t, 200, "")
	if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" {
		t.Errorf("a repeat is answered %s", again.Body)
	}
	api.WantNoEvent(t)
	for _, other := range []string{transfer("42", "44", 30, "boat"), transfer("42", "43", 31, "boat"), transfer("43", "42", 30, "boat")} {
		api.Do(t, "transferBalance", other).WantError(t, 422, "reference_already_used")
	}
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":-30,"reference":"boat"}`).WantError(t, 422, "reference_already_used")
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"reference":"gift"}`).Want(t, 200, "")
	api.WantEvent(t, "economy.balance_changed", "{}")
	api.Do(t, "transferBalance", transfer("42", "43", 1, "gift")).WantError(t, 422, "reference_already_used")
	short := api.Do(t, "transferBalance", transfer("43", "42", 31, "")).WantError(t, 422, "balance_would_be_negative")
	if message := short.Str(t, "error.message"); !strings.Contains(message, "Member 43: ") {
		t.Errorf("the message is %q", message)
	}
	api.Do(t, "adjustBalance", `{"user_id":"50","delta":9007199254740991}`).Want(t, 200, "")
	full := api.Do(t, "transferBalance", transfer("42", "50", 1, "")).WantError(t, 422, "balance_limit_exceeded")
	if message := full.Str(t, "error.message"); !strings.Contains(message, "Member 50: ") {
		t.Errorf("the message is %q", message)
	}
	for _, body := range []string{
		transfer("42", "42", 1, ""), transfer("42", "43", 0, ""), transfer("42", "43", -1, ""), transfer("x", "43", 1, ""),
		`{"to_user_id":"43","amount":1}`,
	} {
		api.Do(t, "transferBalance", body).WantError(t, 400, "invalid_request")
	}
	api.Do(t, "adjustBalance", `{"user_id":"50","delta":-9007199254740991}`).Want(t, 200, "")
	api.As(t, "economy:read").Do(t, "transferBalance", transfer("42", "43", 1, "")).WantError(t, 403, "insufficient_scope")
}

// Random transfers, adjustments, calls with many adjustments, deletions of members and imports agree
// with a model: a transfer moves coins and never creates any, and a reference is used once, whoever
// used it. RELIABILITY.md, Writes.
func TestTransfersMoveCoinsAndMakeNone(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t, api.Guild).In(api.Guild)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		member := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%d%03d", 1+rapid.IntRange(0, 3).Draw(t, "m"), round) })
		have, used := map[string]int64{}, map[string]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			from, to, amount := member.Draw(rt, "from"), member.Draw(rt, "to"), rapid.Int64Range(1, 4).Draw(rt, "amount")
			switch rapid.IntRange(0, 7).Draw(rt, "step") {
			case 0:
				adjusted(t, rt, api, have, used, to, amount, named(rt, round))
			case 1:
				have[from] += amount
				have[to] += amount
				api.Do(t, "adjustBalances", fmt.Sprintf(
					`{"adjustments":[{"user_id":"%s","delta":%d},{"user_id":"%s","delta":%[2]d}]}`, from, amount, to)).Want(t, 200, "")
			case 2:
				delete(have, to)
				bot.Do(t, "forgetMember", "", apitest.Path("userId", to)).Want(t, 202, "")
				if err := removal.Members(t.Context(), api.DB()); err != nil {
					rt.Fatal(err)
				}
				for reference, body := range used { // responses that concern a forgotten member are gone
					if strings.Contains(body, `"`+to+`"`) {
						used[reference] = ""
					}
				}
			case 3:
				have[to] = amount
				lines := fmt.Sprintf(`{"record":"wallet","guild_id":"%s","user_id":"%s","balance":%d}`, api.Guild, to, amount)
				if reference := named(rt, round); reference != "" {
					lines += fmt.Sprintf("\n"+`{"record":"reference","guild_id":"%s","reference":"%s"}`, api.Guild, reference)
					if _, spent := used[reference]; !spent {
						used[reference] = "" // whoever used it did so elsewhere
					}
				}
				if _, err := (guildfile.Update{Balances: balances.Set}).Run(t.Context(), api.DB(), strings.NewReader(lines), nil); err != nil {
					rt.Fatal(err)
				}
			default:
				reference := named(rt, round)
				body := transfer(from, to, amount, reference)
				earlier, repeated := used[reference]
				repeated = repeated && reference != ""
				answer := api.Do(t, "transferBalance", body)
				switch {
				case from == to:
					answer.WantError(t, 400, "invalid_request")
				case repeated && earlier == body:
					if answer.Want(t, 200, "").Header.Get("Idempotent-Replay") != "true" {
						rt.Fatalf("%s is made twice", body)
					}
				case repeated:
					answer.WantError(t, 422, "reference_already_used")
				case have[from] < amount:
					answer.WantError(t, 422, "balance_would_be_negative")
				default:
					have[from], have[to] = have[from]-amount, have[to]+amount
					used[reference] = body
					answer.Want(t, 200, fmt.Sprintf(`{"data":{"from":{"balance":%d},"to":{"balance":%d}}}`, have[from], have[to]))
				}
			}
			for user, balance := range have {
				api.Do(t, "getWallet", "", apitest.Path("userId", user)).Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, balance))
			}
		}
	})
}

// named is a reference of a round, or none.
func named(rt *rapid.T, round int) string {
	if rapid.Bool().Draw(rt, "named") {
		return fmt.Sprintf("r%d-%d", round, rapid.IntRange(0, 2).Draw(rt, "reference"))
	}
	return ""
}

// adjusted adds to a wallet, under a reference perhaps, and holds the answer against the model.
func adjusted(
	t *testing.T, rt *rapid.T, api *apitest.API, have map[string]int64, used map[string]string,
	user string, delta int64, reference string,
) {
	t.Helper()
	body := fmt.Sprintf(`{"user_id":"%s","delta":%d}`, user, delta)
	if reference == "" {
		have[user] += delta
		api.Do(t, "adjustBalance", body).Want(t, 200, "")
		return
	}
	body = fmt.Sprintf(`{"user_id":"%s","delta":%d,"reference":"%s"}`, user, delta, reference)
	earlier, repeated := used[reference]
	answer := api.Do(t, "adjustBalance", body)
	switch {
	case repeated && earlier == body:
		if answer.Want(t, 200, "").Header.Get("Idempotent-Replay") != "true" {
			rt.Fatalf("%s is made twice", body)
		}
	case repeated:
		answer.WantError(t, 422, "reference_already_used")
	default:
		have[user] += delta
		used[reference] = body
		answer.Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, have[user]))
	}
}

// Members who pay each other at the same moment do not deadlock, and the sum of their balances
// stays the same. RELIABILITY.md, Writes.
func TestMembersPayEachOtherAtOnce(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"1","delta":50},{"user_id":"2","delta":50},{"user_id":"3","delta":50}]}`).
		Want(t, 200, "")
	op := apitest.Find(t, "transferBalance")
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			for n := range 8 {
				from, to := 1+(i+n)%3, 1+(2*i+n+1)%3
				if from == to {
					to = 1 + to%3
				}
				a, err := api.Retry(op, transfer(fmt.Sprint(from), fmt.Sprint(to), 1, ""))
				if err != nil || a.Status != 200 && a.Code() != "balance_would_be_negative" {
					t.Errorf("%v: %v", err, a)
				}
			}
		})
	}
	all.Wait()
	if sum := dbtest.Value[int64](t, api.DB(), `SELECT sum(balance) FROM wallets`); sum != 150 {
		t.Errorf("the members have %d coins, want 150", sum)
	}
}

// A repeat of a transfer under its key gets the first response, and none after one of both members
// was forgotten. RELIABILITY.md, Writes.
func TestATransferIsRepeatedUnderItsKey(t *testing.T) {
	t.Parallel()
	for _, forgotten := range []string{"42", "43"} {
		api := apitest.New(t)
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":50}`).Want(t, 200, "")
		api.Do(t, "adjustBalance", `{"user_id":"43","delta":1}`).Want(t, 200, "")
		keyed := api.Key("rent")
		first := keyed.Do(t, "transferBalance", transfer("42", "43", 20, "")).Want(t, 200, "")
		again := keyed.Do(t, "transferBalance", transfer("42", "43", 20, "")).Want(t, 200, "")
		if string(again.Body) != string(first.Body) || again.Header.Get("Idempotent-Replay") != "true" {
			t.Errorf("a repeat is answered %s, %v", again.Body, again.Header)
		}
		keyed.Do(t, "transferBalance", transfer("42", "43", 21, "")).WantError(t, 409, "idempotency_key_reused")
		api.Bot(t, api.Guild).In(api.Guild).Do(t, "forgetMember", "", apitest.Path("userId", forgotten)).Want(t, 202, "")
		if err := removal.Members(t.Context(), api.DB()); err != nil {
			t.Fatal(err)
		}
		keyed.Do(t, "transferBalance", transfer("42", "43", 20, "")).WantError(t, 422, "member_forgotten")
	}
}
