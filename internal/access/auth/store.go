package auth

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// row is a stored token with the database's time at which it was read.
type row struct {
	ID         string     `db:"id"`
	GuildID    string     `db:"guild_id"`
	Name       string     `db:"name"`
	Preview    string     `db:"preview"`
	Hash       []byte     `db:"hash"`
	Scopes     db.Strings `db:"scopes"`
	Allow      db.Strings `db:"ip_allowlist"`
	ExpiresAt  *time.Time `db:"expires_at"`
	CreatedAt  time.Time  `db:"created_at"`
	RevokedAt  *time.Time `db:"revoked_at"`
	LastUsedAt *time.Time `db:"last_used_at"`
	Now        time.Time  `db:"now"`
	// Guilds are the guilds of a bot key, which has no single guild; empty: every guild.
	Guilds db.Strings `db:"guild_ids"`
	// RateRead and RateWrite are the token's own limits; null: the installation's default.
	RateRead  *string `db:"rate_read"`
	RateWrite *string `db:"rate_write"`
}

// byHashes returns the tokens and bot keys with these digests, including revoked and expired ones.
func byHashes(ctx context.Context, q db.Querier, hashes []digest) ([]row, error) {
	list := make([][]byte, len(hashes))
	for i := range hashes {
		list[i] = hashes[i][:]
	}
	rows, err := db.Select[row](ctx, q, `
		SELECT t.id, t.guild_id, t.name, t.preview, t.hash, t.scopes, t.ip_allowlist,
		       t.expires_at, t.created_at, t.revoked_at, u.last_used_at,
		       clock_timestamp() AS now, '{}'::text[] AS guild_ids, t.rate_read, t.rate_write
		FROM api_tokens t
		LEFT JOIN api_token_uses u ON u.token_id = t.id
		WHERE t.hash = ANY ($1)
		UNION ALL
		SELECT k.id, '', k.name, k.preview, k.hash, '{}', k.ip_allowlist,
		       k.expires_at, k.created_at, k.revoked_at, u.last_used_at,
		       clock_timestamp(), coalesce(k.guild_ids, '{}'), NULL, NULL
		FROM bot_keys k
		LEFT JOIN bot_key_uses u ON u.key_id = k.id
		WHERE k.hash = ANY ($1)`, db.ByteArray(list))
	return rows, fault.Wrap(err, "read", strconv.Itoa(len(hashes)), "tokens")
}

// rowsOfGuild selects the tokens of a guild; conditions and an order may be appended.
const rowsOfGuild = `
	SELECT t.id, t.guild_id, t.name, t.preview, t.hash, t.scopes, t.ip_allowlist,
	       t.expires_at, t.created_at, t.revoked_at, u.last_used_at, now() AS now, t.rate_read, t.rate_write
	FROM api_tokens t
	LEFT JOIN api_token_uses u ON u.token_id = t.id
	WHERE t.guild_id = $1`

// byGuild returns the guild's tokens, oldest first.
func byGuild(ctx context.Context, q db.Querier, guild string) ([]row, error) {
	rows, err := db.Select[row](ctx, q, rowsOfGuild+`
	ORDER BY t.created_at, t.id`, guild)
	return rows, fault.Wrap(err, "list the tokens of guild", guild)
}

// tokenColumns are the columns of api_tokens. The last use is stored in another table.
const tokenColumns = `id, guild_id, name, preview, hash, scopes, ip_allowlist, expires_at, created_at, revoked_at, now() AS now,
	rate_read, rate_write`

// insert stores r. The token expires after expiresIn by the database's clock, or never if expiresIn
// is zero.
func insert(ctx context.Context, tx *db.Tx, r row, expiresIn time.Duration) (row, error) {
	stored, err := db.Get[row](ctx, tx, `
		INSERT INTO api_tokens (id, guild_id, name, preview, hash, scopes, ip_allowlist, expires_at, rate_read, rate_write)
		VALUES ($1, $2, $3, $4, $5, $6, $7, now() + $8::bigint * interval '1 second', $9, $10)
		RETURNING `+tokenColumns,
		r.ID, r.GuildID, r.Name, r.Preview, r.Hash, r.Scopes, r.Allow, seconds(expiresIn), r.RateRead, r.RateWrite)
	return stored, fault.Wrap(err, "insert a token of guild", r.GuildID)
}

// seconds returns expiresIn in whole seconds, or nil for zero.
func seconds(expiresIn time.Duration) *int64 {
	if expiresIn <= 0 {
		return nil
	}
	s := int64((expiresIn + time.Second - 1) / time.Second)
	return &s
}

