package convert

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// theFirst is when the platform began; an earlier instant is an error.
var theFirst = time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	epoch        = 1420070400000 // ms; start of the instants in the platform's ids
	milliseconds = 1e11          // a larger number is in milliseconds, a smaller one in seconds
	lastInstant  = 253402300799  // s; the year 9999
	firstEpoch   = 1e8           // s; a smaller number is not an instant: 1973 is before any bot
	firstDay     = 20000         // as a day number of a spreadsheet: 1954
	lastDay      = 80000         // as a day number of a spreadsheet: 2119
)

// dateLayouts are the layouts of a day, by a character that distinguishes them.
var dateLayouts = map[string][]string{
	"iso":   {"2006-1-2", "2006/1/2"},
	"point": {"2.1.2006"},
	"dmy":   {"2/1/2006"},
	"mdy":   {"1/2/2006"},
	"words": {"Jan 2, 2006", "Jan 2 2006", "2 Jan 2006", "January 2, 2006", "January 2 2006", "2 January 2006"},
}

var (
	timeLayouts   = []string{" 15:04:05", "T15:04:05", " 15:04", "T15:04", "", " 3:04 PM", " 3:04:05 PM"}
	offsetLayouts = []string{"Z07:00", " Z07:00", "-0700", " -0700", "-07", " -07"} // the shortest offset is Postgres's

	timestamp   = regexp.MustCompile(`^<t:(-?[0-9]+)(?::[tTdDfFR])?>$`)
	slashedDate = regexp.MustCompile(`^[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}(?:[ T]|$)`)
)

// clock parses an instant in any of the known layouts. clock returns nil for a missing instant. A
// time without an offset is in zone.
func (r *conversion) clock(v *value, zone *time.Location) (*stamp, error) {
	if v.none() || strings.TrimSpace(v.text) == "" && v.kind == kindText {
		return nil, nil
	}
	s := strings.TrimSpace(v.text)
	if number := r.plainNumber(v, s); isNumber([]byte(number)) {
		return r.counted(v, number, zone)
	}
	if v.kind == kindText {
		if m := timestamp.FindStringSubmatch(s); m != nil {
			return r.counted(v, m[1], zone)
		}
		if slashedDate.MatchString(s) && r.o.Dates == "" && slices.Contains(r.f.flags, "dates") {
			return nil, wrong(v, fmt.Sprintf("%q is a day whose order is not known; say --dates dmy if the day stands first, --dates mdy if the month does", shorten(s, 40)))
		}
		if at := r.written(strings.ToUpper(s), zone); at != nil {
			return at, nil
		}
	}
	return nil, wrong(v, "must be a date and time such as 2024-03-01 10:00:00, or a number of seconds; it is "+v.shown())
}

// written parses a day, or a day and a time. The layout of the last instant is tried first, because
// the rows of a file usually have the same layout.
func (r *conversion) written(s string, zone *time.Location) *stamp {
	form := "words"
	switch date, _, _ := strings.Cut(s, " "); {
	case len(s) > 4 && digits(s[:4]):
		form = "iso"
	case strings.Contains(date, "."):
		form = "point"
	case strings.Contains(date, "/"):
		form = r.o.Dates
	}
	layouts := layoutsOf[form]
	if at := readAs(r.layout, s, zone); at != nil {
		return at
	}
	for _, layout := range layouts {
		if at := readAs(layout, s, zone); at != nil {
			r.layout = layout
			return at
		}
	}
	return nil
}

// layoutsOf are the layouts of an instant: a day, a time, an offset.
var layoutsOf = func() map[string][]string {
	all := map[string][]string{}
	for form, dates := range dateLayouts {
		for _, date := range dates {
			for _, clock := range timeLayouts {
				all[form] = append(all[form], date+clock)
				if strings.Contains(clock, "15") {
					for _, offset := range offsetLayouts {
						all[form] = append(all[form], date+clock+offset)
					}
				}
			}
		}
	}
	return all
}()

// readAs parses s in a layout; nil if s has another layout.
func readAs(layout, s string, zone *time.Location) *stamp {
	t, err := time.Parse(layout, s)
	if layout == "" || err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return nil
	}
	if !strings.Contains(layout, "07") {
		t = local(t, zone)
	}
	return &stamp{t.UTC().Truncate(time.Millisecond)}
}

// local returns the instant at which the clocks of zone showed the time of wall. If a change of
// clocks repeats the time, local returns the earlier instant; if a change of clocks skips the time,
// local moves it forward.
func local(wall time.Time, zone *time.Location) time.Time {
	offset := func(at time.Time) time.Duration {
		_, seconds := at.In(zone).Zone()
		return time.Duration(seconds) * time.Second
	}
	const day = 24 * time.Hour // no zone changes its clocks twice within a day
	before, after := wall.Add(-offset(wall.Add(-day))), wall.Add(-offset(wall.Add(day)))
	switch {
	case offset(before) == offset(wall.Add(-day)):
		return before
	case offset(after) == offset(wall.Add(day)):
		return after
	}
	return before
}

