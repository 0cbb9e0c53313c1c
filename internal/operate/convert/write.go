package convert

import (
	"bytes"
	"encoding/json"
	"io"
	"time"

	"guildhall/internal/base/schema"
	"guildhall/internal/contract"
)

// maxWhole is the largest integer that every reader of JSON holds exactly.
const maxWhole = 1<<53 - 1

// maxNumber is the largest number of a case or ticket in a guild file: it leaves room for
// those that follow.
const maxNumber = 1<<52 - 1

// stamp is an instant in UTC, formatted as RFC 3339 with milliseconds unless they are 0.
type stamp struct{ time.Time }

func (s stamp) String() string {
	layout := "2006-01-02T15:04:05Z"
	if s.Nanosecond()/1e6 > 0 {
		layout = "2006-01-02T15:04:05.000Z"
	}
	return s.UTC().Format(layout)
}

// MarshalText returns the instant as RFC 3339.
func (s stamp) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns the instant as RFC 3339 in quotes.
func (s stamp) MarshalJSON() ([]byte, error) { return []byte(`"` + s.String() + `"`), nil }

type guildRecord struct {
	Record string `json:"record"`
	ID     string `json:"id"`
}

type economy struct {
	CurrencyName   string `json:"currency_name"`
	CurrencySymbol string `json:"currency_symbol,omitempty"`
}

type settingsRecord struct {
	Record  string  `json:"record"`
	GuildID string  `json:"guild_id"`
	Economy economy `json:"economy"`
}

type walletRecord struct {
	Record  string `json:"record"`
	GuildID string `json:"guild_id"`
	UserID  string `json:"user_id"`
	Balance int64  `json:"balance"`
	Updated *stamp `json:"updated_at,omitempty"`
}

type levelRecord struct {
	Record  string `json:"record"`
	GuildID string `json:"guild_id"`
	UserID  string `json:"user_id"`
	TotalXP int64  `json:"total_xp"`
	Updated *stamp `json:"updated_at,omitempty"`
}

type caseRecord struct {
	Record      string `json:"record"`
	GuildID     string `json:"guild_id"`
	ID          string `json:"id"`
	Number      int64  `json:"number,omitempty"`
	UserID      string `json:"user_id"`
	ModeratorID string `json:"moderator_id"`
	Type        string `json:"type"`
	Reason      string `json:"reason"`
	Status      string `json:"status"`
	ExpiresAt   *stamp `json:"expires_at,omitempty"`
	CreatedAt   *stamp `json:"created_at,omitempty"`
	UpdatedAt   *stamp `json:"updated_at,omitempty"`
}

type memberRecord struct {
	Record    string `json:"record"`
	GuildID   string `json:"guild_id"`
	UserID    string `json:"user_id"`
	Name      string `json:"name,omitempty"`
	AvatarURL string `json:"avatar_url,omitempty"`
	JoinedAt  *stamp `json:"joined_at,omitempty"`
	LeftAt    *stamp `json:"left_at,omitempty"`
}

type ticketRecord struct {
	Record      string `json:"record"`
	GuildID     string `json:"guild_id"`
	ID          string `json:"id"`
	Number      int64  `json:"number,omitempty"`
	Status      string `json:"status"`
	Subject     string `json:"subject,omitempty"`
	Category    string `json:"category,omitempty"`
	Priority    string `json:"priority,omitempty"`
	OpenerID    string `json:"opener_id"`
	ClaimedByID string `json:"claimed_by_id,omitempty"`
	ChannelID   string `json:"channel_id,omitempty"`
	CloseReason string `json:"close_reason,omitempty"`
	ClosedByID  string `json:"closed_by_id,omitempty"`
	CreatedAt   *stamp `json:"created_at,omitempty"`
	ClosedAt    *stamp `json:"closed_at,omitempty"`
}

