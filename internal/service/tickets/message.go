package tickets

import (
	"context"
	"errors"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/pending"
)

// How a message gets into the channel and the transcript exactly once.
//
//  1. A transaction checks the ticket, stores the intent to post with its nonce and a lease, and
//     leases the request's key. Commit.
//  2. The bot posts the message. No connection is held.
//  3. If the lease on the intent is still ours, a transaction writes the transcript, the event and
//     the response under the key, and marks the intent as sent. Commit.
//
// If the platform refuses or does not respond, transaction 3 only records that and frees the key:
// the caller gets 502 and may retry. The same request with the same key then resumes the same
// intent, whose nonce keeps the platform from posting twice. If the platform may have forgotten the
// nonce, the channel is read first. A message that may have been posted is searched for even if the
// ticket has been closed since, because it belongs in the transcript.
//
// If the lease was lost, its next holder finishes the message: the caller gets the response if that
// has happened, and 503 while it is going on. So 502 means that the transcript has no entry.
//
// Rows are locked in the order key, ticket, intent.
//
// If the response to a commit is lost, its outcome is found out: after transaction 1 the intent
// exists or does not, and transaction 3 is repeated. So the caller gets an answer, and the key is
// free or has its response.
//
// If the process dies between 1 and 3, the leases end, and whoever comes first finishes the
// message: the caller's repeated request, or the sweep.

const (
	postTimeout   = 9 * time.Second // the caller gets a response within ten seconds
	recordTimeout = 5 * time.Second
	recordPause   = 50 * time.Millisecond // between two attempts
	// sweepTimeout is how long the sweep tries to find out about a message while the platform
	// cannot be asked.
	sweepTimeout = 5 * time.Minute
	sweepBatch   = 32
)

type response = gen.CreateTicketMessageResponseObject

