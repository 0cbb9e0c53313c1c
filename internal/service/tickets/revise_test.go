package tickets

import (
	"fmt"
	"testing"
	"time"

	"guildhall/internal/base/metadata"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// A record that reopens a ticket clears the members about its end, unless the record sets them; a
// record of a closed ticket keeps the instant at which it was closed.
func TestARecordRevisesATicket(t *testing.T) {
	t.Parallel()
	day := func(n int) *wire.Time { return new(wire.At(time.Date(2030, 1, n, 0, 0, 0, 0, time.UTC))) }
	of := func(status string, at *wire.Time, reason *string) row {
		return row{ID: "t", Status: status, ClosedAt: at, CloseReason: reason, Metadata: metadata.Values{}}
	}
	for name, c := range map[string]struct {
		was, is row
		at      int // the day on which it was closed; 0: it is open, -1: the record is refused
	}{
		"still closed":                {of(closed, day(5), nil), of(closed, nil, nil), 5},
		"closed at another time":      {of(closed, day(5), nil), of(closed, day(6), nil), 6},
		"closed now":                  {of(open, nil, nil), of(closed, nil, nil), 20},
		"reopened":                    {of(closed, day(5), new("x")), of(open, day(5), new("x")), 0},
		"reopened without an instant": {of(closed, day(5), nil), of(open, nil, nil), 0},
		"reopened, closed at":         {of(closed, day(5), nil), of(open, day(6), nil), -1},
		"reopened, for a reason":      {of(closed, day(5), new("x")), of(open, day(5), new("y")), -1},
	} {
		r := &transfer.Row[row]{Was: &c.was, Is: c.is}
		err := revise(&transfer.Call{Now: day(20).Time}, r)
		at := 0
		if err != nil {
			at = -1
		} else if r.Is.ClosedAt != nil {
			at = r.Is.ClosedAt.Time.Day()
		}
		if at != c.at {
			t.Errorf("%s: closed on day %d, want %d: %v", name, at, c.at, err)
		}
	}
}

// An event lists the members that a record has changed; members about the ticket's end only if it
// stays closed.
func TestTheChangedMembersOfATicketAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ was, is, want string }{
		{closed + " a", closed + " a", "[opener_id]"},
		{closed + " a", closed + " b", "[opener_id close_reason closed_by_id]"},
		{closed + " a", open + " b", "[opener_id]"},
	} {
		var was, is row
		for text, g := range map[string]*row{c.was: &was, c.is: &is} {
			var reason string
			_, _ = fmt.Sscan(text, &g.Status, &reason)
			g.CloseReason, g.ClosedByID = &reason, &reason
		}
		if c.was == c.is {
			was = is
		}
		was.OpenerID = "5"
		if list := changes(&was, &is); fmt.Sprint(list) != c.want {
			t.Errorf("from %s to %s changed are %v, want %s", c.was, c.is, list, c.want)
		}
	}
}

// An entry that the API has posted keeps its kind, author and message id; internal follows from the
// kind.
func TestARecordRevisesAnEntry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		was, is entry
		want    string // kind, whether internal, author, author's type and message; empty: the record is refused
	}{
		"posted": {
			entry{Kind: kindMessage, AuthorID: new("1"), AuthorType: byStaff, ChannelMessageID: new("7"), Posted: true},
			entry{Kind: kindNote, AuthorID: new("2"), AuthorType: bySystem},
			"message false 1 staff 7",
		},
		"posted by nobody": {
			entry{Kind: kindMessage, AuthorType: byStaff, ChannelMessageID: new("7"), Posted: true},
			entry{Kind: kindMessage, AuthorID: new("2"), ChannelMessageID: new("8")},
			"message false 2 staff 8",
		},
		"the bot's": {
			entry{Kind: kindMessage, AuthorID: new("1"), AuthorType: byStaff, ChannelMessageID: new("7")},
			entry{Kind: kindMessage, AuthorID: new("2"), AuthorType: "opener", Internal: new(false)},
			"message false 2 opener -",
		},
		"a message becomes a note": {
			entry{Kind: kindMessage, Internal: new(false)}, entry{Kind: kindNote, Internal: new(false)}, "note true - staff -",
		},
		"a system entry": {entry{Kind: kindClaim}, entry{Kind: kindClaim}, "claim false - system -"},
		"a system entry that is internal": {
			entry{Kind: kindMessage, Internal: new(false)}, entry{Kind: kindClaim, Internal: new(true)}, "",
		},
		"another id":     {entry{ID: "a", Kind: kindMessage}, entry{ID: "b", Kind: kindMessage}, ""},
		"another ticket": {entry{TicketID: "a", Kind: kindMessage}, entry{TicketID: "b", Kind: kindMessage}, ""},
	} {
		r := &transfer.Row[entry]{Was: &c.was, Is: c.is}
		err := reviseEntry(&transfer.Call{Now: time.Now()}, r)
		got := fmt.Sprint(r.Is.Kind, " ", or(r.Is.Internal, false), " ", or(r.Is.AuthorID, "-"), " ", r.Is.AuthorType, " ",
			or(r.Is.ChannelMessageID, "-"))
		if (err == nil) != (c.want != "") || err == nil && got != c.want {
			t.Errorf("%s: it is %s, %v; want %s", name, got, err, c.want)
		}
	}
}
