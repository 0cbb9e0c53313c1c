package levelling

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// members adds n members with 5 XP to guild 1.
func members(t *testing.T, d *db.DB, n int) {
	t.Helper()
	dbtest.AddGuilds(t, d, "1")
	dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp) SELECT '1', n::text, 5 FROM generate_series(1, $1::int) n`, n)
}

func rising(user, key string, xp int64) *change {
	c := &change{Change: batch.Change{By: event.System("1")}, user: user, xp: xp}
	if key != "" {
		c.Key = &idempotency.Request{GuildID: "1", TokenID: "t", Key: key, Fingerprint: []byte("of " + key)}
	}
	return c
}

func xp(t *testing.T, d *db.DB) string {
	t.Helper()
	return dbtest.Value[string](t, d, `SELECT string_agg(total_xp::text, ' ' ORDER BY user_id) FROM levels WHERE guild_id = '1'`)
}

// If another request uses an idempotency key at the same moment, the whole statement fails, and the
// other request's result stays. If a key was used before, only its own change is left out.
func TestAKeyThatIsTakenMeanwhileGivesTheStatementUp(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	members(t, d, 2)
	list := func() []*change { return []*change{rising("1", "a", 1), rising("2", "b", 1)} }
	together := func(ctx context.Context, changes []*change) error {
		return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, changes) })
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `
			INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, body)
			VALUES ('1', 't', 'b', 'other', 'done', 200, '')`,
		); err != nil {
			return err
		}
		if err := together(context.Background(), list()); !db.LockTimeout(err) {
			t.Errorf("a key that is about to be taken: %v", err)
		}
		return nil
	})
	if got := xp(t, d); got != "5 5" {
		t.Errorf("the members have %s", got)
	}
	dbtest.Exec(t, d, `
		INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint, state, status, body)
		VALUES ('1', 'another token', 'a', 'other', 'done', 200, '')`)
	changes := list()
	if err := together(t.Context(), changes); err != nil || !changes[0].Applied || changes[1].Applied {
		t.Errorf("a key that is taken: %v, made %t and %t", err, changes[0].Applied, changes[1].Applied)
	}
	if got := xp(t, d); got != "6 5" {
		t.Errorf("the members have %s", got)
	}
	if got := dbtest.Value[string](t, d, `
		SELECT string_agg(concat_ws(' ', key, convert_from(fingerprint, 'UTF8'), xp_of, xp_before, xp_after), ', ' ORDER BY key)
		FROM idempotency_keys WHERE token_id = 't'`); got != "a of a 1 5 6, b other" {
		t.Errorf("the keys are %s", got)
	}
}

// The statement leaves out changes of missing records and changes beyond the limits, and applies
// the other changes of the batch.
func TestWhatCannotBeMadeTogetherIsLeft(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	members(t, d, 4)
	exactly := rising("4", "", 7)
	exactly.exactly = true
	list := []*change{rising("1", "", -6), rising("2", "", MaxXP-4), rising("3", "", -5), exactly, rising("9", "", 1)}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, list) })
	for i, want := range []bool{false, false, true, true, false} {
		if list[i].Applied != want {
			t.Errorf("change %d: made %t", i, list[i].Applied)
		}
	}
	if got := xp(t, d); got != "5 5 0 7" {
		t.Errorf("the members have %s", got)
	}
}

// A changed level is emitted to an endpoint and to a stream of the bot; an unchanged level is not.
// A listener that subscribes to other events, or that excludes the bot's own changes, gets no
// event, and neither does a disabled endpoint. If nobody gets the event, the event is not stored.
func TestALevelThatMovesIsToldToThoseWhoWantToKnow(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	for n, c := range []struct {
		listener, events string
		echo, bot        bool
		emitted          bool
	}{
		{"none", "", false, false, false},
		{"endpoint", "xp.level_up", false, false, true},
		{"endpoint", "xp.level_up", false, true, true},
		{"endpoint", "xp.level_down", false, true, false},
		{"endpoint", "case.created", false, false, false},
		{"endpoint that is off", "xp.level_up", false, false, false},
		{"stream", "xp.level_up", false, false, true},
		{"stream", "xp.level_up", true, true, true},
		{"stream", "xp.level_down", true, true, false},
		{"stream", "xp.level_up", false, true, false},
		{"stream", "case.created", true, false, false},
	} {
		guild := fmt.Sprint(7 + n)
		dbtest.AddGuilds(t, d, guild)
		switch c.listener {
		case "stream":
			dbtest.Exec(
				t,
				d,
				`INSERT INTO stream_listeners (guild_id, stream_id, events, echo) VALUES ($1, 's', ARRAY[$2], $3)`,
				guild,
				c.events,
				c.echo,
			)
		case "endpoint":
			dbtest.Listen(t, d, guild, []string{c.events})
		case "endpoint that is off":
			dbtest.Listen(t, d, guild, []string{c.events})
			dbtest.Exec(t, d, `UPDATE webhook_endpoints SET enabled = false WHERE guild_id = $1`, guild)
		}
		dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp) VALUES ($1, '1', 0)`, guild)
		by := auth.By{GuildID: guild, ID: "token"}
		if c.bot {
			by.ID = "bk_one"
		}
		stays := &change{Change: batch.Change{By: event.From(by)}, user: "1", xp: 99}
		moves := &change{Change: batch.Change{By: event.From(by)}, user: "1", xp: 1}
		for _, one := range []*change{stays, moves} {
			dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, []*change{one}) })
		}
		want := "0 events, 0 to endpoints, 0 to streams"
		if c.emitted {
			if want = "1 events, 1 to endpoints, 0 to streams"; c.listener == "stream" {
				want = "1 events, 0 to endpoints, 1 to streams"
			}
		}
		got := dbtest.Emitted(t, d, guild)
		if !stays.Applied || !moves.Applied || got != want {
			t.Errorf("%+v: made %t and %t, %s, want %s", c, stays.Applied, moves.Applied, got, want)
		}
	}
}

