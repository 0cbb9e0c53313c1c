package economy_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m, "Economy") }

const user = "155149108183695360"

func TestGetWallet(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	t.Run("is zero for a member who has earned nothing", func(t *testing.T) {
		api.Do(t, "getWallet", "", apitest.Path("userId", user)).
			Want(t, 200, `{"data":{"user_id":"`+user+`","balance":0,"updated_at":null}}`)
	})
	t.Run("shows the balance", func(t *testing.T) {
		adjusted := api.Do(t, "adjustBalance", `{"user_id":"7","delta":12}`).Want(t, 200, "")
		api.Do(t, "getWallet", "", apitest.Path("userId", "7")).
			Want(t, 200, `{"data":{"balance":12,"updated_at":"`+adjusted.Str(t, "data.updated_at")+`"}}`)
	})
	t.Run("belongs to one guild", func(t *testing.T) {
		api.Next(t).Do(t, "getWallet", "", apitest.Path("userId", "7")).Want(t, 200, `{"data":{"balance":0}}`)
	})
	for _, bad := range []string{"0", "007", "-1", "abc", "1.0", "123456789012345678901", "１２"} {
		t.Run("refuses the user "+bad, func(t *testing.T) {
			api.Do(t, "getWallet", "", apitest.Path("userId", bad)).WantError(t, 400, "invalid_request")
		})
	}
}

