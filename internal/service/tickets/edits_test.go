package tickets_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db/dbtest"
)

// message is what a transcript has to say of a message on the platform that records told of.
type message struct {
	MessageID string     `db:"channel_message_id"`
	Content   string     `db:"content"`
	Original  *string    `db:"original_content"`
	EditedAt  *time.Time `db:"edited_at"`
	DeletedAt *time.Time `db:"deleted_at"`
}

// messages returns the entries of a ticket for messages on the platform.
func (s *story) messages(t *rapid.T, id string) (list []message) {
	if err := s.DB().Reader().SelectContext(context.Background(), &list, `
		SELECT channel_message_id, content, original_content, edited_at, deleted_at
		FROM ticket_messages WHERE ticket_id = $1 AND channel_message_id IS NOT NULL`, id); err != nil {
		t.Fatal(err)
	}
	return list
}

// tell has the bot tell of a message in the ticket's channel, posted by the API or written by the
// opener: as it was first written, as it was edited, or that it was deleted. Records come in any
// order, more than once, and before the API knows that its message was posted.
func (s *story) tell(t *rapid.T, name, id string, told map[string]*message) {
	written := map[string]string{"8" + name + "1": name + "o", "8" + name + "2": name + "p"} // the opener's
	author := map[string]string{}
	s.platform.mu.Lock()
	for _, channel := range []string{name + "0", name + "1"} {
		for _, p := range s.platform.posted[channel] {
			written[p.id], author[p.id] = p.content, "staff"
		}
	}
	s.platform.mu.Unlock()
	ids := make([]string, 0, len(written))
	for m := range written {
		ids = append(ids, m)
	}
	slices.Sort(ids)
	m := rapid.SampledFrom(ids).Draw(t, "message")
	content := written[m] + rapid.SampledFrom([]string{"", " edited", " edited again"}).Draw(t, "edit")
	stored := s.messages(t, id)
	at := slices.IndexFunc(stored, func(e message) bool { return e.MessageID == m })
	deletes := at >= 0 && rapid.IntRange(0, 2).Draw(t, "deletes") == 0
	rest := `,"content":"` + content + `"` + rapid.SampledFrom([]string{"", `,"deleted_at":null,"edited_at":null`}).Draw(t, "instants")
	if deletes {
		rest = `,"deleted_at":"` + time.Now().UTC().Format(time.RFC3339Nano) + `"`
	}
	if author[m] == "" {
		author[m] = "opener"
	}
	record := `{"records":[{"record":"ticket_message","ticket_id":"` + id + `","author_type":"` + author[m] + `",
		"channel_message_id":"` + m + `"` + rest + `}]}`
	answer, err := s.bot.Try(s.ops["writeRecords"], record)
	if err != nil || answer.Status != 200 {
		t.Fatalf("a record is answered %v, %v", answer, err)
	}
	is := told[m]
	switch {
	case is != nil:
	case at >= 0:
		is = &stored[at]
	default:
		is = &message{MessageID: m, Content: content}
	}
	now := time.Now()
	switch {
	case deletes && is.DeletedAt == nil:
		is.DeletedAt = &now
	case !deletes && is.Content != content:
		if is.Original == nil {
			is.Original = new(is.Content)
		}
		is.Content, is.EditedAt = content, &now
	}
	told[m] = is
}

// wantTold compares the transcript with what records told: a message stands there once, with its
// last content and its first one if that was another, and a deletion is never taken back. The
// ticket's counter counts all of them.
func (s *story) wantTold(t *rapid.T, id string, told map[string]*message) {
	shown := func(m message) string {
		first := "nothing else"
		if m.Original != nil {
			first = *m.Original
		}
		return fmt.Sprintf("%s: %q, first %q, edited: %v, deleted: %v", m.MessageID, m.Content, first, m.EditedAt != nil, m.DeletedAt != nil)
	}
	stored := s.messages(t, id)
	for _, want := range told {
		var got []string
		for _, m := range stored {
			if m.MessageID == want.MessageID {
				got = append(got, shown(m))
			}
		}
		if len(got) != 1 || got[0] != shown(*want) {
			t.Fatalf("the transcript has %q, want %s", got, shown(*want))
		}
	}
	if counted := dbtest.Value[bool](t, s.DB(), `
		SELECT message_count = (
			SELECT count(*) FROM ticket_messages m WHERE m.guild_id = t.guild_id AND m.ticket_id = t.id AND m.kind = 'message'
		)
		FROM tickets t WHERE id = $1`, id); !counted {
		t.Fatalf("the ticket counts other messages than %v", stored)
	}
}
