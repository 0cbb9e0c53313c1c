package dashboard

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Here operators end sessions and revoke links, and the audit log records sessions. A session is
// recorded in the log of every guild that the session may open.

// Session is a signed-in person, as an operator sees it.
type Session struct {
	ID        string
	Kind      string // audit.User or audit.Operator
	AccountID string
	Name      string
	Guilds    []string // guilds that the session may open, if the platform still allows it
	Address   string
	Agent     string
	CreatedAt time.Time
	SeenAt    time.Time
	ExpiresAt time.Time
}

// sessionsChunk is how many sessions one statement reads.
const sessionsChunk = 1000

const sessionsQuery = `
	SELECT hash, id, data, address, agent, created_at, seen_at, expires_at
	FROM dashboard_sessions
	WHERE hash > $1
	ORDER BY hash
	LIMIT $2`

// Sessions returns the sessions that may open a guild, or all sessions if guild is empty, the
// newest first. Sessions reads all sessions.
func Sessions(ctx context.Context, q db.Querier, guild string, now time.Time) ([]Session, error) {
	var list []Session
	for after, more := "", true; more; {
		rows, err := db.Select[struct {
			sessionRow
			Hash string `db:"hash"`
			Data []byte `db:"data"`
		}](ctx, q, sessionsQuery, after, sessionsChunk)
		if err != nil {
			return nil, fault.Wrap(err, "list sessions")
		}
		for _, r := range rows {
			after = r.Hash
			p, err := personIn(r.Data)
			if err != nil {
				return nil, fault.Wrap(err, "read session", r.ID)
			}
			if r.Expires.After(now) && (guild == "" || slices.Contains(p.Guilds, guild)) {
				list = append(list, Session{r.ID, p.Kind, p.ID, p.Name, p.Guilds, r.Address, r.Agent, r.Created, r.Seen, r.Expires})
			}
		}
		more = len(rows) == sessionsChunk
	}
	slices.SortFunc(list, func(a, b Session) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return list, nil
}

const endSession = `DELETE FROM dashboard_sessions WHERE id = $1 RETURNING id, data`

// EndSession ends a session. If there is no such session, the error is NotFound.
func EndSession(ctx context.Context, d db.Doer, id string) error {
	n, err := end(ctx, d, audit.SessionEnded, endSession, id)
	if err == nil && n == 0 {
		return fault.New(fault.NotFound, "not_found", "There is no session %s.", id)
	}
	return err
}

const endSessionsQuery = `
	DELETE FROM dashboard_sessions
	WHERE hash IN (SELECT hash FROM dashboard_sessions ORDER BY hash LIMIT $1)
	RETURNING id, data`

// EndAllSessions ends every session and returns their number.
func EndAllSessions(ctx context.Context, d db.Doer) (ended int, err error) {
	for more := true; more; {
		n, err := end(ctx, d, audit.SessionEnded, endSessionsQuery, sessionsChunk)
		if err != nil {
			return ended, err
		}
		ended, more = ended+n, n == sessionsChunk
	}
	return ended, nil
}

// endedSession is a session that was deleted.
type endedSession struct {
	ID   string `db:"id"`
	Data []byte `db:"data"`
}

// end ends the sessions that a statement deletes, and records that in the audit log.
func end(ctx context.Context, d db.Doer, action, statement string, args ...any) (n int, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		rows, err := db.Select[endedSession](ctx, tx, statement, args...)
		if err != nil {
			return fault.Wrap(err, "end sessions")
		}
		n = len(rows)
		return auditSessions(ctx, tx, action, rows...)
	})
	return n, err
}

// auditSessions records what happened to sessions in the audit log, one row for each guild that a
// session may open.
func auditSessions(ctx context.Context, tx *db.Tx, action string, rows ...endedSession) error {
	changes := map[string]audit.Change{}
	count := map[string]int{}
	for _, r := range rows {
		p, err := personIn(r.Data)
		if err != nil {
			return fault.Wrap(err, "read session", r.ID)
		}
		for _, guild := range p.Guilds {
			count[guild]++
			changes[guild] = audit.Change{Guild: guild, Action: action, Target: r.ID, Name: "session of " + p.Name}
			if n := count[guild]; n > 1 {
				changes[guild] = audit.Change{Guild: guild, Action: action, Name: fmt.Sprintf("%d sessions", n)}
			}
		}
	}
	var list []audit.Change
	for _, guild := range slices.Sorted(maps.Keys(changes)) {
		list = append(list, changes[guild])
	}
	return audit.Record(ctx, tx, list...)
}

// personIn returns the signed-in person of a stored session.
func personIn(data []byte) (person, error) {
	_, values, err := textCodec{}.Decode(data)
	if err != nil {
		return person{}, err
	}
	text := func(key string) string { s, _ := values[key].(string); return s }
	return person{Kind: text(keyKind), ID: text(keyID), Name: text(keyName), Guilds: strings.Fields(text(keyGuilds))}, nil
}

const (
	linkedGuilds = `SELECT DISTINCT guild_id FROM dashboard_links WHERE used_at IS NULL AND expires_at > now() ORDER BY guild_id`

	revokeLinks = `
	DELETE FROM dashboard_links
	WHERE guild_id = $1 AND used_at IS NULL AND expires_at > now()
	RETURNING id`
)

// RevokeLinks revokes the unused links of one guild, or of all guilds if guild is empty, and
// returns their number.
func RevokeLinks(ctx context.Context, d *db.DB, guild string) (revoked int, err error) {
	guilds := []string{guild}
	if guild == "" {
		if guilds, err = db.Select[string](ctx, d.Reader(), linkedGuilds); err != nil {
			return 0, fault.Wrap(err, "look for links")
		}
	}
	for _, g := range guilds {
		var ids []string
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			if ids, err = db.Select[string](ctx, tx, revokeLinks, g); err != nil {
				return fault.Wrap(err, "take back the links of guild", g)
			}
			var changes []audit.Change
			for _, id := range ids {
				changes = append(changes, audit.Change{Guild: g, Action: audit.LinkRevoked, Target: id, Name: "operator link"})
			}
			return audit.Record(ctx, tx, changes...)
		})
		if err != nil {
			return revoked, err
		}
		revoked += len(ids)
	}
	return revoked, nil
}
