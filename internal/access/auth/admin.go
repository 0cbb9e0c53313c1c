package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
)

// New describes a token to create.
type New struct {
	GuildID   string
	Env       string        // live or test: part of the token's text, and the environment it works in
	Name      string        // a label, 1 to 100 characters on one line
	Scopes    []string      // at least one of Scopes
	AllowIP   []string      // addresses and CIDR ranges that may use the token; none: any address
	ExpiresIn time.Duration // time until the token expires; 0 means never
	Limits
}

// Token is a token as its owner sees it.
type Token struct {
	ID          string
	Secret      string `json:"-"` // the token itself; set by Create only
	Preview     string
	GuildID     string
	Name        string
	Scopes      []string
	IPAllowlist []string
	ExpiresAt   *time.Time // nil: the token does not expire
	CreatedAt   time.Time
	LastUsedAt  *time.Time // nil: never used
	RevokedAt   *time.Time // nil: not revoked
	Limits
}

// LogValue keeps the secret out of logs.
func (t Token) LogValue() slog.Value {
	return slog.GroupValue(slog.String("id", t.ID), slog.String("guild_id", t.GuildID), slog.String("preview", t.Preview))
}

// String returns the token without its secret.
func (t Token) String() string { return t.ID + " " + t.Preview }

// Format keeps the secret out of everything that fmt prints, including %+v.
func (t Token) Format(f fmt.State, _ rune) { fmt.Fprint(f, t.String()) }

// CheckName returns an Invalid fault if name cannot be a token's name. The API, the command line
// and the dashboard use it.
func CheckName(name string) error {
	length := utf8.RuneCountInString(name)
	switch {
	case strings.TrimSpace(name) == "":
		return fault.New(fault.Invalid, "invalid_request", "Give the token a name that says where it will be used, such as “payday bot”: 1 to 100 characters, not all of them blank.")
	case length > 100:
		return fault.New(fault.Invalid, "invalid_request", "The name of a token has %d characters; at most 100 fit.", length)
	case !utf8.ValidString(name) || !wire.OneLine(name) || wire.HasUnseen(name):
		return fault.New(fault.Invalid, "invalid_request", "The name of a token holds no line breaks, no control characters and no others that cannot be seen.")
	}
	return nil
}

// ParseAllowlist is ParsePrefixes with maxRanges as the limit, as tokens have it.
func ParseAllowlist(lists ...string) ([]netip.Prefix, error) {
	ranges, err := ParsePrefixes(lists...)
	if len(ranges) > maxRanges {
		return nil, fault.New(fault.Invalid, "invalid_request", "The allowlist of a token names %d addresses and ranges; at most %d fit.", len(ranges), maxRanges)
	}
	return ranges, err
}

// Create creates a token. The result's Secret is stored nowhere. Create returns an Invalid fault if
// n violates the comments of New, NotFound for an unknown guild, and Refused if the guild has the
// maximum of active tokens.
func Create(ctx context.Context, d db.Doer, n New) (Token, error) {
	scopes, err := ParseScopes(n.Scopes...)
	if err != nil {
		return Token{}, err
	}
	allow, err := judge("token", n.Env, n.Name, n.AllowIP, n.ExpiresIn)
	if err != nil {
		return Token{}, err
	}
	secret := mint(tokenBrand, n.Env)
	hash, _ := recognise(secret, n.Env)
	r := row{
		ID:      db.NewID(),
		GuildID: n.GuildID,
		Name:    n.Name,
		Preview: preview(secret, n.Env),
		Hash:    hash[:],
		Scopes:  scopes,
		Allow:   allow,
	}
	if r.RateRead, r.RateWrite, err = n.columns(); err != nil {
		return Token{}, err
	}
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := hasRoom(ctx, tx, r.GuildID); err != nil {
			return err
		}
		stored, err := insert(ctx, tx, r, n.ExpiresIn)
		if err != nil {
			return err
		}
		r = stored
		return audit.Record(ctx, tx, audit.Change{Guild: r.GuildID, Action: audit.TokenCreated, Target: r.ID, Name: r.Name, After: auditDetails(r)})
	})
	if err != nil {
		return Token{}, err
	}
	t := show(r)
	t.Secret = secret
	return t, nil
}

