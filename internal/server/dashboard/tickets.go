package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/base/db"
	"guildhall/internal/base/page"
	"guildhall/internal/service/tickets"
)

// transcriptPage is how many entries of a transcript a page shows.
const transcriptPage = 100

// What a list of tickets can be filtered and ordered by.
var (
	ticketStates     = []string{"open", "closed"}
	ticketPriorities = []string{"low", "normal", "high", "urgent"}
)

type ticketsView struct {
	people
	Filter             tickets.Filter
	Claimed, Number    string // as they were typed
	States, Priorities []string
	Rows               []tickets.Ticket
	Subjects           bool // the caller may read them
	Next               string
	checked
}

// Filtered reports whether anything is filtered by.
func (v *ticketsView) Filtered() bool {
	f := v.Filter
	return f.Status != "" || f.OpenerID != "" || v.Claimed != "" || f.Category != "" || f.Priority != "" || v.Number != ""
}

func listTickets(c *call) (reply, error) {
	v := &ticketsView{States: ticketStates, Priorities: ticketPriorities, Claimed: c.typed("claimed_by_id"), Number: c.typed("number")}
	v.Filter = tickets.Filter{
		Status: c.chosen("status", ticketStates), OpenerID: c.typed("opener_id"), ClaimedByID: v.Claimed, Category: c.typed("category"),
		Priority: c.chosen("priority", ticketPriorities), Activity: c.typed("order") == "activity",
	}
	if v.Claimed == "none" {
		v.Filter.ClaimedByID, v.Filter.Unclaimed = "", true
	}
	if v.Number != "" {
		if v.Filter.Number = numberIn(ticketText, v.Number) + numberIn(caseNumber, v.Number); v.Filter.Number == 0 {
			v.Problems.add("number", "Write the number of a ticket, as in 12.")
			return ticketsReply(v, http.StatusUnprocessableEntity), nil
		}
	}
	rows, more, err := tickets.List(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.Filter, c.page())
	if err != nil {
		return reply{}, err
	}
	v.Rows, v.Next = rows, c.nextPage(more)
	var users []string
	for _, t := range rows {
		users = append(users, t.OpenerID, or(t.ClaimedByID))
	}
	if v.people, err = c.people(users...); err != nil {
		return reply{}, err
	}
	if v.Subjects, err = c.readsTickets(); err != nil {
		return reply{}, err
	}
	return ticketsReply(v, 0), nil
}

func ticketsReply(v *ticketsView, status int) reply {
	return reply{status: status, page: "tickets", view: v, frame: frame{Title: "Tickets", Tab: "tickets"}}
}

// readsTickets reports whether the caller may read what people have written in tickets: the
// owner, administrators and operators' links. Who else manages the guild sees that a ticket exists.
func (c *call) readsTickets() (bool, error) {
	return c.access.administers(c.ctx, c.who, c.guild.ID, toSee)
}

// ticketView is a ticket with its trace, and with a page of its transcript where the caller may
// read that.
type ticketView struct {
	people
	Ticket  tickets.Ticket
	Reads   bool
	Entries []transcriptRow
	First   int // the number of the first entry of the page
	Next    string
	Trace   traceView
}

// transcriptRow is an entry of a transcript.
type transcriptRow struct {
	tickets.Entry
	Files []file
}

// file is an attachment or avatar. It is shown as a link alone: nothing is loaded from elsewhere.
type file struct {
	Name, Host string
	To         string // URL of the link; empty if a browser should not open the URL
	Size       *int
}

// Original is what was first written, where that was something else.
func (r transcriptRow) Original() string {
	if first := or(r.OriginalContent); first != r.Content {
		return first
	}
	return ""
}

func filesOf(e tickets.Entry) []file {
	list := make([]file, len(e.Attachments))
	for i, a := range e.Attachments {
		list[i] = fileAt(a.URL)
		list[i].Name, list[i].Size = a.Name, a.Size
	}
	return list
}

// fileAt returns the file at an address.
func fileAt(address string) file {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return file{Name: address}
	}
	return file{Name: address, Host: u.Hostname(), To: address}
}

func showTicket(c *call) (reply, error) {
	t, err := tickets.Find(c.ctx, c.cfg.DB.Reader(), c.guild.ID, c.r.PathValue("id"))
	if err != nil {
		return reply{}, notHere(err)
	}
	v := &ticketView{Ticket: t}
	if v.Reads, err = c.readsTickets(); err != nil {
		return reply{}, err
	}
	users := []string{t.OpenerID, or(t.ClaimedByID), or(t.ClosedByID)}
	if v.Reads {
		if err := c.readTranscript(v); err != nil {
			return reply{}, err
		}
		for _, e := range v.Entries {
			users = append(users, or(e.AuthorID))
		}
	}
	if v.people, err = c.people(users...); err != nil {
		return reply{}, err
	}
	if v.Trace, err = c.trace(v.people, "ticket.", t.ID, ticketChanges(t)); err != nil {
		return reply{}, err
	}
	return reply{page: "ticket", view: v, frame: frame{
		Title: "Ticket " + strconv.FormatInt(t.Number, 10), Tab: "tickets", Crumbs: []crumb{{"Tickets", c.path("tickets")}},
	}}, nil
}

// readTranscript notes that the caller reads the transcript, and then reads a page of it.
func (c *call) readTranscript(v *ticketView) error {
	if err := c.noteReading(v.Ticket); err != nil {
		return err
	}
	p := page.Of(c.pageNumber("page"), transcriptPage)
	entries, more, err := tickets.Transcript(c.ctx, c.cfg.DB.Reader(), c.guild.ID, v.Ticket.ID, p)
	for _, e := range entries {
		v.Entries = append(v.Entries, transcriptRow{e, filesOf(e)})
	}
	v.First, v.Next = p.Offset()+1, c.nextPage(more)
	return err
}

// noteReading writes to the audit log that the caller reads a transcript, once for each person,
// ticket and hour.
func (c *call) noteReading(t tickets.Ticket) error {
	ctx := audit.With(c.ctx, c.load.actor(c.who))
	return c.cfg.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		hour := c.now().UTC().Truncate(time.Hour).Format(time.RFC3339)
		first, err := once(ctx, tx, c.guild.ID, "transcript", c.who.account()+"\x00"+t.ID+"\x00"+hour)
		if err != nil || !first {
			return err
		}
		return audit.Record(ctx, tx, audit.Change{
			Guild: c.guild.ID, Action: audit.TranscriptRead, Target: t.ID, Name: "ticket " + strconv.FormatInt(t.Number, 10),
		})
	})
}

// ticketChanges are the changes of a ticket that follow from the columns of its row.
func ticketChanges(t tickets.Ticket) []change {
	changes := []change{{At: t.CreatedAt.Time, What: "opened", Author: t.OpenerID}}
	if t.ClosedAt != nil {
		changes = append(changes, change{At: t.ClosedAt.Time, What: "closed", Author: or(t.ClosedByID)})
	}
	return withLast(changes, t.UpdatedAt.Time)
}
