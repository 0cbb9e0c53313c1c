package usage

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// A token that was revoked or has expired may be used on, by a program that
// nobody has told or by somebody who has found it. Its owner learns when, how
// often and from where. It is counted apart from what the guild's tokens do, so
// that a flood of such requests pushes no other numbers out.

const (
	// maxEnded is how many rows of a guild are kept, and maxEndedPending bounds those
	// of one guild between two flushes; half of them may be addresses.
	maxEnded        = 1000
	maxEndedPending = 200
)

// endedKey is a token and an address; the zero address stands for all of them.
type endedKey struct {
	guild, token string
	address      netip.Prefix
}

type endedUse struct {
	requests    int64
	first, last time.Time
}

func (u endedUse) and(o endedUse) endedUse {
	if u.requests == 0 {
		return o
	}
	u.requests += o.requests
	if o.first.Before(u.first) {
		u.first = o.first
	}
	if o.last.After(u.last) {
		u.last = o.last
	}
	return u
}

// addEnded takes the uses of an ended token into account, if there is room.
func (p *pending) addEnded(k endedKey, n endedUse) {
	if _, known := p.ended[k]; !known {
		room := maxEndedPending
		if k.address.IsValid() {
			room /= 2
		}
		if len(p.ended) >= maxCounters || p.endedOf[k.guild] >= room {
			return
		}
		p.endedOf[k.guild]++
	}
	p.ended[k] = p.ended[k].and(n)
}

// endedColumns are the rows of what ended tokens were used for.
func (p pending) endedColumns() arrays {
	rows := make(arrays, 6)
	for _, k := range slices.SortedFunc(maps.Keys(p.ended), func(a, b endedKey) int {
		return cmp.Or(cmp.Compare(a.guild, b.guild), cmp.Compare(a.token, b.token), cmp.Compare(endedPlace(a), endedPlace(b)))
	}) {
		n := p.ended[k]
		rows.add(k.guild, k.token, endedPlace(k), n.requests, n.first.UTC().Format(time.RFC3339Nano), n.last.UTC().Format(time.RFC3339Nano))
	}
	return rows
}

func endedPlace(k endedKey) string {
	if !k.address.IsValid() {
		return ""
	}
	return placeText(addressKey{address: k.address})
}

const trimEnded = `
	DELETE FROM usage_ended
	WHERE guild_id = $1 AND seen_at <= (
		SELECT seen_at FROM usage_ended
		WHERE guild_id = $1
		ORDER BY seen_at DESC OFFSET $2 LIMIT 1)`

// Ended is the use of a token after its end.
type Ended struct {
	TokenID  string    `db:"token_id"`
	Address  string    `db:"address"` // empty: from wherever
	Requests int64     `db:"requests"`
	FirstAt  time.Time `db:"first_at"`
	SeenAt   time.Time `db:"seen_at"`
}

// Both return rows of one guild, of which there are never many more than maxEnded.
const (
	endedQuery = `
	SELECT token_id, address, requests, first_at, seen_at
	FROM usage_ended
	WHERE guild_id = $1 AND address = ''`

	usesOfOneQuery = `
	SELECT token_id, address, requests, first_at, seen_at
	FROM usage_ended
	WHERE guild_id = $1 AND token_id = $2`
)

// EndedTokens returns the use of the guild's tokens after their end, the last used
// first.
func EndedTokens(ctx context.Context, q db.Querier, guild string) ([]Ended, error) {
	rows, err := db.Select[Ended](ctx, q, endedQuery, guild)
	slices.SortFunc(rows, lastFirst)
	return rows, fault.Wrap(err, "read which ended tokens of guild", guild, "are used")
}

// EndedToken returns the use of a token after its end, and its addresses, the last
// seen first. Without any the first is zero.
func EndedToken(ctx context.Context, q db.Querier, guild, token string) (whole Ended, places []Ended, err error) {
	rows, err := db.Select[Ended](ctx, q, usesOfOneQuery, guild, token)
	slices.SortFunc(rows, lastFirst)
	for _, r := range rows {
		if r.Address == "" {
			whole = r
		} else {
			places = append(places, r)
		}
	}
	return whole, places, fault.Wrap(err, "read from where the ended token", token, "is used")
}

func lastFirst(a, b Ended) int {
	return cmp.Or(b.SeenAt.Compare(a.SeenAt), cmp.Compare(a.TokenID, b.TokenID), cmp.Compare(a.Address, b.Address))
}

// trim keeps the newest refusals of each guild, and the newest uses of ended tokens.
func trim(ctx context.Context, d db.Doer, guilds []string) error {
	return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, guild := range slices.Sorted(slices.Values(guilds)) {
			if _, err := db.Exec(ctx, tx, trimRefusals, guild, maxKept); err != nil {
				return fault.Wrap(err, "trim the refusals of guild", guild)
			}
			if _, err := db.Exec(ctx, tx, trimEnded, guild, maxEnded); err != nil {
				return fault.Wrap(err, "trim the uses of ended tokens of guild", guild)
			}
		}
		return nil
	})
}