// CreateTicketMessage stores an internal note and returns the response. For a message to
// the ticket's channel it stores the intent to post and returns a pending.Call, which posts
// the message and copies it into the transcript.
func (s *Service) CreateTicketMessage(ctx context.Context, r gen.CreateTicketMessageRequestObject) (gen.CreateTicketMessageResponseObject, error) {
	tx, by := db.Write(ctx), auth.Acting(ctx)
	t, err := lock(ctx, tx, by.GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	if r.Body.Internal != nil && *r.Body.Internal {
		e, err := writeNote(ctx, tx, t, r.Body.AuthorID, r.Body.Content)
		if err != nil {
			return nil, err
		}
		return gen.CreateTicketMessage201JSONResponse{Data: showEntry(e)},
			event.Record(ctx, tx, event.From(by).On(e.CreatedAt.Time), event.TicketMessage, showEntry(e))
	}
	in, err := s.intent(ctx, tx, by, t, r.Body)
	if err != nil {
		return nil, err
	}
	if in.State == chat.Sent {
		return became(ctx, tx, in)
	}
	refusal := mayMessage(t)
	if refusal != nil && !in.Tried {
		return nil, refusal
	}
	if in, err = s.take(ctx, tx, in); err != nil {
		return nil, err
	}
	return nil, &pending.Call{
		Begun: func(ctx context.Context) (bool, error) { return chat.Taken(ctx, s.cfg.DB, in) },
		Run: func(ctx context.Context) (pending.Render, error) {
			posted, err := s.run(ctx, in, t, refusal)
			if err != nil {
				return nil, err
			}
			return posted.VisitCreateTicketMessageResponse, nil
		},
	}
}

// intent returns the intent to post the message: that of an earlier run of the same
// request, or a new one that is not stored yet.
func (s *Service) intent(ctx context.Context, tx *db.Tx, by auth.By, t row, body *gen.CreateTicketMessageRequest) (chat.Intent, error) {
	in := chat.Intent{
		GuildID: t.GuildID, Kind: chat.KindTicketMessage, SubjectID: t.ID,
		Content: body.Content, AuthorID: body.AuthorID, TokenID: &by.ID,
	}
	if t.ChannelID != nil {
		in.ChannelID = *t.ChannelID
	}
	if r := idempotency.From(ctx); r != nil {
		in.Key, in.Fingerprint = &r.Key, r.Fingerprint
		earlier, err := chat.Resume(ctx, tx, t.GuildID, r.TokenID, r.Key, r.Fingerprint)
		if err != nil {
			return chat.Intent{}, err
		}
		if earlier != nil {
			in = *earlier
		}
	}
	return in, nil
}

// take leases the intent for this request.
func (s *Service) take(ctx context.Context, tx *db.Tx, in chat.Intent) (chat.Intent, error) {
	if in.ID == "" {
		stored, err := chat.Prepare(ctx, tx, in)
		if err != nil {
			return chat.Intent{}, err
		}
		in = stored
	}
	taken, err := chat.Take(ctx, tx, in.GuildID, in.ID)
	if errors.Is(err, chat.ErrTaken) {
		return chat.Intent{}, idempotency.ErrInUse
	}
	return taken, err
}

// run posts the message of an intent that this request has leased and records the
// outcome. If refusal says that the ticket takes no message now, run only finds out whether
// an earlier run of the request has posted it. The error is Upstream when the platform
// refuses or does not answer.
func (s *Service) run(ctx context.Context, in chat.Intent, t row, refusal error) (response, error) {
	if refusal != nil {
		return s.findOut(ctx, in, refusal)
	}
	posting, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	message, err := chat.Deliver(posting, s.cfg.DB, s.cfg.Chat, &in, *t.ChannelID)
	if err != nil {
		return s.notPosted(ctx, in, err)
	}
	return s.confirm(ctx, in, message)
}

// findOut searches for a message that an earlier run of the request may have posted, for a ticket
// whose state allows no new message. If it finds the message, that is the request's outcome;
// otherwise the request is refused.
func (s *Service) findOut(ctx context.Context, in chat.Intent, refusal error) (response, error) {
	reading, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	message, err := chat.Find(reading, s.cfg.DB, s.cfg.Chat, &in)
	switch {
	case err != nil:
		return s.notPosted(ctx, in, err)
	case message != "":
		return s.confirm(ctx, in, message)
	}
	posted, err := s.fail(ctx, in, chat.Refused)
	if posted != nil || err != nil {
		return posted, err
	}
	return nil, refusal
}

// notPosted records the result of an intent whose delivery failed with err.
func (s *Service) notPosted(ctx context.Context, in chat.Intent, err error) (response, error) {
	if _, ok := errors.AsType[*chat.Failure](err); !ok {
		// An internal error: the intent stays leased, and the sweep finishes it.
		return nil, err
	}
	posted, failed := s.fail(ctx, in, in.Outcome(err))
	if posted != nil {
		return posted, nil
	}
	if f, ok := fault.As(failed); ok && f.Kind == fault.Unavailable {
		return nil, f.Because(err)
	}
	return nil, fault.New(fault.Upstream, "discord_send_failed", "The chat platform did not take the message.").
		Because(errors.Join(err, failed))
}

// errElsewhere is the response to a request while another request or node is posting the same
// message.
var errElsewhere = fault.New(fault.Unavailable, "service_unavailable", "The message is being posted by another node; try the same request again.").After(time.Second)

// confirm is step 3 for a message that was posted.
func (s *Service) confirm(ctx context.Context, in chat.Intent, message string) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	var posted response
	err := s.surely(ctx, func(ctx context.Context, tx *db.Tx) error {
		posted = nil
		if err := s.hold(ctx, tx, in); err != nil {
			return err
		}
		t, err := lock(ctx, tx, in.GuildID, in.SubjectID)
		if err != nil {
			return err
		}
		ours, err := chat.RecordResult(ctx, tx, in, chat.Sent, message)
		if err != nil {
			return err
		}
		if !ours {
			posted, err = became(ctx, tx, in)
			return err
		}
		e, err := writeMessage(ctx, tx, t, in, message)
		if err != nil {
			return err
		}
		posted = gen.CreateTicketMessage201JSONResponse{Data: showEntry(e)}
		if r, keyed := requestOf(in); keyed {
			return s.cfg.Keys.Keep(ctx, tx, r, posted.VisitCreateTicketMessageResponse)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return posted, nil
}

// fail records that the message was not posted, or may not have been, and frees the key. The
// response is nil, unless another sender has finished the message.
func (s *Service) fail(ctx context.Context, in chat.Intent, state string) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	var posted response
	err := s.surely(ctx, func(ctx context.Context, tx *db.Tx) error {
		posted = nil
		if err := s.hold(ctx, tx, in); err != nil {
			return err
		}
		ours, err := chat.RecordResult(ctx, tx, in, state, "")
		if err != nil {
			return err
		}
		if !ours {
			if done, err := chat.Recorded(ctx, tx, in, state); err != nil || done {
				return errors.Join(err, errRecorded)
			}
			posted, err = became(ctx, tx, in)
			return err
		}
		if r, keyed := requestOf(in); keyed {
			return s.cfg.Keys.Release(ctx, tx, r)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errRecorded) {
		return nil, err
	}
	return posted, nil
}

// errRecorded rolls back a transaction that finds its own work already done under its lease: an
// earlier commit had succeeded, but its response was lost.
var errRecorded = errors.New("the result of the message is recorded already")

// surely runs a unit that records a message's outcome, and runs it again while the database
// cannot serve it or has not said whether it committed, until ctx ends. Without the retry, key
// and intent would stay under their leases: the caller gets 503, and the same request again
// gets 409 until the leases end.
func (s *Service) surely(ctx context.Context, unit func(ctx context.Context, tx *db.Tx) error) error {
	err := s.cfg.DB.Do(ctx, unit)
	for db.Unavailable(err) {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(recordPause):
		}
		err = s.cfg.DB.Do(ctx, unit)
	}
	return err
}

// became returns the response for a message that another sender has taken over after our lease
// ended. It returns Unavailable while that sender is not done.
func became(ctx context.Context, tx *db.Tx, in chat.Intent) (response, error) {
	e, err := written(ctx, tx, in)
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, errElsewhere
	}
	return gen.CreateTicketMessage201JSONResponse{Data: showEntry(*e)}, nil
}

// SweepIntents finishes messages whose senders have disappeared. Every node calls it again and
// again.
func SweepIntents(ctx context.Context, cfg Config) error {
	s := &Service{cfg}
	return chat.Sweep(ctx, cfg.DB, sweepBatch, s.finish, chat.KindTicketMessage)
}

// finish finishes what a vanished sender has begun. An error says that it is not known whether the
// message was posted. The message is posted only if its request had a key, since only then the
// caller can come back for the response, and only while the ticket is open; otherwise finish just
// finds out whether it was posted.
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
		return fault.Wrap(err, "take over message", left.ID)
	}
	posting, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	var message string
	if _, keyed := requestOf(in); keyed && mayMessage(t) == nil {
		message, err = chat.Deliver(posting, s.cfg.DB, s.cfg.Chat, &in, *t.ChannelID)
	} else if message, err = chat.Find(posting, s.cfg.DB, s.cfg.Chat, &in); err == nil && message == "" {
		err = &chat.Failure{Message: "was not posted before its sender vanished"}
	}
	if err == nil {
		_, err = s.confirm(ctx, in, message)
		return elsewhere(err)
	}
	f, ok := errors.AsType[*chat.Failure](err)
	switch {
	case !ok:
		return err
	case errors.Is(f, chat.ErrAsked):
		_, err = s.fail(ctx, in, chat.Unknown) // the bot's answer makes it due again
		return elsewhere(err)
	case in.Outcome(f) == chat.Refused:
		_, err = s.fail(ctx, in, chat.Refused)
		return elsewhere(err)
	case now.Sub(in.CreatedAt) < sweepTimeout:
		// No caller was answered yet; the lease ends and the message is tried again.
		return f
	}
	_, err = s.fail(ctx, in, chat.Unknown)
	return errors.Join(f, elsewhere(err))
}

// elsewhere returns nil for the failure that another node finishes the message, and any other error
// unchanged.
func elsewhere(err error) error {
	if errors.Is(err, errElsewhere) {
		return nil
	}
	return err
}

// hold locks the key of the intent's request, if it had one, and renews the key's lease.
func (s *Service) hold(ctx context.Context, tx *db.Tx, in chat.Intent) error {
	if r, keyed := requestOf(in); keyed {
		return s.cfg.Keys.Lease(ctx, tx, r)
	}
	return nil
}

// requestOf returns the keyed request that an intent belongs to, if it had a key.
func requestOf(in chat.Intent) (idempotency.Request, bool) {
	if in.Key == nil || in.TokenID == nil {
		return idempotency.Request{}, false
	}
	return idempotency.Request{GuildID: in.GuildID, TokenID: *in.TokenID, Key: *in.Key, Fingerprint: in.Fingerprint}, true
}
