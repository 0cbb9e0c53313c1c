package usage

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

const (
	// FlushInterval is how often counters are written, and so how much a crash loses at most.
	FlushInterval = 10 * time.Second
	flushTimeout  = 5 * time.Second

	hoursKept    = "31 days"
	refusalsKept = "7 days"
)

// Run writes the counters until ctx ends, and then the remaining ones. Counters that cannot be
// written are kept for the next flush.
func (c *Counter) Run(ctx context.Context, d db.Doer, log *slog.Logger) error {
	tick := time.NewTicker(FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := c.Flush(ctx, d); err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "the numbers of requests were not written; they wait for the next time", "error", err)
			}
		case <-ctx.Done():
			if err := c.Flush(context.WithoutCancel(ctx), d); err != nil {
				log.WarnContext(ctx, "the last numbers of requests were not written", "error", err)
			}
			return nil
		}
	}
}

// Lately returns those of the given guilds in which one of the operations was requested in the last
// one to two hours.
func Lately(ctx context.Context, q db.Querier, guilds, operations []string) (list []string, err error) {
	if len(guilds) == 0 {
		return nil, nil
	}
	list, err = db.Select[string](ctx, q, `
		SELECT DISTINCT guild_id
		FROM usage_hours
		WHERE guild_id = ANY($1)
		  AND token_id = ''
		  AND hour > now() - interval '2 hours'
		  AND operation = ANY($2)`, db.Array(guilds), db.Array(operations))
	return list, fault.Wrap(err, "see which guilds were asked for", strings.Join(operations, " or "))
}

// Flush writes everything that was counted since the last flush.
func (c *Counter) Flush(ctx context.Context, d db.Doer) error {
	p := c.take()
	if len(p.hours) == 0 && len(p.ended) == 0 {
		return nil
	}
	limit, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	err := d.Do(limit, func(ctx context.Context, tx *db.Tx) error { return p.write(ctx, tx) })
	if err != nil {
		c.restore(p)
		return err
	}
	guilds := c.due(p)
	if len(guilds) == 0 {
		return nil
	}
	if err := trim(limit, d, guilds); err != nil {
		return err // the counters are written, and the next flush tries to trim again
	}
	c.trimmed(guilds)
	return nil
}

const (
	// trimEvery is how many refusals, or uses of ended tokens, of a guild are written before its
	// rows are trimmed. trimGuilds is how many guilds are trimmed at a time.
	trimEvery  = 100
	trimGuilds = 50
	// maxDue bounds how many guilds are remembered for trimming.
	maxDue = 50_000
)

// due counts the refusals that were written and returns the guilds that are to be trimmed, in the
// order of their ids.
func (c *Counter) due(p pending) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.untrimmed) > maxDue {
		clear(c.untrimmed) // the other guilds are trimmed after their next hundred rows
	}
	for guild, list := range p.refusals {
		c.untrimmed[guild] += len(list)
	}
	for k := range p.ended {
		c.untrimmed[k.guild]++
	}
	var guilds []string
	for guild, n := range c.untrimmed {
		if n >= trimEvery {
			guilds = append(guilds, guild)
		}
	}
	slices.Sort(guilds)
	return guilds[:min(trimGuilds, len(guilds))]
}

func (c *Counter) trimmed(guilds []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, guild := range guilds {
		delete(c.untrimmed, guild)
	}
}

// arrays collects rows as one array for each column.
type arrays [][]string

// present selects those guilds of $1 that exist and whose removal has not begun.
const present = `
	SELECT id
	FROM guilds
	WHERE id = ANY ($1) AND (removed_after IS NULL OR removed_after > now())`

// dropErased drops the counters of guilds that do not exist or whose removal has begun. A node that
// was frozen may flush minutes late, and nothing would delete these rows again. Removal begins 15 s
// after its scheduled time, when every flush that began before then has ended.
func (p pending) dropErased(ctx context.Context, tx *db.Tx) error {
	guilds := make(map[string]bool) // false: not yet known to exist
	for k := range p.hours {
		guilds[k.guild] = false
	}
	for k := range p.ended {
		guilds[k.guild] = false
	}
	list, err := db.Select[string](ctx, tx, present, db.Array(slices.Collect(maps.Keys(guilds))))
	if err != nil {
		return fault.Wrap(err, "see which guilds are still there")
	}
	for _, id := range list {
		guilds[id] = true
	}
	maps.DeleteFunc(p.hours, func(k hourKey, _ int64) bool { return !guilds[k.guild] })
	maps.DeleteFunc(p.addresses, func(k addressKey, _ seen) bool { return !guilds[k.guild] })
	maps.DeleteFunc(p.refusals, func(guild string, _ []Request) bool { return !guilds[guild] })
	maps.DeleteFunc(p.ended, func(k endedKey, _ endedUse) bool { return !guilds[k.guild] })
	return nil
}

