package usage_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/usage"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// base returns a database with guilds.
func base(t *testing.T, guilds ...string) *db.DB {
	t.Helper()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, guilds...)
	return d
}

// doer counts transactions, and fails them while away is set.
type doer struct {
	*db.DB
	units int
	away  bool
}

var errAway = errors.New("away")

func (d *doer) Do(ctx context.Context, fn func(context.Context, *db.Tx) error) error {
	d.units++
	if d.away {
		return errAway
	}
	return d.DB.Do(ctx, fn)
}

var from = netip.MustParseAddr("203.0.113.9")

func request(guild string, n, status int) usage.Request {
	r := usage.Request{
		Guild: guild, Token: "token-" + guild, Operation: "getWallet", RequestID: fmt.Sprintf("%s-%06d", guild, n), Status: status,
		From: from, At: time.Now(),
	}
	if status >= 400 {
		r.Code = "not_found"
	}
	return r
}

func TestWhatIsCountedIsWrittenOnce(t *testing.T) {
	t.Parallel()
	d := &doer{DB: base(t, "a", "b")}
	c := usage.NewCounter()
	must(t, c.Flush(t.Context(), d))
	if d.units != 0 {
		t.Error("nothing was counted, and something was written")
	}
	c.Count(usage.Request{Status: 401, At: time.Now()}) // belongs to no guild
	sum := func(token string) int {
		return dbtest.Value[int](t, d.DB, `SELECT coalesce(sum(requests), 0) FROM usage_hours WHERE guild_id = 'a' AND token_id = $1`, token)
	}
	for round := 1; round <= 3; round++ {
		for n := range 5 {
			c.Count(request("a", round*10+n, 200))
		}
		c.Count(request("a", round*10+9, 404))
		d.away = true // a failed flush loses nothing and counts nothing twice
		if err := c.Flush(t.Context(), d); !errors.Is(err, errAway) {
			t.Fatalf("the flush says %v", err)
		}
		d.away = false
		must(t, c.Flush(t.Context(), d))
		must(t, c.Flush(t.Context(), d))
		if token, guild := sum("token-a"), sum(""); token != 6*round || guild != 6*round {
			t.Errorf("round %d: %d requests of the token, %d of the guild", round, token, guild)
		}
		for _, token := range []string{"token-a", ""} {
			if n := dbtest.Value[int](t, d.DB, `SELECT (SELECT sum(requests) FROM usage_totals WHERE token_id = $1)
				+ 1000 * (SELECT sum(requests) FROM usage_days WHERE token_id = $1)`, token); n != 1001*6*round {
				t.Errorf("round %d: the sums of %q are %d", round, token, n)
			}
		}
		if n := dbtest.Value[int](t, d.DB, `SELECT count(*) FROM usage_refusals`); n != round {
			t.Errorf("round %d: %d refusals", round, n)
		}
		if n := dbtest.Value[int](t, d.DB, `SELECT requests FROM usage_addresses WHERE address = '203.0.113.9'`); n != 6*round {
			t.Errorf("round %d: %d requests from the address", round, n)
		}
	}
}

// About 1,000 of the newest refusals are kept, at most a hundred more. The trimming costs one
// transaction now and then for many guilds together.
func TestRefusalsAreTrimmedRarelyAndTogether(t *testing.T) {
	t.Parallel()
	d := &doer{DB: base(t, "quiet")}
	c := usage.NewCounter()
	const guilds, rounds, each = 60, 9, 150
	for g := range guilds {
		dbtest.AddGuilds(t, d.DB, fmt.Sprintf("g%02d", g))
	}
	kept := func(guild string) int {
		return dbtest.Value[int](t, d.DB, `SELECT count(*) FROM usage_refusals WHERE guild_id = $1`, guild)
	}
	for round := range rounds {
		for g := range guilds {
			for n := range each {
				c.Count(request(fmt.Sprintf("g%02d", g), round*each+n, 404))
			}
		}
		c.Count(request("quiet", round, 404))
		must(t, c.Flush(t.Context(), d))
	}
	if d.units > 2*rounds {
		t.Errorf("%d flushes of %d guilds took %d units", rounds, guilds, d.units)
	}
	for round := range 3 { // guilds that were not trimmed are trimmed later
		c.Count(request("quiet", rounds+round, 404))
		must(t, c.Flush(t.Context(), d))
	}
	for g := range guilds {
		guild := fmt.Sprintf("g%02d", g)
		if n := kept(guild); n != 1000 {
			t.Errorf("%d refusals of %s are kept", n, guild)
		}
	}
	if n := kept("quiet"); n != rounds+3 {
		t.Errorf("%d refusals of a quiet guild are kept", n)
	}
	newest, err := usage.Refusals(t.Context(), d.Reader(), "g00", usage.RefusalFilter{}, 1)
	must(t, err)
	if len(newest) != 1 || newest[0].RequestID != fmt.Sprintf("g00-%06d", rounds*each-1) {
		t.Errorf("the newest is %+v", newest)
	}
	before := d.units
	c.Count(request("quiet", 99, 404))
	must(t, c.Flush(t.Context(), d))
	if d.units != before+1 {
		t.Errorf("a flush with one refusal took %d units", d.units-before)
	}
}

