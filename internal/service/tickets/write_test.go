package tickets

import (
	"context"
	"errors"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// A ticket that was inserted after a record's lookup is not overwritten, and the call is retried.
func TestATicketThatHasComeMeanwhileIsNotOverwritten(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.Fill(t, d, twoGuilds, `INSERT INTO tickets (guild_id, id, number, opener_id) VALUES ('1', 't', 1, '7')`)
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		now := wire.At(time.Now())
		given := row{
			ID: "t", Number: 1, Status: open, OpenerID: "8", Priority: normal, Metadata: metadata.Values{}, CreatedAt: now, UpdatedAt: now,
		}
		err := store(ctx, tx, &transfer.Call{By: auth.By{GuildID: "1"}}, []*transfer.Row[row]{{Is: given, At: now}})
		if !errors.Is(err, db.Again) {
			t.Errorf("stored with %v, want %v", err, db.Again)
		}
		return nil
	})
	if opener := dbtest.Value[string](t, d, `SELECT opener_id FROM tickets`); opener != "7" {
		t.Errorf("the ticket that has come is %s's", opener)
	}
}
