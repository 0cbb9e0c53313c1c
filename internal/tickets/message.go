package tickets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"guildhall/gen"
	"guildhall/internal/auth"
	"guildhall/internal/chat"
	"guildhall/internal/db"
	"guildhall/internal/event"
	"guildhall/internal/fault"
	"guildhall/internal/idempotency"
)

// How a message reaches the channel and the transcript, once.
//
//  1. A unit checks the ticket and stores the intent to say something: its
//     nonce, a lease on it, and a lease on the request's key. Commit.
//  2. The bot posts the message. No connection is held.
//  3. A unit writes the transcript, the event and the answer under the key, and
//     marks the intent as sent, if the lease on it is still ours. Commit.
//
// When the platform refuses or stays silent, unit 3 only notes that, and frees
// the key: the caller is told 502 and may try again. The same request with the
// same key then resumes the same intent, whose nonce keeps the platform from
// posting twice; where the nonce may be forgotten, the channel is read first.
//
// Rows are locked in the order key, ticket, intent.
//
// When the process dies between 1 and 3, the leases run out and whoever comes
// first finishes the work: the caller's repeated request, or the sweep.

const (
	answerBudget = 9 * time.Second // the caller hears within ten seconds
	settleBudget = 5 * time.Second
	// How long the sweep keeps trying to find out about a message while the
	// platform cannot be asked.
	giveUpAfter = 5 * time.Minute
	sweepBatch  = 32
)

// CreateTicketMessage stores an internal note, or posts a message to the
// ticket's channel and mirrors it into the transcript. The latter is deferred
// beyond the first commit.
func (s *Service) CreateTicketMessage(ctx context.Context, r gen.CreateTicketMessageRequestObject) (gen.CreateTicketMessageResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	t, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if r.Body.Internal != nil && *r.Body.Internal {
		e, err := write(ctx, tx, entry{
			GuildID: t.GuildID, TicketID: t.ID, ID: db.NewID(), Kind: kindNote,
			AuthorID: r.Body.AuthorID, AuthorType: byStaff, Content: r.Body.Content,
		})
		if err != nil {
			return nil, err
		}
		return gen.CreateTicketMessage201JSONResponse{Data: showEntry(e)},
			event.Record(ctx, tx, event.From(by), event.TicketMessage, showEntry(e))
	}
	if err := mayMessage(t); err != nil {
		return nil, err
	}
	in, err := s.intend(ctx, tx, by, t, r.Body)
	if err != nil {
		return nil, err
	}
	idempotency.Defer(ctx, func(ctx context.Context) (idempotency.Answer, error) { return s.say(ctx, in) })
	return nil, nil //nolint:nilnil // the answer comes from what was deferred
}

// intend returns the intent to post the message, taken by us: a new one, or the
// unfinished one of an earlier run of the same request.
func (s *Service) intend(ctx context.Context, tx *db.Tx, by *auth.Principal, t row, body *gen.CreateTicketMessageRequest) (chat.Intent, error) {
	in := chat.Intent{
		GuildID: t.GuildID, Kind: chat.KindTicketMessage, SubjectID: t.ID, ChannelID: *t.ChannelID,
		Content: body.Content, AuthorID: body.AuthorID, TokenID: &by.TokenID,
	}
	if r, ok := idempotency.From(ctx); ok {
		in.Key, in.Fingerprint = &r.Key, r.Fingerprint
		id, err := chat.Resume(ctx, tx, t.GuildID, r.TokenID, r.Key, r.Fingerprint)
		if err != nil {
			return chat.Intent{}, err
		}
		in.ID = id
	}
	if in.ID == "" {
		stored, err := chat.Prepare(ctx, tx, in)
		if err != nil {
			return chat.Intent{}, err
		}
		in.ID = stored.ID
	}
	taken, err := chat.Take(ctx, tx, t.GuildID, in.ID)
	if errors.Is(err, chat.ErrTaken) {
		return chat.Intent{}, idempotency.ErrInUse
	}
	return taken, err
}

// say posts the message of an intent that we have taken and settles it. It is
// Upstream when the platform refuses or does not answer.
func (s *Service) say(ctx context.Context, in chat.Intent) (idempotency.Answer, error) {
	sending, cancel := context.WithTimeout(ctx, answerBudget)
	defer cancel()
	message, err := chat.Deliver(sending, s.cfg.DB, s.cfg.Chat, in)
	if f := (*chat.Failure)(nil); errors.As(err, &f) {
		return idempotency.Answer{}, fault.New(fault.Upstream, "discord_send_failed", "The chat platform did not take the message.").
			Because(errors.Join(f, s.unsaid(ctx, in, f)))
	}
	if err != nil {
		// Ours to mend: the intent stays under its lease and the sweep looks
		// after it.
		return idempotency.Answer{}, err
	}
	return s.said(ctx, in, message)
}