func TestAdjustBalance(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	t.Run("adds the coins and says so", func(t *testing.T) {
		a := api.Do(t, "adjustBalance", `{"user_id":"42","delta":30,"reason":"an \"event\" <prize> 🎉"}`).
			Want(t, 200, `{"data":{"user_id":"42","balance":30,`+
				`"ledger_entry":{"user_id":"42","delta":30,"balance_after":30,"reason":"an \"event\" <prize> 🎉"}}}`)
		me := api.Do(t, "getMe", "")
		if got, want := a.Str(t, "data.ledger_entry.note"), "api:token="+me.Str(t, "token.id"); got != want {
			t.Errorf("the ledger note is %q, want %q", got, want)
		}
		api.WantEvent(t, "economy.balance_changed", `{"guild_id":"`+api.Guild+`","api_version":"v1",
			"origin":{"type":"api","token_id":"`+me.Str(t, "token.id")+`","key_id":null},
			"data":{"user_id":"42","previous_balance":0,"balance":30,"delta":30,"reason":"an \"event\" <prize> 🎉",
			"ledger_entry_id":"`+a.Str(t, "data.ledger_entry.id")+`"}}`)
	})
	t.Run("never goes below zero", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":-31}`).WantError(t, 422, "balance_would_be_negative")
		api.Do(t, "adjustBalance", `{"user_id":"43","delta":-1}`).WantError(t, 422, "balance_would_be_negative")
		api.WantNoEvent(t)
		api.Do(t, "listLedgerEntries", "", apitest.Query("user_id", "43")).Want(t, 200, `{"data":[]}`)
	})
	t.Run("takes away down to zero", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":-30}`).Want(t, 200, `{"data":{"balance":0,"ledger_entry":{"reason":null}}}`)
		api.WantEvent(t, "economy.balance_changed", `{"data":{"previous_balance":30,"balance":0,"reason":null}}`)
	})
	t.Run("writes a zero change like any other", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"44","delta":0}`).Want(t, 200, `{"data":{"balance":0}}`)
		api.WantEvent(t, "economy.balance_changed", `{"data":{"delta":0}}`)
	})
	t.Run("stops at the largest exact integer", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"45","delta":9007199254740991}`).Want(t, 200, `{"data":{"balance":9007199254740991}}`)
		api.WantEvent(t, "economy.balance_changed", "")
		api.Do(t, "adjustBalance", `{"user_id":"45","delta":1}`).WantError(t, 422, "balance_limit_exceeded")
		api.WantNoEvent(t)
	})
	for _, delta := range []string{
		"1.0", "1e3", `"5"`, "null", "9007199254740992", "-9007199254740992", "9223372036854775807",
		"-9223372036854775808", "99999999999999999999999999", "true", "[]", "{}", "1e400", "0.5",
	} {
		t.Run("refuses the delta "+delta, func(t *testing.T) {
			api.Do(t, "adjustBalance", `{"user_id":"46","delta":`+delta+`}`).WantError(t, 400, "invalid_request")
		})
	}
	t.Run("takes minus zero for zero", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"47","delta":-0}`).Want(t, 200, `{"data":{"balance":0}}`)
	})
	t.Run("counts a reason in code points", func(t *testing.T) {
		long := strings.Repeat("🎲", 1000)
		api.Do(t, "adjustBalance", `{"user_id":"48","delta":1,"reason":"`+long+`"}`).
			Want(t, 200, `{"data":{"ledger_entry":{"reason":"`+long+`"}}}`)
		api.Do(t, "adjustBalance", `{"user_id":"48","delta":1,"reason":"`+long+`x"}`).WantError(t, 400, "invalid_request")
	})
}

func TestAdjustBalanceUnderAKey(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	t.Run("answers a repeated key with the first answer", func(t *testing.T) {
		first := api.Key("k1").Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).Want(t, 200, "")
		again := api.Key("k1").Do(t, "adjustBalance", `{"user_id":"42","delta":5}`)
		again.WantReplayOf(t, first)
		api.WantEvent(t, "economy.balance_changed", "")
		api.WantNoEvent(t)
		api.Do(t, "getWallet", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"balance":5}}`)
	})
	t.Run("refuses the key for another body", func(t *testing.T) {
		api.Key("k1").Do(t, "adjustBalance", `{"user_id":"42","delta": 5}`).WantError(t, 409, "idempotency_key_reused")
	})
	t.Run("keeps a refusal although its reason has passed", func(t *testing.T) {
		first := api.Key("k2").Do(t, "adjustBalance", `{"user_id":"50","delta":-1}`).WantError(t, 422, "balance_would_be_negative")
		api.Do(t, "adjustBalance", `{"user_id":"50","delta":10}`).Want(t, 200, "")
		api.Key("k2").Do(t, "adjustBalance", `{"user_id":"50","delta":-1}`).WantReplayOf(t, first)
		api.Key("k3").Do(t, "adjustBalance", `{"user_id":"50","delta":-1}`).Want(t, 200, `{"data":{"balance":9}}`)
	})
	t.Run("keeps a refused body", func(t *testing.T) {
		first := api.Key("k4").Do(t, "adjustBalance", `{"user_id":"50"`).WantError(t, 400, "invalid_request")
		api.Key("k4").Do(t, "adjustBalance", `{"user_id":"50"`).WantReplayOf(t, first)
		api.Key("k4").Do(t, "adjustBalance", `{"user_id":"50","delta":1}`).WantError(t, 409, "idempotency_key_reused")
	})
	t.Run("gives each token keys of its own", func(t *testing.T) {
		other := api.As(t, "economy:write")
		other.Key("k1").Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).Want(t, 200, `{"data":{"balance":10}}`)
	})
}

// Concurrent duplicates have one effect.
// RELIABILITY.md, Writes.
func TestDuplicatesHaveOneEffect(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	op := apitest.Find(t, "adjustBalance")
	for round := range 10 {
		key := fmt.Sprintf("round-%d", round)
		responses := make([]*apitest.Response, 20)
		var wg sync.WaitGroup
		for i := range responses {
			wg.Go(func() {
				a, err := api.Key(key).Retry(op, `{"user_id":"9","delta":1}`)
				if err != nil {
					t.Error(err)
				}
				responses[i] = a
			})
		}
		wg.Wait()
		firsts := 0
		var body string
		for _, a := range responses {
			switch {
			case a.Status == 200 && a.Header.Get("Idempotent-Replay") == "":
				firsts++
				fallthrough
			case a.Status == 200:
				if body == "" {
					body = string(a.Body)
				}
				if body != string(a.Body) {
					t.Fatalf("duplicates differ: %s and %s", body, a.Body)
				}
			default:
				a.WantError(t, 409, "idempotency_key_in_use")
			}
		}
		if firsts != 1 {
			t.Fatalf("%d of the duplicates ran, want 1", firsts)
		}
	}
	api.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":10}}`)
}

