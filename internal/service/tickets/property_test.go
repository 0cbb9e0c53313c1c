package tickets_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/tickets"
)

// The outcomes of a call of the platform, besides success.
const (
	fine       = iota
	lostAfter  // the call was carried out, and the response is lost
	lostBefore // the call was not carried out, and the caller does not know
	forbidden
	limited
	notAsked
	diedAfter // the process dies after the call was carried out
	diedBefore
	// frozen: the call was carried out, then the process freezes until its lease has ended. The
	// response is lost.
	frozen
	// frozenFine: the call was carried out, then the process freezes until its lease has ended. The
	// process gets the response.
	frozenFine
	outcomes
)

// platformModel is an in-memory model of the platform. The test draws the outcomes of the next
// calls of each channel.
type platformModel struct {
	chat.StandIn
	mu       sync.Mutex
	serial   int
	posted   map[string][]post // messages by channel
	gone     map[string]bool
	archived map[string]bool
	next     map[string][]int // next outcomes, by the sequence that a channel belongs to
	still    func(sequence string)
}

type post struct {
	id, nonce, content string
	at                 time.Time
}

var errDied = errors.New("died here by the test")

func sequenceOf(channel string) string { return channel[:len(channel)-1] }

// call carries out act as the next outcome says.
func (w *platformModel) call(channel string, act func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	outcome, sequence := fine, sequenceOf(channel)
	if list := w.next[sequence]; len(list) > 0 {
		outcome, w.next[sequence] = list[0], list[1:]
	}
	switch outcome {
	case lostBefore:
		return &chat.Failure{Status: 500, Message: "oops", Uncertain: true}
	case forbidden:
		return &chat.Failure{Status: 403, Code: chat.CodeMissingPermission, Message: "no"}
	case limited:
		return &chat.Failure{Status: 429, Message: "slow down", RetryAfter: time.Minute}
	case notAsked:
		return &chat.Failure{Message: "not asked"}
	case diedBefore:
		panic(errDied)
	}
	if w.gone[channel] {
		return &chat.Failure{Status: 404, Code: chat.CodeUnknownChannel, Message: "Unknown Channel"}
	}
	if err := act(); err != nil {
		return err
	}
	switch outcome {
	case lostAfter:
		return &chat.Failure{Message: "no answer in time", Uncertain: true}
	case diedAfter:
		panic(errDied)
	case frozen, frozenFine:
		w.mu.Unlock()
		w.still(sequence)
		w.mu.Lock()
		if outcome == frozen {
			return &chat.Failure{Message: "no answer in time", Uncertain: true}
		}
	}
	return nil
}

// SendMessage remembers a nonce for three minutes, over all channels.
func (w *platformModel) SendMessage(_ context.Context, m chat.Message) (id string, err error) {
	err = w.call(m.Channel.ID, func() error {
		for channel, list := range w.posted {
			for _, p := range list {
				if sequenceOf(channel) == sequenceOf(m.Channel.ID) && p.nonce == m.Nonce && time.Since(p.at) < 3*time.Minute {
					id = p.id
					return nil
				}
			}
		}
		w.serial++
		id = fmt.Sprint(1_000_000 + w.serial)
		w.posted[m.Channel.ID] = append(w.posted[m.Channel.ID], post{id, m.Nonce, m.Content, time.Now()})
		return nil
	})
	return id, err
}

func (w *platformModel) FindMessages(_ context.Context, m chat.Message, since time.Time) (ids []string, err error) {
	err = w.call(m.Channel.ID, func() error {
		ids = nil
		for _, p := range w.posted[m.Channel.ID] {
			if p.content == m.Content && !p.at.Before(since) {
				ids = append(ids, p.id)
			}
		}
		return nil
	})
	return ids, err
}

func (w *platformModel) ArchiveChannel(_ context.Context, c chat.Channel, _ chat.Lock) error {
	return w.call(c.ID, func() error { w.archived[c.ID] = true; return nil })
}

