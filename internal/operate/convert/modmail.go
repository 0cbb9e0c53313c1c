package convert

import (
	"fmt"
	"slices"
	"strings"
)

var modmailFormat = &format{
	name: "modmail", title: "Modmail", items: "document",
	needs: []needed{
		{members: "_id=any recipient=object messages=list"},
		{path: "/#", members: "_id=any recipient=object messages=list"},
		{members: "_id=any recipient=any message=text author=object"},
		{path: "/#", members: "_id=any recipient=any message=text author=object"},
	},
	where: "mongoexport of the bot's collections: --collection logs --sort '{created_at: 1}' (a line a thread, or --jsonArray), and --collection notes.",
	notes: []string{"Threads have no numbers there and get the guild's next ones, so export them in the order of created_at. Messages among staff become notes. " +
		"A document of the collection notes becomes a case about its member."},
	flags:   []string{"source-guild", "moderator", "case-type"},
	table:   modmailTable(),
	start:   func(r *conversion) (handler, error) { return &modmail{r: r}, nil },
	survey:  func(*conversion) bool { return true }, // the survey pass maps channels to tickets
	prepare: unwrap,
}

func modmailTable() []row {
	var all []row
	for _, of := range []string{"", "/#"} {
		m := of + "/messages/#/"
		all = append(all, []row{
			{path: of, item: true},
			{path: of + "/_id", to: "ticket.id"},
			{path: of + "/open", to: "ticket.status"},
			{path: of + "/title", to: "ticket.subject"},
			{path: of + "/recipient", to: "case.user_id, of a note"},
			{path: of + "/recipient/id", to: "ticket.opener_id"},
			{path: of + "/closer/id", to: "ticket.closed_by_id"},
			{path: of + "/close_message", to: "ticket.close_reason"},
			{path: of + "/created_at", to: "ticket.created_at"},
			{path: of + "/closed_at", to: "ticket.closed_at"},
			{path: of + "/channel_id", to: "ticket.channel_id while it is open"},
			{path: of + "/guild_id", to: "guild"},
			{path: of + "/bot_id", to: "ticket_message.author_type"},
			{path: m + "timestamp", to: "ticket_message.created_at"},
			{path: m + "message_id", to: "ticket_message.channel_message_id"},
			{path: m + "author/id", to: "ticket_message.author_id"},
			{path: m + "author/mod", to: "ticket_message.author_type"},
			{path: m + "content", to: "ticket_message.content"},
			{path: m + "type", to: "ticket_message.kind"},
			{path: m + "attachments/#", to: "ticket_message.attachments, an address"},
			{path: m + "attachments/#/url", to: "ticket_message.attachments"},
			{path: of + "/message", to: "case.reason, of a note"},
			{path: of + "/message_id", to: "case.created_at, of a note"},
			{path: of + "/author/id", to: "case.moderator_id, of a note"},
			{path: of + "/author/name"},
			{path: of + "/author/discriminator"},
			{path: of + "/author/avatar_url"},
			{path: of + "/author/mod"},
			{path: of + "/key"},
			{path: of + "/recipient/name"},
			{path: of + "/recipient/discriminator"},
			{path: of + "/recipient/avatar_url"},
			{path: of + "/recipient/mod"},
			{path: of + "/creator"},
			{path: of + "/closer/name"},
			{path: of + "/closer/discriminator"},
			{path: of + "/closer/avatar_url"},
			{path: of + "/closer/mod"},
			{path: of + "/nsfw"},
			{path: m + "author/name"},
			{path: m + "author/discriminator"},
			{path: m + "author/avatar_url"},
			{path: m + "edited"},
			{path: m + "attachments/#/id"},
			{path: m + "attachments/#/filename"},
			{path: m + "attachments/#/is_image"},
			{path: m + "attachments/#/size"},
			{path: m + "attachments/#/content_type"},
			{path: m + "attachments/#/description"},
		}...)
	}
	return all
}

// unwrap replaces the objects that MongoDB uses for types, such as {"$oid": "…"} and {"$date":
// {"$numberLong": "…"}}, by their values.
func unwrap(v *value) {
	for c := v.first; c != nil; c = c.next {
		unwrap(c)
	}
	if v.kind != kindObject || v.count != 1 || !slices.Contains([]string{"$oid", "$date", "$numberLong", "$numberInt", "$numberDouble"}, v.first.name) {
		return
	}
	if c := v.first; c.kind == kindText || c.kind == kindNumber {
		v.kind, v.text, v.first, v.last, v.count = c.kind, c.text, nil, nil, 0
	}
}

type modmail struct {
	r *conversion
	silent
}

