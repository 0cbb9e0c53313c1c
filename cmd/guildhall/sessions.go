package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/server/dashboard"
)

type dashboardSessions struct {
	connection
	Guild string `help:"The id of a guild: only sessions that may open it. Default: all." placeholder:"ID"`
	JSON  bool   `help:"Print a JSON array."`
}

// listedSession is the JSON of a session.
type listedSession struct {
	ID        string    `json:"id"`
	Type      string    `json:"type"` // user or operator
	AccountID string    `json:"account_id"`
	Name      string    `json:"name"`
	GuildIDs  []string  `json:"guild_ids"`
	Address   string    `json:"address"`
	Agent     string    `json:"agent"`
	CreatedAt wire.Time `json:"created_at"`
	SeenAt    wire.Time `json:"seen_at"`
	ExpiresAt wire.Time `json:"expires_at"`
}

func (c *dashboardSessions) Run(ctx context.Context, io streams) error {
	d, err := c.openFor(ctx, c.Guild, c.Guild == "")
	if err != nil {
		return err
	}
	defer d.Close()
	list, err := dashboard.Sessions(ctx, d.Reader(), c.Guild, time.Now())
	if err != nil {
		return err
	}
	if c.JSON {
		all := make([]listedSession, 0, len(list))
		for _, s := range list {
			all = append(all, listedSession{
				s.ID, s.Kind, s.AccountID, s.Name, output.List(s.Guilds), s.Address, s.Agent, wire.At(s.CreatedAt), wire.At(s.SeenAt), wire.At(s.ExpiresAt),
			})
		}
		return output.JSON(io.out, all)
	}
	rows := [][]string{{"ID", "TYPE", "NAME", "ACCOUNT", "ADDRESS", "SIGNED IN", "LAST USED", "GUILDS"}}
	for _, s := range list {
		rows = append(rows, []string{
			s.ID, s.Kind, s.Name, s.AccountID, s.Address, output.Instant(&s.CreatedAt, ""), output.Instant(&s.SeenAt, ""), cmp.Or(strings.Join(s.Guilds, " "), "none"),
		})
	}
	return output.Table(io.out, rows)
}

type dashboardEnd struct {
	connection
	ID   string `arg:"" optional:"" help:"The session's id."`
	All  bool   `help:"End every session."`
	JSON bool   `help:"Print one JSON object."`
}

// endedSessions is the JSON of the result of ending sessions.
type endedSessions struct {
	Ended int `json:"ended"`
}

func (c *dashboardEnd) Run(ctx context.Context, io streams) error {
	if (c.ID == "") == !c.All {
		return usageError{errors.New("name one session, as `guildhall dashboard sessions` lists it, or --all")}
	}
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.All {
		n, err := dashboard.EndAllSessions(ctx, d)
		if err != nil {
			return err
		}
		return io.result(c.JSON, endedSessions{n}, "Sessions ended: %d.", n)
	}
	if err := dashboard.EndSession(ctx, d, c.ID); err != nil {
		return err
	}
	return io.result(c.JSON, endedSessions{1}, "Session %s is ended.", c.ID)
}

// revokedLinks is the JSON of the result of revoking links.
type revokedLinks struct {
	Revoked int `json:"revoked"`
}

func (c *dashboardLink) revoke(ctx context.Context, io streams) error {
	d, err := c.openFor(ctx, c.Guild, c.Guild == "")
	if err != nil {
		return err
	}
	defer d.Close()
	n, err := dashboard.RevokeLinks(ctx, d, c.Guild)
	if err != nil {
		return err
	}
	return io.result(c.JSON, revokedLinks{n}, "Unused links taken back: %d.", n)
}