type messageRecord struct {
	Record           string `json:"record"`
	GuildID          string `json:"guild_id"`
	TicketID         string `json:"ticket_id"`
	ID               string `json:"id"`
	Kind             string `json:"kind"`
	AuthorID         string `json:"author_id,omitempty"`
	AuthorType       string `json:"author_type"`
	Content          string `json:"content"`
	ChannelMessageID string `json:"channel_message_id,omitempty"`
	Attachments      []file `json:"attachments,omitempty"`
	CreatedAt        *stamp `json:"created_at,omitempty"`
	EditedAt         *stamp `json:"edited_at,omitempty"`
	DeletedAt        *stamp `json:"deleted_at,omitempty"`
}

// file is an attachment.
type file struct {
	Name        string `json:"name"`
	URL         string `json:"url"`
	ContentType string `json:"content_type,omitempty"`
	Size        int64  `json:"size,omitempty"`
}

type giveawayRecord struct {
	Record      string   `json:"record"`
	GuildID     string   `json:"guild_id"`
	ID          string   `json:"id"`
	Status      string   `json:"status"`
	Prize       string   `json:"prize"`
	WinnerCount int64    `json:"winner_count"`
	Winners     []string `json:"winners,omitempty"`
	HostID      string   `json:"host_id,omitempty"`
	ChannelID   string   `json:"channel_id"`
	MessageID   string   `json:"message_id,omitempty"`
	StartsAt    *stamp   `json:"starts_at,omitempty"`
	EndsAt      *stamp   `json:"ends_at,omitempty"`
	EndedAt     *stamp   `json:"ended_at,omitempty"`
	CreatedAt   *stamp   `json:"created_at,omitempty"`
}

// sheet writes the guild file.
type sheet struct {
	to   io.Writer
	gone bool   // something was written
	held []byte // lines that were not written yet
	line bytes.Buffer
	json *json.Encoder
}

const (
	sheetSize = 64 << 10
	lineEnd   = "}\n" // of every record
)

func newSheet(to io.Writer) *sheet {
	s := &sheet{to: to}
	s.json = json.NewEncoder(&s.line)
	s.json.SetEscapeHTML(false)
	return s
}

// add buffers the line. The written part always ends in the middle of a record, so that an import
// refuses the output of a conversion that was killed.
func (s *sheet) add() error {
	s.held = append(s.held, s.line.Bytes()...)
	if len(s.held) < sheetSize {
		return nil
	}
	return s.send(len(s.held) - len(lineEnd))
}

func (s *sheet) send(n int) error {
	s.gone = true
	_, err := s.to.Write(s.held[:n])
	s.held = append(s.held[:0], s.held[n:]...)
	return err
}

func (s *sheet) flush() error { return s.send(len(s.held)) }

// fail ends an incomplete file with a line that every import refuses, if a part of the file was
// already written.
func (s *sheet) fail() error {
	if !s.gone {
		return nil
	}
	s.held = append(s.held, `{"record":"convert_failed"}`+"\n"...)
	return s.flush()
}

// maxRecordValues bounds the values of a record; an import refuses more.
const maxRecordValues = 1000

// open writes the first line, the guild record.
func (r *conversion) open() error {
	return r.line("GuildFileGuild", guildRecord{"guild", r.guild}, nil)
}

// write adds a record that was made from the value at.
func (r *conversion) write(schemaName, kind string, record any, at *value) error {
	if r.stage != writing {
		return nil
	}
	r.report.Written[kind]++
	return r.line(schemaName, record, at)
}

// line checks a record against its schema and writes it.
func (r *conversion) line(schemaName string, record any, at *value) error {
	s := r.out
	s.line.Reset()
	if err := s.json.Encode(record); err != nil {
		return err
	}
	v, found, _ := schema.Read(s.line.Bytes(), maxRecordValues, "")
	if len(found) == 0 {
		found = r.schemas.named(schemaName)(v, nil)
	}
	if len(found) > 0 {
		return wrong(at, "became a record that breaks "+schemaName+", which is our mistake: "+schema.Describe(found))
	}
	return s.add()
}

// schemas caches the checks of schemas by name.
type schemas map[string]func(any, []schema.Problem) []schema.Problem

func (s schemas) named(name string) func(any, []schema.Problem) []schema.Problem {
	if s[name] == nil {
		s[name] = contract.Checker(name)
	}
	return s[name]
}
