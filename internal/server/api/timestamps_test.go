package api_test

import (
	"context"
	"testing"

	"guildhall/internal/server/api/apitest"
)

// Instants in requests, in the database and in responses. RELIABILITY.md, Input.
func TestTimestamps(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	made := server.Do(t, "createCase", `{"user_id":"9","moderator_id":"8","type":"note","reason":"x"}`).Want(t, 201, "")
	at := apitest.Path("id", made.Str(t, "data.id"))

	t.Run("are stored in UTC to the microsecond and shown to the millisecond", func(t *testing.T) {
		for in, want := range map[string]struct{ shown, stored string }{
			"2026-11-21T08:30:00Z":                       {"2026-11-21T08:30:00.000Z", "2026-11-21 08:30:00.000000"},
			"2026-11-21T08:30:00.123456Z":                {"2026-11-21T08:30:00.123Z", "2026-11-21 08:30:00.123456"},
			"2026-11-21T08:30:00.123456999Z":             {"2026-11-21T08:30:00.123Z", "2026-11-21 08:30:00.123456"},
			"2026-11-21T08:30:00.9999999Z":               {"2026-11-21T08:30:00.999Z", "2026-11-21 08:30:00.999999"},
			"2026-11-21T08:30:00.5Z":                     {"2026-11-21T08:30:00.500Z", "2026-11-21 08:30:00.500000"},
			"2026-11-21T08:30:00.000001Z":                {"2026-11-21T08:30:00.000Z", "2026-11-21 08:30:00.000001"},
			"2026-11-21T08:30:00+00:00":                  {"2026-11-21T08:30:00.000Z", "2026-11-21 08:30:00.000000"},
			"2026-11-21T08:30:00-00:00":                  {"2026-11-21T08:30:00.000Z", "2026-11-21 08:30:00.000000"},
			"2026-11-21T08:30:00+14:00":                  {"2026-11-20T18:30:00.000Z", "2026-11-20 18:30:00.000000"},
			"2026-11-21T23:30:00-05:30":                  {"2026-11-22T05:00:00.000Z", "2026-11-22 05:00:00.000000"},
			"2026-12-31T23:59:59.999-23:59":              {"2027-01-01T23:58:59.999Z", "2027-01-01 23:58:59.999000"},
			"2024-02-29T00:00:00Z":                       {"2024-02-29T00:00:00.000Z", "2024-02-29 00:00:00.000000"},
			"2000-02-29T00:00:00Z":                       {"2000-02-29T00:00:00.000Z", "2000-02-29 00:00:00.000000"},
			"1883-11-18T12:03:58Z":                       {"1883-11-18T12:03:58.000Z", "1883-11-18 12:03:58.000000"},
			"0001-01-01T00:00:00Z":                       {"0001-01-01T00:00:00.000Z", "0001-01-01 00:00:00.000000"},
			"9999-12-31T23:59:59.999999Z":                {"9999-12-31T23:59:59.999Z", "9999-12-31 23:59:59.999999"},
			"9999-12-31T23:59:59.999999999Z":             {"9999-12-31T23:59:59.999Z", "9999-12-31 23:59:59.999999"},
			"1969-12-31T23:59:59.999999Z":                {"1969-12-31T23:59:59.999Z", "1969-12-31 23:59:59.999999"},
			"1969-12-31T23:59:59.9999999Z":               {"1969-12-31T23:59:59.999Z", "1969-12-31 23:59:59.999999"},
			"2026-11-21T08:30:00.100000000000000000000Z": {"2026-11-21T08:30:00.100Z", "2026-11-21 08:30:00.100000"},
		} {
			server.Do(t, "updateCase", `{"expires_at":null}`, at).Want(t, 200, "") // an instant that is shown the same would not count as a change
			a := server.Do(t, "updateCase", `{"expires_at":"`+in+`"}`, at)
			if a.Status != 200 || a.Str(t, "data.expires_at") != want.shown {
				t.Errorf("%s: got %d %s, want %s", in, a.Status, a.Body, want.shown)
				continue
			}
			var stored string
			err := server.DB().Reader().GetContext(context.Background(), &stored, `
				SELECT to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') FROM cases WHERE guild_id = $1`, server.Guild)
			if err != nil || stored != want.stored {
				t.Errorf("%s: stored %q (%v), want %q", in, stored, err, want.stored)
			}
			// An instant from a response can be sent back and is then shown the same.
			again := server.Do(t, "updateCase", `{"expires_at":"`+want.shown+`"}`, at)
			if again.Status != 200 || again.Str(t, "data.expires_at") != want.shown {
				t.Errorf("%s sent back: got %d %s", want.shown, again.Status, again.Body)
			}
			server.Do(t, "listCases", "", apitest.Query("since", in)).Want(t, 200, "")
		}
	})
	t.Run("are refused when no such instant exists or can be kept", func(t *testing.T) {
		server.Do(t, "updateCase", `{"expires_at":null}`, at).Want(t, 200, `{"data":{"expires_at":null}}`)
		for _, in := range []string{
			"", " ", "now", "0", "1700000000", "null",
			"2026-11-21", "2026-11-21T08:30Z", "2026-11-21T08:30:00", "08:30:00Z", "2026-11-21 08:30:00Z", "2026-11-21T08:30:00 Z",
			"2026-11-21T08:30:00z", "2026-11-21t08:30:00Z", "2026-11-21T08:30:00Z ", " 2026-11-21T08:30:00Z", "2026-11-21T08:30:00Z\n",
			"2026-11-21T08:30:60Z", "2016-12-31T23:59:60Z", "2026-11-21T24:00:00Z", "2026-11-21T08:60:00Z",
			"2026-02-29T00:00:00Z", "2026-02-30T00:00:00Z", "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-13-01T00:00:00Z",
			"2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z",
			"0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "+2026-11-21T08:30:00Z", "26-11-21T08:30:00Z",
			"02026-11-21T08:30:00Z",
			"0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "9999-12-31T23:59:59.5-23:00",
			"2026-11-21T08:30:00+0100", "2026-11-21T08:30:00+01", "2026-11-21T08:30:00+1:00", "2026-11-21T08:30:00+24:00",
			"2026-11-21T08:30:00+25:00", "2026-11-21T08:30:00+01:60", "2026-11-21T08:30:00+99:99",
			"2026-11-21T8:30:00Z", "2026-11-21T08:3:00Z", "2026-1-21T08:30:00Z",
			"2026-11-21T08:30:00,5Z", "2026-11-21T08:30:00.Z", "2026-11-21T08:30:00.5.5Z", "2026-11-21T08:30:00.5", "2026-11-21T08:30:00ZZ",
			"2026-11-21T08:30:00Z+01:00", "２０２６-11-21T08:30:00Z", "2026‐11‐21T08:30:00Z", "2026-11-21T08:30:00 CET",
			"Sat, 21 Nov 2026 08:30:00 GMT",
			"infinity", "-infinity", "epoch", "today", "2026-W47-6T08:30:00Z", "2026-325T08:30:00Z", "20261121T083000Z",
		} {
			if a := server.Do(t, "updateCase", `{"expires_at":`+quoted(in)+`}`, at); a.Status != 400 || a.Code() != "invalid_request" {
				t.Errorf("expires_at %q: got %d %s", in, a.Status, a.Body)
			}
			if a := server.Do(t, "listCases", "", apitest.Query("since", in)); a.Status != 400 || a.Code() != "invalid_request" {
				t.Errorf("since %q: got %d %s", in, a.Status, a.Body)
			}
		}
		for _, raw := range []string{"0", "1700000000", "true", "{}", `["2026-11-21T08:30:00Z"]`} {
			server.Do(t, "updateCase", `{"expires_at":`+raw+`}`, at).WantError(t, 400, "invalid_request")
		}
		server.Do(t, "getCase", "", at).Want(t, 200, `{"data":{"expires_at":null}}`)
	})
}
