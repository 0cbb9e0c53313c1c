package chat

import (
	"context"
	"errors"
	"strings"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/event"
)

// The kinds of work.
const (
	workPostMessage      = "post_message"
	workCloseChannel     = "close_channel"
	workReopenChannel    = "reopen_channel"
	workPostGiveaway     = "post_giveaway"
	workEditGiveaway     = "edit_giveaway"
	workAnnounceGiveaway = "announce_giveaway"
	workCollectEntries   = "collect_entries"
)

// An answer is one of these.
const (
	WorkDone    = "done"
	WorkRefused = "refused"
)

// workTime is how long the bot has to answer.
const workTime = 24 * time.Hour

// piece is a piece of work as it is stored.
type piece struct {
	GuildID   string    `db:"guild_id"`
	ID        string    `db:"id"`
	Kind      string    `db:"kind"`
	SubjectID string    `db:"subject_id"`
	IntentID  *string   `db:"intent_id"`
	EventID   string    `db:"event_id"`
	Deadline  time.Time `db:"deadline"`
	Result    *string   `db:"result"` // nil: nobody has answered
	MessageID *string   `db:"message_id"`
	Reason    *string   `db:"reason"`
	Asked     []byte    `db:"asked"` // the event that asks to close a channel, where it is being answered
}

const pieceColumns = `w.guild_id, w.id, w.kind, w.subject_id, w.intent_id, w.event_id, w.deadline, w.result, w.message_id, w.reason`

// task is a request to the bot before it is stored as a piece of work.
type task struct {
	guild, subject, intent string
	request                request
}

// request is the data of the event by which the bot is asked.
type request struct {
	WorkID     string    `json:"work_id"`
	Kind       string    `json:"kind"`
	Deadline   wire.Time `json:"deadline"`
	TicketID   *string   `json:"ticket_id"`
	GiveawayID *string   `json:"giveaway_id"`
	ChannelID  string    `json:"channel_id"`
	MessageID  *string   `json:"message_id"`
	Content    *string   `json:"content"`
	Action     *string   `json:"action"`
}

// task returns the task to do something in the channel. Its id is derived from kind, guild,
// channel, purpose and what, so the same request has the same id. The guild is part of the
// id because other guilds may use the same ids, and the channel because a ticket may move
// and the bot answers by the id alone.
func (c Channel) task(kind, what string) task {
	id := Nonce(strings.Join([]string{kind, c.GuildID, c.ID, c.For.SubjectID, c.For.Change, what}, "/"))
	return task{guild: c.GuildID, subject: c.For.SubjectID, request: request{WorkID: id, Kind: kind, ChannelID: c.ID}}
}

// posting returns the task to post m. Its id is m's nonce.
func posting(m Message) task {
	t := task{guild: m.Channel.GuildID, subject: m.Channel.For.SubjectID, intent: m.IntentID}
	t.request = request{WorkID: m.Nonce, ChannelID: m.Channel.ID, Content: &m.Content}
	switch m.Kind {
	case KindTicketMessage:
		t.request.Kind, t.request.TicketID = workPostMessage, &t.subject
		return t
	case KindGiveawayStarted:
		t.request.Kind = workPostGiveaway
	default:
		t.request.Kind = workAnnounceGiveaway
	}
	t.request.GiveawayID = &t.subject
	if m.ReplyTo != "" {
		t.request.MessageID = &m.ReplyTo
	}
	return t
}

// errBusy reports that the bot has not answered an earlier request about the same subject,
// which must be answered first.
var errBusy = errors.New("the bot has not answered what it was asked for before")

// before returns the kinds of work that must be answered before work of a kind is asked
// for: requests about one channel, or about one giveaway's message, come in order.
func before(kind string) []string {
	switch kind {
	case workCloseChannel, workReopenChannel:
		return []string{workCloseChannel, workReopenChannel}
	case workEditGiveaway:
		return []string{workEditGiveaway}
	}
	return nil
}

// underWay reports whether work of some kinds about a subject is still unanswered.
func underWay(ctx context.Context, tx *db.Tx, guild, subject string, kinds []string) (bool, error) {
	found, err := db.Get[bool](ctx, tx, `
		SELECT EXISTS (
			SELECT FROM bot_work WHERE guild_id = $1 AND subject_id = $2 AND kind = ANY ($3) AND result IS NULL)`,
		guild, subject, db.Array(kinds))
	return found, fault.Wrap(err, "look for what the bot of guild", guild, "is asked for")
}

// ask stores a task as a piece of work, with the event that asks the bot for it, unless the
// piece is stored already. It returns the piece, and whether the piece is new.
func ask(ctx context.Context, tx *db.Tx, t task) (p piece, isNew bool, err error) {
	if p, err = pieceOf(ctx, tx, t.guild, t.request.WorkID); err != nil || p.ID != "" {
		return p, false, err
	}
	if kinds := before(t.request.Kind); kinds != nil {
		busy, err := underWay(ctx, tx, t.guild, t.subject, kinds)
		if err != nil {
			return p, false, err
		}
		if busy {
			return p, false, errBusy
		}
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return p, false, err
	}
	t.request.Deadline = wire.At(now.Add(workTime))
	id, err := event.RecordFor(ctx, tx, event.System(t.guild).On(now), delivery.StreamWork, event.WorkRequested, t.request)
	if err != nil {
		return p, false, err
	}
	p, err = db.Get[piece](ctx, tx, `
		INSERT INTO bot_work AS w (guild_id, id, kind, subject_id, intent_id, event_id, created_at, deadline)
		VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8)
		ON CONFLICT DO NOTHING
		RETURNING `+pieceColumns, t.guild, t.request.WorkID, t.request.Kind, t.subject, t.intent, id, now, t.request.Deadline.Time)
	if db.Missing(err) {
		return p, false, db.Again // another was first
	}
	return p, true, fault.Wrap(err, "ask the bot of guild", t.guild)
}

// pieceOf returns a piece of work of a guild, or the zero piece when there is none.
func pieceOf(ctx context.Context, q db.Querier, guild, id string) (piece, error) {
	p, err := db.Get[piece](ctx, q, `SELECT `+pieceColumns+` FROM bot_work w WHERE guild_id = $1 AND id = $2`, guild, id)
	if db.Missing(err) {
		return piece{}, nil
	}
	return p, fault.Wrap(err, "read work", id, "of guild", guild)
}

// answeredOf returns the pieces, of those named by guilds and ids, that have an answer.
func answeredOf(ctx context.Context, q db.Querier, guilds, ids []string) ([]piece, error) {
	found, err := db.Select[piece](ctx, q, `
		SELECT `+pieceColumns+`
		FROM unnest($1::text[], $2::text[]) AS p (guild_id, id)
		JOIN bot_work w ON w.guild_id = p.guild_id AND w.id = p.id
		WHERE w.result IS NOT NULL`, db.Array(guilds), db.Array(ids))
	return found, fault.Wrap(err, "look for answers of the bot")
}

// Collecting returns the giveaways, of those given, whose entries the bot was asked to write
// and has not confirmed yet.
func Collecting(ctx context.Context, tx *db.Tx, guild string, giveaways []string) ([]string, error) {
	list, err := db.Select[string](ctx, tx, `
		SELECT subject_id
		FROM bot_work
		WHERE guild_id = $1
		  AND subject_id = ANY ($2)
		  AND kind = '`+workCollectEntries+`'
		  AND result IS NULL`, guild, db.Array(giveaways))
	return list, fault.Wrap(err, "look which entries the bot of guild", guild, "is asked for")
}
