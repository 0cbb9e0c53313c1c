package convert

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var ticketToolFormat = &format{
	name: "ticket-tool", title: "Ticket Tool", items: "transcript",
	where: "transcripts that the bot has posted or that were saved, transcript-NAME.html, a page a ticket.",
	notes: []string{
		"A page holds its messages as data, which is read and never run. It names no opener: that is whom the bot's first message mentions, else the first " +
			"author who is no bot, and each is counted as changed.",
		"Without its channel's number a ticket gets the guild's next one.",
	},
	flags: []string{"source-guild", "numbers"},
	table: ticketToolRows(),
	start: func(r *conversion) (handler, error) { return &ticketTool{r: r}, nil },
	read: func(r *conversion, in *Input, src *source) (int64, error) {
		return r.h.(*ticketTool).read(in, src)
	},
}

func ticketToolRows() []row {
	return slices.Concat(
		[]row{
			{path: "/server/id", to: "guild"},
			{path: "/server/name"},
			{path: "/server/icon"},
			{path: "/channel/id", to: "ticket.id, ticket.created_at"},
			{path: "/channel/name", to: "ticket.subject, ticket.number"},
			{path: "/messages/#/id", to: "ticket_message.id, ticket_message.channel_message_id"},
			{path: "/messages/#/user_id", to: "ticket_message.author_id"},
			{path: "/messages/#/userid", to: "ticket_message.author_id"},
			{path: "/messages/#/bot", to: "ticket_message.author_type"},
			{path: "/messages/#/content", to: "ticket_message.content"},
			{path: "/messages/#/created", to: "ticket_message.created_at"},
			{path: "/messages/#/edited", to: "ticket_message.edited_at"},
		},
		rows("ticket_message.attachments", "/messages/#/attachments/#", "name", "url", "size"),
		embedRows("/messages/#/embeds/#"),
		rows("", "/messages/#", "avatar", "components", "discordData", "nick", "reactions", "reference", "tag", "username",
			"attachments/#/height", "attachments/#/width"),
	)
}

type ticketTool struct {
	r *conversion
	silent
}

func (t *ticketTool) item(*item) error { return nil }

var (
	assignment = regexp.MustCompile(`\blet[ \t]+(channel|server|guild|messages)[ \t]*=[ \t]*`)
	mentioned  = regexp.MustCompile(`<@!?([0-9]{15,20})>`)
	transcript = []byte("<Base-Transcript>") // before it there are names that any user can choose
)

// read reads a page.
func (t *ticketTool) read(in *Input, src *source) (int64, error) {
	page, err := io.ReadAll(io.LimitReader(src, maxValue+1))
	if err != nil {
		return 0, &Error{File: in.Name, Text: "cannot be read: " + err.Error(), cause: err}
	}
	switch {
	case len(page) > maxValue:
		return 0, &Error{File: in.Name, Text: "is longer than 64 MiB"}
	case len(page) == 0:
		return 0, &Error{File: in.Name, Text: "is empty; fetch the file again"}
	}
	parts, err := t.parts(in.Name, page)
	if err != nil {
		return 0, err
	}
	channel, server, messages := parts.get("channel"), parts.get("server"), parts.get("messages")
	if channel == nil || server == nil || messages == nil {
		return 0, &Error{File: in.Name, Text: "only Ticket Tool's pages hold their messages as data, and this page does not", missing: true}
	}
	w := &walker{r: t.r, file: in.Name, guilds: map[string]bool{}}
	ours, err := w.belongs(parts, t.r.f.roots[0])
	if err != nil || !ours {
		return 0, errors.Join(err, w.ours())
	}
	if err := w.ours(); err != nil {
		return 0, err
	}
	if err := t.ticket(parts, channel, messages); err != nil {
		return 0, err
	}
	t.r.account(parts, t.r.f.roots[0], nil)
	return 1, t.r.failed
}

// parts reads the assignments in a page's script: each is base64 text, or JSON. After each, parts
// continues behind it, so that the text of a message is never read as an assignment.
func (t *ticketTool) parts(file string, page []byte) (*value, error) {
	all := new(nodes)
	root := all.add(nil, "", 1)
	root.at = &position{file: file}
	at := max(bytes.Index(page, transcript), 0)
	for {
		m := assignment.FindSubmatchIndex(page[at:])
		if m == nil {
			return root, nil
		}
		name := string(page[at+m[2] : at+m[3]])
		if name == "guild" {
			name = "server"
		}
		at += m[1]
		line := 1 + bytes.Count(page[:at], []byte("\n"))
		text, end, err := assigned(page[at:])
		if err != nil {
			return nil, &Error{File: file, Line: line, Path: "/" + name, Text: "ends too early or is no data; fetch the file again", cause: err}
		}
		if root.get(name) != nil {
			at += end
			continue
		}
		s := newScanner(file, bytes.NewReader(text))
		s.nodes, s.line = all, line
		v, err := s.node(root, name, 0)
		if err != nil {
			return nil, err
		}
		if text != nil && end == 0 {
			end = int(s.dec.InputOffset())
		} else {
			v.relined()
		}
		at += end
	}
}

