package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
)

type tokenCommands struct {
	Create tokenCreate `cmd:"" help:"Make a token and print it, once."`
	List   tokenList   `cmd:"" help:"List a guild's tokens, revoked and expired ones too."`
	Limit  tokenLimit  `cmd:"" help:"Print a token's own rate limits, or change them; its secret stays."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a token. Returns when no node accepts it any more."`
}

// credential holds the options that tokens and bot keys have in common.
type credential struct {
	connection
	Name      string   `required:"" help:"A label, 1 to 100 characters."`
	AllowIP   []string `name:"allow-ip" sep:"none" help:"An address or CIDR that may use it. Default: any." placeholder:"CIDR"`
	ExpiresIn string   `help:"Time to expiry: a number and s, m, h or d. Default: never." placeholder:"90d"`
	Env       string   `env:"GUILDHALL_ENV" enum:"live,test," default:"" help:"Its environment. Default: that of the running guildhall dev, else live."`
	JSON      bool     `help:"Print one JSON object."`
}

// begin opens the database and returns the environment of the installation and the time to expiry;
// 0 means never.
func (c credential) begin(ctx context.Context) (d *db.DB, env string, expiresIn time.Duration, err error) {
	if c.ExpiresIn != "" {
		if expiresIn, err = auth.ParseExpiresIn(c.ExpiresIn); err != nil {
			return nil, "", 0, err
		}
	}
	d, f, err := c.open(ctx)
	return d, cmp.Or(c.Env, f.Env, "live"), expiresIn, err
}

type tokenCreate struct {
	credential
	Guild     string   `required:"" help:"The guild's id." placeholder:"ID"`
	Scope     []string `sep:"none" xor:"scopes" help:"A scope the token has; repeat it, or list several with commas." placeholder:"SCOPE"`
	AllScopes bool     `xor:"scopes" help:"Every scope."`
	RateRead  string   `help:"Reads that the token may make, or off. Default: GUILDHALL_RATE_READ." placeholder:"1200/1m"`
	RateWrite string   `help:"Writes that the token may make, or off. Default: GUILDHALL_RATE_WRITE." placeholder:"600/1m"`
}

// created is the JSON of a new token.
type created struct {
	ID          string     `json:"id"`
	Token       string     `json:"token,omitempty"` // set for a new token only
	Preview     string     `json:"preview"`
	GuildID     string     `json:"guild_id"`
	Name        string     `json:"name"`
	Scopes      []string   `json:"scopes"`
	IPAllowlist []string   `json:"ip_allowlist"`
	ExpiresAt   *wire.Time `json:"expires_at"`
	CreatedAt   wire.Time  `json:"created_at"`
	limits
}

// limits are a token's own rate limits in JSON; null: the installation's default.
type limits struct {
	RateRead  *string `json:"rate_read"`
	RateWrite *string `json:"rate_write"`
}

func showLimits(l auth.Limits) (shown limits) {
	if l.Read != "" {
		shown.RateRead = &l.Read
	}
	if l.Write != "" {
		shown.RateWrite = &l.Write
	}
	return shown
}

func show(t auth.Token) created {
	return created{
		ID: t.ID, Token: t.Secret, Preview: t.Preview, GuildID: t.GuildID, Name: t.Name, Scopes: t.Scopes,
		IPAllowlist: output.List(t.IPAllowlist), ExpiresAt: wire.AtPtr(t.ExpiresAt), CreatedAt: wire.At(t.CreatedAt),
		limits: showLimits(t.Limits),
	}
}

func (c *tokenCreate) Run(ctx context.Context, io streams) error {
	if len(c.Scope) == 0 && !c.AllScopes {
		return usageError{errors.New("a token needs --scope or --all-scopes")}
	}
	if c.AllScopes {
		c.Scope = auth.Scopes
	}
	d, env, expiresIn, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return showOnce(ctx, d, func(ctx context.Context, d db.Doer) error {
		t, err := auth.Create(ctx, d, auth.New{
			GuildID: c.Guild, Name: c.Name, Scopes: c.Scope, AllowIP: c.AllowIP, Env: env, ExpiresIn: expiresIn,
			Limits: auth.Limits{Read: c.RateRead, Write: c.RateWrite},
		})
		if err != nil {
			return err
		}
		return io.secret(c.JSON, show(t), "%s\n\nid       %s\nguild    %s\nname     %s\nscopes   %s\nexpires  %s\n\nThe token is shown this once. Keep it safe.",
			t.Secret, t.ID, t.GuildID, t.Name, strings.Join(t.Scopes, " "), output.Instant(t.ExpiresAt, "never"))
	})
}

