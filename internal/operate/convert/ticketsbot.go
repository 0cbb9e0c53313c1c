package convert

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

var ticketsBotFormat = &format{
	name: "tickets-bot", title: "Tickets.bot", items: "item", seeks: true,
	needs: []needed{
		{path: "/tickets/#", members: "id=number user_id=id open=any open_time=text"},
		{path: "/messages/#", members: "author=any content=text embeds=any attachments=any", without: "message_id"}, // Modmail has message_id
		{path: "/#", members: "author=object content=text embeds=any attachments=any"},
	},
	where: "data.zip and transcripts.zip of the bot's export, and transcripts that were saved singly; in any order, in one call.",
	notes: []string{
		"Tickets come first, then their transcripts. A rating becomes a note, and so do the answers of an exit survey, with their questions.",
		"A transcript whose ticket is not in data.json is left out, and so is a second one of a ticket.",
	},
	flags: []string{"source-guild", "numbers"},
	table: []row{
		{path: "/guild_id", to: "guild"},
		{path: "/tickets/#", item: true},
		{path: "/tickets/#/id", to: "ticket.id, ticket.number"},
		{path: "/tickets/#/user_id", to: "ticket.opener_id"},
		{path: "/tickets/#/open", to: "ticket.status"},
		{path: "/tickets/#/channel_id", to: "ticket.channel_id while it is open"},
		{path: "/tickets/#/open_time", to: "ticket.created_at"},
		{path: "/tickets/#/close_time", to: "ticket.closed_at"},
		{path: "/tickets/#/panel_id", to: "ticket.category, by panels"},
		{path: "/tickets/#/has_transcript", to: "whether a transcript should be there"},
		{path: "/tickets/#/guild_id", to: "guild"},
		{path: "/tickets/#/is_thread"},
		{path: "/tickets/#/join_message_id"},
		{path: "/tickets/#/notes_thread_id"},
		{path: "/tickets/#/status"},
		{path: "/tickets/#/welcome_message_id"},
		{path: "/ticket_claims/#", item: true},
		{path: "/ticket_claims/#/ticket_id", to: "ticket.claimed_by_id"},
		{path: "/ticket_claims/#/data", to: "ticket.claimed_by_id"},
		{path: "/close_reasons/#", item: true},
		{path: "/close_reasons/#/ticket_id", to: "ticket.close_reason"},
		{path: "/close_reasons/#/data/reason", to: "ticket.close_reason"},
		{path: "/close_reasons/#/data/closed_by", to: "ticket.closed_by_id"},
		{path: "/panels/#", item: true},
		{path: "/panels/#/panel_id", to: "ticket.category"},
		{path: "/panels/#/title", to: "ticket.category"},
		{path: "/panels/#/guild_id", to: "guild"},
		{path: "/panels/#/message_id"},
		{path: "/panels/#/channel_id"},
		{path: "/panels/#/content"},
		{path: "/service_ratings/#", item: true},
		{path: "/service_ratings/#/ticket_id", to: "ticket_message.content, of a note"},
		{path: "/service_ratings/#/data", to: "ticket_message.content, of a note"},
		{path: "/form_inputs/#", item: true},
		{path: "/form_inputs/#/id", to: "ticket_message.content, of a note"},
		{path: "/form_inputs/#/label", to: "ticket_message.content, of a note"},
		{path: "/form_inputs/#/form_id"},
		{path: "/form_inputs/#/position"},
		{path: "/form_inputs/#/custom_id"},
		{path: "/form_inputs/#/style"},
		{path: "/form_inputs/#/required"},
		{path: "/exit_survey_responses/#", item: true},
		{path: "/exit_survey_responses/#/ticket_id", to: "ticket_message.content, of a note"},
		{path: "/exit_survey_responses/#/data/question_id", to: "ticket_message.content, of a note"},
		{path: "/exit_survey_responses/#/data/response", to: "ticket_message.content, of a note"},
		{path: "/exit_survey_responses/#/data/form_id"},
		{path: ""},
	},
	start: func(r *conversion) (handler, error) { return newTicketsBot(r), nil },
	read: func(r *conversion, in *Input, src *source) (int64, error) {
		return r.h.(*ticketsBot).read(in, src)
	},
	survey: func(*conversion) bool { return true },
}

// botTicket holds the data about a ticket in the other lists of data.json.
type botTicket struct {
	opener              string
	claimedBy, closedBy string
	reason              string
	rating              int64
	answers             []botAnswer
	transcript          bool // the export should contain a transcript
	came                bool // the transcript was read
}

type botAnswer struct {
	question string // id of the rating's question
	text     string
}

type ticketsBot struct {
	r      *conversion
	of     map[int64]*botTicket
	panels map[string]string // titles by id
	labels map[string]string // of questions, by id
	data   string            // the file that contains data.json
	during stage             // the last pass in which data.json was read
	late   []func() error    // functions that read the transcripts after the tickets were written
	silent
}