// Pruning deletes expired rows of all guilds, a thousand rows at a time.
func TestPrune(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Exec(t, d, `
		INSERT INTO usage_hours (guild_id, token_id, hour, operation, class, requests)
		SELECT n::text, '', now() - age * interval '1 day', 'getWallet', 2, 1 FROM generate_series(1, 1500) n, unnest(ARRAY[1, 32]) age`)
	dbtest.Exec(t, d, `
		INSERT INTO usage_addresses (guild_id, token_id, day, address, requests, seen_at)
		SELECT n::text, '', now() - age * interval '1 day', '::1', 1, now() FROM generate_series(1, 3) n, unnest(ARRAY[1, 33]) age`)
	dbtest.Exec(t, d, `
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address)
		SELECT n::text, age::text, now() - age * interval '1 day', '', '', 404, '', '' FROM generate_series(1, 4) n, unnest(ARRAY[1, 8]) age`)
	for i, want := range []int{1007, 500, 0} {
		if n := dbtest.Prune(t, d, usage.Expired()); n != want {
			t.Errorf("step %d deletes %d, want %d", i, n, want)
		}
	}
	if n := dbtest.Value[int](t, d, `SELECT (SELECT count(*) FROM usage_hours)
		+ (SELECT count(*) FROM usage_addresses) + (SELECT count(*) FROM usage_refusals)`); n != 1507 {
		t.Errorf("%d rows are left", n)
	}
}

// The numbers by hour and by operation add up to the same totals, whenever the period begins.
func TestHoursAndOperationsAgree(t *testing.T) {
	t.Parallel()
	d := base(t, "a", "b")
	c := usage.NewCounter()
	now := time.Now().UTC().Truncate(time.Hour)
	for back := range 72 {
		r := request("a", back, 200)
		r.At = now.Add(-time.Duration(back) * time.Hour)
		c.Count(r)
	}
	must(t, c.Flush(t.Context(), d))
	for _, back := range []int{0, 1, 23, 24, 25, 47, 71} {
		since := now.Add(-time.Duration(back) * time.Hour)
		for _, token := range []string{"", "token-a"} {
			hours, err := usage.Hours(t.Context(), d.Reader(), "a", token, since)
			must(t, err)
			operations, err := usage.Operations(t.Context(), d.Reader(), "a", token, since)
			must(t, err)
			if len(hours) != back+1 || len(operations) != 1 || operations[0].Requests != int64(back+1) {
				t.Errorf("since %d hours: %d hours, operations %+v", back, len(hours), operations)
			}
		}
	}
}

// A node that was frozen flushes after a guild was erased: no table gets a row of that guild.
// RELIABILITY.md, Guilds.
func TestNothingIsWrittenForAGuildThatIsGone(t *testing.T) {
	t.Parallel()
	d := base(t, "there", "leaving", "over")
	dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now(), removed_after = now() + interval '1 day' WHERE id = 'leaving'`)
	dbtest.Exec(t, d, `UPDATE guilds SET removed_at = now(), removed_after = now() - interval '1 second' WHERE id = 'over'`)
	c := usage.NewCounter()
	for _, guild := range []string{"there", "leaving", "over", "erased"} {
		c.Count(request(guild, 1, 200))
		c.Count(request(guild, 2, 404))
		c.Count(ended(guild, "ended-"+guild, time.Now(), "203.0.113.9"))
	}
	must(t, c.Flush(t.Context(), d))
	for _, table := range []string{"usage_hours", "usage_totals", "usage_days", "usage_addresses", "usage_refusals", "usage_ended"} {
		got := dbtest.Value[string](t, d, `SELECT coalesce(string_agg(DISTINCT guild_id, ' ' ORDER BY guild_id), '') FROM `+table)
		if got != "leaving there" {
			t.Errorf("%s has rows of %q", table, got)
		}
	}
}

// A refused call is stored with the scope that the token lacked and with the error message, which is
// escaped and cut to its maximum length.
func TestARefusalKeepsItsReason(t *testing.T) {
	t.Parallel()
	d := base(t, "a")
	c := usage.NewCounter()
	for n, message := range []string{"This token lacks cases:write.", "body: \u202e\x00", strings.Repeat("ü", 301)} {
		r := request("a", n, 403)
		r.Message, r.Scope = message, "cases:write"
		c.Count(r)
	}
	must(t, c.Flush(t.Context(), d))
	kept, err := usage.Refusals(t.Context(), d.Reader(), "a", usage.RefusalFilter{}, 3)
	must(t, err)
	want := []string{strings.Repeat("ü", 299) + "…", `body: \u202e\u0000`, "This token lacks cases:write."}
	for i, r := range kept {
		if r.Message != want[i] || r.Scope != "cases:write" {
			t.Errorf("kept is %q, %q, want %q", r.Message, r.Scope, want[i])
		}
	}
}

// The messages of refusals that wait to be written take at most 16 MiB; further refusals are stored
// without message.
func TestMessagesOfRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	d := &doer{DB: base(t, "g00"), away: true}
	c := usage.NewCounter()
	const long, guilds, each = 1200, 80, 200 // 300 characters in bytes; 19 MB in total
	for g := range guilds {
		for n := range each {
			r := request(fmt.Sprintf("g%02d", g), n, 400)
			r.Message = strings.Repeat("🎉", 300)
			c.Count(r)
		}
	}
	for range 2 { // counters that could not be written are restored within the bound
		if kept := usage.Messages(c); kept > 16<<20 || kept < 16<<20-long {
			t.Errorf("%d bytes of messages are kept", kept)
		}
		if err := c.Flush(t.Context(), d); !errors.Is(err, errAway) {
			t.Fatal(err)
		}
	}
}