// write writes everything in one statement. The rows are sorted, so that two nodes lock them in the
// same order.
func (p pending) write(ctx context.Context, tx *db.Tx) error {
	if err := p.dropErased(ctx, tx); err != nil {
		return err
	}
	hours, totals, days := p.sums()
	places := make(arrays, 6)
	for _, k := range slices.SortedFunc(maps.Keys(p.addresses), comparePlaces) {
		s := p.addresses[k]
		places.add(k.guild, k.token, time.Unix(k.day*86400, 0).UTC().Format(time.DateOnly), placeText(k), s.requests, s.at.UTC().Format(time.RFC3339Nano))
	}
	refusals := make(arrays, 10)
	for _, list := range p.refusals {
		for _, r := range list {
			from := ""
			if r.From.IsValid() {
				from = r.From.Unmap().WithZone("").String()
			}
			refusals.add(r.Guild, r.RequestID, r.At.UTC().Format(time.RFC3339Nano), r.Token, r.Operation, r.Status, r.Code, from, r.Message, r.Scope)
		}
	}
	_, err := db.Exec(ctx, tx, `
		WITH counted AS (
			INSERT INTO usage_hours AS u (guild_id, token_id, hour, operation, class, requests)
			SELECT * FROM unnest($1::text[], $2::text[], $3::timestamptz[], $4::text[], $5::smallint[], $6::bigint[])
			ON CONFLICT (guild_id, token_id, hour, operation, class) DO UPDATE SET requests = u.requests + excluded.requests
		), by_hour AS (
			INSERT INTO usage_totals AS u (guild_id, token_id, hour, class, requests)
			SELECT * FROM unnest($21::text[], $22::text[], $23::timestamptz[], $24::smallint[], $25::bigint[])
			ON CONFLICT (guild_id, token_id, hour, class) DO UPDATE SET requests = u.requests + excluded.requests
		), by_day AS (
			INSERT INTO usage_days AS u (guild_id, token_id, day, operation, class, requests)
			SELECT * FROM unnest($26::text[], $27::text[], $28::date[], $29::text[], $30::smallint[], $31::bigint[])
			ON CONFLICT (guild_id, token_id, day, operation, class) DO UPDATE SET requests = u.requests + excluded.requests
		), seen AS (
			INSERT INTO usage_addresses AS u (guild_id, token_id, day, address, requests, seen_at)
			SELECT * FROM unnest($7::text[], $8::text[], $9::date[], $10::text[], $11::bigint[], $12::timestamptz[])
			ON CONFLICT (guild_id, token_id, day, address) DO UPDATE
			SET requests = u.requests + excluded.requests, seen_at = greatest(u.seen_at, excluded.seen_at)
		), ended AS (
			INSERT INTO usage_ended AS u (guild_id, token_id, address, requests, first_at, seen_at)
			SELECT * FROM unnest($32::text[], $33::text[], $34::text[], $35::bigint[], $36::timestamptz[], $37::timestamptz[])
			ON CONFLICT (guild_id, token_id, address) DO UPDATE
			SET requests = u.requests + excluded.requests, first_at = least(u.first_at, excluded.first_at), seen_at = greatest(u.seen_at, excluded.seen_at)
		)
		INSERT INTO usage_refusals (guild_id, request_id, at, token_id, operation, status, code, address, message, required_scope)
		SELECT * FROM unnest($13::text[], $14::text[], $15::timestamptz[], $16::text[], $17::text[], $18::smallint[], $19::text[], $20::text[], $38::text[], $39::text[])
		ON CONFLICT DO NOTHING`,
		slices.Concat(hours.args(), places.args(), refusals[:8].args(), totals.args(), days.args(), p.endedColumns().args(), refusals[8:].args())...)
	return fault.Wrap(err, "write the numbers of requests")
}

