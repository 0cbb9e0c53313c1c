package auth

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// ScopeBot is a scope that every bot key and no token has.
const ScopeBot = "bot"

// maxKeyGuilds is how many guilds a bot key can list.
const maxKeyGuilds = 1000

// NewKey describes a bot key to create.
type NewKey struct {
	Env       string        // live or test
	Name      string        // a label, 1 to 100 characters on one line
	Guilds    []string      // guilds it may act in, which need not exist yet; none: every guild
	AllowIP   []string      // addresses and CIDR ranges that may use the key; none: any address
	ExpiresIn time.Duration // 0: never
}

// BotKey is a key of the operator's bot, as the operator sees it.
type BotKey struct {
	ID          string
	Secret      string `json:"-"` // the key itself; set by CreateKey only
	Preview     string
	Name        string
	GuildIDs    []string // nil: every guild
	IPAllowlist []string
	ExpiresAt   *time.Time // nil: the key does not expire
	CreatedAt   time.Time
	LastUsedAt  *time.Time // nil: never used
	RevokedAt   *time.Time // nil: not revoked
}

// LogValue keeps the secret out of logs.
func (k BotKey) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", k.ID), slog.String("preview", k.Preview))
}

// String returns the key without its secret.
func (k BotKey) String() string { return k.ID + " " + k.Preview }

// Format keeps the secret out of everything that fmt prints, including %+v.
func (k BotKey) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.String()) }

var guildID = regexp.MustCompile(`^[1-9][0-9]{0,19}$`)

// IsGuildID reports whether a text has the form of a guild's id.
func IsGuildID(s string) bool { return guildID.MatchString(s) }

// CreateKey creates a bot key. The result's Secret is stored nowhere. CreateKey returns an Invalid
// fault if n violates the comments of NewKey.
func CreateKey(ctx context.Context, d db.Doer, n NewKey) (BotKey, error) {
	allow, err := judge("bot key", n.Env, n.Name, n.AllowIP, n.ExpiresIn)
	if err != nil {
		return BotKey{}, err
	}
	guilds := slices.Compact(slices.Sorted(slices.Values(n.Guilds)))
	if len(guilds) > maxKeyGuilds {
		return BotKey{}, fault.New(fault.Invalid, "invalid_request", "A bot key names at most %d guilds. Without any it serves every guild.", maxKeyGuilds)
	}
	for _, g := range guilds {
		if !IsGuildID(g) {
			return BotKey{}, fault.New(fault.Invalid, "invalid_request", "%q is not the id of a guild: it has 1 to 20 digits.", g)
		}
	}
	secret := mint(keyBrand, n.Env)
	hash, _ := recognise(secret, n.Env)
	k := keyRow{ID: keyIDs + db.NewID(), Name: n.Name, Preview: preview(secret, n.Env), Hash: hash[:], Guilds: guilds, Allow: allow}
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		stored, err := insertKey(ctx, tx, k, n.ExpiresIn)
		if err != nil {
			return err
		}
		k = stored
		return audit.Record(ctx, tx, keyChanges(k, audit.KeyCreated, nil, k.audited())...)
	})
	if err != nil {
		return BotKey{}, err
	}
	shown := k.show()
	shown.Secret = secret
	return shown, nil
}

// ListKeys returns all bot keys, oldest first, including revoked and expired ones.
func ListKeys(ctx context.Context, d *db.DB) ([]BotKey, error) {
	rows, err := allKeys(ctx, d.Reader())
	return showKeys(rows), err
}

// KeysOf returns the bot keys that may act in a guild, oldest first, including revoked and expired
// ones.
func KeysOf(ctx context.Context, d *db.DB, guild string) ([]BotKey, error) {
	rows, err := keysOf(ctx, d.Reader(), guild)
	return showKeys(rows), err
}

// RevokeKey revokes a bot key for good, as Revoke does a token: when it returns nil, no node
// accepts the key any more. It returns a NotFound fault for an unknown key.
func RevokeKey(ctx context.Context, d *db.DB, id string) error {
	var epoch int64
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		was, is, n, err := revokeKey(ctx, tx, id)
		epoch = n
		if err != nil || was.RevokedAt != nil {
			return err
		}
		return audit.Record(ctx, tx, keyChanges(is, audit.KeyRevoked, was.audited(), is.audited())...)
	})
	if db.Missing(err) {
		return fault.New(fault.NotFound, "not_found", "There is no bot key %s.", id).Because(err)
	}
	if err != nil {
		return err
	}
	return await(ctx, d, epoch, "bot key "+id+" is revoked")
}

