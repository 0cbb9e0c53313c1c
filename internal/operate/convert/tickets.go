package convert

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"guildhall/internal/base/schema"
)

const (
	maxID      = 64   // of a record
	maxContent = 4000 // of an entry of a transcript
)

// nothing is the text of an entry that had none.
const nothing = "[nothing that can be shown]"

// entry writes an entry of a transcript, and goes on in others where it is too long.
func (r *conversion) entry(m messageRecord, at *value) error {
	if schema.Blank(m.Content) {
		m.Content = nothing
	}
	id := m.ID
	pieces := split(m.Content)
	if len(pieces) > 1 {
		r.warn(at, "is longer than 4000 characters and goes on in further entries")
	}
	for i, piece := range pieces {
		m.Content = piece
		if i > 0 {
			m.ID, m.ChannelMessageID = id+"-"+nth(i+1), ""
		}
		if err := r.write("GuildFileTicketMessage", "ticket_message", m, at); err != nil {
			return err
		}
	}
	return nil
}

// split cuts a text into what entries can hold. A piece with nothing to show is no entry.
func split(s string) []string {
	var pieces []string
	for utf8.RuneCountInString(s) > maxContent {
		end := 0
		for range maxContent {
			_, n := utf8.DecodeRuneInString(s[end:])
			end += n
		}
		pieces = append(pieces, s[:end])
		s = s[end:]
	}
	pieces = append(pieces, s)
	shown := pieces[:0]
	for _, p := range pieces {
		if !schema.Blank(p) {
			shown = append(shown, p)
		}
	}
	return shown
}

// nth writes a number so that the order of the texts is that of the numbers: entries
// of one instant are ordered by their ids.
func nth(n int) string { return strings.Repeat("9", n/10) + strconv.Itoa(n%10) }

// ticket writes a ticket that has not come yet; false: it has.
func (r *conversion) ticket(t ticketRecord, at *value) (bool, error) {
	if r.cameBefore(t.ID, at) {
		return false, nil
	}
	if r.o.Numbers == "new" {
		t.Number = 0
	}
	if t.Number != 0 {
		if r.cases.numbers[t.Number] {
			r.change(at, "has a number that another ticket has, and gets the next one", t.Number)
			t.Number = 0
		}
		r.cases.numbers[t.Number] = true
	}
	return true, r.write("GuildFileTicket", "ticket", t, at)
}
