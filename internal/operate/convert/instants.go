package convert

import (
	"math"
	"strconv"
	"strings"
	"time"
)

var (
	// theFirst is when the platform began; before it nothing can have happened.
	theFirst = time.Date(2015, 1, 1, 0, 0, 0, 0, time.UTC)
	layouts  = []string{
		time.RFC3339, "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 Z07:00", "2006-01-02 15:04:05-0700", "2006-01-02 15:04:05 -0700",
		"2006-01-02 15:04:05-07", // of Postgres
		"2006-01-02 15:04:05", "2006-01-02T15:04:05",
	}
)

const (
	epoch        = 1420070400000 // ms; ids of the platform count from then
	milliseconds = 1e11          // from here on a number of time is one of milliseconds
	lastInstant  = 253402300799  // s; the year 9999
)

// clock reads an instant in any form that bots write; ok is false where there is none.
func (r *conversion) clock(v *value, zone *time.Location) (at *stamp, err error) {
	if v.none() || strings.TrimSpace(v.text) == "" && v.kind == kindText {
		return nil, nil
	}
	s := strings.TrimSpace(v.text)
	if isNumber([]byte(s)) {
		if t, ok := fromEpoch(s); ok {
			return &stamp{t}, nil
		}
	}
	if v.kind == kindText {
		for _, layout := range layouts {
			if t, err := time.ParseInLocation(layout, s, zone); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
				return &stamp{t.UTC().Truncate(time.Millisecond)}, nil
			}
		}
	}
	return nil, wrong(v, "must be a date and time such as 2024-03-01 10:00:00, or a number of seconds; it is "+v.shown())
}

func fromEpoch(s string) (time.Time, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return time.Time{}, false
	}
	if math.Abs(f) >= milliseconds {
		f /= 1000
	}
	if math.Abs(f) > lastInstant || f < -62135596800 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(math.Round(f * 1000))).UTC(), true
}

// instant is when something happened: not before the platform, and not later than now.
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

// deadline is when something ends, which may lie ahead.
func (r *conversion) deadline(v *value) (*stamp, error) {
	at, err := r.clock(v, r.tz)
	if at != nil {
		r.early(v, at)
	}
	return at, err
}

func (r *conversion) early(v *value, at *stamp) {
	if at.Before(theFirst) {
		r.warn(v, "lies before 2015")
	}
}

// mintedAt is the instant at which the platform gave an id; none if it cannot have.
func mintedAt(id string) *stamp {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil || len(id) < 15 {
		return nil
	}
	return &stamp{time.UnixMilli(int64(n>>22) + epoch).UTC()}
}

// made is the same, held against the instant of the conversion.
func (r *conversion) made(id string, v *value) *stamp {
	at := mintedAt(id)
	if at != nil && at.After(r.o.At) {
		r.change(v, "lies after the instant of the conversion and became that", id)
		return &stamp{r.o.At}
	}
	return at
}

// since is when something with an id of the platform happened; where nobody says, when
// the id was given.
func (r *conversion) since(v *value, id string, of *value) (*stamp, error) {
	at, err := r.instant(v)
	if err != nil || at != nil {
		return at, err
	}
	return r.made(id, of), nil
}