func (w *platformModel) RestoreChannel(_ context.Context, c chat.Channel, _ chat.Lock) error {
	return w.call(c.ID, func() error { w.archived[c.ID] = false; return nil })
}

// story is a server whose tickets use a model of the platform.
type story struct {
	*apitest.API
	platform *platformModel
	cfg      tickets.Config
	ops      map[string]apitest.Operation
	bot      *apitest.API
}

// TestMessagesProperty runs messages through everything that may happen to them: lost responses,
// refusals, limits, server errors, crashes, freezes, closed and reopened tickets, changes of the
// channel, and records of the bot that tell of messages, their edits and their deletions. At the end
// it compares channel, records and transcript. -rapid.checks sets the number of sequences.
// RELIABILITY.md, Messages.
func TestMessagesProperty(t *testing.T) {
	t.Parallel()
	s := &story{platform: &platformModel{
		StandIn: *chat.NewStandIn(slog.New(slog.DiscardHandler)), posted: map[string][]post{}, gone: map[string]bool{},
		archived: map[string]bool{}, next: map[string][]int{},
	}, ops: map[string]apitest.Operation{}}
	for _, op := range []string{"createTicketMessage", "closeTicket", "reopenTicket", "writeRecords"} {
		s.ops[op] = apitest.Find(t, op)
	}
	s.API = apitest.New(t, apitest.With(func(cfg *api.Config) {
		s.cfg = tickets.Config{DB: cfg.DB, Chat: s.platform, Keys: api.TicketKeys{Keys: idempotency.Keys{Sealer: cfg.Sealer}}}
		var err error
		if cfg.Tickets, err = tickets.New(s.cfg); err != nil {
			t.Fatal(err)
		}
	}))
	s.bot = s.Bot(t).In(s.Guild)
	s.platform.still = func(sequence string) { s.elapse(t, sequence, 21); s.sweep() }
	n := 1000
	rapid.Check(t, func(t *rapid.T) {
		n++
		s.sequence(t, n)
	})
}