// counted parses an instant that is a number: seconds or milliseconds of the Unix epoch, or a day
// number of a spreadsheet.
func (r *conversion) counted(v *value, number string, zone *time.Location) (*stamp, error) {
	f, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil:
	case f >= firstDay && f <= lastDay:
		r.warn(v, "is a number that a spreadsheet shows as a day, and is read as that day")
		seconds := int64(math.Round(f * 86400))
		return &stamp{local(time.Date(1899, 12, 30, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds)*time.Second), zone).UTC()}, nil
	case math.Abs(f) < firstEpoch:
		return nil, wrong(v, "is no date: a number below 100000000 is no number of seconds; it is "+v.shown())
	case math.Abs(f) >= milliseconds:
		f /= 1000
	}
	if err != nil || math.Abs(f) > lastInstant || f < -62135596800 {
		return nil, wrong(v, "must be a date and time such as 2024-03-01 10:00:00, or a number of seconds; it is "+v.shown())
	}
	return &stamp{time.UnixMilli(int64(math.Round(f * 1000))).UTC()}, nil
}

// instant parses the time of something past: not before the platform began, and not later than now.
func (r *conversion) instant(v *value) (*stamp, error) {
	at, err := r.clock(v, r.tz)
	if at == nil {
		return nil, err
	}
	r.early(v, at)
	if at.After(r.o.At) {
		r.change(v, "lies after the instant of the conversion and became that", v.whole())
		return &stamp{r.o.At}, nil
	}
	return at, nil
}

// endless are the values that mean no end.
var endless = []string{"", "0", "-", "–", "n/a", "none", "never", "permanent", "perma", "forever", "infinite"}

// isEndless reports whether a value means that there is no end.
func isEndless(v *value) bool {
	return v.none() || slices.Contains(endless, strings.ToLower(strings.TrimSpace(v.text))) && v.kind != kindBoolean
}

// deadline parses the end of something, which may be in the future; nil if there is no end.
func (r *conversion) deadline(v *value) (*stamp, error) {
	if isEndless(v) {
		return nil, nil
	}
	at, err := r.clock(v, r.tz)
	if at != nil {
		r.early(v, at)
	}
	return at, err
}

var lengths = regexp.MustCompile(`^(?i)(?:([0-9]+)w)?\s*(?:([0-9]+)d)?\s*(?:([0-9]+)h)?\s*(?:([0-9]+)m)?\s*(?:([0-9]+)s)?$`)

// lasting parses a duration, in seconds or as 1w 7d 2h 30m, and returns the end; nil if there is no
// end.
func (r *conversion) lasting(v *value, from *stamp) (*stamp, error) {
	if isEndless(v) {
		return nil, nil
	}
	s := strings.TrimSpace(v.text)
	seconds := 0.0
	if number := r.plainNumber(v, s); isNumber([]byte(number)) {
		seconds, _ = strconv.ParseFloat(number, 64) // ±Inf for a duration that is too long, which is refused below
	} else if parts := lengths.FindStringSubmatch(s); parts != nil {
		for i, unit := range []float64{7 * 86400, 86400, 3600, 60, 1} {
			n, _ := strconv.ParseFloat("0"+parts[i+1], 64)
			seconds += n * unit
		}
	}
	switch {
	case seconds <= 0 || seconds > lastInstant:
		return nil, wrong(v, "must be a number of seconds or a length such as 1w 7d 2h 30m; it is "+v.shown())
	case from == nil:
		return nil, wrong(v, "is a length, and nothing says when it began")
	}
	end := from.Unix() + int64(seconds)
	if end > lastInstant {
		return nil, nil // after the year 9999, which counts as no end
	}
	return &stamp{time.UnixMilli(from.UnixMilli() + int64(math.Round(seconds*1000))).UTC()}, nil
}

func (r *conversion) early(v *value, at *stamp) {
	if at.Before(theFirst) {
		r.warn(v, "lies before 2015")
	}
}

// mintedAt returns the instant at which the platform made an id; nil if the id has no valid
// instant.
func mintedAt(id string) *stamp {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil || len(id) < minPerson {
		return nil
	}
	return &stamp{time.UnixMilli(int64(n>>22) + epoch).UTC()}
}

// made returns mintedAt(id), or nil if that is later than the conversion.
func (r *conversion) made(id string, v *value) *stamp {
	at := mintedAt(id)
	if at != nil && at.After(r.o.At) {
		r.change(v, "lies after the instant of the conversion and became that", id)
		return &stamp{r.o.At}
	}
	return at
}

// since parses the time of something with an id of the platform; if there is no time, since returns
// the instant in the id.
func (r *conversion) since(v *value, id string, of *value) (*stamp, error) {
	at, err := r.instant(v)
	if err != nil || at != nil {
		return at, err
	}
	return r.made(id, of), nil
}