func (m *modmail) item(it *item) error {
	if r := it.get("recipient"); r != nil && r.kind != kindObject && it.get("message") != nil {
		return m.note(it)
	}
	members, err := needs(it.value, "_id", "recipient", "created_at", "messages")
	if err != nil {
		return err
	}
	key, err := m.key(members[0])
	if err != nil {
		return err
	}
	who, err := required(members[1], "id")
	if err != nil {
		return err
	}
	opener, err := m.r.subject(who, it.value)
	if err != nil || opener == "" {
		return err
	}
	if ok, err := m.thread(it, key, opener, members[2]); err != nil || !ok {
		return err
	}
	bot, err := m.r.id(it.get("bot_id"))
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	messages := members[3]
	if messages.kind != kindArray && messages.kind != kindNull {
		return wrong(messages, "must be a list; it is "+messages.shown())
	}
	for i, message := range messages.list() {
		record := messageRecord{
			Record: "ticket_message", GuildID: m.r.guild, TicketID: "modmail-" + key, ID: fmt.Sprintf("modmail-%s-%06d", key, i+1), AuthorType: "opener",
		}
		if err := m.message(message, record, bot, seen); err != nil {
			return err
		}
	}
	return nil
}

// key returns the id of a document, from which the ids of its records are made.
func (m *modmail) key(v *value) (string, error) {
	if v.kind != kindText && v.kind != kindNumber || v.text == "" || len(v.text) > 40 || strings.ContainsAny(v.text, "\x00\n") {
		return "", wrong(v, "must be a key of at most 40 characters; it is "+v.shown())
	}
	return v.text, nil
}

func (m *modmail) thread(it *item, key, opener string, made *value) (ok bool, err error) {
	r := m.r
	record := ticketRecord{Record: "ticket", GuildID: r.guild, ID: "modmail-" + key, Status: "closed", OpenerID: opener}
	if record.Subject, err = r.text(it.get("title"), 256); err != nil {
		return false, err
	}
	if record.CreatedAt, err = r.instant(made); err != nil {
		return false, err
	}
	isOpen, err := parseFlag(it.get("open"))
	if err != nil {
		return false, err
	}
	if isOpen {
		record.Status = "open"
		r.unused(it.value, "a thread that is open", "closer", "close_message", "closed_at")
		if record.ChannelID, err = r.id(it.get("channel_id")); err != nil {
			return false, err
		}
		return r.ticket(record, it.value)
	}
	if closer := it.get("closer"); !closer.none() {
		if record.ClosedByID, err = r.person(closer.get("id"), "closed_by_id"); err != nil {
			return false, err
		}
	}
	if record.CloseReason, err = r.text(it.get("close_message"), 1000); err != nil {
		return false, err
	}
	if record.ClosedAt, err = r.instant(it.get("closed_at")); err != nil {
		return false, err
	}
	return r.ticket(record, it.value)
}

func (m *modmail) message(v *value, record messageRecord, bot string, seen map[string]bool) (err error) {
	r := m.r
	if v.kind != kindObject {
		return wrong(v, "must be an object; it is "+v.shown())
	}
	author := v.get("author")
	if record.AuthorID, err = r.person(author.get("id"), "author_id"); err != nil {
		return err
	}
	staff, err := parseFlag(author.get("mod"))
	switch {
	case err != nil:
		return err
	case record.AuthorID != "" && record.AuthorID == bot:
		record.AuthorType = "bot"
	case staff:
		record.AuthorType = "staff"
	}
	if record.Kind, err = m.kind(v); err != nil {
		return err
	}
	if record.ChannelMessageID, err = r.id(v.get("message_id")); err != nil {
		return err
	}
	if record.CreatedAt, err = r.since(v.get("timestamp"), record.ChannelMessageID, v); err != nil {
		return err
	}
	if id := record.ChannelMessageID; seen[id] {
		record.ChannelMessageID = ""
		m.r.unused(v, "a message that came before", "message_id")
	} else if id != "" {
		seen[id] = true
	}
	var p post
	if err := p.say(r, "", v.get("content")); err != nil {
		return err
	}
	for _, a := range v.get("attachments").list() {
		if a.kind == kindObject {
			a = a.get("url")
		}
		if err := p.attach(r, a, nil); err != nil {
			return err
		}
	}
	p.into(&record)
	return r.entry(record, v)
}

// kind returns the kind of a transcript entry. An unknown kind becomes one for staff alone, because
// a member must not read what may be internal.
func (m *modmail) kind(v *value) (string, error) {
	kind, err := m.r.prose(v.get("type"))
	switch kind {
	case "", "thread_message", "anonymous": // the first is of logs from before there were types
		return "message", err
	case "note", "internal", "system":
	default:
		m.r.change(v.get("type"), "is a kind of message that is not known, and became a note", kind)
	}
	return "note", err
}

// note makes a case from a note about a member.
func (m *modmail) note(it *item) error {
	members, err := needs(it.value, "_id", "recipient", "message")
	if err != nil {
		return err
	}
	key, err := m.key(members[0])
	if err != nil {
		return err
	}
	c := incident{at: it.value, id: "modmail-note-" + key, user: members[1], moderator: it.get("author").get("id"), kind: "note", reasonAt: members[2]}
	if c.reason, err = m.r.prose(members[2]); err != nil {
		return err
	}
	if id := it.get("message_id"); !id.none() {
		c.made = m.r.made(id.text, id)
	}
	return m.r.incident(c)
}