func (c arrays) add(values ...any) {
	for i, v := range values {
		c[i] = append(c[i], fmt.Sprint(v))
	}
}

func (c arrays) args() []any {
	args := make([]any, len(c))
	for i, column := range c {
		args[i] = db.Array(column)
	}
	return args
}

// sums returns the rows of the request tables: each number once for its token and once for the
// guild as a whole.
func (p pending) sums() (hours, totals, days arrays) {
	byHour, total, byDay := map[hourKey]int64{}, map[hourKey]int64{}, map[hourKey]int64{}
	for k, n := range p.hours {
		for _, token := range []string{k.token, ""} {
			k.token = token
			byHour[k] += n
			t := k
			t.operation = ""
			total[t] += n
			d := k
			d.hour -= d.hour % 24
			byDay[d] += n
		}
	}
	hours, totals, days = make(arrays, 6), make(arrays, 5), make(arrays, 6)
	at := func(k hourKey, layout string) string { return time.Unix(k.hour*3600, 0).UTC().Format(layout) }
	for _, k := range slices.SortedFunc(maps.Keys(byHour), compareHours) {
		hours.add(k.guild, k.token, at(k, time.RFC3339), k.operation, k.class, byHour[k])
	}
	for _, k := range slices.SortedFunc(maps.Keys(total), compareHours) {
		totals.add(k.guild, k.token, at(k, time.RFC3339), k.class, total[k])
	}
	for _, k := range slices.SortedFunc(maps.Keys(byDay), compareHours) {
		days.add(k.guild, k.token, at(k, time.DateOnly), k.operation, k.class, byDay[k])
	}
	return hours, totals, days
}

func placeText(k addressKey) string {
	if k.address.IsSingleIP() {
		return k.address.Addr().String()
	}
	return k.address.String()
}

func compareHours(a, b hourKey) int {
	return cmp.Or(cmp.Compare(a.guild, b.guild), cmp.Compare(a.token, b.token), cmp.Compare(a.hour, b.hour),
		cmp.Compare(a.operation, b.operation), cmp.Compare(a.class, b.class))
}

func comparePlaces(a, b addressKey) int {
	if n := cmp.Or(cmp.Compare(a.guild, b.guild), cmp.Compare(a.token, b.token), cmp.Compare(a.day, b.day)); n != 0 {
		return n
	}
	return cmp.Compare(placeText(a), placeText(b))
}

const trimRefusals = `
	DELETE FROM usage_refusals
	WHERE guild_id = $1 AND request_id <= (
		SELECT request_id FROM usage_refusals
		WHERE guild_id = $1
		ORDER BY request_id DESC OFFSET $2 LIMIT 1)`

// Expired returns the expiry of the counters.
func Expired() []db.Expiry {
	return []db.Expiry{
		{Table: "usage_hours", Key: "token_id, hour, operation, class", Since: "hour", Kept: hoursKept},
		{Table: "usage_totals", Key: "token_id, hour, class", Since: "hour", Kept: hoursKept},
		{Table: "usage_days", Key: "token_id, day, operation, class", Since: "day", Kept: hoursKept},
		{Table: "usage_addresses", Key: "token_id, day, address", Since: "day", Kept: hoursKept},
		{Table: "usage_ended", Key: "token_id, address", Since: "seen_at", Kept: hoursKept},
		{Table: "usage_refusals", Key: "request_id", Since: "at", Kept: refusalsKept},
	}
}

// Hour is the number of requests in one hour, by class of status.
type Hour struct {
	Hour     time.Time `db:"hour"`
	Class    int       `db:"class"`
	Requests int64     `db:"requests"`
}

// Hours returns the requests since an instant by hour and class: of one token, or of the whole
// guild if token is empty.
func Hours(ctx context.Context, q db.Querier, guild, token string, since time.Time) ([]Hour, error) {
	rows, err := db.Select[Hour](ctx, q, `
		SELECT hour, class, requests
		FROM usage_totals
		WHERE guild_id = $1 AND token_id = $2 AND hour >= $3
		ORDER BY hour, class`, guild, token, since)
	return rows, fault.Wrap(err, "read the usage of guild", guild)
}

// Operation is the number of requests of one operation, by class of status.
type Operation struct {
	Operation string `db:"operation"`
	Class     int    `db:"class"`
	Requests  int64  `db:"requests"`
}

