package convert

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

var ticketsFormat = &format{
	name: "discord-tickets", title: "Discord Tickets", items: "ticket",
	needs: []needed{{members: "id=id createdById=id createdAt=text"}},
	seeks: true,
	where: "the dashboard's export of a server, a zip with settings.json, tickets.jsonl and icon.png. Databases are not read: their texts are encrypted.",
	notes: []string{"Answers to a category's questions become one note at the ticket's opening, feedback becomes another. A message's text and its " +
		"embeds become one entry, which has its attachments and keeps the id of the message in the channel."},
	flags: []string{"source-guild", "numbers"},
	table: ticketsRows(),
	start: func(r *conversion) (handler, error) {
		return &tickets{r: r, labels: map[string]string{}, categories: map[string]string{}}, nil
	},
	read: func(r *conversion, in *Input, _ *source) (int64, error) {
		return r.h.(*tickets).read(in)
	},
}

func ticketsRows() []row {
	const message, content = "/archivedMessages/#", "/archivedMessages/#/content"
	return slices.Concat(
		[]row{
			{path: "", item: true},
			{path: "/id", to: "ticket.id; ticket.channel_id while it is open"},
			{path: "/number", to: "ticket.number"},
			{path: "/open", to: "ticket.status"},
			{path: "/topic", to: "ticket.subject"},
			{path: "/categoryId", to: "ticket.category, by settings.json"},
			{path: "/priority", to: "ticket.priority"},
			{path: "/createdById", to: "ticket.opener_id"},
			{path: "/claimedById", to: "ticket.claimed_by_id"},
			{path: "/closedById", to: "ticket.closed_by_id"},
			{path: "/closedReason", to: "ticket.close_reason"},
			{path: "/createdAt", to: "ticket.created_at"},
			{path: "/closedAt", to: "ticket.closed_at"},
			{path: message + "/id", to: "ticket_message.id, ticket_message.channel_message_id"},
			{path: message + "/authorId", to: "ticket_message.author_id"},
			{path: message + "/createdAt", to: "ticket_message.created_at"},
			{path: message + "/deleted", to: "ticket_message.deleted_at"},
			{path: content + "/content", to: "ticket_message.content"},
			{path: "/feedback/userId", to: "ticket_message.author_id"},
			{path: "/feedback/createdAt", to: "ticket_message.created_at"},
		},
		rows("ticket_message.author_type", "/archivedUsers/#", "userId", "bot"),
		rows("ticket_message.attachments", content+"/attachments/#", "name", "url", "contentType", "size"),
		embedRows(content+"/embeds/#"), embedRows(content+"/embeds/#/data"), // the bot's library wraps them
		rows("ticket_message.content", "/questionAnswers/#", "questionId", "value"),
		rows("ticket_message.content", "/feedback", "rating", "comment"),
		rows("", "/archivedUsers/#", "avatar", "discriminator", "displayName", "roleId", "ticketId", "username"),
		rows("", message, "ticketId", "edited", "external"),
		rows("", content+"/attachments/#", "attachment", "description", "duration", "ephemeral", "flags", "height", "id", "proxyURL", "title", "waveform", "width"),
		rows("", content, "components", "reference"),
		rows("", "/questionAnswers/#", "id", "ticketId", "userId", "createdAt"),
		rows("", "/feedback", "ticketId", "guildId", "id"),
		rows("", "", "archivedChannels", "archivedRoles", "deleted", "feedbackId", "firstResponseAt", "guildId", "lastMessageAt", "messageCount",
			"openingMessage", "openingMessageId", "pinnedMessages", "pinnedMessageIds", "referencesMessageId", "referencesTicketId"),
	)
}

// settingsTable describes settings.json; commentTable describes the comment of the zip.
var (
	settingsTable = about([]row{
		{path: "/categories/#", item: true},
		{path: "/categories/#/id", to: "a category"},
		{path: "/categories/#/name", to: "a category"},
		{path: "/categories/#/questions/#/id", to: "a label"},
		{path: "/categories/#/questions/#/label", to: "a label"},
		{path: ""},
	})
	commentTable = grow([]row{{path: "/originalGuildId", to: "guild"}, {path: ""}})
)

// about returns the table for a part of the export that may have no items.
func about(rows []row) *pattern {
	p := grow(rows)
	p.list, p.object = true, true
	return p
}

// inner reads JSON that is the content of a JSON string.
type inner struct {
	s    *scanner
	text strings.Reader
}

func (i *inner) of(text string, beside *nodes) (*value, error) {
	i.text.Reset(text)
	if i.s == nil {
		i.s = newScanner("", &i.text)
	}
	i.s.reset(&i.text)
	i.s.nodes = beside
	v, err := i.s.beside()
	if err == nil {
		if _, end := i.s.peek(); end == nil {
			err = i.s.fail("goes on behind its end")
		}
	}
	return v, err
}

type tickets struct {
	r          *conversion
	labels     map[string]string // labels of questions
	categories map[string]string // names by id
	inner      inner
	silent
}

