package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/guilds"
)

type guildCommands struct {
	List    guildList    `cmd:"" help:"List the guilds, those too that are being removed."`
	Remove  guildRemove  `cmd:"" help:"Remove a guild: nothing of it works any more at once, and when its day comes everything it has is deleted."`
	Restore guildRestore `cmd:"" help:"Take a guild back that is being removed. Its tokens stay revoked and its endpoints disabled."`
}

type guildList struct {
	connection
	JSON bool `help:"Print a JSON array."`
}

// listedGuild is the JSON of a guild in the list.
type listedGuild struct {
	ID           string     `json:"id"`
	Name         string     `json:"name"`
	Status       string     `json:"status"`
	CreatedAt    wire.Time  `json:"created_at"`
	RemovedAfter *wire.Time `json:"removed_after"`
}

// guildPage is how many guilds one statement lists.
const guildPage = 1000

func (c *guildList) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	all := []listedGuild{}
	rows := [][]string{{"ID", "NAME", "STATUS", "REMOVED AFTER"}}
	for after, more := "", true; more; {
		page, err := guilds.List(ctx, d.Reader(), after, guildPage)
		if err != nil {
			return err
		}
		for _, g := range page {
			after = g.ID
			all = append(all, listedGuild{g.ID, g.Name, g.Status, wire.At(g.CreatedAt), wire.AtPtr(g.RemovedAfter)})
			rows = append(rows, []string{g.ID, g.Name, g.Status, output.Instant(g.RemovedAfter, "")})
		}
		more = len(page) == guildPage
	}
	if c.JSON {
		return output.JSON(io.out, all)
	}
	return output.Table(io.out, rows)
}

type guildRemove struct {
	connection
	Guild     string `required:"" help:"The guild's id." placeholder:"ID"`
	AfterDays int    `default:"7" help:"For how many days it can be taken back, 0 to 30."`
	Yes       bool   `help:"Do not ask for the id to be typed."`
	JSON      bool   `help:"Print one JSON object."`
}

// removedGuild is the JSON of a guild whose removal is scheduled.
type removedGuild struct {
	GuildID      string    `json:"guild_id"`
	RemovedAfter wire.Time `json:"removed_after"`
}

func (c *guildRemove) Run(ctx context.Context, io streams) error {
	if c.AfterDays < 0 || c.AfterDays > guilds.MaxDays {
		return usageError{fmt.Errorf("--after-days: from 0 to %d", guilds.MaxDays)}
	}
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if !c.Yes {
		if err := c.confirm(ctx, d, io); err != nil {
			return err
		}
	}
	var after time.Time
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		after, err = guilds.Remove(ctx, tx, c.Guild, c.AfterDays)
		return err
	}); err != nil {
		return err
	}
	if err := auth.Await(ctx, d, "guild "+c.Guild+" is being removed"); err != nil {
		return err
	}
	return io.result(c.JSON, removedGuild{c.Guild, wire.At(after)},
		"Guild %s is removed: no node serves it any more. After %s all that it has is deleted; until then `guildhall guild restore --guild %s` takes it back.",
		c.Guild, output.Instant(&after, ""), c.Guild)
}

// confirm asks the user to type the guild's id.
func (c *guildRemove) confirm(ctx context.Context, d *db.DB, io streams) error {
	name, err := db.Get[string](ctx, d.Reader(), `SELECT name FROM guilds WHERE id = $1`, c.Guild)
	if db.Missing(err) {
		return auth.NoGuild(c.Guild)
	}
	if err != nil {
		return fault.Wrap(err, "look for guild", c.Guild)
	}
	if err := output.Say(io.err, "This removes guild %s (%s). Type its id to go on:", c.Guild, name); err != nil {
		return err
	}
	typed, _ := bufio.NewReader(io.in).ReadString('\n') // an incomplete line is not the id
	if ctx.Err() != nil {
		return fault.Wrap(context.Cause(ctx), "nothing was removed")
	}
	if strings.TrimSpace(typed) != c.Guild {
		return errors.New("nothing was removed: that was not the id (--yes does not ask)")
	}
	return nil
}

type guildRestore struct {
	connection
	Guild string `required:"" help:"The guild's id." placeholder:"ID"`
	JSON  bool   `help:"Print one JSON object."`
}

// restoredGuild is the JSON of a restored guild.
type restoredGuild struct {
	GuildID  string `json:"guild_id"`
	Restored bool   `json:"restored"`
}

func (c *guildRestore) Run(ctx context.Context, io streams) error {
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	var taken bool
	if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		taken, err = guilds.Restore(ctx, tx, c.Guild)
		return err
	}); err != nil {
		return err
	}
	if !taken {
		return io.result(c.JSON, restoredGuild{c.Guild, false}, "Guild %s is there: nobody has removed it.", c.Guild)
	}
	return io.result(c.JSON, restoredGuild{c.Guild, true}, "Guild %s is there again. Its tokens stay revoked and its endpoints disabled.", c.Guild)
}