// Operations returns the requests since the beginning of an hour, by operation and class. It adds
// the hours of the first day and the daily numbers after it.
func Operations(ctx context.Context, q db.Querier, guild, token string, since time.Time) ([]Operation, error) {
	midnight := since.UTC().Truncate(24 * time.Hour)
	if midnight.Before(since) {
		midnight = midnight.Add(24 * time.Hour)
	}
	rows, err := db.Select[Operation](ctx, q, `
		SELECT operation, class, sum(requests)::bigint AS requests
		FROM (
			SELECT operation, class, requests
			FROM usage_hours
			WHERE guild_id = $1 AND token_id = $2 AND hour >= $3 AND hour < $4
			UNION ALL
			SELECT operation, class, requests
			FROM usage_days
			WHERE guild_id = $1 AND token_id = $2 AND day >= $5::date
		) u
		GROUP BY operation, class
		ORDER BY operation, class`, guild, token, since, midnight, midnight.Format(time.DateOnly))
	return rows, fault.Wrap(err, "read the usage of guild", guild, "by operation")
}

// Address is an address from which a token was used in the last thirty days.
type Address struct {
	Address  string    `db:"address"`
	Requests int64     `db:"requests"`
	SeenAt   time.Time `db:"seen_at"`
}

// Addresses returns the most recent addresses from which a token was used.
func Addresses(ctx context.Context, q db.Querier, guild, token string) ([]Address, error) {
	rows, err := db.Select[Address](ctx, q, `
		SELECT address, sum(requests)::bigint AS requests, max(seen_at) AS seen_at
		FROM usage_addresses
		WHERE guild_id = $1 AND token_id = $2 AND day >= current_date - 30
		GROUP BY address
		ORDER BY seen_at DESC, address
		LIMIT 20`, guild, token)
	return rows, fault.Wrap(err, "read the addresses of token", token)
}

// Refusal is one refused request.
type Refusal struct {
	RequestID string    `db:"request_id"`
	At        time.Time `db:"at"`
	TokenID   string    `db:"token_id"`
	Operation string    `db:"operation"`
	Status    int       `db:"status"`
	Code      string    `db:"code"`
	Address   string    `db:"address"`
	Message   string    `db:"message"`        // as the caller got it, escaped, cut to 300 characters; may be empty
	Scope     string    `db:"required_scope"` // empty: the refusal did not name a scope
}

// RefusalFilter selects refusals; empty fields select all.
type RefusalFilter struct {
	Token, RequestID, Code, Operation string
	Below                             string // older than the refusal with this request id
}

// Refusals returns the newest refusals that match the filter.
func Refusals(ctx context.Context, q db.Querier, guild string, f RefusalFilter, limit int) ([]Refusal, error) {
	query, args := db.Where(`
		SELECT request_id, at, token_id, operation, status, code, address, message, required_scope
		FROM usage_refusals
		WHERE guild_id = $1`, []any{guild, limit},
		db.Condition{Compare: "token_id =", Value: f.Token},
		db.Condition{Compare: "request_id =", Value: f.RequestID},
		db.Condition{Compare: "code =", Value: f.Code},
		db.Condition{Compare: "operation =", Value: f.Operation},
		db.Condition{Compare: "request_id <", Value: f.Below})
	rows, err := db.Select[Refusal](ctx, q, query+" ORDER BY request_id DESC LIMIT $2", args...)
	return rows, fault.Wrap(err, "read the refusals of guild", guild)
}

// Group is the number of refusals with the same code and operation.
type Group struct {
	Code      string    `db:"code"`
	Operation string    `db:"operation"`
	Status    int       `db:"status"`
	Refusals  int64     `db:"refusals"`
	Newest    time.Time `db:"newest"`
}

// Groups counts the stored refusals by code and operation.
func Groups(ctx context.Context, q db.Querier, guild string, since time.Time) ([]Group, error) {
	rows, err := db.Select[Group](ctx, q, `
		SELECT code, operation, status, count(*) AS refusals, max(at) AS newest
		FROM usage_refusals
		WHERE guild_id = $1 AND at >= $2
		GROUP BY code, operation, status
		ORDER BY refusals DESC, code, operation
		LIMIT 50`, guild, since)
	return rows, fault.Wrap(err, "group the refusals of guild", guild)
}