func newTicketsBot(r *conversion) *ticketsBot {
	return &ticketsBot{r: r, of: map[int64]*botTicket{}, panels: map[string]string{}, labels: map[string]string{}}
}

// ticket returns the data about the ticket that a list's item names.
func (t *ticketsBot) ticket(v *value) (*botTicket, int64, error) {
	n, err := t.r.whole(v)
	if err != nil {
		return nil, 0, err
	}
	if t.of[n] == nil {
		t.of[n] = &botTicket{}
	}
	return t.of[n], n, nil
}

var (
	transcriptName = regexp.MustCompile(`^transcripts/([0-9]{1,15})\.json$`)
	lastDigits     = regexp.MustCompile(`([0-9]{1,15})$`)
)

// read reads a file: data.zip, transcripts.zip, an unpacked file of one of them, or a saved
// transcript. Transcripts are read at the end of a pass, so that the tickets come before them,
// whatever the order of the files.
func (t *ticketsBot) read(in *Input, src *source) (int64, error) {
	head := make([]byte, 4)
	n, _ := in.file.ReadAt(head, 0)
	if !bytes.HasPrefix(head[:n], []byte("PK\x03\x04")) {
		return t.single(in, src)
	}
	z, err := in.zip()
	if err != nil {
		return 0, err
	}
	var items int64
	known := false
	for _, f := range z.File {
		name, n := in.Name+": "+f.Name, int64(0)
		var err error
		switch m := transcriptName.FindStringSubmatch(f.Name); {
		case f.Name == "data.json":
			err = unpacked(name, f, func(src io.Reader) (err error) {
				n, err = t.dataFile(name, src)
				return err
			})
		case f.Name == "guild_id.txt":
			err = unpacked(name, f, func(src io.Reader) error { return t.guild(name, src) })
		case m != nil:
			number, _ := strconv.ParseInt(m[1], 10, 64) // 15 digits at most
			n = t.later(func() error {
				return unpacked(name, f, func(src io.Reader) error { return t.transcript(name, src, number) })
			})
		case !strings.HasSuffix(f.Name, ".sig"): // the others are signatures
			continue
		}
		if err != nil {
			return 0, err
		}
		known = true
		items += n
	}
	if !known {
		return 0, &Error{File: in.Name, Text: "there is no data.json and no transcript in it; export the server again", missing: true}
	}
	return items, nil
}

// later stores a function that reads a transcript at the end of the writing pass, and returns the
// number of its items.
func (t *ticketsBot) later(read func() error) int64 {
	if t.r.stage == writing {
		t.late = append(t.late, read)
	}
	return 1
}

// unpacked reads an entry of a zip.
func unpacked(name string, f *zip.File, read func(io.Reader) error) error {
	content, err := f.Open()
	if err != nil {
		return &Error{File: name, Text: "cannot be unpacked (" + err.Error() + "); fetch the file again", cause: err}
	}
	defer content.Close()
	return read(content)
}

// guild compares the guild of the transcripts with the source guild.
func (t *ticketsBot) guild(file string, src io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(src, 100))
	if err != nil {
		return &Error{File: file, Text: "cannot be read: " + err.Error(), cause: err}
	}
	v := &value{kind: kindText, text: strings.TrimSpace(string(text)), line: 1, at: &position{file: file}}
	w := &walker{r: t.r, file: file, guilds: map[string]bool{}}
	return w.guild(v)
}

// single reads data.json or a transcript that is a separate file.
func (t *ticketsBot) single(in *Input, src *source) (int64, error) {
	head, _ := in.head()
	root := beginning(in.Name, head)
	if root == nil || root.kind != kindArray && (root.get("messages") == nil || root.get("tickets") != nil) {
		return t.dataFile(in.Name, src)
	}
	if !isTranscript(root) {
		return 0, &Error{File: in.Name, Line: 1, Text: "is no transcript and no data.json", missing: true}
	}
	if numberOf(root, in.Name) == 0 {
		return 0, &Error{File: in.Name, Line: 1, Text: "does not say which ticket it is of; name the file as the ticket, such as 17.json", missing: true}
	}
	return t.later(func() error {
		if _, err := in.file.Seek(0, io.SeekStart); err != nil {
			return &Error{File: in.Name, Text: "cannot be read: " + err.Error(), cause: err}
		}
		return t.transcript(in.Name, in.file, 0)
	}), nil
}

func (t *ticketsBot) dataFile(name string, src io.Reader) (int64, error) {
	if t.data != "" && t.during == t.r.stage {
		return 0, &Error{File: name, Text: "is the second data.json, after " + t.data + "; give one"}
	}
	t.data, t.during = name, t.r.stage
	return t.r.walk(name, src, t.r.f.roots[0])
}

func (t *ticketsBot) item(it *item) error {
	list := it.at.steps[0].name
	switch {
	case list == "tickets":
		return t.write(it)
	case t.r.stage == surveying:
		return t.collect(list, it)
	}
	return nil
}