// Many clients spend the last coins at once. RELIABILITY.md, Writes.
func TestBalanceRace(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	op := apitest.Find(t, "adjustBalance")
	api.Do(t, "adjustBalance", `{"user_id":"9","delta":50}`).Want(t, 200, "")
	var wg sync.WaitGroup
	statuses := make(chan int, 160)
	for range 16 {
		wg.Go(func() {
			for range 10 {
				a, err := api.Retry(op, `{"user_id":"9","delta":-1}`)
				if err != nil {
					t.Error(err)
					return
				}
				statuses <- a.Status
			}
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	if count[200] != 50 || count[422] != 110 {
		t.Errorf("got %v, want 50 times 200 and 110 times 422", count)
	}
	api.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":0}}`)
}

// A member's first coins come from many clients at once. RELIABILITY.md, Writes.
func TestFirstAdjustmentRace(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	op := apitest.Find(t, "adjustBalance")
	for round := range 10 {
		user := fmt.Sprint(1000 + round)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				a, err := api.Retry(op, `{"user_id":"`+user+`","delta":3}`)
				if err != nil || a.Status != http.StatusOK {
					t.Error(a, err)
				}
			})
		}
		wg.Wait()
		api.Do(t, "getWallet", "", apitest.Path("userId", user)).Want(t, 200, `{"data":{"balance":24}}`)
	}
}

func TestGetEconomyLeaderboard(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	for user, balance := range map[string]int{"100": 5, "99": 5, "1000": 9, "7": 0, "8": 5} {
		api.Do(t, "adjustBalance", fmt.Sprintf(`{"user_id":"%s","delta":%d}`, user, balance)).Want(t, 200, "")
	}
	api.Next(t).Do(t, "adjustBalance", `{"user_id":"5","delta":77}`).Want(t, 200, "")
	t.Run("is sorted by balance, then by user id as a number", func(t *testing.T) {
		api.Do(t, "getEconomyLeaderboard", "").Want(t, 200, `{"page":1,"per_page":25,"has_more":false,"data":[
			{"rank":1,"user_id":"1000","balance":9},{"rank":2,"user_id":"8","balance":5},{"rank":3,"user_id":"99","balance":5},
			{"rank":4,"user_id":"100","balance":5},{"rank":5,"user_id":"7","balance":0}]}`)
	})
	t.Run("pages", func(t *testing.T) {
		api.Do(t, "getEconomyLeaderboard", "", apitest.Query("page", "2"), apitest.Query("per_page", "2")).
			Want(t, 200, `{"page":2,"per_page":2,"has_more":true,"data":[{"rank":3,"user_id":"99"},{"rank":4,"user_id":"100"}]}`)
		api.Do(t, "getEconomyLeaderboard", "", apitest.Query("page", "3"), apitest.Query("per_page", "2")).
			Want(t, 200, `{"has_more":false,"data":[{"rank":5}]}`)
		api.Do(t, "getEconomyLeaderboard", "", apitest.Query("page", "100000")).Want(t, 200, `{"has_more":false,"data":[]}`)
	})
	for _, query := range [][2]string{
		{"page", "0"},
		{"page", "-1"},
		{"page", "100001"},
		{"page", "9223372036854775808"},
		{"page", "1.0"},
		{"page", "+1"},
		{"page", ""},
		{"per_page", "0"},
		{"per_page", "101"},
		{"per_page", "abc"},
		{"pages", "1"},
		{"user_id", "7"},
	} {
		t.Run("refuses "+query[0]+"="+query[1], func(t *testing.T) {
			api.Do(t, "getEconomyLeaderboard", "", apitest.Query(query[0], query[1])).WantError(t, 400, "invalid_request")
		})
	}
	t.Run("refuses a repeated parameter", func(t *testing.T) {
		api.Do(t, "getEconomyLeaderboard", "", apitest.Query("page", "1"), apitest.Query("page", "2")).WantError(t, 400, "invalid_request")
	})
}