// said is the third phase: the message is in the channel.
func (s *Service) said(ctx context.Context, in chat.Intent, message string) (idempotency.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, settleBudget)
	defer cancel()
	var answer idempotency.Answer
	err := s.cfg.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.hold(ctx, tx, in); err != nil {
			return err
		}
		if _, err := lock(ctx, tx, in.GuildID, in.SubjectID); err != nil {
			return err
		}
		ours, err := chat.Settle(ctx, tx, in, chat.Sent, message)
		if err != nil {
			return err
		}
		if !ours {
			return idempotency.ErrInUse // whoever has the lease now answers
		}
		e := entry{
			GuildID: in.GuildID, TicketID: in.SubjectID, ID: in.ID, Kind: kindMessage,
			AuthorID: in.AuthorID, AuthorType: byStaff, Content: in.Content,
		}
		if message != "" {
			e.ChannelMessageID = &message
		}
		if e, err = write(ctx, tx, e); err != nil {
			return err
		}
		if err := count(ctx, tx, in.GuildID, in.SubjectID); err != nil {
			return err
		}
		origin := event.Origin{GuildID: in.GuildID, Type: "api", TokenID: *in.TokenID}
		if err := event.Record(ctx, tx, origin, event.TicketMessage, showEntry(e)); err != nil {
			return err
		}
		if answer, err = render(gen.CreateTicketMessage201JSONResponse{Data: showEntry(e)}); err != nil {
			return err
		}
		if r, keyed := requestOf(in); keyed {
			return s.cfg.Keys.Keep(ctx, tx, r, answer)
		}
		return nil
	})
	return answer, err
}

// unsaid notes that the platform did not take the message and frees the key.
func (s *Service) unsaid(ctx context.Context, in chat.Intent, why *chat.Failure) error {
	ctx, cancel := context.WithTimeout(ctx, settleBudget)
	defer cancel()
	return s.cfg.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := s.hold(ctx, tx, in); err != nil {
			return err
		}
		ours, err := chat.Settle(ctx, tx, in, chat.Outcome(why), "")
		if err != nil || !ours {
			return err
		}
		if r, keyed := requestOf(in); keyed {
			return s.cfg.Keys.Release(ctx, tx, r)
		}
		return nil
	})
}

// SweepIntents finishes the messages whose senders have vanished. It is called
// by every node, and again whenever it has returned.
func SweepIntents(ctx context.Context, cfg Config) error {
	left, err := chat.Abandoned(ctx, cfg.DB, chat.KindTicketMessage, sweepBatch)
	if err != nil {
		return err
	}
	s := &Service{cfg}
	var group errgroup.Group
	group.SetLimit(8) // one channel that hangs must not hold up the rest
	for _, in := range left {
		group.Go(func() error { return s.finish(ctx, in) })
	}
	return group.Wait()
}

// finish ends what a vanished sender began. An error says that it is not known
// whether the message was posted. The message is posted only for a
// request that had a key, since only its caller can come back for the answer,
// and only while the ticket is open; otherwise it is just found out whether it
// had been posted.
func (s *Service) finish(ctx context.Context, left chat.Intent) error {
	var in chat.Intent
	var t row
	var now time.Time
	err := s.cfg.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if err = s.hold(ctx, tx, left); err != nil {
			return err
		}
		if t, err = get(ctx, tx, left.GuildID, left.SubjectID); err != nil {
			return err
		}
		if in, err = chat.Take(ctx, tx, left.GuildID, left.ID); err != nil {
			return err
		}
		now, err = tx.Now(ctx)
		return err
	})
	switch {
	case errors.Is(err, chat.ErrTaken), err == nil && in.State == chat.Sent:
		return nil // another node was faster
	case err != nil:
		return fmt.Errorf("take over message %s: %w", left.ID, err)
	}
	sending, cancel := context.WithTimeout(ctx, answerBudget)
	defer cancel()
	var message string
	if _, keyed := requestOf(in); keyed && t.Status == open {
		message, err = chat.Deliver(sending, s.cfg.DB, s.cfg.Chat, in)
	} else if message, err = chat.Find(sending, s.cfg.DB, s.cfg.Chat, in); err == nil && message == "" {
		err = &chat.Failure{Message: "was not posted before its sender vanished"}
	}
	f := (*chat.Failure)(nil)
	switch {
	case err == nil:
		_, err = s.said(ctx, in, message)
	case !errors.As(err, &f):
	case f.Uncertain && now.Sub(in.CreatedAt) < giveUpAfter:
		// Nobody was told anything yet; the lease runs out and it is tried
		// again.
	case f.Uncertain:
		err = errors.Join(f, s.unsaid(ctx, in, f))
	default:
		err = s.unsaid(ctx, in, f)
	}
	return err
}

// hold locks the key of the request that an intent answers, if it had one, and
// renews the lease on it.
func (s *Service) hold(ctx context.Context, tx *db.Tx, in chat.Intent) error {
	if r, keyed := requestOf(in); keyed {
		return s.cfg.Keys.Lease(ctx, tx, r)
	}
	return nil
}

// requestOf is the keyed request that an intent answers, if it had a key.
func requestOf(in chat.Intent) (idempotency.Request, bool) {
	if in.Key == nil {
		return idempotency.Request{}, false
	}
	return idempotency.Request{TokenID: *in.TokenID, Key: *in.Key, Fingerprint: in.Fingerprint}, true
}

// render makes the bytes that the server would send.
func render(response gen.CreateTicketMessageResponseObject) (idempotency.Answer, error) {
	w := &written{header: http.Header{}}
	if err := response.VisitCreateTicketMessageResponse(w); err != nil {
		return idempotency.Answer{}, fmt.Errorf("render the answer: %w", err)
	}
	return idempotency.Answer{Status: w.status, Body: w.body.Bytes()}, nil
}

// written is an answer that has not been sent.
type written struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *written) Header() http.Header         { return w.header }
func (w *written) WriteHeader(status int)      { w.status = status }
func (w *written) Write(p []byte) (int, error) { return w.body.Write(p) }
