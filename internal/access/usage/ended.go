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

// A program may go on using a token that was revoked or has expired, or somebody who has found the
// token may try it. The owner can see when, how often and from which addresses. These uses are
// counted separately from the guild's other requests, so that many of them displace no other
// numbers.

const (
	// maxEnded is how many rows of a guild are kept. maxEndedPending bounds the rows of a guild
	// between two flushes; half of them may be addresses.
	maxEnded        = 1000
	maxEndedPending = 200
)

// endedKey is a token and an address; the zero address stands for all addresses together.
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

// addEnded adds uses of an ended token, if the bounds allow.
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

// endedColumns returns the columns of the rows to write for ended tokens.
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

// Ended counts the uses of a token after its revocation or expiry.
type Ended struct {
	TokenID  string    `db:"token_id"`
	Address  string    `db:"address"` // empty: from all addresses
	Requests int64     `db:"requests"`
	FirstAt  time.Time `db:"first_at"`
	SeenAt   time.Time `db:"seen_at"`
}

// Both queries return rows of one guild, of which there are hardly more than maxEnded.
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

// EndedTokens returns the uses of the guild's ended tokens, the most recently used first.
func EndedTokens(ctx context.Context, q db.Querier, guild string) ([]Ended, error) {
	rows, err := db.Select[Ended](ctx, q, endedQuery, guild)
	slices.SortFunc(rows, lastFirst)
	return rows, fault.Wrap(err, "read which ended tokens of guild", guild, "are used")
}

// EndedToken returns the uses of one ended token: in total, which is zero if there were none, and
// by address, the most recent first.
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

// trim deletes all but the newest refusals of each guild, and all but the newest uses of its ended
// tokens.
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
