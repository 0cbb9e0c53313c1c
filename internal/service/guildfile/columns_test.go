package guildfile

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/contract"
)

// stays lists the columns that are not part of records, because importing the records sets them
// again.
var stays = map[string][]string{
	"guilds":            {"last_case", "last_ticket", "last_case_at", "removed_at", "removed_after", "facts_due_at"},
	"levels":            {"previous_xp"},
	"ledger_references": {"entry_id"},
	"tickets": {
		"message_count", "last_message_at", "channel_due_at", "channel_try_at", "channel_tries",
		"channel_lease_until", "channel_lease_gen", "channel_lock",
	},
	"ticket_messages": {"posted"},
	"giveaways": {
		"entrant_count", "entry_count", "rounds", "pot", "post_id", "ended_by_token_id", "drawing_at", "redraw_at",
		"reaction_after", "reaction_count", "reactions_missed", "react_at", "failures", "bot_run", "edit_at", "edit_failures",
		"edited_at", "shown", "post_problem",
	},
}

func (w *waiting[R]) shape() (table, columns, schemaName string, row reflect.Type) {
	return w.Table, w.Columns, w.Kind.Schema, reflect.TypeFor[R]()
}

// If a developer adds a column to a guild's table, a member to a record or a property to a schema
// of guild files and forgets one of the others, this test names it.
func TestEveryColumnIsCarried(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range newKinds() {
		t.Run(k.name(), func(t *testing.T) {
			t.Parallel()
			table, columns, name, row := k.(interface {
				shape() (string, string, string, reflect.Type)
			}).shape()
			moves := strings.FieldsFunc(columns, func(c rune) bool { return strings.ContainsRune(", \t\n", c) })
			var stored []string
			if err := d.Reader().SelectContext(t.Context(), &stored, `
				SELECT column_name FROM information_schema.columns
				WHERE table_schema = 'public' AND table_name = $1`, table); err != nil {
				t.Fatal(err)
			}
			for _, column := range stored {
				if slices.Contains(moves, column) == slices.Contains(stays[table], column) {
					t.Errorf("%s.%s has to be in the columns of the record, or in the list of those that stay", table, column)
				}
			}
			properties := maps.Clone(doc.Components.Schemas[name].Value.Properties)
			delete(properties, "record")
			want := slices.Sorted(maps.Keys(properties))
			if got := jsonMembers(row); !slices.Equal(got, want) {
				t.Errorf("records have the members\n%v, and %s has\n%v", got, name, want)
			}
			for _, column := range moves {
				if !slices.Contains(dbColumns(row), column) {
					t.Errorf("%s has no field for the column %s", row, column)
				}
			}
		})
	}
}

func jsonMembers(row reflect.Type) (names []string) {
	for i := range row.NumField() {
		if name := row.Field(i).Tag.Get("json"); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func dbColumns(row reflect.Type) (names []string) {
	for i := range row.NumField() {
		f := row.Field(i)
		if name := f.Tag.Get("db"); name != "" {
			names = append(names, name)
		} else if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[time.Time]() {
			names = append(names, dbColumns(f.Type)...)
		}
	}
	return names
}
