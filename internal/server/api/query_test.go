package api_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
)

// far returns a server that reaches its database through a slow link, so that concurrent reads are
// batched, with the link and a counter of an operation's batches.
func far(
	t *testing.T, judge func(sent []byte) dbtest.Fate,
) (server *apitest.API, link *dbtest.Link, batches func(operation string) float64) {
	t.Helper()
	numbers := prometheus.NewRegistry()
	server = apitest.New(t, apitest.With(func(c *api.Config) { c.Metrics = numbers }), apitest.Reach(func(url string) string {
		link = dbtest.NewJudgedLink(t, url, judge)
		return link.URL
	}))
	link.Slow(5 * time.Millisecond)
	return server, link, func(operation string) float64 {
		return testutil.Metric(t, numbers, "guildhall_request_batch_size", "operation="+operation)
	}
}

func pass([]byte) dbtest.Fate { return dbtest.Pass }

// asking returns the arguments of the nth read of an operation.
type asking func(n int) []apitest.Arg

// member returns the argument for the member with that number.
func member(n int) []apitest.Arg { return []apitest.Arg{apitest.Path("userId", strconv.Itoa(n))} }

// pages returns arguments for pages of several sizes, sometimes deep ones.
func pages(n int) []apitest.Arg {
	number, size := 1+n%3, 1+n%7
	if n%10 == 0 {
		number = 1000
	}
	return []apitest.Arg{apitest.Query("page", strconv.Itoa(number)), apitest.Query("per_page", strconv.Itoa(size))}
}

// many sends n requests concurrently and returns the responses.
func many(t *testing.T, servers []*apitest.API, operation string, n int, of asking) []*apitest.Response {
	t.Helper()
	return asked(t, (*apitest.API).Retry, servers, operation, n, of)
}

func asked(
	t *testing.T, ask func(*apitest.API, apitest.Operation, string, ...apitest.Arg) (*apitest.Response, error),
	servers []*apitest.API, operation string, n int, of asking,
) []*apitest.Response {
	t.Helper()
	op, answers := apitest.Find(t, operation), make([]*apitest.Response, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			if answers[i], err = ask(servers[i%len(servers)], op, "", of(1+i)...); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return answers
}

// Batched reads, also of several guilds, get the same bytes as each read alone, whether or not
// there is anything to read.
func TestReadsThatMeetAreAnsweredAsByThemselves(t *testing.T) {
	t.Parallel()
	server, _, batches := far(t, pass)
	other := server.Next(t)
	for i, s := range []*apitest.API{server, other} {
		for n := range 15 {
			s.Do(t, "adjustBalance", fmt.Sprintf(`{"user_id":"%d","delta":%d}`, 1+n, 100*i+n))
			s.Do(t, "adjustXp", fmt.Sprintf(`{"user_id":"%d","delta":%d}`, 1+n, 1000*i+n))
		}
	}
	for operation, of := range map[string]asking{
		"getWallet": member, "getLevelRecord": member, "getEconomyLeaderboard": pages, "getLevellingLeaderboard": pages,
	} {
		before := batches(operation)
		for i, a := range many(t, []*apitest.API{server, other}, operation, 40, of) {
			s := []*apitest.API{server, other}[i%2]
			alone := s.Do(t, operation, "", of(1+i)...).Want(t, http.StatusOK, "")
			if a.Status != http.StatusOK || !bytes.Equal(a.Body, alone.Body) ||
				a.Header.Get("Content-Length") != alone.Header.Get("Content-Length") {
				t.Errorf("%s, number %d: %d %s, and alone %s", operation, 1+i, a.Status, a.Body, alone.Body)
			}
		}
		if met := batches(operation) - before; met < 10 {
			t.Errorf("%s: %v of 40 reads at once went into batches", operation, met)
		}
	}
}

// A read that starts after a write was answered sees the write, whichever other reads are in its
// batch. RELIABILITY.md, Writes.
func TestWhoReadsAfterAWriteSeesIt(t *testing.T) {
	t.Parallel()
	server, _, batches := far(t, pass)
	adjust, get, list := apitest.Find(t, "adjustBalance"), apitest.Find(t, "getWallet"), apitest.Find(t, "getEconomyLeaderboard")
	var writers sync.WaitGroup
	for w := range 24 {
		writers.Go(func() {
			user := strconv.Itoa(1 + w)
			for n := range 8 {
				changed, err := server.Retry(adjust, `{"user_id":"`+user+`","delta":1}`)
				if err != nil {
					t.Error(err)
					return
				}
				read, err := server.Retry(get, "", apitest.Path("userId", user))
				if err != nil {
					t.Error(err)
					return
				}
				if want := changed.Str(t, "data.updated_at"); read.Str(t, "data.updated_at") != want {
					t.Errorf("%s after a change at %s", read.Body, want)
				}
				board, err := server.Retry(list, "")
				if err != nil {
					t.Error(err)
					return
				}
				if !regexp.MustCompile(fmt.Sprintf(`"balance":%d,"rank":\d+,"user_id":"%s"`, n+1, user)).Match(board.Body) {
					t.Errorf("member %s has %d, on the leaderboard: %s", user, n+1, board.Body)
				}
			}
		})
	}
	writers.Wait()
	if batches("getWallet") == 0 || batches("getEconomyLeaderboard") == 0 {
		t.Error("no two reads have met")
	}
}

// When a batch's statement fails, its reads are made one by one.
func TestReadsOfABatchThatBreaksAreMadeAlone(t *testing.T) {
	t.Parallel()
	var broken atomic.Int64
	server, _, _ := far(t, func(sent []byte) dbtest.Fate {
		// As often as database/sql would retry, and once more.
		if bytes.Contains(sent, []byte(`g.number, w.*`)) && broken.Add(1) <= 4 {
			return dbtest.Break
		}
		return dbtest.Pass
	})
	for i, a := range many(t, []*apitest.API{server}, "getWallet", 30, member) {
		a.Want(t, http.StatusOK, fmt.Sprintf(`{"data":{"user_id":"%d","balance":0,"updated_at":null}}`, 1+i))
	}
	if broken.Load() == 0 {
		t.Error("no statement of several was sent")
	}
}

// Without a database all waiting reads fail, and later reads succeed when it is back.
func TestReadsThatMeetWithoutADatabase(t *testing.T) {
	t.Parallel()
	server, link, _ := far(t, pass)
	many(t, []*apitest.API{server}, "getWallet", 10, member)
	link.Down()
	for _, a := range asked(t, (*apitest.API).Try, []*apitest.API{server}, "getWallet", 30, member) {
		a.WantError(t, http.StatusServiceUnavailable, "service_unavailable")
	}
	link.Up()
	for _, a := range many(t, []*apitest.API{server}, "getWallet", 30, member) {
		a.Want(t, http.StatusOK, `{"data":{"balance":0}}`)
	}
}

// A caller that hangs up while others wait in the same batch delays none of them.
func TestWhoLeavesABatchOfReadsDelaysNobody(t *testing.T) {
	t.Parallel()
	server, link, _ := far(t, pass)
	many(t, []*apitest.API{server}, "getWallet", 10, member) // opens connections and prepares statements
	link.Slow(200 * time.Millisecond)
	var all sync.WaitGroup
	for i := range 30 {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		if i%3 == 0 {
			time.AfterFunc(50*time.Millisecond, leave)
		}
		all.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/economy/wallet/"+strconv.Itoa(1+i), nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("Authorization", "Bearer "+server.Token)
			response, err := server.Server.Client.Do(req)
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("%d beside some who have left", response.StatusCode)
			}
		})
	}
	all.Wait()
}