// psql accepts each statement, and Postgres can plan each statement, also with a coordinator.
func TestStatementsAreWholeInBothForms(t *testing.T) {
	t.Parallel()
	dbtest.WantPlanned(t, dbtest.New(t).DB, map[string]string{
		"records": recordsOf, "together": adjustBatch.For(0), "together, and asks for the maintainer": adjustBatch.For(64),
		"alone": manyWritten.For(0),
	})
}

// psql accepts the text of each statement with its variables.
func TestPsqlTakesTheStatements(t *testing.T) {
	t.Parallel()
	note := leaderboard.Levels.Noted("moved", batch.Guild, ":rank").For(64)
	dbtest.WantPsql(t, dbtest.New(t).URL, adjustBatchSQL, adjustBatch.For(64), "rank", note,
		"level_was", levelOf("moved.was"), "level_is", levelOf("moved.is_now"), "emit", emitLevels)
}

// The statements contain the limits as numbers. A single change waits for locks; changes in a batch
// give up soon.
func TestStatementsHaveTheirLimits(t *testing.T) {
	t.Parallel()
	if !strings.Contains(adjustBatch.For(0), fmt.Sprintf("BETWEEN 0 AND %d", int64(MaxXP))) {
		t.Error("another most")
	}
	for name, text := range map[string]string{"together": adjustBatch.For(0), "alone": manyHeld, "alone, written": manyWritten.For(0)} {
		if strings.Contains(text, "'lock_timeout', '10ms'") != (name == "together") {
			t.Errorf("%s: it waits otherwise", name)
		}
	}
}

// Records are locked in the same order, whatever the order of the changes: so two statements with
// the same members do not deadlock.
func TestRecordsAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	members(t, d, 4)
	order := dbtest.Changed(t, d, "levels", "NEW.user_id")
	list := []*change{rising("3", "", 1), rising("1", "", 1), rising("4", "", 1), rising("2", "", 1)}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustEach(ctx, tx, list) })
	if got := order(); got != "1 2 3 4" {
		t.Errorf("they are locked in the order %s", got)
	}
}

// A statement for a single change has one member.
func TestAChangeMadeAloneIsOfOneMember(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	members(t, d, 3)
	c := rising("2", "", 1)
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error { return adjustAlone(ctx, tx, c) })
	if c.row.PreviousXP != 5 || c.row.TotalXP != 6 {
		t.Errorf("it has come to %+v", c.row)
	}
	if got := xp(t, d); got != "5 6 5" {
		t.Errorf("the members have %s", got)
	}
}

// If a record is inserted while a single change is being made, the change is tried again and does
// not overwrite that record.
func TestARecordThatComesMeanwhileIsMetAgain(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	c, tries := rising("7", "", 1), 0
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		held, err := hold(ctx, tx, []*change{c})
		if err != nil {
			return err
		}
		if tries++; tries == 1 {
			dbtest.Exec(t, d, `INSERT INTO levels (guild_id, user_id, total_xp) VALUES ('1', '7', 5)`)
		}
		if err := held["7"].judge(c); err != nil {
			return err
		}
		return write(ctx, tx, "1", held)
	})
	if got := xp(t, d); got != "6" || tries != 2 {
		t.Errorf("the member has %s after %d tries", got, tries)
	}
}

// Postgres plans the statement once for each connection, because planning takes longer than the
// change.
func TestAChangeOfXPIsPlannedOnce(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	members(t, d, 3)
	rise := []*change{rising("2", "", 1)}
	dbtest.WantOnePlan(t, d, 1, "UPDATE levels", func(ctx context.Context, tx *db.Tx, _ int) error {
		_, err := tx.ExecContext(ctx, adjustBatch.For(0), append(batch.Columns(rise), ownColumns(rise)...)...)
		return err
	})
}
