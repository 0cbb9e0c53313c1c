package levelling

import "time"

// Kinds of periods, as the contract and xp_periods name them.
const (
	week  = "week"
	month = "month"
)

// How long the sums of a period are kept after its end.
const (
	keptWeeks  = 60
	keptMonths = 15
)

// period is a calendar week (ISO: from Monday) or month. Its days are midnights in UTC.
type period struct {
	kind       string
	start, end time.Time // the first day, and the day after the last one
}

// dayOf returns the date in zone at an instant.
func dayOf(at time.Time, zone *time.Location) time.Time {
	y, m, d := at.In(zone).Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
}

// periodOf returns the period of a kind that a day lies in.
func periodOf(kind string, day time.Time) period {
	if kind == month {
		start := day.AddDate(0, 0, 1-day.Day())
		return period{month, start, start.AddDate(0, 1, 0)}
	}
	start := day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	return period{week, start, start.AddDate(0, 0, 7)}
}

// keptUntil returns the day on which the sums of the period are deleted.
func (p period) keptUntil() time.Time {
	if p.kind == month {
		return p.end.AddDate(0, keptMonths, 0)
	}
	return p.end.AddDate(0, 0, 7*keptWeeks)
}

// zoneOf returns the time zone with a name. Settings name only zones that a program knew; where
// this one does not, as an older one may not, days are those of UTC.
func zoneOf(name string) *time.Location {
	if zone, err := time.LoadLocation(name); err == nil {
		return zone
	}
	return time.UTC
}
