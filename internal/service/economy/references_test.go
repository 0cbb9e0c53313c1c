package economy_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// payments is a model of a guild's economy as callers see it: the balances, and the first response
// for each reference and each idempotency key. The model checks in the documented order: key,
// reference, balance.
type payments struct {
	balance map[string]int64
	used    map[string]answered // by reference
	kept    map[string]answered // by key
}

// answered is a request with its first response.
type answered struct {
	body   string
	user   string
	delta  int64
	status int
	code   string
	data   json.RawMessage // data of a successful response
}

// want returns the expected response to a request, and whether it is a replay. For a success that
// is not a replay, only the balance is known.
func (p *payments) want(key, reference string, now answered) (want answered, replayed bool) {
	was, repeated := p.kept[key]
	switch used, spent := p.used[reference]; {
	case key != "" && repeated && was.body != now.body:
		return answered{status: 409, code: "idempotency_key_reused"}, false
	case key != "" && repeated:
		return was, true
	case reference != "" && spent && used.user == now.user && used.delta == now.delta && used.data != nil:
		return used, true
	case reference != "" && spent:
		return answered{status: 422, code: "reference_already_used"}, false
	case p.balance[now.user]+now.delta < 0:
		return answered{status: 422, code: "balance_would_be_negative"}, false
	}
	return answered{status: 200}, false
}

// note adds a request and its response to the model.
func (p *payments) note(key, reference string, now answered, replayed bool) {
	if key != "" && now.status != 409 {
		if _, repeated := p.kept[key]; !repeated {
			p.kept[key] = now
		}
	}
	if replayed || now.status != 200 {
		return
	}
	p.balance[now.user] += now.delta
	if reference != "" {
		p.used[reference] = now
	}
}

// Requests with keys and references in any order: each change is made once, and each repeat gets
// the response of the first request. RELIABILITY.md, Writes.
func TestKeysAndReferencesAreRepeatedAsTheModelSays(t *testing.T) {
	t.Parallel()
	server, guild := apitest.New(t), 1000
	bot := server.Bot(t)
	rapid.Check(t, func(rt *rapid.T) {
		guild++
		dbtest.AddGuilds(t, server.DB(), strconv.Itoa(guild))
		api := bot.In(strconv.Itoa(guild))
		model := &payments{balance: map[string]int64{}, used: map[string]answered{}, kept: map[string]answered{}}
		rt.Repeat(map[string]func(*rapid.T){
			"adjust": func(rt *rapid.T) { pays(t, rt, api, model) },
			"bring a reference from elsewhere": func(rt *rapid.T) {
				reference := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "reference")
				if _, spent := model.used[reference]; spent {
					rt.Skip("it is used")
				}
				dbtest.Exec(t, api.DB(), `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, $2)`, api.Guild, reference)
				model.used[reference] = answered{}
			},
			"": func(*rapid.T) {
				for user, balance := range model.balance {
					api.Do(t, "getWallet", "", apitest.Path("userId", user)).Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, balance))
				}
			},
		})
	})
}

// pays sends an adjustment and compares its response with the model.
func pays(t *testing.T, rt *rapid.T, api *apitest.API, model *payments) {
	t.Helper()
	now := answered{user: rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "user"), delta: rapid.Int64Range(-2, 3).Draw(rt, "delta")}
	reference := rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(rt, "reference")
	key := rapid.SampledFrom([]string{"", "", "k1", "k2", "k3"}).Draw(rt, "key")
	reason := rapid.SampledFrom([]string{"one", "two"}).Draw(rt, "reason")
	now.body = fmt.Sprintf(`{"user_id":"%s","delta":%d,"reason":"%s"}`, now.user, now.delta, reason)
	if reference != "" {
		now.body = fmt.Sprintf(`{"user_id":"%s","delta":%d,"reason":"%s","reference":"%s"}`, now.user, now.delta, reason, reference)
	}
	want, replayed := model.want(key, reference, now)
	as := api
	if key != "" {
		as = api.Key(key)
	}
	got := as.Do(t, "adjustBalance", now.body)
	var shown struct{ Data json.RawMessage }
	got.Into(t, &shown)
	now.status, now.code, now.data = got.Status, got.Code(), shown.Data
	switch header := got.Header.Get("Idempotent-Replay"); {
	case now.status != want.status || now.code != want.code:
		rt.Fatalf("%s under %q: %d %s, want %d %s", now.body, key, now.status, now.code, want.status, want.code)
	case (header == "true") != replayed || header != "" && !replayed:
		rt.Fatalf("%s under %q: Idempotent-Replay is %q, a replay is %t", now.body, key, header, replayed)
	case replayed && string(now.data) != string(want.data):
		rt.Fatalf("%s under %q: answered\n%s\nand before\n%s", now.body, key, now.data, want.data)
	}
	model.note(key, reference, now, replayed)
}

// A ledger entry is found by its id, even if the clock of its wallet was ahead.
func TestALedgerEntryIsFoundByItsID(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	for _, body := range []string{`{"user_id":"7","delta":5,"reference":"r"}`, `{"user_id":"7","delta":1}`, `{"user_id":"7","delta":0}`} {
		a := api.Do(t, "adjustBalance", body).Want(t, 200, "")
		var made struct {
			Data struct {
				Entry json.RawMessage `json:"ledger_entry"`
			}
		}
		a.Into(t, &made)
		id := a.Str(t, "data.ledger_entry.id")
		api.Do(t, "getLedgerEntry", "", apitest.Path("id", id)).Want(t, 200, `{"data":`+string(made.Data.Entry)+`}`)
		api.Next(t).Do(t, "getLedgerEntry", "", apitest.Path("id", id)).WantError(t, 404, "not_found")
		api.As(t, "levelling:read").Do(t, "getLedgerEntry", "", apitest.Path("id", id)).WantError(t, 403, "insufficient_scope")
	}
	api.Do(t, "getLedgerEntry", "", apitest.Path("id", "1"), apitest.Query("page", "1")).WantError(t, 400, "invalid_request")
	t.Run("where the clock was ahead", func(t *testing.T) {
		dbtest.Exec(t, api.DB(), `INSERT INTO wallets (guild_id, user_id, balance, updated_at)
			VALUES ($1, '8', 0, now() + interval '2 days')`, api.Guild)
		for range 2 {
			id := api.Do(t, "adjustBalance", `{"user_id":"8","delta":0}`).Want(t, 200, "").Str(t, "data.ledger_entry.id")
			api.Do(t, "getLedgerEntry", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"id":"`+id+`"}}`)
		}
	})
	for _, id := range []string{
		"nothing", "0197742a-8c00-7000-8000-000000000404", "0197742A-8C00-7000-8000-000000000402", "0197742a8c0070008000000000000402",
		"ffffffff-ffff-7fff-bfff-ffffffffffff", "00000000-0000-4000-8000-000000000000", "\u00e9", "{0197742a-8c00-7000-8000-000000000402}",
	} {
		t.Run("is not found by "+id, func(t *testing.T) {
			api.Do(t, "getLedgerEntry", "", apitest.Path("id", id)).WantError(t, 404, "not_found")
		})
	}
}