type tokenLimit struct {
	connection
	ID        string `arg:"" help:"The token's id."`
	RateRead  string `help:"Reads that the token may make; off: as many as it likes; default: what GUILDHALL_RATE_READ says." placeholder:"1200/1m|off|default"`
	RateWrite string `help:"Writes that the token may make; off and default likewise." placeholder:"600/1m|off|default"`
	JSON      bool   `help:"Print one JSON object."`
}

// Run changes the given limits and prints the resulting ones.
func (c *tokenLimit) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	guild, err := auth.GuildOf(ctx, d, c.ID)
	if err != nil {
		return err
	}
	t, err := auth.Find(ctx, d, guild, c.ID)
	if err != nil {
		return err
	}
	l := auth.Limits{Read: cmp.Or(c.RateRead, t.Read), Write: cmp.Or(c.RateWrite, t.Write)}
	if l.Read == "default" {
		l.Read = ""
	}
	if l.Write == "default" {
		l.Write = ""
	}
	if c.RateRead != "" || c.RateWrite != "" {
		if err := auth.SetLimits(ctx, d, guild, c.ID, l); err != nil {
			return err
		}
	}
	return io.result(c.JSON, showLimits(l), "reads   %s\nwrites  %s", cmp.Or(l.Read, "as GUILDHALL_RATE_READ says"), cmp.Or(l.Write, "as GUILDHALL_RATE_WRITE says"))
}

type tokenList struct {
	connection
	Guild string `required:"" help:"The guild's id." placeholder:"ID"`
	JSON  bool   `help:"Print a JSON array."`
}

// listed is the JSON of a token in the list.
type listed struct {
	created
	LastUsedAt *wire.Time `json:"last_used_at"`
	RevokedAt  *wire.Time `json:"revoked_at"`
}

func (c *tokenList) Run(ctx context.Context, io streams) error {
	d, err := c.openFor(ctx, c.Guild, false)
	if err != nil {
		return err
	}
	defer d.Close()
	tokens, err := auth.List(ctx, d, c.Guild)
	if err != nil {
		return err
	}
	if c.JSON {
		all := make([]listed, 0, len(tokens))
		for _, t := range tokens {
			all = append(all, listed{show(t), wire.AtPtr(t.LastUsedAt), wire.AtPtr(t.RevokedAt)})
		}
		return output.JSON(io.out, all)
	}
	rows := [][]string{{"ID", "TOKEN", "NAME", "CREATED", "EXPIRES", "LAST USED", "REVOKED", "SCOPES"}}
	for _, t := range tokens {
		rows = append(rows, []string{
			t.ID, t.Preview, t.Name, output.Instant(&t.CreatedAt, ""), output.Instant(t.ExpiresAt, "never"),
			output.Instant(t.LastUsedAt, "never"), output.Instant(t.RevokedAt, "no"), strings.Join(t.Scopes, " "),
		})
	}
	return output.Table(io.out, rows)
}

type tokenRevoke struct {
	connection
	ID         string `arg:"" optional:"" help:"The token's id."`
	All        bool   `help:"Revoke every token of --guild, or of --every-guild, instead of one."`
	Guild      string `xor:"whose" help:"The guild: of all its tokens, or of the one." placeholder:"ID"`
	EveryGuild bool   `xor:"whose" help:"With --all: all tokens of this installation."`
	JSON       bool   `help:"Print one JSON object."`
}

// revokedTokens is the JSON of the result.
type revokedTokens struct {
	Revoked int `json:"revoked"`
}

func (c *tokenRevoke) Run(ctx context.Context, io streams) error {
	switch whose := c.Guild != "" || c.EveryGuild; {
	case c.ID == "" && !c.All:
		return usageError{errors.New("revoke takes a token's id, or --all with --guild or --every-guild")}
	case c.All && !whose:
		return usageError{errors.New("--all needs --guild or --every-guild")}
	case c.ID != "" && (c.All || c.EveryGuild):
		return usageError{errors.New("revoke takes a token's id, or --all with --guild or --every-guild, not both")}
	}
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.All {
		return c.revokeAll(ctx, d, io)
	}
	guild := c.Guild
	if guild == "" {
		if guild, err = auth.GuildOf(ctx, d, c.ID); err != nil {
			return err
		}
	}
	if err := auth.Revoke(ctx, d, guild, c.ID); err != nil {
		return err
	}
	return io.result(c.JSON, revokedTokens{1}, "Token %s is revoked. No node accepts it any more.", c.ID)
}

func (c *tokenRevoke) revokeAll(ctx context.Context, d *db.DB, io streams) error {
	n, err := auth.RevokeAll(ctx, d, c.Guild)
	if err != nil && n > 0 {
		err = fmt.Errorf("%d tokens were revoked before this: %w", n, err)
	}
	if err != nil {
		return err
	}
	return io.result(c.JSON, revokedTokens{n}, "Revoked %s. No node accepts a revoked token any more.", output.Count(int64(n), "token"))
}