// judge checks the properties that tokens and bot keys share, and returns the allowlist in the
// stored form.
func judge(kind, env, name string, allowIP []string, expiresIn time.Duration) (allow []string, err error) {
	refuse := func(format string, args ...any) ([]string, error) {
		return nil, fault.New(fault.Invalid, "invalid_request", format, args...)
	}
	if env != "live" && env != "test" {
		return refuse("The env of a %s is live or test, not %q.", kind, env)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if expiresIn < 0 || expiresIn > longest {
		return refuse("A %s expires in the future, within 36500 days, or never.", kind)
	}
	prefixes, err := ParseAllowlist(allowIP...)
	if err != nil {
		return nil, err
	}
	allow = make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		if p.IsSingleIP() {
			allow = append(allow, p.Addr().String())
		} else {
			allow = append(allow, p.String())
		}
	}
	return allow, nil
}

// List returns all tokens of a guild, oldest first, including revoked and expired ones.
func List(ctx context.Context, d *db.DB, guild string) ([]Token, error) {
	rows, err := byGuild(ctx, d.Reader(), guild)
	if err != nil {
		return nil, err
	}
	tokens := make([]Token, 0, len(rows))
	for _, r := range rows {
		tokens = append(tokens, show(r))
	}
	return tokens, nil
}

// Page returns some of a guild's tokens, the newest first: those that work, or
// those that were revoked or have expired.
func Page(ctx context.Context, d *db.DB, guild string, ended bool, skip, limit int) ([]Token, error) {
	rows, err := pageOf(ctx, d.Reader(), guild, ended, skip, limit)
	tokens := make([]Token, 0, len(rows))
	for _, r := range rows {
		tokens = append(tokens, show(r))
	}
	return tokens, err
}

// Working returns the active tokens of a guild, oldest first. Their number is limited.
func Working(ctx context.Context, d *db.DB, guild string) ([]Token, error) {
	tokens, err := Page(ctx, d, guild, false, 0, maxActive)
	slices.Reverse(tokens)
	return tokens, err
}

// Named returns the guild's tokens with these ids, oldest first, including revoked and expired
// ones.
func Named(ctx context.Context, d *db.DB, guild string, ids []string) ([]Token, error) {
	rows, err := byIDs(ctx, d.Reader(), guild, ids)
	tokens := make([]Token, 0, len(rows))
	for _, r := range rows {
		tokens = append(tokens, show(r))
	}
	return tokens, err
}

func show(r row) Token {
	return Token{
		ID:          r.ID,
		Preview:     r.Preview,
		GuildID:     r.GuildID,
		Name:        r.Name,
		Scopes:      r.Scopes,
		IPAllowlist: r.Allow,
		ExpiresAt:   r.ExpiresAt,
		CreatedAt:   r.CreatedAt,
		LastUsedAt:  r.LastUsedAt,
		RevokedAt:   r.RevokedAt,
		Limits:      r.limits(),
	}
}

// auditDetails returns the properties of a token that the audit log shows.
func auditDetails(r row) map[string]any {
	return map[string]any{
		"name": r.Name, "preview": r.Preview, "scopes": r.Scopes, "ip_allowlist": r.Allow,
		"expires_at": r.ExpiresAt, "revoked_at": r.RevokedAt, "rate_read": r.RateRead, "rate_write": r.RateWrite,
	}
}

// Find returns a token of the guild, which may be revoked or expired, or a NotFound fault.
func Find(ctx context.Context, d *db.DB, guild, id string) (Token, error) {
	r, err := tokenByID(ctx, d.Reader(), guild, id)
	if db.Missing(err) {
		return Token{}, errNoToken.Because(err)
	}
	if err != nil {
		return Token{}, err
	}
	return show(r), nil
}

