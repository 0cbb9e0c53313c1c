package wire_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/wire"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"2026-11-21T08:30:00Z":              "2026-11-21T08:30:00Z",
		"2026-11-21T08:30:00.1234569+02:00": "2026-11-21T06:30:00.123456Z",
		"1969-12-31T23:59:59.9999999Z":      "1969-12-31T23:59:59.999999Z",
		"0001-01-01T00:00:00Z":              "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999999Z":    "9999-12-31T23:59:59.999999Z",
		"2026-11-21T08:30:00-23:59":         "2026-11-22T08:29:00Z",
	} {
		got, err := wire.ParseTime(in)
		if err != nil || got.Format(time.RFC3339Nano) != want || got.Location() != time.UTC {
			t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", "2026-11-21", "2026-11-21T08:30:00", "2026-02-30T00:00:00Z", "2026-11-21T08:30:60Z", "2026-11-21T24:00:00Z",
		"2026-11-21T8:30:00Z", "2026-11-21T08:30:00,5Z", "2026-11-21T08:30:00+24:00", "2026-11-21T08:30:00+01:60", "2026-11-21t08:30:00z",
		"0000-12-31T23:59:59Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "10000-01-01T00:00:00Z",
	} {
		if got, err := wire.ParseTime(in); err == nil {
			t.Errorf("%q was read as %s", in, got)
		}
	}
}

func TestTimeTravels(t *testing.T) {
	t.Parallel()
	berlin := time.FixedZone("", 3600)
	for _, c := range []struct {
		at   time.Time
		want string
	}{
		{time.Date(2026, 1, 2, 3, 4, 5, 678_999_999, time.UTC), `"2026-01-02T03:04:05.678Z"`},
		{time.Date(2026, 1, 2, 3, 4, 5, 0, berlin), `"2026-01-02T02:04:05.000Z"`},
		{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), `"0001-01-01T00:00:00.000Z"`},
	} {
		b, err := json.Marshal(struct{ At wire.Time }{wire.At(c.at)})
		if want := `{"At":` + c.want + `}`; err != nil || string(b) != want {
			t.Errorf("%s went out as %s (%v), want %s", c.at, b, err, want)
		}
		if got := wire.At(c.at).String(); got != strings.Trim(c.want, `"`) {
			t.Errorf("%s is written %s, want %s", c.at, got, c.want)
		}
		var back struct{ At *wire.Time }
		if err := json.Unmarshal(b, &back); err != nil || !back.At.Time.Equal(c.at.Truncate(time.Millisecond)) {
			t.Errorf("%s came back as %v (%v)", b, back.At, err)
		}
	}
	if wire.AtPtr(nil) != nil {
		t.Error("no instant became one")
	}
	var v struct{ At *wire.Time }
	if err := json.Unmarshal([]byte(`{"At":null}`), &v); err != nil || v.At != nil {
		t.Errorf("null was read as %v (%v)", v.At, err)
	}
	for _, bad := range []string{`7`, `{}`, `""`, `"now"`, `["2026-01-02T03:04:05Z"]`, `true`} {
		if err := json.Unmarshal([]byte(`{"At":`+bad+`}`), &v); err == nil {
			t.Errorf("%s was read as %v", bad, v.At)
		}
	}
}

// The outgoing form equals that of time.Format for every year and zone.
func FuzzTimeIsWrittenAsFormatted(f *testing.F) {
	f.Add(int64(0), int64(0), 0)
	f.Add(int64(-62135596801), int64(999_999_999), 1)
	f.Add(int64(-62167219201), int64(1), 0)      // in the year -1
	f.Add(int64(253402300800), int64(1), -86399) // in the year 10000
	f.Add(int64(1795250000), int64(123_456_789), 19800)
	f.Fuzz(func(t *testing.T, seconds, nanoseconds int64, offset int) {
		at := time.Unix(seconds, nanoseconds).In(time.FixedZone("", offset%86400))
		want := at.UTC().Format("2006-01-02T15:04:05.000Z")
		if got := wire.At(at).String(); got != want {
			t.Fatalf("%s is written %s", want, got)
		}
		if b, err := json.Marshal([]any{wire.At(at), wire.AtPtr(&at)}); err != nil || string(b) != `["`+want+`","`+want+`"]` {
			t.Fatalf("%s goes out as %s (%v)", want, b, err)
		}
	})
}

// BenchmarkPage encodes the instants of a page with 25 items.
func BenchmarkPage(b *testing.B) {
	at := time.Unix(1795250000, 123_456_000)
	rows := make([]struct {
		CreatedAt, UpdatedAt wire.Time
		ExpiresAt            *wire.Time
	}, 25)
	for i := range rows {
		rows[i].CreatedAt, rows[i].UpdatedAt, rows[i].ExpiresAt = wire.At(at), wire.At(at), wire.AtPtr(&at)
	}
	for b.Loop() {
		if _, err := json.Marshal(rows); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzParseTime checks that every instant that ParseTime accepts can be stored and shown: its year
// suits Postgres and RFC 3339, and its outgoing form can be read back.
func FuzzParseTime(f *testing.F) {
	for _, s := range []string{
		"2026-11-21T08:30:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.9999999-00:00",
		"2026-11-21T08:30:00,5Z",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := wire.ParseTime(s)
		if err != nil {
			return
		}
		if at.Year() < 1 || at.Year() > 9999 || at.Nanosecond()%1000 != 0 || at.Location() != time.UTC {
			t.Fatalf("%q was read as %s", s, at)
		}
		again, err := wire.ParseTime(wire.At(at).String())
		if err != nil || !again.Equal(at.Truncate(time.Millisecond)) {
			t.Fatalf("%q is shown as %s, which is read as %s (%v)", s, wire.At(at), again, err)
		}
	})
}
