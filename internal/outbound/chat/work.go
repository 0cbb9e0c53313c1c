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

// Work is the Platform of an installation whose operator's bot acts on the chat platform.
// Each call becomes a row of bot_work with an event in the stream of work, and the same
// call made again finds the same row. In the foreground a call waits for the bot's answer
// until its context ends. In the background a call only asks the bot; the unit that stores
// the bot's answer makes the ticket or giveaway due, and so the call is made again.
//
// A call that the bot has not answered yet fails with ErrAsked; the bot may have carried
// it out. A call that the bot has refused fails with ErrFinal.
type Work struct {
	db    *db.DB
	log   *slog.Logger
	asked func(guild string) // something was asked for of the guild's bot

	rung    chan struct{} // signals Run to poll at once
	mu      sync.Mutex
	waiting map[*waiting]struct{}
}

// waiting is a call that waits for its answer.
type waiting struct {
	piece  db.Found
	answer chan piece // buffered, with room for one answer
}

// pollInterval is the time between two polls for answers that other nodes have stored.
const pollInterval = 250 * time.Millisecond

// NewWork returns a Work that calls asked, unless asked is nil, after each request to the
// bot. Calls in the foreground get no answer until Run runs.
func NewWork(d *db.DB, log *slog.Logger, asked func(guild string)) *Work {
	if asked == nil {
		asked = func(string) {}
	}
	return &Work{db: d, log: log, asked: asked, rung: make(chan struct{}, 1), waiting: map[*waiting]struct{}{}}
}

// Run polls for the answers that calls wait for, until ctx ends.
func (w *Work) Run(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var quietly logging.Sometimes
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.rung:
		case <-tick.C:
		}
		if err := w.poll(ctx); err != nil && ctx.Err() == nil && quietly.Due("poll", time.Now(), logging.Interval) {
			w.log.WarnContext(ctx, "poll for answers of the bot", "error", err)
		}
	}
}

// Wake makes Run poll at once if a call of the guild waits; an empty guild stands for any
// guild. A node calls Wake after it has committed a unit that may have stored an answer.
// Wake never blocks.
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

// poll reads the stored answers of the waiting calls and hands each call its answer.
func (w *Work) poll(ctx context.Context) error {
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

// await waits for the answer to a piece of work until ctx ends, and returns the piece with
// the answer, or as it was. In the background it returns at once.
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

// do asks the bot for a task and returns the id of the message that the bot has posted, if
// the task was to post one.
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

// outcome returns the result of the call that the piece of work belongs to.
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

// CheckChannel accepts every channel: the bot judges to which guild a channel belongs.
func (*Work) CheckChannel(context.Context, Channel) error { return nil }

// SendMessage asks the bot to post m.
func (w *Work) SendMessage(ctx context.Context, m Message) (string, error) {
	return w.do(ctx, posting(m))
}

// EditMessage asks the bot to edit the message of a giveaway.
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

// LockOf returns an empty lock: the bot itself keeps what archiving changes.
func (*Work) LockOf(context.Context, Channel, string) (Lock, error) { return Lock{}, nil }

// ArchiveChannel asks the bot to close the channel.
func (w *Work) ArchiveChannel(ctx context.Context, c Channel, _ Lock) error {
	return w.channel(ctx, c, workCloseChannel, "archive")
}

// DeleteChannel asks the bot to delete the channel.
func (w *Work) DeleteChannel(ctx context.Context, c Channel) error {
	return w.channel(ctx, c, workCloseChannel, "delete")
}

// RestoreChannel asks the bot to open the channel again.
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

// Reactors asks the bot to write the entries by records, and returns no reactors when the
// bot has done so.
func (w *Work) Reactors(ctx context.Context, c Channel, messageID, _ string, _ Reaction, _ string) ([]Reactor, error) {
	t := c.task(workCollectEntries, messageID)
	t.request.GiveawayID, t.request.MessageID = &t.subject, &messageID
	_, err := w.do(ctx, t)
	return nil, err
}