// GuildOf returns the guild of a token, or a NotFound fault. The caller has to check who may learn
// it.
func GuildOf(ctx context.Context, d *db.DB, id string) (string, error) {
	guild, err := guildOf(ctx, d.Reader(), id)
	if db.Missing(err) {
		return "", errNoToken.Because(err)
	}
	return guild, err
}

var errNoToken = fault.New(fault.NotFound, "not_found", "No such token.")

// Revoke revokes a token of the guild for good. When it returns nil, no node accepts the token any
// more; requests that have already been authenticated finish. It waits until every node has
// acknowledged the revocation, for at most two seconds: a node that has not received it by then has
// stopped trusting its cache and reads the database. Revoking a revoked token succeeds. Revoke
// returns a NotFound fault for a token that is unknown or belongs to another guild.
//
// Any other error after the commit says that the token is revoked, and that all nodes refuse it
// within two seconds.
func Revoke(ctx context.Context, d *db.DB, guild, id string) error {
	var epoch int64
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		was, is, n, err := revoke(ctx, tx, guild, id)
		epoch = n
		if err != nil || was.RevokedAt != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{Guild: guild, Action: audit.TokenRevoked, Target: id, Name: is.Name, Before: auditDetails(was), After: auditDetails(is)})
	})
	if db.Missing(err) {
		return errNoToken.Because(err)
	}
	if err != nil {
		return err
	}
	return await(ctx, d, epoch, "token "+id+" is revoked")
}

// RevokeAll revokes all active tokens of a guild, or of every guild if guild is empty, and returns
// how many there were. Each guild's tokens are revoked in one transaction; after an error some
// guilds are done, and a second call does the rest. A token that is created meanwhile may stay
// active.
func RevokeAll(ctx context.Context, d *db.DB, guild string) (revoked int, err error) {
	if guild != "" {
		if err := WantGuild(ctx, d.Reader(), guild); err != nil {
			return 0, err
		}
	}
	var epoch int64
	for after, more := "", true; more; {
		guilds := []string{guild}
		if guild == "" {
			if guilds, err = guildsAfter(ctx, d.Reader(), after); err != nil {
				return revoked, err
			}
		}
		for _, g := range guilds {
			n, reached, err := revokeGuild(ctx, d, g)
			if err != nil {
				return revoked, err
			}
			revoked, epoch, after = revoked+n, max(epoch, reached), g
		}
		more = guild == "" && len(guilds) > 0
	}
	return revoked, await(ctx, d, epoch, "the tokens are revoked")
}

// revokeGuild revokes the tokens of one guild, with a row in the audit log for each. It returns how
// many there were, and the epoch that includes the revocation.
func revokeGuild(ctx context.Context, d *db.DB, guild string) (revoked int, epoch int64, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		revoked, epoch, err = RevokeWithin(ctx, tx, guild)
		return err
	})
	return revoked, epoch, err
}

// RevokeWithin is revokeGuild in the caller's transaction.
func RevokeWithin(ctx context.Context, tx *db.Tx, guild string) (revoked int, epoch int64, err error) {
	rows, epoch, err := revokeOf(ctx, tx, guild)
	if err != nil {
		return 0, 0, err
	}
	changes := make([]audit.Change, 0, len(rows))
	for _, is := range rows {
		was := is
		was.RevokedAt = nil
		changes = append(changes, audit.Change{Guild: guild, Action: audit.TokenRevoked, Target: is.ID, Name: is.Name, Before: auditDetails(was), After: auditDetails(is)})
	}
	return len(rows), epoch, audit.Record(ctx, tx, changes...)
}

// await waits until every node has reached the epoch, at most revocationTimeout. Its error says
// that the change (done) is committed all the same.
func await(ctx context.Context, d *db.DB, epoch int64, done string) error {
	wait, cancel := context.WithTimeout(ctx, revocationTimeout)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		n, err := behind(wait, d.Reader(), epoch)
		if err == nil && n == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-wait.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("%s, but waiting for the nodes was cut short: %w", done, ctx.Err())
			}
			return nil
		}
	}
}
