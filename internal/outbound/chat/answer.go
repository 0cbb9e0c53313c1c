package chat

import (
	"context"
	"encoding/json"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/delivery"
)

// Answer is the bot's answer to a piece of work: done, with the id of the message that the
// bot has posted if there is one, or refused, with the reason.
type Answer struct {
	MessageID string
	Refused   string
}

// Answered is a piece of work that has its answer.
type Answered struct {
	GuildID, ID string
	Kind        string
	TicketID    string // empty: it is about a giveaway
	GiveawayID  string
	IntentID    string // the message that was to be posted; empty: there was none
	Result      string
	MessageID   *string
	Deleted     string // the channel that the bot has deleted; empty: none
}

// FindWork returns the guild of a piece of work. It searches the given guilds, or all guilds
// when none is given. It returns NotFound when there is no such work, and Invalid when the
// answer does not fit the kind of work.
func FindWork(ctx context.Context, q db.Querier, guilds []string, id string, a Answer) (guild string, err error) {
	type found struct {
		GuildID string `db:"guild_id"`
		Kind    string `db:"kind"`
	}
	f, err := db.Get[found](ctx, q, `
		SELECT guild_id, kind
		FROM bot_work
		WHERE id = $1
		  AND (cardinality($2::text[]) = 0 OR guild_id = ANY ($2::text[]))`, id, db.Array(guilds))
	switch {
	case db.Missing(err):
		return "", fault.New(fault.NotFound, "not_found", "There is no such work.")
	case err != nil:
		return "", fault.Wrap(err, "find work", id)
	}
	posts := f.Kind == workPostMessage || f.Kind == workPostGiveaway || f.Kind == workAnnounceGiveaway
	switch {
	case a.Refused != "" || posts == (a.MessageID != ""):
		return f.GuildID, nil
	case posts:
		return "", fault.New(fault.Invalid, "invalid_request", "body /done/message_id: is required, since a message was to be posted (%s)", f.Kind)
	}
	return "", fault.New(fault.Invalid, "invalid_request", "body /done/message_id: is not expected, since no message was to be posted (%s)", f.Kind)
}

// AnswerWork stores the bot's answer to a task, unless the task has an answer, and acknowledges the
// task's event. After the deadline it stores a refusal instead. first is true if this call has
// stored the answer; the caller then continues with it. Otherwise AnswerWork returns the answer that
// was stored earlier.
//
// If the sender of the task's message has given up (state unknown), the intent is set to sending
// without a lease, so that the next attempt looks for the message. If a sender is at work, it reads
// the stored answer itself.
func AnswerWork(ctx context.Context, tx *db.Tx, guild, id, by string, a Answer) (done Answered, first bool, err error) {
	now, err := tx.Now(ctx)
	if err != nil {
		return done, false, err
	}
	result := WorkDone
	if a.Refused != "" {
		result = WorkRefused
	}
	p, err := db.Get[piece](ctx, tx, `
		UPDATE bot_work w
		SET result = CASE WHEN deadline <= $7 THEN 'refused' ELSE $3 END,
		    message_id = CASE WHEN deadline <= $7 THEN NULL ELSE nullif($4, '') END,
		    reason = CASE WHEN deadline <= $7 THEN '`+Unanswered+`' ELSE nullif($5, '') END,
		    answered_by = nullif($6, ''), answered_at = $7
		WHERE guild_id = $1
		  AND id = $2
		  AND result IS NULL
		RETURNING `+pieceColumns+`, CASE WHEN kind = '`+workCloseChannel+`' THEN (
			SELECT payload FROM webhook_events e WHERE e.guild_id = $1 AND e.id = w.event_id) END AS asked`,
		guild, id, result, a.MessageID, a.Refused, by, now)
	switch {
	case db.Missing(err):
		p, err = pieceOf(ctx, tx, guild, id)
		return p.answered(), false, err
	case err != nil:
		return done, false, fault.Wrap(err, "answer work", id, "of guild", guild)
	}
	if err := delivery.SettleStreamed(ctx, tx, guild, delivery.StreamWork, p.EventID); err != nil {
		return done, false, err
	}
	done = p.answered()
	if done.Deleted, err = p.deleted(); err != nil {
		return done, false, err
	}
	return done, true, p.note(ctx, tx, now)
}

// deleted returns the channel that the bot has deleted, or an empty id. It reads the channel
// from the event that asked for the deletion; an event that is gone names none.
func (p piece) deleted() (channelID string, err error) {
	if p.Asked == nil || *p.Result != WorkDone {
		return "", nil
	}
	var asked struct{ Data request }
	if err := json.Unmarshal(p.Asked, &asked); err != nil {
		return "", fault.Wrap(err, "read what work", p.ID, "of guild", p.GuildID, "asks for")
	}
	if *asked.Data.Action != "delete" {
		return "", nil
	}
	return asked.Data.ChannelID, nil
}

// Unanswered is the reason stored with work that nobody has answered until its deadline.
const Unanswered = "nobody has answered until the deadline"

// note stores the answer with the intent of the message, if the work was to post one.
func (p piece) note(ctx context.Context, tx *db.Tx, now time.Time) error {
	if p.IntentID == nil {
		return nil
	}
	var err error
	if *p.Result == WorkDone {
		_, err = db.Exec(ctx, tx, `
			UPDATE chat_intents
			SET message_id = $3, state = 'sending', lease_until = CASE WHEN state = 'unknown' THEN $4 ELSE lease_until END
			WHERE guild_id = $1
			  AND id = $2
			  AND state IN ('sending', 'unknown')`, p.GuildID, *p.IntentID, *p.MessageID, now)
	} else {
		_, err = db.Exec(ctx, tx, `
			UPDATE chat_intents
			SET state = 'refused', first_sent_at = NULL
			WHERE guild_id = $1
			  AND id = $2
			  AND state = 'unknown'`, p.GuildID, *p.IntentID)
	}
	return fault.Wrap(err, "note the answer to work", p.ID, "of guild", p.GuildID)
}

func (p piece) answered() Answered {
	a := Answered{GuildID: p.GuildID, ID: p.ID, Kind: p.Kind, MessageID: p.MessageID}
	if p.Result != nil {
		a.Result = *p.Result
	}
	if p.IntentID != nil {
		a.IntentID = *p.IntentID
	}
	switch p.Kind {
	case workPostMessage, workCloseChannel, workReopenChannel:
		a.TicketID = p.SubjectID
	default:
		a.GiveawayID = p.SubjectID
	}
	return a
}

// WorkOverdue is the query for at most $1 pieces of work that are past their deadline and
// unanswered.
const WorkOverdue = `
	SELECT guild_id, id
	FROM bot_work
	WHERE result IS NULL
	  AND deadline <= now()
	  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = guild_id AND g.removed_at IS NOT NULL)
	ORDER BY deadline
	LIMIT $1`

// takeBack refuses a piece of work, unless the bot has fetched it already.
func takeBack(ctx context.Context, tx *db.Tx, guild, id string) error {
	events, err := db.Select[string](ctx, tx, `
		SELECT event_id
		FROM bot_work
		WHERE guild_id = $1
		  AND id = $2
		  AND result IS NULL
		FOR NO KEY UPDATE`, guild, id)
	if err != nil || len(events) == 0 {
		return fault.Wrap(err, "look for work", id, "of guild", guild)
	}
	unseen, err := delivery.TakeBackStreamed(ctx, tx, guild, delivery.StreamWork, events[0])
	if err == nil && unseen {
		_, _, err = AnswerWork(ctx, tx, guild, id, "", Answer{Refused: "withdrawn"})
	}
	return err
}