// tokenByID returns a token of the guild.
func tokenByID(ctx context.Context, q db.Querier, guild, id string) (row, error) {
	r, err := db.Get[row](ctx, q, rowsOfGuild+` AND t.id = $2`, guild, id)
	return r, fault.Wrap(err, "read token", id, "of guild", guild)
}

// guildOf returns the guild of a token.
func guildOf(ctx context.Context, q db.Querier, id string) (string, error) {
	guild, err := db.Get[string](ctx, q, `SELECT guild_id FROM api_tokens WHERE id = $1`, id)
	return guild, fault.Wrap(err, "find the guild of token", id)
}

// revoke sets revoked_at. It returns the token before and after the change, and the epoch that a
// node must have reached to have received it. The error is db.Missing if the guild has no such
// token.
func revoke(ctx context.Context, tx *db.Tx, guild, id string) (was, is row, epoch int64, err error) {
	was, err = db.Get[row](ctx, tx, `
		SELECT `+tokenColumns+`
		FROM api_tokens
		WHERE guild_id = $1 AND id = $2
		FOR UPDATE`, guild, id)
	if err != nil {
		return row{}, row{}, 0, fault.Wrap(err, "find token", id, "of guild", guild)
	}
	is = was
	if was.RevokedAt == nil {
		is.RevokedAt, err = db.Get[*time.Time](ctx, tx, `
			UPDATE api_tokens SET revoked_at = now()
			WHERE guild_id = $1 AND id = $2
			RETURNING revoked_at`, guild, id)
		if err != nil {
			return row{}, row{}, 0, fault.Wrap(err, "revoke token", id)
		}
	}
	epoch, err = db.Get[int64](ctx, tx, `SELECT epoch FROM auth_epoch`)
	return was, is, epoch, fault.Wrap(err, "read the epoch of tokens")
}

// limit stores the limits of a token and returns the token before and after the change. The error
// is db.Missing if the guild has no such token, or if it is revoked.
func limit(ctx context.Context, tx *db.Tx, guild, id string, read, write *string) (was, is row, err error) {
	was, err = db.Get[row](ctx, tx, `
		SELECT `+tokenColumns+`
		FROM api_tokens
		WHERE guild_id = $1 AND id = $2 AND revoked_at IS NULL
		FOR UPDATE`, guild, id)
	if err != nil {
		return row{}, row{}, fault.Wrap(err, "find token", id, "of guild", guild)
	}
	is = was
	is.RateRead, is.RateWrite = read, write
	_, err = db.Exec(ctx, tx, `UPDATE api_tokens SET rate_read = $3, rate_write = $4 WHERE guild_id = $1 AND id = $2`, guild, id, read, write)
	return was, is, fault.Wrap(err, "limit token", id)
}

// revokeOf revokes all tokens of the guild that are not revoked yet. It returns them and the epoch
// that a node must have reached to have received the change.
func revokeOf(ctx context.Context, tx *db.Tx, guild string) (rows []row, epoch int64, err error) {
	rows, err = db.Select[row](ctx, tx, `
		UPDATE api_tokens SET revoked_at = now()
		WHERE guild_id = $1 AND revoked_at IS NULL
		RETURNING `+tokenColumns, guild)
	if err != nil {
		return nil, 0, fault.Wrap(err, "revoke the tokens of guild", guild)
	}
	epoch, err = db.Get[int64](ctx, tx, `SELECT epoch FROM auth_epoch`)
	return rows, epoch, fault.Wrap(err, "read the epoch of tokens")
}

// WantGuild returns a NotFound fault unless the guild is Present. The fault says if the guild is
// being removed.
func WantGuild(ctx context.Context, q db.Querier, guild string) error {
	p, err := PresenceOf(ctx, q, guild)
	if err != nil || p == Present {
		return err
	}
	return p.Gone(guild)
}

// NoGuild returns the NotFound fault for an unknown guild.
func NoGuild(guild string) error { return Absent.Gone(guild) }

// maxActive is how many active tokens a guild can have, and maxRanges how many addresses and ranges
// an allowlist can have.
const (
	maxActive = 100
	maxRanges = 100
)