func TestListLedgerEntries(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	a := api.Do(t, "adjustBalance", `{"user_id":"1","delta":1}`)
	b := api.Do(t, "adjustBalance", `{"user_id":"2","delta":2,"reason":"two"}`)
	c := api.Do(t, "adjustBalance", `{"user_id":"1","delta":3}`)
	id := func(a *apitest.Response) string { return a.Str(t, "data.ledger_entry.id") }
	t.Run("lists the newest first", func(t *testing.T) {
		api.Do(t, "listLedgerEntries", "").
			Want(t, 200, fmt.Sprintf(`{"has_more":false,"data":[{"id":"%s","balance_after":4},{"id":"%s","reason":"two"},{"id":"%s"}]}`,
				id(c), id(b), id(a)))
	})
	t.Run("filters by user and instant", func(t *testing.T) {
		since := b.Str(t, "data.ledger_entry.created_at")
		api.Do(t, "listLedgerEntries", "", apitest.Query("user_id", "1")).
			Want(t, 200, fmt.Sprintf(`{"data":[{"id":"%s"},{"id":"%s"}]}`, id(c), id(a)))
		api.Do(t, "listLedgerEntries", "", apitest.Query("since", "2100-01-01T00:00:00+14:00")).Want(t, 200, `{"data":[]}`)
		api.Do(t, "listLedgerEntries", "", apitest.Query("since", since), apitest.Query("user_id", "2")).
			Want(t, 200, fmt.Sprintf(`{"data":[{"id":"%s"}]}`, id(b)))
	})
	t.Run("refuses an impossible date", func(t *testing.T) {
		for _, since := range []string{
			"2026-02-30T00:00:00Z", "2026-01-01", "2026-01-01T00:00:60Z", "2026-01-01T00:00:00",
			"0000-01-01T00:00:00Z",
		} {
			api.Do(t, "listLedgerEntries", "", apitest.Query("since", since)).WantError(t, 400, "invalid_request")
		}
	})
	t.Run("shows a guild its own ledger only", func(t *testing.T) {
		api.Next(t).Do(t, "listLedgerEntries", "").Want(t, 200, `{"data":[]}`)
	})
}

