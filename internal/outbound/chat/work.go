package chat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/logging"
)

// Work takes the platform's place where the operator's bot does what has to be done
// there. Each call becomes a row of bot_work with an event in the stream of work, and
// the same call made again finds the same row. In the foreground a call waits for the
// answer until its context ends; in the background it asks, and whoever takes the
// answer has the call made again.
//
// A call that the bot has not answered yet is ErrAsked, and may have been carried out.
// One that the bot has refused is ErrFinal.
type Work struct {
	db    *db.DB
	log   *slog.Logger
	asked func(guild string) // something was asked for of the guild's bot

	rung    chan struct{} // a caller waits that may have an answer by now
	mu      sync.Mutex
	waiting map[*waiting]struct{}
}

// waiting is a call that waits for its answer.
type waiting struct {
	piece  db.Found
	answer chan piece // with room for one
}

// lookInterval is how long it takes at most until an answer is seen that came in over
// another node.
const lookInterval = 250 * time.Millisecond

// NewWork calls asked, unless it is nil, after it has asked for something. A call in the
// foreground waits in vain before Run.
func NewWork(d *db.DB, log *slog.Logger, asked func(guild string)) *Work {
	if asked == nil {
		asked = func(string) {}
	}
	return &Work{db: d, log: log, asked: asked, rung: make(chan struct{}, 1), waiting: map[*waiting]struct{}{}}
}

// Run sees the answers that calls wait for, until ctx ends.
func (w *Work) Run(ctx context.Context) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var quietly logging.Sometimes
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.rung:
		case <-tick.C:
		}
		if err := w.look(ctx); err != nil && ctx.Err() == nil && quietly.Due("look", time.Now(), logging.Interval) {
			w.log.WarnContext(ctx, "look for answers of the bot", "error", err)
		}
	}
}

// Wake says that a unit of this node has committed that may have answered something: of
// a guild, or of any if it is empty. It never waits.
func (w *Work) Wake(guild string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.waiting {
		if guild == "" || guild == one.piece.GuildID {
			select {
			case w.rung <- struct{}{}:
			default:
			}
			return
		}
	}
}

// look gives those who wait the answers that have come.
func (w *Work) look(ctx context.Context) error {
	w.mu.Lock()
	guilds, ids := make([]string, 0, len(w.waiting)), make([]string, 0, len(w.waiting))
	for one := range w.waiting {
		guilds, ids = append(guilds, one.piece.GuildID), append(ids, one.piece.ID)
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	found, err := answeredOf(ctx, w.db.Reader(), guilds, ids)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.waiting {
		for _, p := range found {
			if p.GuildID == one.piece.GuildID && p.ID == one.piece.ID {
				one.answer <- p
				delete(w.waiting, one)
				break
			}
		}
	}
	return nil
}

// await waits for the answer to a piece of work for as long as ctx allows. In the
// background it does not wait.
func (w *Work) await(ctx context.Context, p piece) (piece, error) {
	if p.Result != nil || inBackground(ctx) {
		return p, nil
	}
	one := &waiting{piece: db.Found{GuildID: p.GuildID, ID: p.ID}, answer: make(chan piece, 1)}
	w.mu.Lock()
	w.waiting[one] = struct{}{}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting, one)
		w.mu.Unlock()
	}()
	w.Wake(p.GuildID) // an earlier answer is seen at once
	select {
	case p = <-one.answer:
	case <-ctx.Done():
	}
	return p, nil
}

// do has the bot do something, and returns the message that it has posted, if it has.
func (w *Work) do(ctx context.Context, t task) (messageID string, err error) {
	var p piece
	var isNew bool
	err = w.db.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		p, isNew, err = ask(ctx, tx, t)
		return err
	})
	if errors.Is(err, errBusy) {
		return "", asked()
	}
	if err != nil {
		return "", err
	}
	if isNew {
		w.asked(t.guild)
	}
	if p, err = w.await(ctx, p); err != nil {
		return "", err
	}
	return p.outcome()
}

// outcome is what a call comes to whose piece of work this is.
func (p piece) outcome() (messageID string, err error) {
	switch {
	case p.Result == nil:
		return "", asked()
	case *p.Result == WorkRefused:
		return "", &Failure{Message: "the bot has refused: " + *p.Reason, unsent: unsentRefused}
	case p.MessageID != nil:
		return *p.MessageID, nil
	}
	return "", nil
}

func asked() error {
	return &Failure{Message: "the bot has been asked and has not answered yet", Uncertain: true, unsent: unsentAsked}
}

// CheckChannel leaves it to the bot to judge whose a channel is.
func (*Work) CheckChannel(context.Context, Channel) error { return nil }

// SendMessage has the bot post m.
func (w *Work) SendMessage(ctx context.Context, m Message) (string, error) {
	return w.do(ctx, posting(m))
}

// EditMessage has the bot edit the message of a giveaway.
func (w *Work) EditMessage(ctx context.Context, c Channel, messageID, content string) error {
	t := c.task(workEditGiveaway, messageID+"/"+content)
	t.request.GiveawayID, t.request.MessageID, t.request.Content = &t.subject, &messageID, &content
	_, err := w.do(ctx, t)
	return err
}

// FindMessages finds the message that the bot has posted for m.
func (w *Work) FindMessages(ctx context.Context, m Message, _ time.Time) ([]string, error) {
	p, err := pieceOf(ctx, w.db.Reader(), m.Channel.GuildID, m.Nonce)
	if err != nil || p.ID == "" {
		return nil, err
	}
	if p, err = w.await(ctx, p); err != nil {
		return nil, err
	}
	id, err := p.outcome()
	switch {
	case errors.Is(err, ErrFinal):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return []string{id}, nil
}

// LockOf has nothing to note: the bot knows what it changes.
func (*Work) LockOf(context.Context, Channel, string) (Lock, error) { return Lock{}, nil }

// ArchiveChannel has the bot close the channel.
func (w *Work) ArchiveChannel(ctx context.Context, c Channel, _ Lock) error {
	return w.channel(ctx, c, workCloseChannel, "archive")
}

// DeleteChannel has the bot delete the channel.
func (w *Work) DeleteChannel(ctx context.Context, c Channel) error {
	return w.channel(ctx, c, workCloseChannel, "delete")
}

// RestoreChannel has the bot open the channel again.
func (w *Work) RestoreChannel(ctx context.Context, c Channel, _ Lock) error {
	return w.channel(ctx, c, workReopenChannel, "restore")
}

func (w *Work) channel(ctx context.Context, c Channel, kind, action string) error {
	t := c.task(kind, action)
	t.request.TicketID, t.request.Action = &t.subject, &action
	_, err := w.do(ctx, t)
	return err
}

// AddReaction does nothing: the bot that posts a giveaway knows how members enter it.
func (*Work) AddReaction(context.Context, Channel, string, string) error { return nil }

// Reactors has the bot write the entries itself. It returns nobody once that is done.
func (w *Work) Reactors(ctx context.Context, c Channel, messageID, _ string, _ Reaction, _ string) ([]Reactor, error) {
	t := c.task(workCollectEntries, messageID)
	t.request.GiveawayID, t.request.MessageID = &t.subject, &messageID
	_, err := w.do(ctx, t)
	return nil, err
}
