package main

import (
	"cmp"
	"context"
	"strings"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
)

type botKeyCommands struct {
	Create botKeyCreate `cmd:"" help:"Make a key of the operator's own bot and print it, once."`
	List   botKeyList   `cmd:"" help:"List the bot's keys, revoked and expired ones too."`
	Revoke botKeyRevoke `cmd:"" help:"Revoke a key. Returns when no node accepts it any more."`
}

type botKeyCreate struct {
	credential
	Guild []string `sep:"none" help:"A guild that the key serves; repeat it, or list several with commas. Default: every guild, those to come too." placeholder:"ID"`
}

// createdKey is the JSON of a new bot key.
type createdKey struct {
	ID          string     `json:"id"`
	Key         string     `json:"key,omitempty"` // set for a new key only
	Preview     string     `json:"preview"`
	GuildIDs    []string   `json:"guild_ids"` // null: every guild
	Name        string     `json:"name"`
	IPAllowlist []string   `json:"ip_allowlist"`
	ExpiresAt   *wire.Time `json:"expires_at"`
	CreatedAt   wire.Time  `json:"created_at"`
}

func showKey(k auth.BotKey) createdKey {
	return createdKey{
		ID: k.ID, Key: k.Secret, Preview: k.Preview, GuildIDs: k.GuildIDs, Name: k.Name,
		IPAllowlist: output.List(k.IPAllowlist), ExpiresAt: wire.AtPtr(k.ExpiresAt), CreatedAt: wire.At(k.CreatedAt),
	}
}

func guildsOf(k auth.BotKey) string { return cmp.Or(strings.Join(k.GuildIDs, " "), "every guild") }

func (c *botKeyCreate) Run(ctx context.Context, io streams) error {
	d, env, expiresIn, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	return showOnce(ctx, d, func(ctx context.Context, d db.Doer) error {
		k, err := auth.CreateKey(ctx, d, auth.NewKey{Name: c.Name, Guilds: wire.Items(c.Guild...), AllowIP: c.AllowIP, Env: env, ExpiresIn: expiresIn})
		if err != nil {
			return err
		}
		return io.secret(c.JSON, showKey(k), "%s\n\nid       %s\nguilds   %s\nname     %s\nexpires  %s\n\nThe key is shown this once. Keep it safe.",
			k.Secret, k.ID, guildsOf(k), k.Name, output.Instant(k.ExpiresAt, "never"))
	})
}

type botKeyList struct {
	connection
	JSON bool `help:"Print a JSON array."`
}

// listedKey is the JSON of a bot key in the list.
type listedKey struct {
	createdKey
	LastUsedAt *wire.Time `json:"last_used_at"`
	RevokedAt  *wire.Time `json:"revoked_at"`
}

func (c *botKeyList) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	keys, err := auth.ListKeys(ctx, d)
	if err != nil {
		return err
	}
	if c.JSON {
		all := make([]listedKey, 0, len(keys))
		for _, k := range keys {
			all = append(all, listedKey{showKey(k), wire.AtPtr(k.LastUsedAt), wire.AtPtr(k.RevokedAt)})
		}
		return output.JSON(io.out, all)
	}
	rows := [][]string{{"ID", "KEY", "NAME", "CREATED", "EXPIRES", "LAST USED", "REVOKED", "GUILDS"}}
	for _, k := range keys {
		rows = append(rows, []string{
			k.ID, k.Preview, k.Name, output.Instant(&k.CreatedAt, ""), output.Instant(k.ExpiresAt, "never"),
			output.Instant(k.LastUsedAt, "never"), output.Instant(k.RevokedAt, "no"), guildsOf(k),
		})
	}
	return output.Table(io.out, rows)
}

type botKeyRevoke struct {
	connection
	ID   string `arg:"" help:"The key's id."`
	JSON bool   `help:"Print one JSON object."`
}

func (c *botKeyRevoke) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := auth.RevokeKey(ctx, d, c.ID); err != nil {
		return err
	}
	return io.result(c.JSON, revokedTokens{1}, "Bot key %s is revoked. No node accepts it any more.", c.ID)
}
