package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/operate/restore"
)

type restoreCommands struct {
	Check restoreCheck `cmd:"" help:"Say which tokens, bot keys and endpoints have changed since a backup, and what its restore has undone."`
}

type restoreCheck struct {
	connection
	Since          string `required:"" help:"When the backup was made: an RFC 3339 time, or a number and a unit, s, m, h or d, as in 2h." placeholder:"TIME"`
	OldDatabaseURL string `name:"old-database-url" help:"The database that the restored one replaces, as long as it can be read." placeholder:"URL"`
	JSON           bool   `help:"Print one JSON object."`
}

// Help says when to run the command.
func (c *restoreCheck) Help() string {
	return "Run it on the restored database. It names the tokens, bot keys and endpoints that have changed since the backup; " +
		"with --old-database-url it also says what the restore has made of each, and exits with 1 when one is not as it was."
}

// restoreReport is the command's JSON.
type restoreReport struct {
	Since    wire.Time       `json:"since"`
	Compared bool            `json:"compared"` // an old database was given, from which the changes come
	More     bool            `json:"more"`     // there are more than are listed
	Things   []restore.Thing `json:"things"`
}

// Run fails if a token, bot key or endpoint works again that was revoked or deleted, or has its
// state from before a change. A lost thing is only listed: it does no harm and cannot be repaired
// here.
func (c *restoreCheck) Run(ctx context.Context, io streams) error {
	since, err := parseSince(c.Since)
	if err != nil {
		return usageError{err}
	}
	d, _, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	old := d
	if c.OldDatabaseURL != "" {
		if err := db.CheckIdentity(ctx, c.OldDatabaseURL); err != nil {
			return fault.Wrap(err, "--old-database-url")
		}
		if old, err = db.Open(db.Config{URL: c.OldDatabaseURL, Writers: 1, Readers: 1, Name: "guildhall-cli"}); err != nil {
			return fault.Wrap(err, "--old-database-url")
		}
		defer old.Close()
		switch itself, err := restore.Itself(ctx, old.Reader(), d.Reader()); {
		case err != nil:
			return err
		case itself:
			return usageError{errors.New("--old-database-url: that is the restored database itself")}
		}
	}
	report := restoreReport{Since: wire.At(since), Compared: old != d, Things: []restore.Thing{}}
	things, more, err := restore.Since(ctx, old.Reader(), since)
	if err != nil {
		return err
	}
	report.More, report.Things = more, append(report.Things, things...)
	if report.Compared {
		if err := report.add(ctx, old.Reader(), d.Reader()); err != nil {
			return err
		}
		if err := restore.Compare(ctx, old.Reader(), d.Reader(), report.Things); err != nil {
			return err
		}
	}
	return report.print(io, c.JSON)
}

// add adds other differences to the changes that the old database has recorded: the backup may have
// been taken during a long transaction.
func (r *restoreReport) add(ctx context.Context, old, restored db.Querier) error {
	differing, more, err := restore.Differing(ctx, old, restored)
	if err != nil {
		return err
	}
	r.More = r.More || more
	listed := map[[2]string]bool{}
	for _, t := range r.Things {
		listed[[2]string{t.Kind, t.ID}] = true
	}
	for _, t := range differing {
		if !listed[[2]string{t.Kind, t.ID}] {
			r.Things = append(r.Things, t)
		}
	}
	return nil
}

// everyKey tells the operator what to revoke if nobody can know what works again.
const everyKey = "every token with `guildhall token revoke --all --every-guild` and each bot key with `guildhall bot-key revoke ID`"

func (r restoreReport) print(io streams, asJSON bool) error {
	undone := 0
	rows := [][]string{{"STATE", "KIND", "ID", "GUILD", "CHANGES"}}
	for _, t := range r.Things {
		if t.State == restore.Revived || t.State == restore.Reverted {
			undone++
		}
		var changes []string
		for _, c := range t.Changes {
			changes = append(changes, c.Change+" "+output.Instant(&c.At, ""))
		}
		guild := "-"
		if t.GuildID != nil {
			guild = *t.GuildID
		}
		rows = append(rows, []string{cmp.Or(t.State, "changed"), t.Kind, t.ID, guild, strings.Join(changes, ", ")})
	}
	var err error
	switch {
	case asJSON:
		err = output.JSON(io.out, r)
	case len(r.Things) > 0:
		err = output.Table(io.out, rows)
	default:
		err = output.Say(io.out, "No token, no bot key and no endpoint is known to have changed since.")
	}
	if err == nil && r.More && !asJSON {
		err = output.Say(io.out, "There are more than these %d.", len(r.Things))
	}
	switch {
	case err != nil:
		return err
	case undone > 0:
		return fmt.Errorf("the restore has undone changes of %d tokens, bot keys and endpoints: revoke, remove or change again those that are revived or reverted", undone)
	case !r.Compared && !asJSON:
		return output.Say(io.out, "That is what this database knows. A restored one knows nothing after its backup: --old-database-url names the one it replaces; without it, revoke "+everyKey)
	case r.More && r.Compared:
		return errors.New("more has changed than could be compared: revoke " + everyKey)
	}
	return nil
}
