package db_test

import (
	"errors"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// In a database that is not UTF8, characters are counted as bytes or cannot be stored. Every
// command refuses such a database, and migrate leaves it empty. RELIABILITY.md, Operation.
func TestADatabaseThatIsNotUTF8IsRefused(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"SQL_ASCII", "LATIN1"} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Empty(t, "template0 ENCODING '"+encoding+"' LOCALE 'C'")
			_, checked := db.CheckSchema(t.Context(), url)
			for what, err := range map[string]error{
				"CheckSchema": checked, "CheckIdentity": db.CheckIdentity(t.Context(), url), "Migrate": db.Migrate(t.Context(), url),
			} {
				if !errors.Is(err, db.ErrEncoding) || !strings.Contains(err.Error(), encoding) || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
					t.Errorf("%s: %v", what, err)
				}
			}
			var tables int
			if err := pooled(t, url).QueryRowContext(t.Context(), `
				SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`).Scan(&tables); err != nil || tables != 0 {
				t.Errorf("%d tables and indexes, %v", tables, err)
			}
		})
	}
}

// A session has the settings that statements rely on, whatever the server, database or role sets.
// RELIABILITY.md, Operation.
func TestASessionHasTheSettingsThatStatementsRelyOn(t *testing.T) {
	t.Parallel()
	url := dbtest.Empty(t, "")
	var name string
	if err := pooled(t, url).QueryRowContext(t.Context(), `SELECT current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{
		"array_nulls = off", "standard_conforming_strings = off", "transform_null_equals = on", "bytea_output = 'escape'",
		"default_transaction_isolation = 'serializable'", "default_transaction_deferrable = on", "quote_all_identifiers = on",
		"intervalstyle = 'iso_8601'",
	} {
		execAll(t, pooled(t, url), "ALTER DATABASE "+name+" SET "+setting)
	}
	d := dbtest.Open(t, url).DB
	wrong, err := db.WrongSettings(t.Context(), d.Reader())
	if err != nil || len(wrong) != 0 {
		t.Errorf("a session has %v, %v", wrong, err)
	}
	// A pooler would hand a session's settings on to other clients, so behind a pooler the program
	// makes none.
	through, err := db.Open(db.Config{URL: url + "&binary_parameters=yes", Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	if wrong, err = db.WrongSettings(t.Context(), through.Reader()); err != nil || len(wrong) != 8 || wrong[0] != "array_nulls = off" {
		t.Errorf("through a pooler a session has %v, %v", wrong, err)
	}
}
