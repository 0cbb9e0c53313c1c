package convert

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"guildhall/internal/base/schema"
)

const (
	maxID      = 64   // of a record's id
	maxContent = 4096 // longest content of a transcript entry
	maxFiles   = 10   // most attachments of a transcript entry
)

// nothing is the content of a message without any content that can be shown.
const nothing = "[nothing that can be shown]"

// entry writes a ticket message. If the content is too long, further messages continue it.
func (r *conversion) entry(m messageRecord, at *value) error {
	if schema.Blank(m.Content) {
		m.Content = cond(len(m.Attachments) > 0, "[attachment]", nothing)
	}
	id := m.ID
	pieces := split(m.Content)
	if len(pieces) > 1 {
		r.warn(at, "is longer than 4096 characters and goes on in further entries")
	}
	for i, piece := range pieces {
		m.Content = piece
		if i > 0 {
			m.ID, m.ChannelMessageID, m.Attachments = id+"-"+nth(i+1), "", nil
		}
		if err := r.write("GuildFileTicketMessage", "ticket_message", m, at); err != nil {
			return err
		}
	}
	return nil
}

// post is the content of a message: its text, then its embeds, forwards and stickers, one per line,
// and its attachments.
type post struct {
	lines []string
	files []file
	more  []string // addresses beyond the maximum of attachments
}

// into stores the content in a record.
func (p *post) into(m *messageRecord) {
	m.Content, m.Attachments = strings.Join(append(p.lines, p.more...), "\n"), p.files
}

// say adds the texts that are not empty, with mark before the first of them.
func (p *post) say(r *conversion, mark string, of ...*value) error {
	for _, v := range of {
		s, err := r.prose(v)
		if err != nil {
			return err
		}
		if s != "" {
			p.lines = append(p.lines, mark+s)
			mark = ""
		}
	}
	return nil
}

// shown adds the content of a chat message to p: its text, embeds, forwarded texts, names of
// stickers, and attachments.
func (p *post) shown(r *conversion, m *value) error {
	if err := p.say(r, "", m.get("content")); err != nil {
		return err
	}
	if err := p.embeds(r, m.get("embeds")); err != nil {
		return err
	}
	for _, f := range m.get("message_snapshots").list() {
		if err := p.say(r, "[forwarded]\n", f.get("message").get("content")); err != nil {
			return err
		}
	}
	for _, s := range m.get("sticker_items").list() {
		if err := p.say(r, "[sticker] ", s.get("name")); err != nil {
			return err
		}
	}
	return p.attachAll(r, m.get("attachments"))
}

// embeds adds the texts of each embed. Some bots wrap an embed: {"data": {…}}.
func (p *post) embeds(r *conversion, list *value) error {
	for _, e := range list.list() {
		if data := e.get("data"); data != nil {
			e = data
		}
		before := len(p.lines)
		if err := p.say(r, "[embed] ", e.get("title"), e.get("description")); err != nil {
			return err
		}
		for _, f := range e.get("fields").list() {
			name, err := r.prose(f.get("name"))
			if err != nil {
				return err
			}
			text, err := r.prose(f.get("value"))
			if err != nil {
				return err
			}
			p.lines = append(p.lines, cond(len(p.lines) == before, "[embed] ", "")+name+": "+text)
		}
	}
	return nil
}

// attachAll adds the attachments of a platform message.
func (p *post) attachAll(r *conversion, list *value) error {
	for _, a := range list.list() {
		address := a
		if a.kind == kindObject {
			address = a.get("url")
		}
		if err := p.attach(r, address, a); err != nil {
			return err
		}
	}
	return nil
}

// attach adds the attachment at an address. about, which may be nil, has its name, type and size;
// the default name is the last word of the address.
func (p *post) attach(r *conversion, address, about *value) error {
	url, err := r.prose(address)
	if err != nil {
		return err
	}
	if url = strings.TrimSpace(url); url == "" {
		return nil
	}
	if len(p.files) == maxFiles || !isAddress(url, 1024) {
		p.more = append(p.more, url)
		return nil
	}
	f := file{URL: url}
	if f.Name, err = r.text(about.get(either(about, "name", "filename")), 256); err != nil {
		return err
	}
	if f.Name == "" {
		f.Name = shorten(lastWord(url), 256)
	}
	if f.ContentType, err = r.text(about.get(either(about, "content_type", "contentType")), 128); err != nil {
		return err
	}
	if strings.ContainsFunc(f.ContentType, func(r rune) bool { return r < ' ' || r > '~' }) {
		f.ContentType = "" // not a media type
	}
	if size := about.get("size"); !size.none() {
		n, err := r.number(size)
		if err != nil {
			return err
		}
		f.Size = min(max(n.n, 0), maxWhole)
	}
	p.files = append(p.files, f)
	return nil
}

// lastWord returns the last word of an address's path, or the address if there is none.
func lastWord(url string) string {
	path, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "?")
	path, _, _ = strings.Cut(path, "#")
	if i := strings.LastIndexByte(strings.TrimRight(path, "/"), '/'); i >= 0 && strings.TrimRight(path[i+1:], "/") != "" {
		return strings.TrimRight(path[i+1:], "/")
	}
	return url
}

// isAddress reports whether a text is an https address of at most most characters, all ASCII.
func isAddress(s string, most int) bool {
	return strings.HasPrefix(s, "https://") && !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' }) && len(s) <= most
}

// split cuts a text into pieces of at most maxContent characters. Blank pieces are dropped.
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

// nth formats a number so that the texts sort like the numbers, because messages with the same
// instant are ordered by their ids.
func nth(n int) string { return strings.Repeat("9", n/10) + strconv.Itoa(n%10) }

// repeated reports whether a message has the same id as an earlier message of the ticket, and
// leaves the message out.
func (r *conversion) repeated(seen map[string]bool, id string, m *value) bool {
	if id == "" || !seen[id] {
		seen[id] = true
		return false
	}
	r.leave(m, "came twice")
	return true
}

// openTicket is the newest open ticket of a channel. Only this ticket keeps the channel.
type openTicket struct {
	id string
	at *stamp
}

// ticket writes a ticket and reports whether it was written: a ticket that was read before is left
// out.
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
	if t.Status == "open" && t.ChannelID != "" {
		switch {
		case r.stage == surveying:
			if last, ok := r.channels[t.ChannelID]; !ok || milli(last.at) <= milli(t.CreatedAt) {
				r.channels[t.ChannelID] = openTicket{t.ID, t.CreatedAt}
			}
		case r.channels[t.ChannelID].id != t.ID && r.channels[t.ChannelID].id != "":
			r.change(at, "is open in the channel of a newer ticket, and has none", t.ChannelID)
			t.ChannelID = ""
		}
	}
	return true, r.write("GuildFileTicket", "ticket", t, at)
}