// read reads an export: the zip's comment, settings.json, then tickets.jsonl.
func (t *tickets) read(in *Input) (int64, error) {
	z, err := in.zip()
	if err != nil {
		return 0, err
	}
	if z.Comment != "" {
		if ours, err := t.comment(in.Name, z.Comment); err != nil || !ours {
			return 0, err
		}
	}
	if t.r.stage == finding {
		return 0, nil
	}
	if f := entryOf(z, "settings.json"); f != nil {
		if _, err := t.part(in, f, settingsTable); err != nil {
			return 0, err
		}
	}
	f := entryOf(z, "tickets.jsonl")
	if f == nil {
		return 0, &Error{File: in.Name, Text: "there is no tickets.jsonl in it; export the server again, with tickets", missing: true}
	}
	if f.UncompressedSize64 == 0 {
		return 0, nil
	}
	return t.part(in, f, t.r.f.roots[0])
}

func entryOf(z *zip.Reader, name string) *zip.File {
	for _, f := range z.File {
		if f.Name == name {
			return f
		}
	}
	return nil
}

func (t *tickets) part(in *Input, f *zip.File, root *pattern) (int64, error) {
	name := in.Name + ": " + f.Name
	var items int64
	err := unpacked(name, f, func(src io.Reader) (err error) {
		items, err = t.r.walk(name, src, root)
		return err
	})
	return items, err
}

// comment reads the guild's id in the zip's comment.
func (t *tickets) comment(file, comment string) (bool, error) {
	s := newScanner(file+": comment", strings.NewReader(comment))
	v, err := s.value()
	if err != nil {
		return false, err
	}
	v.at = &position{file: file + ": comment"}
	w := &walker{r: t.r, s: s, file: file, guilds: map[string]bool{}}
	if _, err := w.belongs(v, commentTable); err != nil {
		return false, err
	}
	return true, w.ours()
}

func (t *tickets) item(it *item) error {
	if len(it.at.steps) > 0 {
		return t.category(it)
	}
	members, err := needs(it.value, "id", "createdById", "createdAt")
	if err != nil {
		return err
	}
	channel, err := t.r.key(members[0])
	if err != nil {
		return err
	}
	opener, err := t.r.subject(members[1], it.value)
	if err != nil || opener == "" {
		return err
	}
	if ok, err := t.ticket(it, channel, opener, members[2]); err != nil || !ok {
		return err
	}
	if err := t.answers(it, channel, opener, members[2]); err != nil {
		return err
	}
	if err := t.messages(it, channel, opener); err != nil {
		return err
	}
	return t.feedback(it, channel, opener)
}

// category stores the name of a category and the labels of its questions.
func (t *tickets) category(it *item) error {
	if id := it.get("id"); !id.none() {
		name, err := t.r.text(it.get("name"), 50)
		if err != nil {
			return err
		}
		t.categories[id.text] = name
	}
	for _, q := range it.get("questions").list() {
		id, err := t.r.prose(q.get("id"))
		if err != nil {
			return err
		}
		if t.labels[id], err = t.r.prose(q.get("label")); err != nil {
			return err
		}
	}
	return nil
}

// priority returns the name of a ticket's priority.
func (t *tickets) priority(v *value) (string, error) {
	s, err := t.r.prose(v)
	switch s {
	case "":
		return "", err
	case "LOW":
		return "low", nil
	case "MEDIUM":
		return "normal", nil
	case "HIGH":
		return "high", nil
	}
	t.r.change(v, "is a priority that is not known, and is left out", s)
	return "", nil
}

func (t *tickets) ticket(it *item, channel, opener string, made *value) (ok bool, err error) {
	r := t.r
	record := ticketRecord{Record: "ticket", GuildID: r.guild, ID: "discord-tickets-" + channel, Status: "closed", OpenerID: opener}
	if n := it.get("number"); !n.none() {
		if record.Number, err = r.whole(n); err != nil {
			return false, err
		}
	}
	if record.Subject, err = r.text(it.get("topic"), 256); err != nil {
		return false, err
	}
	if c := it.get("categoryId"); !c.none() {
		record.Category = t.categories[c.text]
	}
	if record.Priority, err = t.priority(it.get("priority")); err != nil {
		return false, err
	}
	if record.ClaimedByID, err = r.person(it.get("claimedById"), "claimed_by_id"); err != nil {
		return false, err
	}
	if record.CreatedAt, err = r.since(made, channel, it.value); err != nil {
		return false, err
	}
	isOpen, err := parseFlag(it.get("open"))
	if err != nil {
		return false, err
	}
	if isOpen {
		record.Status, record.ChannelID = "open", channel
		r.unused(it.value, "a ticket that is open", "closedById", "closedReason", "closedAt")
		return r.ticket(record, it.value)
	}
	if record.ClosedByID, err = r.person(it.get("closedById"), "closed_by_id"); err != nil {
		return false, err
	}
	if record.CloseReason, err = r.text(it.get("closedReason"), 1000); err != nil {
		return false, err
	}
	if record.ClosedAt, err = r.instant(it.get("closedAt")); err != nil {
		return false, err
	}
	return r.ticket(record, it.value)
}