func (s *story) sequence(t *rapid.T, n int) {
	name := fmt.Sprint(7_000_000 + n)
	id, channel := "ticket-"+name, name+"0"
	dbtest.Exec(t, s.DB(), `
		INSERT INTO tickets (guild_id, id, number, opener_id, channel_id)
		VALUES ($1, $2, $3, '4000', $4)`, s.Guild, id, n, channel)
	refused, moved, told := map[string]bool{}, false, map[string]*message{}
	send := func(key string) int {
		response, err := s.Key(name+key).Try(s.ops["createTicketMessage"], `{"content":"`+name+key+`"}`, apitest.Path("id", id))
		if err != nil {
			t.Fatal(err)
		}
		switch response.Status {
		case 201, 409, 500, 502, 503:
		case 422:
			refused[key] = true
		default:
			t.Fatalf("got %d %s", response.Status, response.Body)
		}
		return response.Status
	}
	change := func(op string) { _, _ = s.Try(s.ops[op], "", apitest.Path("id", id)) }
	for range rapid.IntRange(2, 14).Draw(t, "steps") {
		s.draw(t, name)
		switch rapid.IntRange(0, 12).Draw(t, "step") {
		case 0, 1, 2, 3:
			send(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"))
		case 4:
			s.elapse(t, name, rapid.SampledFrom([]int{5, 16, 31, 100, 200, 400}).Draw(t, "seconds"))
		case 5:
			s.sweep()
		case 6:
			change("closeTicket")
		case 7:
			change("reopenTicket")
		case 8:
			moved = true
			channel = name + rapid.SampledFrom([]string{"0", "1"}).Draw(t, "channel")
			dbtest.Exec(t, s.DB(), `UPDATE tickets SET channel_id = $2 WHERE id = $1`, id, channel)
		case 9:
			s.sync(id)
		case 10, 11, 12:
			s.tell(t, name, id, told)
		}
	}
	s.end(t, name, id, send, refused, moved)
	s.wantTold(t, id, told)
}

// end lets everything finish on a working platform and checks the result.
func (s *story) end(t *rapid.T, name, id string, send func(string) int, refused map[string]bool, moved bool) {
	s.platform.mu.Lock()
	delete(s.platform.next, name)
	s.platform.mu.Unlock()
	s.elapse(t, name, 200)
	s.sweep()
	for _, key := range []string{"a", "b"} {
		for try := 0; ; try++ {
			if status := send(key); status == 201 || status == 422 {
				break
			} else if try == 5 {
				t.Fatalf("message %s still gets %d", key, status)
			}
			s.elapse(t, name, 200)
			s.sweep()
		}
	}
	s.sync(id)
	var stored []string
	var ticket struct {
		Status  string  `db:"status"`
		Channel *string `db:"channel_id"`
	}
	ctx := context.Background()
	if err := errors.Join(
		s.DB().Reader().SelectContext(ctx, &stored, `
			SELECT content
			FROM ticket_messages
			WHERE ticket_id = $1 AND kind = 'message' AND author_type = 'staff' ORDER BY content`, id),
		s.DB().Reader().GetContext(ctx, &ticket, `SELECT status, channel_id FROM tickets WHERE id = $1`, id),
	); err != nil {
		t.Fatal(err)
	}
	s.platform.mu.Lock()
	defer s.platform.mu.Unlock()
	for _, key := range []string{"a", "b"} {
		posted, kept := 0, strings.Count(strings.Join(stored, " ")+" ", name+key+" ")
		for _, channel := range []string{name + "0", name + "1"} {
			for _, p := range s.platform.posted[channel] {
				if p.content == name+key {
					posted++
				}
			}
		}
		if posted != kept || posted > 1 || posted == 0 && !refused[key] {
			t.Fatalf("message %s stands %d times in the channels and %d times in the transcript", key, posted, kept)
		}
	}
	if ticket.Channel == nil || moved {
		return // a channel that the ticket got later was never used
	}
	if archived := s.platform.archived[*ticket.Channel]; archived != (ticket.Status == "closed") {
		t.Fatalf("the ticket is %s, and its channel archived: %v", ticket.Status, archived)
	}
}

// draw chooses the outcomes of the next calls for a sequence.
func (s *story) draw(t *rapid.T, name string) {
	next := rapid.SliceOfN(rapid.IntRange(0, outcomes-1), 0, 3).Draw(t, "outcomes")
	s.platform.mu.Lock()
	defer s.platform.mu.Unlock()
	s.platform.next[name] = next
}

// elapse moves the times of a sequence into the past, on the platform too, so that nothing is
// posted between the two.
func (s *story) elapse(t rapid.TB, name string, seconds int) {
	s.platform.mu.Lock()
	defer s.platform.mu.Unlock()
	dbtest.Exec(t, s.DB(), `
		UPDATE chat_intents
		SET `+dbtest.Earlier("make_interval(secs => $2)", "first_sent_at", "lease_until", "created_at")+`
		WHERE subject_id = $1`, "ticket-"+name, seconds)
	dbtest.Exec(t, s.DB(), `
		UPDATE idempotency_keys
		SET `+dbtest.Earlier("make_interval(secs => $2)", "lease_until")+`
		WHERE key LIKE $1`, name+"%", seconds)
	dbtest.Exec(t, s.DB(), `
		UPDATE tickets
		SET `+dbtest.Earlier("make_interval(secs => $2)", "channel_lease_until")+`
		WHERE id = $1`, "ticket-"+name, seconds)
	for _, channel := range []string{name + "0", name + "1"} {
		for i := range s.platform.posted[channel] {
			s.platform.posted[channel][i].at = s.platform.posted[channel][i].at.Add(-time.Duration(seconds) * time.Second)
		}
	}
}

// sweep runs the sweep of another node, whose calls may fail too.
func (s *story) sweep() { _ = tickets.SweepIntents(context.Background(), s.cfg) }

// sync runs the lane's work for a ticket; it may die.
func (s *story) sync(id string) {
	defer func() { _ = recover() }()
	_ = tickets.SyncChannel(context.Background(), s.cfg.DB, s.platform, s.Guild, id)
}