// collect stores the items of another list.
func (t *ticketsBot) collect(list string, it *item) error {
	r := t.r
	switch list {
	case "panels":
		title, err := r.text(it.get("title"), 50)
		if id := it.get("panel_id"); err == nil && !id.none() {
			t.panels[id.text] = title
		}
		return err
	case "form_inputs":
		label, err := r.prose(it.get("label"))
		if id := it.get("id"); err == nil && !id.none() {
			t.labels[id.text] = label
		}
		return err
	}
	members, err := needs(it.value, "ticket_id", "data")
	if err != nil {
		return err
	}
	ticket, _, err := t.ticket(members[0])
	if err != nil {
		return err
	}
	data := members[1]
	switch list {
	case "ticket_claims":
		ticket.claimedBy, err = r.person(data, "claimed_by_id")
	case "close_reasons":
		if ticket.closedBy, err = r.person(data.get("closed_by"), "closed_by_id"); err == nil {
			ticket.reason, err = r.text(data.get("reason"), 1000)
		}
	case "service_ratings":
		ticket.rating, err = r.whole(data)
	case "exit_survey_responses":
		a := botAnswer{}
		if q := data.get("question_id"); !q.none() {
			a.question = q.text
		}
		if a.text, err = r.prose(data.get("response")); err == nil && a.text != "" {
			ticket.answers = append(ticket.answers, a)
		}
	}
	return err
}

// write writes a ticket and its notes, and stores the ticket's owner, which the transcripts do not
// contain.
func (t *ticketsBot) write(it *item) error {
	r := t.r
	members, err := needs(it.value, "id", "user_id", "open_time")
	if err != nil {
		return err
	}
	about, number, err := t.ticket(members[0])
	if err != nil {
		return err
	}
	if about.opener, err = r.subject(members[1], it.value); err != nil {
		return err
	}
	if about.transcript, err = parseFlag(it.get("has_transcript")); err != nil || about.opener == "" {
		return err
	}
	id := strconv.FormatInt(number, 10)
	record := ticketRecord{
		Record: "ticket", GuildID: r.guild, ID: "tickets-bot-" + id, Number: number, Status: "closed", OpenerID: about.opener, ClaimedByID: about.claimedBy,
	}
	if panel := it.get("panel_id"); !panel.none() {
		record.Category = t.panels[panel.text]
	}
	if record.CreatedAt, err = r.instant(members[2]); err != nil {
		return err
	}
	isOpen, err := parseFlag(it.get("open"))
	if err != nil {
		return err
	}
	if isOpen {
		record.Status = "open"
		if record.ChannelID, err = r.id(it.get("channel_id")); err != nil {
			return err
		}
	} else {
		record.CloseReason, record.ClosedByID = about.reason, about.closedBy
		if record.ClosedAt, err = r.instant(it.get("close_time")); err != nil {
			return err
		}
	}
	if ok, err := r.ticket(record, it.value); err != nil || !ok {
		return err
	}
	return t.notes(record, about, it.value)
}

// notes writes the answers of the exit survey and the rating as notes of the opener at the time of
// the closing.
func (t *ticketsBot) notes(ticket ticketRecord, about *botTicket, at *value) error {
	note := messageRecord{
		Record: "ticket_message", GuildID: t.r.guild, TicketID: ticket.ID, Kind: "note", AuthorID: ticket.OpenerID, AuthorType: "opener",
		CreatedAt: cond(ticket.ClosedAt != nil, ticket.ClosedAt, ticket.CreatedAt),
	}
	number := strings.TrimPrefix(ticket.ID, "tickets-bot-")
	var texts []string
	for _, a := range about.answers {
		texts = append(texts, strings.TrimPrefix(t.labels[a.question]+"\n"+a.text, "\n"))
	}
	if len(texts) > 0 {
		note.ID, note.Content = "tickets-bot-survey-"+number, strings.Join(texts, "\n\n")
		if err := t.r.entry(note, at); err != nil {
			return err
		}
	}
	if about.rating == 0 {
		return nil
	}
	note.ID, note.Content = "tickets-bot-feedback-"+number, fmt.Sprintf("[feedback %d/5]", about.rating)
	return t.r.entry(note, at)
}

// end warns about missing transcripts.
func (t *ticketsBot) end() error {
	if t.r.stage != writing {
		return nil
	}
	for _, read := range t.late {
		if err := errors.Join(t.r.ctx.Err(), read()); err != nil {
			return err
		}
	}
	if t.data == "" {
		return nil
	}
	want, missing := 0, 0
	for _, ticket := range t.of {
		if ticket.transcript {
			want++
			if !ticket.came {
				missing++
			}
		}
	}
	if missing > 0 {
		t.r.warn(&value{at: &position{file: t.data}}, fmt.Sprintf("%d of %d transcripts were not given; give transcripts.zip too", missing, want))
	}
	return nil
}
