package convert

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// transcriptTable describes a transcript: of version 2; of version 1, which is an array of platform
// messages; and in the dashboard's form.
var transcriptTable = grow(slices.Concat(
	[]row{
		{path: "/entities/users/{user}/bot", to: "ticket_message.author_type"},
		{path: "/entities/users/{user}"},
		{path: "/entities"},
		{path: "/version"},
		{path: "/success"},
		{path: "/channel_name", to: "the ticket"},
	},
	transcriptRows("/messages/#"), transcriptRows("/#"),
))

func transcriptRows(of string) []row {
	return slices.Concat(
		[]row{
			{path: of + "/id", to: "ticket_message.id, ticket_message.channel_message_id"},
			{path: of + "/author", to: "ticket_message.author_id"},
			{path: of + "/author/id", to: "ticket_message.author_id"},
			{path: of + "/author/bot", to: "ticket_message.author_type"},
			{path: of + "/badge", to: "ticket_message.author_type"},
			{path: of + "/timestamp", to: "ticket_message.created_at"},
			{path: of + "/time", to: "ticket_message.created_at"},
			{path: of + "/edited_timestamp", to: "ticket_message.edited_at"},
		},
		rows("ticket_message.content", of, "content", "message_snapshots/#/message/content", "sticker_items/#/name"),
		rows("ticket_message.attachments", of+"/attachments/#", "filename", "name", "url", "size", "content_type"),
		embedRows(of+"/embeds/#"),
		rows("", of, "activity", "application", "application_id", "author/avatar", "author/discriminator", "author/global_name", "author/public_flags",
			"author/username", "attachments/#/Id", "attachments/#/id", "attachments/#/height", "attachments/#/width", "attachments/#/proxy_url",
			"attachments/#/ephemeral", "channel_id", "components", "flags", "guild_id", "interaction", "member", "mention_channels", "mention_everyone",
			"mention_roles", "mentions", "message_reference", "message_snapshots/#/message/timestamp", "nonce", "pinned", "position", "reactions",
			"referenced_message", "sticker_items/#/id", "sticker_items/#/format_type", "thread", "tts", "type", "webhook_id"),
	)
}

// isTranscript reports whether a document contains platform messages.
func isTranscript(root *value) bool {
	return needed{path: "/messages/#", members: "author=any content=text"}.fits(root, true) ||
		needed{path: "/#", members: "author=object content=text"}.fits(root, true) || root.get("messages") != nil && root.get("messages").count == 0
}

// transcript reads a transcript. number is the number of its ticket; 0 if only the file's name or
// the channel's name contains the number.
func (t *ticketsBot) transcript(file string, src io.Reader, number int64) error {
	text, err := prepared(file, src)
	if err != nil {
		return err
	}
	s := newScanner(file, text)
	v, err := s.value()
	if err != nil {
		return err
	}
	v.at = &position{file: file}
	messages := v
	if v.kind == kindObject {
		if messages, err = required(v, "messages"); err != nil {
			return err
		}
	}
	if messages.kind != kindArray {
		return wrong(messages, "must be a list; it is "+messages.shown())
	}
	if number == 0 {
		number = numberOf(v, file)
	}
	if t.data == "" {
		return &Error{File: file, Text: "data.json says whose tickets these are; give data.zip too"}
	}
	ticket := t.of[number]
	if ticket == nil || ticket.opener == "" {
		t.r.leave(v, "is of a ticket that data.json does not have")
		return nil
	}
	if ticket.came {
		t.r.leave(v, "is of a ticket whose transcript came before")
		return nil
	}
	ticket.came = true
	if err := t.messages(v, messages, ticket.opener, number); err != nil {
		return err
	}
	t.r.account(v, transcriptTable, nil)
	return t.r.failed
}

// numberOf returns the number of a transcript's ticket.
func numberOf(v *value, file string) int64 {
	for _, name := range []string{cond(v.get("channel_name") != nil, v.get("channel_name"), v).text, strings.TrimSuffix(path.Base(file), path.Ext(file))} {
		if m := lastDigits.FindString(name); m != "" {
			n, _ := strconv.ParseInt(m, 10, 64) // 15 digits at most
			return n
		}
	}
	return 0
}

func (t *ticketsBot) messages(v, list *value, opener string, number int64) error {
	bots := map[string]bool{}
	for _, u := range v.get("entities").get("users").members() {
		isBot, err := parseFlag(u.get("bot"))
		if err != nil {
			return err
		}
		bots[u.name] = isBot
	}
	ticket := "tickets-bot-" + strconv.FormatInt(number, 10)
	seen := map[string]bool{}
	for i, m := range list.list() {
		if m.kind != kindObject {
			return wrong(m, "must be an object; it is "+m.shown())
		}
		record := messageRecord{
			Record: "ticket_message", GuildID: t.r.guild, TicketID: ticket, ID: fmt.Sprintf("%s-%06d", ticket, i+1), Kind: "message", AuthorType: "staff",
		}
		if err := t.message(m, record, opener, bots, seen); err != nil {
			return err
		}
	}
	return nil
}

func (t *ticketsBot) message(m *value, record messageRecord, opener string, bots, seen map[string]bool) (err error) {
	r := t.r
	if record.ChannelMessageID, err = r.id(m.get("id")); err != nil || r.repeated(seen, record.ChannelMessageID, m) {
		return err
	}
	if record.ChannelMessageID != "" {
		record.ID = "tickets-bot-" + record.ChannelMessageID
	}
	author := m.get("author")
	isBot, err := parseFlag(author.get("bot"))
	if err != nil {
		return err
	}
	if author != nil && author.kind == kindObject {
		author = author.get("id")
	}
	if record.AuthorID, err = r.person(author, "author_id"); err != nil {
		return err
	}
	badge := m.get("badge")
	switch {
	case record.AuthorID == opener:
		record.AuthorType = "opener"
	case isBot, bots[record.AuthorID], badge != nil && badge.text == "bot":
		record.AuthorType = "bot"
	}
	when := m.get("timestamp")
	if when.none() {
		when = m.get("time")
	}
	if record.CreatedAt, err = r.since(when, record.ChannelMessageID, m); err != nil {
		return err
	}
	if record.EditedAt, err = r.instant(m.get("edited_timestamp")); err != nil {
		return err
	}
	var p post
	if err := p.shown(r, m); err != nil {
		return err
	}
	p.into(&record)
	return r.entry(record, m)
}