// hasRoom locks the guild's row, so that tokens are created one after the other, and returns a
// Refused fault if maxActive tokens are active.
func hasRoom(ctx context.Context, tx *db.Tx, guild string) error {
	if _, err := db.Exec(ctx, tx, `SELECT FROM guilds WHERE id = $1 FOR NO KEY UPDATE`, guild); err != nil {
		return fault.Wrap(err, "lock guild", guild)
	}
	if err := WantGuild(ctx, tx, guild); err != nil {
		return err
	}
	have, err := db.Get[int](ctx, tx, countWorking, guild)
	if have >= maxActive {
		return fault.New(fault.Refused, "token_limit_reached", "%d tokens of this guild work, which is the most. Revoke one that is not needed any more first.", maxActive)
	}
	return fault.Wrap(err, "count the tokens of guild", guild)
}

// A guild has few active tokens, and a partial index contains only those. The subquery reads all of
// them without a limit: with a limit, Postgres would use the index in the order of creation and
// filter out all revoked and expired tokens.
const (
	working = ` AND revoked_at IS NULL AND coalesce(expires_at, 'infinity') > now()`

	countWorking = `SELECT count(*) FROM api_tokens WHERE guild_id = $1` + working
	workingRows  = rowsOfGuild + working + `
	ORDER BY t.created_at DESC, t.id DESC`
	endedRows = rowsOfGuild + `
	  AND (t.revoked_at IS NOT NULL OR t.expires_at <= now())
	ORDER BY t.created_at DESC, t.id DESC
	LIMIT $2 OFFSET $3`
)

// pageOf returns a page of a guild's tokens, newest first: the active ones, or those that were
// revoked or have expired.
func pageOf(ctx context.Context, q db.Querier, guild string, ended bool, skip, limit int) (rows []row, err error) {
	if ended {
		rows, err = db.Select[row](ctx, q, endedRows, guild, limit, skip)
	} else if rows, err = db.Select[row](ctx, q, workingRows, guild); err == nil {
		rows = rows[min(skip, len(rows)):min(skip+limit, len(rows))]
	}
	return rows, fault.Wrap(err, "list the tokens of guild", guild)
}

// byIDs returns the guild's tokens with these ids, oldest first.
func byIDs(ctx context.Context, q db.Querier, guild string, ids []string) ([]row, error) {
	rows, err := db.Select[row](ctx, q, rowsOfGuild+`
	  AND t.id = ANY ($2)
	ORDER BY t.created_at, t.id`, guild, db.Array(ids))
	return rows, fault.Wrap(err, "read tokens of guild", guild)
}

// guildsAfter returns the next guilds that have tokens, in the order of their ids.
func guildsAfter(ctx context.Context, q db.Querier, after string) ([]string, error) {
	ids, err := db.Select[string](ctx, q, `
		SELECT DISTINCT guild_id FROM api_tokens WHERE guild_id > $1 ORDER BY guild_id LIMIT 100`, after)
	return ids, fault.Wrap(err, "list the guilds that have tokens")
}

// behind counts the live nodes that have not reached the epoch.
func behind(ctx context.Context, q db.Querier, epoch int64) (nodes int, err error) {
	nodes, err = db.Get[int](ctx, q, `
		SELECT count(*) FROM auth_nodes
		WHERE epoch < $1 AND seen_at > now() - $2::bigint * interval '1 second'`,
		epoch, int64(nodeTimeout/time.Second))
	return nodes, fault.Wrap(err, "ask for the epochs of the nodes")
}

// storeLastUsed stores the present time as the last use of the tokens and bot keys, unless a time
// less than a minute old is stored. Deleted tokens are skipped. The rows are locked in the order of
// their ids, so that two nodes cannot deadlock.
func storeLastUsed(ctx context.Context, tx *db.Tx, ids []string) error {
	for _, statement := range []string{`
		INSERT INTO api_token_uses AS u (token_id, last_used_at)
		SELECT id, now() FROM (
			SELECT id FROM api_tokens WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE
		) AS t
		ON CONFLICT (token_id) DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE u.last_used_at <= excluded.last_used_at - interval '1 minute'`, `
		INSERT INTO bot_key_uses AS u (key_id, last_used_at)
		SELECT id, now() FROM (
			SELECT id FROM bot_keys WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE
		) AS k
		ON CONFLICT (key_id) DO UPDATE SET last_used_at = excluded.last_used_at
		WHERE u.last_used_at <= excluded.last_used_at - interval '1 minute'`} {
		if _, err := db.Exec(ctx, tx, statement, db.Array(ids)); err != nil {
			return fmt.Errorf("note the use of %d tokens: %w", len(ids), err)
		}
	}
	return nil
}