// RELIABILITY.md, Writes.
func TestReferences(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	pay := `{"user_id":"42","delta":30,"reference":"order <4711>"}`
	first := api.Do(t, "adjustBalance", pay).Want(t, 200, `{"data":{"balance":30,"ledger_entry":{"reference":"order <4711>"}}}`)
	id := first.Str(t, "data.ledger_entry.id")
	api.WantEvent(t, "economy.balance_changed", `{"data":{"reference":"order <4711>","ledger_entry_id":"`+id+`"}}`)
	t.Run("give the same change the first answer again", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":5}`).Want(t, 200, "")
		api.WantEvent(t, "economy.balance_changed", "")
		api.Do(t, "adjustBalance", pay).WantReplayOf(t, first)
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":30,"reason":"another","reference":"order <4711>"}`).WantReplayOf(t, first)
		api.Key("r1").Do(t, "adjustBalance", pay).WantReplayOf(t, first)
		api.Key("r1").Do(t, "adjustBalance", pay).WantReplayOf(t, first)
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":-5}`).Want(t, 200, `{"data":{"balance":30}}`)
		api.WantEvent(t, "economy.balance_changed", "")
		api.WantNoEvent(t)
	})
	t.Run("are not taken by another change", func(t *testing.T) {
		for again, differs := range map[string]string{
			`{"user_id":"43","delta":30,"reference":"order <4711>"}`:  id + ", which is another member's.",
			`{"user_id":"43","delta":1,"reference":"order <4711>"}`:   id + ", which is another member's and whose delta is 30, not 1.",
			`{"user_id":"42","delta":-99,"reference":"order <4711>"}`: id + ", whose delta is 30, not -99.",
		} {
			refused := api.Do(t, "adjustBalance", again).WantError(t, 422, "reference_already_used")
			if !strings.Contains(string(refused.Body), differs) {
				t.Errorf("the refusal does not say %q: %s", differs, refused.Body)
			}
		}
		api.WantNoEvent(t)
		api.Do(t, "getWallet", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"balance":30}}`)
		api.Do(t, "listLedgerEntries", "", apitest.Query("user_id", "43")).Want(t, 200, `{"data":[]}`)
	})
	t.Run("are each guild's own", func(t *testing.T) {
		api.Next(t).Do(t, "adjustBalance", pay).Want(t, 200, `{"data":{"balance":30}}`)
	})
	t.Run("are not spent by what is refused", func(t *testing.T) {
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":-31,"reference":"poor"}`).WantError(t, 422, "balance_would_be_negative")
		api.Do(t, "adjustBalance", `{"user_id":"44","delta":-1,"reference":"poor"}`).WantError(t, 422, "balance_would_be_negative")
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":-30,"reference":"poor"}`).Want(t, 200, `{"data":{"balance":0}}`)
	})
	t.Run("find their row", func(t *testing.T) {
		find := func(query ...string) string {
			args := []apitest.Arg{apitest.Query("reference", "order <4711>")}
			for i := 0; i < len(query); i += 2 {
				args = append(args, apitest.Query(query[i], query[i+1]))
			}
			a := api.Do(t, "listLedgerEntries", "", args...)
			a.Want(t, 200, `{"has_more":false}`)
			return string(a.Body)
		}
		for _, q := range [][]string{nil, {"user_id", "42"}, {"since", "2020-01-01T00:00:00Z"}} {
			if got := find(q...); !strings.Contains(got, id) {
				t.Errorf("%v: %s", q, got)
			}
		}
		for _, q := range [][]string{{"user_id", "43"}, {"since", "2100-01-01T00:00:00Z"}, {"page", "2"}, {"page", "100000"}} {
			if got := find(q...); strings.Contains(got, id) {
				t.Errorf("%v: %s", q, got)
			}
		}
		api.Do(t, "listLedgerEntries", "", apitest.Query("reference", "another")).Want(t, 200, `{"data":[]}`)
	})
	t.Run("are printable", func(t *testing.T) {
		for _, bad := range []string{`""`, `"   "`, `"é"`, `"a\nb"`, `1`, `"` + strings.Repeat("x", 129) + `"`} {
			api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"reference":`+bad+`}`).WantError(t, 400, "invalid_request")
		}
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"reference":" `+strings.Repeat("~", 127)+`"}`).Want(t, 200, "")
	})
	t.Run("that moved here with the guild are taken too", func(t *testing.T) {
		dbtest.Exec(t, api.DB(), `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'old')`, api.Guild)
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"reference":"old"}`).WantError(t, 422, "reference_already_used")
		api.Do(t, "listLedgerEntries", "", apitest.Query("reference", "old")).Want(t, 200, `{"data":[]}`)
	})
	t.Run("of a change that is forgotten are taken too", func(t *testing.T) {
		gone := `{"user_id":"42","delta":0,"reference":"gone"}`
		entry := api.Do(t, "adjustBalance", gone).Want(t, 200, "").Str(t, "data.ledger_entry.id")
		dbtest.Exec(t, api.DB(), `DELETE FROM ledger_entries WHERE guild_id = $1 AND id = $2`, api.Guild, entry)
		api.Do(t, "adjustBalance", gone).WantError(t, 422, "reference_already_used")
	})
}

// An idempotency key refers to the ledger entry from which its response is made. If the entry is
// deleted, a repeat neither makes the change again nor gets an internal error.
func TestARepeatOfAChangeThatIsForgotten(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, "") // the key of a new wallet stores the whole response
	for key, body := range map[string]string{
		"bare": `{"user_id":"42","delta":5}`, "referred": `{"user_id":"42","delta":5,"reference":"gone"}`,
	} {
		view := api.Key(key)
		entry := view.Do(t, "adjustBalance", body).Want(t, 200, "").Str(t, "data.ledger_entry.id")
		dbtest.Exec(t, api.DB(), `DELETE FROM ledger_entries WHERE guild_id = $1 AND id = $2`, api.Guild, entry)
		for range 2 {
			a := view.Do(t, "adjustBalance", body).WantError(t, 422, "member_forgotten")
			if message := a.Str(t, "error.message"); !strings.Contains(message, entry) {
				t.Errorf("the message is %q, want the entry %s in it", message, entry)
			}
		}
	}
	api.Do(t, "getWallet", "", apitest.Path("userId", "42")).Want(t, 200, `{"data":{"balance":11}}`)
	for _, table := range []string{"wallets", "ledger_entries"} { // the same deletions as when a member is forgotten
		dbtest.Exec(t, api.DB(), `DELETE FROM `+table+` WHERE guild_id = $1 AND user_id = '42'`, api.Guild)
	}
}

// When many requests bring the same reference at once, for one wallet and for others, only one is
// paid; requests for the same change get the same response. RELIABILITY.md, Writes.
func TestAReferenceIsTakenOnceUnderARace(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	op := apitest.Find(t, "adjustBalance")
	for round := range 8 {
		var wg sync.WaitGroup
		var paid atomic.Int32
		for i := range 12 {
			wg.Go(func() {
				a, err := api.Retry(op, fmt.Sprintf(`{"user_id":"%d","delta":1,"reference":"round %d"}`, 1+i%3, round))
				switch {
				case err != nil:
					t.Error(err)
				case a.Status == http.StatusOK && a.Header.Get("Idempotent-Replay") == "":
					paid.Add(1)
				case a.Status == http.StatusOK:
				default:
					a.WantError(t, 422, "reference_already_used")
				}
			})
		}
		wg.Wait()
		if n := paid.Load(); n != 1 {
			t.Fatalf("round %d was paid %d times", round, n)
		}
	}
}

func TestGetEconomyRank(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	for user, balance := range map[string]int{"100": 5, "99": 5, "7": 0} {
		api.Do(t, "adjustBalance", fmt.Sprintf(`{"user_id":"%s","delta":%d}`, user, balance)).Want(t, 200, "")
	}
	for user, want := range map[string]string{
		"99":  `{"data":{"rank":1,"user_id":"99","balance":5,"of":3}}`,
		"100": `{"data":{"rank":2,"user_id":"100","balance":5,"of":3}}`,
		"7":   `{"data":{"rank":3,"user_id":"7","balance":0,"of":3}}`,
	} {
		api.Do(t, "getEconomyRank", "", apitest.Path("userId", user)).Want(t, 200, want)
	}
	api.Do(t, "getEconomyRank", "", apitest.Path("userId", "8")).WantError(t, 404, "not_found")
	api.Next(t).Do(t, "getEconomyRank", "", apitest.Path("userId", "7")).WantError(t, 404, "not_found")
	api.Do(t, "getEconomyRank", "", apitest.Path("userId", "007")).WantError(t, 400, "invalid_request")
}

// Several wallets are read in one statement and returned in the order of the request.
func TestListWallets(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"42","delta":7},{"user_id":"43","delta":8}]}`).Want(t, 200, "")
	ids := func(list string) apitest.Arg { return apitest.Query("user_ids", list) }
	api.Do(t, "listWallets", "", ids("43,9,42,43")).Want(t, 200, `{"data":[{"user_id":"43","balance":8},
		{"user_id":"9","balance":0,"updated_at":null},{"user_id":"42","balance":7}],"page":1,"per_page":100,"has_more":false}`)
	for _, args := range [][]apitest.Arg{
		{}, {ids("")}, {ids("42,x")}, {ids(strings.TrimSuffix(strings.Repeat("7,", 101), ","))}, {ids("42"), apitest.Query("page", "1")},
	} {
		api.Do(t, "listWallets", "", args...).WantError(t, 400, "invalid_request")
	}
	api.As(t, "economy:write").Do(t, "listWallets", "", ids("42")).WantError(t, 403, "insufficient_scope")
}