// keyChanges returns the audit rows for a change of a bot key: one for each guild that the key
// lists, or one without a guild for a key of every guild.
func keyChanges(k keyRow, action string, before, after any) []audit.Change {
	guilds := []string(k.Guilds)
	if len(guilds) == 0 {
		guilds = []string{""}
	}
	changes := make([]audit.Change, 0, len(guilds))
	for _, g := range guilds {
		changes = append(changes, audit.Change{Guild: g, Action: action, Target: k.ID, Name: k.Name, Before: before, After: after})
	}
	return changes
}

// keyRow is the stored form of a bot key.
type keyRow struct {
	ID         string     `db:"id"`
	Name       string     `db:"name"`
	Preview    string     `db:"preview"`
	Hash       []byte     `db:"hash"`
	Guilds     db.Strings `db:"guild_ids"` // empty: every guild
	Allow      db.Strings `db:"ip_allowlist"`
	ExpiresAt  *time.Time `db:"expires_at"`
	CreatedAt  time.Time  `db:"created_at"`
	RevokedAt  *time.Time `db:"revoked_at"`
	LastUsedAt *time.Time `db:"last_used_at"`
}

func (k keyRow) show() BotKey {
	var guilds []string
	if len(k.Guilds) > 0 {
		guilds = k.Guilds
	}
	return BotKey{
		ID: k.ID, Preview: k.Preview, Name: k.Name, GuildIDs: guilds, IPAllowlist: k.Allow,
		ExpiresAt: k.ExpiresAt, CreatedAt: k.CreatedAt, LastUsedAt: k.LastUsedAt, RevokedAt: k.RevokedAt,
	}
}

func showKeys(rows []keyRow) []BotKey {
	keys := make([]BotKey, 0, len(rows))
	for _, k := range rows {
		keys = append(keys, k.show())
	}
	return keys
}

// audited returns the properties of a key that the audit log shows. It leaves out the guilds, since
// each guild's log must not show the others.
func (k keyRow) audited() map[string]any {
	return map[string]any{
		"name": k.Name, "preview": k.Preview, "ip_allowlist": k.Allow, "every_guild": len(k.Guilds) == 0,
		"expires_at": k.ExpiresAt, "revoked_at": k.RevokedAt,
	}
}

const keyColumns = `k.id, k.name, k.preview, k.hash, coalesce(k.guild_ids, '{}') AS guild_ids, k.ip_allowlist, k.expires_at, k.created_at, k.revoked_at`

func insertKey(ctx context.Context, tx *db.Tx, k keyRow, expiresIn time.Duration) (keyRow, error) {
	k, err := db.Get[keyRow](ctx, tx, `
		INSERT INTO bot_keys AS k (id, name, preview, hash, guild_ids, ip_allowlist, expires_at)
		VALUES ($1, $2, $3, $4, nullif($5::text[], '{}'), $6, now() + $7::bigint * interval '1 second')
		RETURNING `+keyColumns, k.ID, k.Name, k.Preview, k.Hash, k.Guilds, k.Allow, seconds(expiresIn))
	return k, fault.Wrap(err, "insert a bot key")
}

func allKeys(ctx context.Context, q db.Querier) ([]keyRow, error) {
	rows, err := db.Select[keyRow](ctx, q, `
		SELECT `+keyColumns+`, u.last_used_at
		FROM bot_keys k
		LEFT JOIN bot_key_uses u ON u.key_id = k.id
		ORDER BY k.created_at, k.id`)
	return rows, fault.Wrap(err, "list the bot keys")
}

func keysOf(ctx context.Context, q db.Querier, guild string) ([]keyRow, error) {
	rows, err := db.Select[keyRow](ctx, q, keysOfGuild, guild)
	return rows, fault.Wrap(err, "list the bot keys of guild", guild)
}

const keysOfGuild = `
		SELECT ` + keyColumns + `, u.last_used_at
		FROM bot_keys k
		LEFT JOIN bot_key_uses u ON u.key_id = k.id
		WHERE k.guild_ids IS NULL OR k.guild_ids @> ARRAY[$1::text]
		ORDER BY k.created_at, k.id`

func revokeKey(ctx context.Context, tx *db.Tx, id string) (was, is keyRow, epoch int64, err error) {
	if was, err = db.Get[keyRow](ctx, tx, `SELECT `+keyColumns+` FROM bot_keys k WHERE k.id = $1 FOR UPDATE`, id); err != nil {
		return keyRow{}, keyRow{}, 0, fault.Wrap(err, "find bot key", id)
	}
	is = was
	if was.RevokedAt == nil {
		is.RevokedAt, err = db.Get[*time.Time](ctx, tx, `UPDATE bot_keys SET revoked_at = now() WHERE id = $1 RETURNING revoked_at`, id)
		if err != nil {
			return keyRow{}, keyRow{}, 0, fault.Wrap(err, "revoke bot key", id)
		}
	}
	epoch, err = db.Get[int64](ctx, tx, `SELECT epoch FROM auth_epoch`)
	return was, is, epoch, fault.Wrap(err, "read the epoch of tokens")
}