// assigned returns the JSON at the start of an assigned value. end is 0 if only a JSON parser can
// find the end.
func assigned(page []byte) (text []byte, end int, err error) {
	if len(page) == 0 || page[0] != '"' && page[0] != '\'' {
		return page, 0, nil
	}
	end = bytes.IndexByte(page[1:], page[0])
	if end < 0 {
		return nil, 0, io.ErrUnexpectedEOF
	}
	text, err = base64.StdEncoding.DecodeString(string(page[1 : 1+end]))
	return text, end + 2, err
}

func (t *ticketTool) ticket(page, channel, messages *value) error {
	r := t.r
	id, err := required(channel, "id")
	if err != nil {
		return err
	}
	key, err := r.key(id)
	if err != nil {
		return err
	}
	if messages.kind != kindArray {
		return wrong(messages, "must be a list; it is "+messages.shown())
	}
	opener, err := t.opener(messages)
	if err != nil {
		return err
	}
	if opener == "" {
		r.leave(page, "names nobody who could have opened it")
		return nil
	}
	record := ticketRecord{Record: "ticket", GuildID: r.guild, ID: "ticket-tool-" + key, Status: "closed", OpenerID: opener, CreatedAt: r.made(key, id)}
	if record.Subject, err = r.text(channel.get("name"), 256); err != nil {
		return err
	}
	if m := lastDigits.FindString(record.Subject); m != "" {
		n, _ := strconv.ParseInt(m, 10, 64) // 15 digits at most
		record.Number = min(n, maxNumber)
	}
	entries := make([]messageRecord, messages.count)
	for i, m := range messages.list() {
		if entries[i], err = t.message(m, record.ID, opener); err != nil {
			return err
		}
		record.ClosedAt = entries[i].CreatedAt
	}
	r.change(page, "names no opener; "+"who was greeted, or wrote first, is taken", opener)
	if ok, err := r.ticket(record, page); err != nil || !ok {
		return err
	}
	seen := map[string]bool{}
	for i, m := range messages.list() {
		if r.repeated(seen, entries[i].ChannelMessageID, m) {
			continue
		}
		if err := r.entry(entries[i], m); err != nil {
			return err
		}
	}
	return nil
}

// opener returns the user mentioned in a bot's first message, otherwise the first author who is not
// a bot.
func (t *ticketTool) opener(messages *value) (string, error) {
	first := ""
	greeted := false
	for _, m := range messages.list() {
		isBot, err := parseFlag(m.get("bot"))
		if err != nil {
			return "", err
		}
		if isBot && !greeted {
			greeted = true
			var p post
			if err := p.shown(t.r, m); err != nil {
				return "", err
			}
			if who := mentioned.FindStringSubmatch(strings.Join(p.lines, "\n")); who != nil {
				return who[1], nil
			}
		}
		if !isBot && first == "" {
			if first, err = t.author(m); err != nil {
				return "", err
			}
		}
	}
	return first, nil
}

func (t *ticketTool) author(m *value) (string, error) {
	return t.r.person(m.get(either(m, "user_id", "userid")), "author_id")
}

func (t *ticketTool) message(m *value, ticket, opener string) (record messageRecord, err error) {
	r := t.r
	if m.kind != kindObject {
		return record, wrong(m, "must be an object; it is "+m.shown())
	}
	members, err := needs(m, "id", "created")
	if err != nil {
		return record, err
	}
	id, err := r.key(members[0])
	if err != nil {
		return record, err
	}
	record = messageRecord{
		Record: "ticket_message", GuildID: r.guild, TicketID: ticket, ID: "ticket-tool-" + id, Kind: "message", AuthorType: "staff", ChannelMessageID: id,
	}
	if record.AuthorID, err = t.author(m); err != nil {
		return record, err
	}
	isBot, err := parseFlag(m.get("bot"))
	switch {
	case err != nil:
		return record, err
	case record.AuthorID == opener:
		record.AuthorType = "opener"
	case isBot:
		record.AuthorType = "bot"
	}
	if record.CreatedAt, err = r.since(members[1], id, m); err != nil {
		return record, err
	}
	if record.EditedAt, err = r.instant(m.get("edited")); err != nil {
		return record, err
	}
	var p post
	err = p.shown(r, m)
	p.into(&record)
	return record, err
}
