package main

import (
	"context"
	"errors"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/removal"
)

type forgetCommand struct {
	connection
	User       string `required:"" help:"The member's id." placeholder:"ID"`
	Guild      string `xor:"where" help:"The guild that forgets the member." placeholder:"ID"`
	EveryGuild bool   `xor:"where" help:"Every guild of this installation."`
	Cases      bool   `help:"Forget the cases about the member too."`
	JSON       bool   `help:"Print one JSON object."`
}

// forgotten is the command's JSON.
type forgotten struct {
	UserID      string    `json:"user_id"`
	RequestedAt wire.Time `json:"requested_at"`
}

func (c *forgetCommand) Run(ctx context.Context, io streams) error {
	if c.Guild == "" && !c.EveryGuild {
		return usageError{errors.New("forget needs --guild or --every-guild")}
	}
	if !auth.IsGuildID(c.User) { // a user's id has the same form
		return usageError{errors.New("--user: the id of a member has 1 to 20 digits")}
	}
	d, err := c.openFor(ctx, c.Guild, c.EveryGuild)
	if err != nil {
		return err
	}
	defer d.Close()
	var at time.Time
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if c.EveryGuild {
			at, err = removal.ForgetEverywhere(ctx, tx, auth.By{}, nil, c.User, c.Cases)
		} else {
			at, err = removal.Forget(ctx, tx, auth.System(c.Guild), c.User, c.Cases)
		}
		return err
	}); err != nil {
		return err
	}
	where := "guild " + c.Guild
	if c.EveryGuild {
		where = "every guild"
	}
	return io.result(c.JSON, forgotten{c.User, wire.At(at)}, "Member %s is to be forgotten by %s. The worker of a running node does it within a minute.", c.User, where)
}
