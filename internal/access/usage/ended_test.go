package usage_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"guildhall/internal/access/usage"
	"guildhall/internal/base/db/dbtest"
)

func ended(guild, token string, at time.Time, address string) usage.Request {
	from := netip.MustParseAddr(address)
	return usage.Request{Guild: guild, Token: token, Ended: true, Status: 401, Code: "invalid_token", At: at, From: from}
}

// Uses of a token after its end are counted for its guild only, survive failing flushes, and do not
// change the guild's other numbers.
func TestUsesOfAnEndedTokenAreCountedApart(t *testing.T) {
	t.Parallel()
	d := &doer{DB: base(t, "a", "b")}
	c := usage.NewCounter()
	start := time.Now().UTC().Truncate(time.Second)
	for n := range 6 {
		address := "203.0.113.9"
		if n == 5 {
			address = "2001:db8:1:2:3::4"
		}
		c.Count(ended("a", "one", start.Add(time.Duration(n)*time.Minute), address))
		d.away = n == 2
		if err := c.Flush(t.Context(), d); (err != nil) != d.away {
			t.Fatal(err)
		}
	}
	c.Count(ended("b", "other", start, "198.51.100.1"))
	must(t, c.Flush(t.Context(), d))
	right := func(u usage.Ended) bool {
		return u.TokenID == "one" && u.Requests == 6 && u.FirstAt.Equal(start) && u.SeenAt.Equal(start.Add(5*time.Minute))
	}
	list, err := usage.EndedTokens(t.Context(), d.Reader(), "a")
	must(t, err)
	if len(list) != 1 || !right(list[0]) {
		t.Errorf("the ended tokens are %+v", list)
	}
	whole, places, err := usage.EndedToken(t.Context(), d.Reader(), "a", "one")
	must(t, err)
	if !right(whole) || len(places) != 2 || places[0].Address != "2001:db8:1:2::/64" || places[0].Requests != 1 ||
		places[1].Address != "203.0.113.9" || places[1].Requests != 5 {
		t.Errorf("it is used %+v from %+v", whole, places)
	}
	if whole, places, err := usage.EndedToken(t.Context(), d.Reader(), "a", "other"); err != nil || whole.Requests != 0 || places != nil {
		t.Errorf("another guild's token is told: %+v, %+v, %v", whole, places, err)
	}
	if n := dbtest.Value[int](t, d.DB, `SELECT (SELECT count(*) FROM usage_hours) + (SELECT count(*) FROM usage_refusals)
		+ (SELECT count(*) FROM usage_addresses)`); n != 0 {
		t.Errorf("%d rows of other numbers were written", n)
	}
}

// However many addresses use a leaked token, the number of rows is bounded, and no use of another
// guild's token is lost.
func TestAFloodWithAnEndedTokenIsBounded(t *testing.T) {
	t.Parallel()
	d := &doer{DB: base(t, "a", "b")}
	c := usage.NewCounter()
	at := time.Now().UTC()
	const flushes, each = 15, 3000
	for f := range flushes {
		for n := range each {
			at = at.Add(time.Millisecond)
			c.Count(ended("a", "leaked", at, fmt.Sprintf("10.%d.%d.%d", f, n/250, n%250)))
		}
		for n := range 300 { // more tokens than the bound allows for a guild
			c.Count(ended("a", fmt.Sprintf("t%03d", n), at, "10.0.0.1"))
		}
		c.Count(ended("b", "quiet", at, "10.0.0.1"))
		must(t, c.Flush(t.Context(), d))
	}
	if n := dbtest.Value[int](t, d.DB, `SELECT count(*) FROM usage_ended WHERE guild_id = 'a'`); n > 1200 {
		t.Errorf("%d rows are kept", n)
	}
	for guild, want := range map[string]int64{"a": flushes * each, "b": flushes} {
		token := map[string]string{"a": "leaked", "b": "quiet"}[guild]
		if whole, _, err := usage.EndedToken(t.Context(), d.Reader(), guild, token); err != nil || whole.Requests != want {
			t.Errorf("guild %s: %+v, %v, want %d", guild, whole, err, want)
		}
	}
}
