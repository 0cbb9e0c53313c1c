package levelling

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // time zones are known where the machine knows none

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// zones have daylight saving time on both halves of the Earth, half and three quarter hours, and
// offsets to both sides of the date line.
var zones = []string{
	"UTC", "Europe/London", "Europe/Berlin", "America/New_York", "America/Los_Angeles", "America/Santiago", "Asia/Kolkata", "Asia/Kathmandu",
	"Australia/Lord_Howe", "Pacific/Auckland", "Pacific/Chatham", "Pacific/Kiritimati", "Pacific/Pago_Pago",
}

// The weeks and months that Go works out are those of Postgres' own calendar and time zones,
// around each change of the clocks and of the year too.
func TestPeriodsAreThoseOfAnotherCalendar(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	const theirs = `
		SELECT concat_ws(' ', date_trunc($1, local)::date, (date_trunc($1, local) + ('1 ' || $1)::interval)::date)
		FROM (SELECT $2::timestamptz AT TIME ZONE $3 AS local) l`
	compare := func(tb rapid.TB, kind, zone string, at time.Time) {
		p := periodOf(kind, dayOf(at, zoneOf(zone)))
		ours := p.start.Format(time.DateOnly) + " " + p.end.Format(time.DateOnly)
		want, err := db.Get[string](t.Context(), d.Reader(), theirs, kind, at.Format(time.RFC3339Nano), zone)
		if err != nil || ours != want {
			tb.Fatalf("the %s of %s in %s is %s, want %s: %v", kind, at, zone, ours, want, err)
		}
		if year, number := at.In(zoneOf(zone)).ISOWeek(); kind == week {
			if y, n := p.start.ISOWeek(); y != year || n != number || p.start.Weekday() != time.Monday {
				tb.Fatalf("%s in %s is of week %d of %d, and starts %s", at, zone, number, year, p.start)
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		zone, kind := rapid.SampledFrom(zones).Draw(rt, "zone"), rapid.SampledFrom([]string{week, month}).Draw(rt, "kind")
		at := time.UnixMilli(rapid.Int64Range(946684800000, 1861920000000).Draw(rt, "at")) // 2000 to 2028
		compare(rt, kind, zone, at)
	})
	for _, zone := range zones {
		for year := 2020; year < 2028; year++ {
			newYear := time.Date(year, 1, 1, 0, 0, 0, 0, zoneOf(zone))
			for _, at := range append(clockChanges(newYear), newYear) {
				for _, off := range []time.Duration{-24 * time.Hour, -time.Hour, -time.Millisecond, 0, time.Hour, 24 * time.Hour} {
					compare(t, week, zone, at.Add(off))
					compare(t, month, zone, at.Add(off))
				}
			}
		}
	}
}

// clockChanges are the instants of the year at which the offset changes, found hour by hour.
func clockChanges(newYear time.Time) (list []time.Time) {
	_, before := newYear.Zone()
	for at := newYear; at.Year() == newYear.Year(); at = at.Add(time.Hour) {
		if _, is := at.Zone(); is != before {
			list, before = append(list, at), is
		}
	}
	return list
}

// The ends of periods, in the words of the contract.
func TestPeriodsInFigures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, day, start, end, kept string }{
		{week, "2026-11-23", "2026-11-23", "2026-11-30", "2028-01-24"},
		{week, "2026-11-29", "2026-11-23", "2026-11-30", "2028-01-24"},
		{week, "2027-01-01", "2026-12-28", "2027-01-04", "2028-02-28"},
		{week, "2024-12-31", "2024-12-30", "2025-01-06", "2026-03-02"},
		{month, "2026-12-31", "2026-12-01", "2027-01-01", "2028-04-01"},
		{month, "2028-02-29", "2028-02-01", "2028-03-01", "2029-06-01"},
	} {
		day, err := time.Parse(time.DateOnly, c.day)
		if err != nil {
			t.Fatal(err)
		}
		p := periodOf(c.kind, day)
		got := fmt.Sprint(p.start.Format(time.DateOnly), " ", p.end.Format(time.DateOnly), " ", p.keptUntil().Format(time.DateOnly))
		if want := fmt.Sprint(c.start, " ", c.end, " ", c.kept); got != want {
			t.Errorf("the %s of %s is %s, want %s", c.kind, c.day, got, want)
		}
	}
	if zoneOf("Mars/Olympus") != time.UTC {
		t.Error("an unknown zone is not UTC")
	}
}