// A ledger entry and its event name the caller, and the person who acted through the caller.
func TestWhoMadeALedgerEntry(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	token := api.Do(t, "getMe", "").Str(t, "token.id")
	key := bot.Do(t, "getMe", "").Str(t, "token.id")
	byToken := `"origin":{"type":"api","token_id":"` + token + `","key_id":null}`
	byKey := `"origin":{"type":"bot","token_id":null,"key_id":"` + key + `"}`
	for range 2 { // the first change creates the wallet and falls back, the second is batched
		entry := api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"author_id":"77"}`).
			Want(t, 200, `{"data":{"ledger_entry":{"author_id":"77",`+byToken+`}}}`).Str(t, "data.ledger_entry.id")
		api.WantEvent(t, "economy.balance_changed", `{`+byToken+`,"data":{"author_id":"77","ledger_entry_id":"`+entry+`"}}`)
		api.Do(t, "getLedgerEntry", "", apitest.Path("id", entry)).Want(t, 200, `{"data":{"author_id":"77",`+byToken+`}}`)
		bot.Do(t, "adjustBalance", `{"user_id":"42","delta":1}`).Want(t, 200, `{"data":{"ledger_entry":{"author_id":null,`+byKey+`}}}`)
		api.WantEvent(t, "economy.balance_changed", `{`+byKey+`,"data":{"author_id":null}}`)
	}
	bot.Do(t, "adjustBalances", `{"adjustments":[{"user_id":"42","delta":1,"author_id":"78"},{"user_id":"43","delta":1}]}`).
		Want(t, 200, `{"data":[{"ledger_entry":{"author_id":"78",`+byKey+`}},{"ledger_entry":{"author_id":null}}]}`)
	api.WantEvent(t, "economy.balance_changed", `{"data":{"author_id":"78"}}`)
	api.WantEvent(t, "economy.balance_changed", `{"data":{"author_id":null}}`)
	bot.Do(t, "writeRecords", `{"records":[{"record":"wallet","user_id":"44","balance":3}]}`).Want(t, 200, "")
	api.WantEvent(t, "economy.balance_changed", `{"data":{"author_id":null}}`)
	dbtest.Exec(t, api.DB(), `UPDATE ledger_entries SET note = 'import' WHERE user_id = '44'`)
	api.Do(t, "listLedgerEntries", "", apitest.Query("user_id", "44")).
		Want(t, 200, `{"data":[{"origin":{"type":"system","token_id":null,"key_id":null}}]}`)
	for _, author := range []string{`"x"`, `7`, `""`} {
		api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"author_id":`+author+`}`).WantError(t, 400, "invalid_request")
	}
	api.Do(t, "adjustBalance", `{"user_id":"42","delta":1,"author_id":null}`).Want(t, 200, "")
	api.WantEvent(t, "economy.balance_changed", `{"data":{"author_id":null}}`)
}