// answers writes one note with the answers that the member gave when the ticket was opened.
func (t *tickets) answers(it *item, channel, opener string, made *value) error {
	var texts []string
	list := it.get("questionAnswers")
	for _, a := range list.list() {
		answer, err := t.r.prose(a.get("value"))
		if err != nil {
			return err
		}
		question, err := t.r.prose(a.get("questionId"))
		if err != nil {
			return err
		}
		if label := t.labels[question]; label != "" {
			question = label
		}
		if answer != "" {
			texts = append(texts, question+"\n"+answer)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	at, err := t.r.since(made, channel, it.value)
	if err != nil {
		return err
	}
	return t.r.entry(messageRecord{
		Record: "ticket_message", GuildID: t.r.guild, TicketID: "discord-tickets-" + channel, ID: "discord-tickets-answers-" + channel,
		Kind: "note", AuthorID: opener, AuthorType: "opener", Content: strings.Join(texts, "\n\n"), CreatedAt: at,
	}, list)
}

func (t *tickets) messages(it *item, channel, opener string) error {
	bots := map[string]bool{}
	for _, u := range it.get("archivedUsers").list() {
		isBot, err := parseFlag(u.get("bot"))
		if err != nil {
			return err
		}
		if isBot {
			id, err := t.r.person(u.get("userId"), "author_id")
			if err != nil {
				return err
			}
			bots[id] = id != ""
		}
	}
	seen := map[string]bool{}
	for _, m := range it.get("archivedMessages").list() {
		if err := t.message(m, it.nodes, channel, opener, bots, seen); err != nil {
			return err
		}
	}
	return nil
}

func (t *tickets) message(m *value, nodes *nodes, channel, opener string, bots, seen map[string]bool) error {
	r := t.r
	members, err := needs(m, "id", "authorId", "content", "createdAt")
	if err != nil {
		return err
	}
	id, err := r.key(members[0])
	if err != nil {
		return err
	}
	if r.repeated(seen, id, m) {
		return nil
	}
	record := messageRecord{
		Record: "ticket_message", GuildID: r.guild, TicketID: "discord-tickets-" + channel, ID: "discord-tickets-" + id,
		Kind: "message", AuthorType: "staff", ChannelMessageID: id,
	}
	if record.AuthorID, err = r.person(members[1], "author_id"); err != nil {
		return err
	}
	switch {
	case record.AuthorID == opener:
		record.AuthorType = "opener"
	case bots[record.AuthorID], strings.TrimSpace(members[1].text) == "default":
		record.AuthorType = "bot"
	}
	if record.CreatedAt, err = r.since(members[3], id, m); err != nil {
		return err
	}
	p, err := t.content(members[2], nodes)
	if err != nil {
		return err
	}
	p.into(&record)
	deleted, err := parseFlag(m.get("deleted"))
	if err != nil {
		return err
	}
	if deleted {
		r.change(m.get("deleted"), "was deleted at an instant that is not said; its own is taken", true)
		record.DeletedAt = record.CreatedAt
	}
	return r.entry(record, m)
}

// content reads the content of a message. The content is JSON inside a string; the parsed value
// replaces the string, so that its members are compared with the table, too.
func (t *tickets) content(v *value, nodes *nodes) (p post, err error) {
	if v.kind == kindText {
		inner, err := t.inner.of(v.text, nodes)
		if err != nil {
			return p, wrong(v, "must be a message as JSON; it is "+v.shown())
		}
		v.kind, v.first, v.last, v.count = inner.kind, inner.first, inner.last, inner.count
		for c := v.first; c != nil; c = c.next {
			c.parent = v
		}
		v.relined()
	}
	if v.kind != kindObject {
		return p, wrong(v, "must be a message as JSON; it is "+v.shown())
	}
	if err = p.say(t.r, "", v.get("content")); err != nil {
		return p, err
	}
	if err = p.embeds(t.r, v.get("embeds")); err != nil {
		return p, err
	}
	return p, p.attachAll(t.r, v.get("attachments"))
}

func (t *tickets) feedback(it *item, channel, opener string) error {
	f := it.get("feedback")
	if f.none() {
		return nil
	}
	rating, err := required(f, "rating")
	if err != nil {
		return err
	}
	stars, err := t.r.number(rating)
	if err != nil {
		return err
	}
	comment, err := t.r.prose(f.get("comment"))
	if err != nil {
		return err
	}
	record := messageRecord{
		Record: "ticket_message", GuildID: t.r.guild, TicketID: "discord-tickets-" + channel, ID: "discord-tickets-feedback-" + channel,
		Kind: "note", AuthorType: "staff", Content: strings.TrimSpace(fmt.Sprintf("[feedback %d/5] %s", stars.n, comment)),
	}
	if record.AuthorID, err = t.r.person(f.get("userId"), "author_id"); err != nil {
		return err
	}
	if record.AuthorID == opener {
		record.AuthorType = "opener"
	}
	if record.CreatedAt, err = t.r.instant(f.get("createdAt")); err != nil {
		return err
	}
	return errors.Join(t.r.entry(record, f))
}
