package chat

import (
	"context"
	"crypto/sha256"
	"errors"
	"math/big"
	"time"

	"golang.org/x/sync/errgroup"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// The kinds of messages.
const (
	KindTicketMessage    = "ticket_message"
	KindGiveawayStarted  = "giveaway_started"
	KindGiveawayResumed  = "giveaway_resumed"
	KindGiveawayEnded    = "giveaway_ended"
	KindGiveawayRerolled = "giveaway_rerolled"
)

// The states in which an intent can end.
const (
	Sent    = "sent"    // the message was posted
	Refused = "refused" // the message was certainly not posted
	Unknown = "unknown" // the message may have been posted
)

// nonceWindow is how long after the first attempt we rely on the platform to remember the nonce.
// The platform promises "a few minutes".
const nonceWindow = 120 * time.Second

// Lease is how long one attempt owns an intent. It is longer than a call's budget.
const Lease = 15 * time.Second

// Intent is a message that the bot is to post. It is stored before the platform is called, and its
// state is recorded afterwards.
type Intent struct {
	GuildID   string  `db:"guild_id"`
	ID        string  `db:"id"`
	Kind      string  `db:"kind"`
	SubjectID string  `db:"subject_id"`
	ChannelID string  `db:"channel_id"`
	ReplyTo   *string `db:"reply_to"`
	Content   string  `db:"content"`
	// Mentions are the users that the message notifies.
	Mentions    db.Strings `db:"mentions"`
	AuthorID    *string    `db:"author_id"`
	TokenID     *string    `db:"token_id"`
	Key         *string    `db:"key"`
	Fingerprint []byte     `db:"fingerprint"`
	Nonce       string     `db:"nonce"`
	State       string     `db:"state"`
	FirstSentAt time.Time  `db:"first_sent_at"`
	MessageID   *string    `db:"message_id"`
	LeaseGen    int64      `db:"lease_gen"`
	CreatedAt   time.Time  `db:"created_at"`
	// TryAt is when a lane posts the message or retries; nil: no lane posts it, because it is a
	// ticket's message or the operator's bot has been asked to post it.
	TryAt *time.Time `db:"try_at"`
	// Take sets both: Tried if the message may have been posted before, Late if that is so long ago
	// that the platform may have forgotten the nonce.
	Tried bool `db:"tried"`
	Late  bool `db:"late"`
}

// Nonce returns the nonce of an intent's message: 22 characters made from the intent's id.
func Nonce(intentID string) string {
	sum := sha256.Sum256([]byte(intentID))
	text := new(big.Int).SetBytes(sum[:16]).Text(62)
	for len(text) < 22 {
		text = "0" + text
	}
	return text
}

const intentColumns = `i.guild_id, i.id, i.kind, i.subject_id, i.channel_id, i.reply_to, i.content, i.mentions, i.author_id, i.token_id,
	i.key, i.fingerprint, i.nonce, i.state, coalesce(i.first_sent_at, i.created_at) AS first_sent_at, i.message_id, i.lease_gen, i.created_at, i.try_at`

// Prepare stores an intent with a new id in the caller's transaction. Nothing is sent until the
// intent is taken: by its request for a ticket's message, otherwise by a lane.
func Prepare(ctx context.Context, tx *db.Tx, in Intent) (Intent, error) {
	in.ID = db.NewID()
	stored, err := db.Get[Intent](ctx, tx, `
		INSERT INTO chat_intents AS i (guild_id, id, kind, subject_id, channel_id, reply_to, content, author_id, token_id, key, fingerprint, nonce, mentions, try_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, CASE WHEN $14 THEN now() END)
		RETURNING `+intentColumns,
		in.GuildID, in.ID, in.Kind, in.SubjectID, in.ChannelID, in.ReplyTo, in.Content, in.AuthorID,
		in.TokenID, in.Key, in.Fingerprint, Nonce(in.ID), in.Mentions, in.Kind != KindTicketMessage)
	return stored, fault.Wrap(err, "store the intent to say something in channel", in.ChannelID)
}

// ErrTaken is returned while another sender holds the intent's lease.
var ErrTaken = errors.New("the message is being sent by somebody else")

// Take makes the caller the sender of the intent's message for the duration of Lease. An intent
// that was already sent is returned unchanged; for an intent under another sender's lease the error
// is ErrTaken.
//
// first_sent_at is the time from which on the message may have been posted. It is kept until it is
// certain that nothing was posted: the intent was refused at its only attempt, or the channel has
// been read.
func Take(ctx context.Context, tx *db.Tx, guild, id string) (Intent, error) {
	in, err := db.Get[Intent](ctx, tx, `
		UPDATE chat_intents i
		SET state = 'sending', lease_until = was.lease, lease_gen = i.lease_gen + 1,
		    first_sent_at = coalesce(i.first_sent_at, was.now), try_at = CASE WHEN i.kind <> 'ticket_message' THEN was.lease END
		FROM (
			SELECT guild_id, id, first_sent_at, now() AS now, now() + make_interval(secs => $3) AS lease, coalesce(first_sent_at < now() - make_interval(secs => $4), false) AS late
			FROM chat_intents
			WHERE guild_id = $1 AND id = $2
			  AND (state IN ('pending', 'refused', 'unknown') OR state = 'sending' AND lease_until <= now())
			FOR NO KEY UPDATE) was
		WHERE i.guild_id = $1 AND i.id = was.id
		RETURNING `+intentColumns+`, was.first_sent_at IS NOT NULL AS tried, was.late`,
		guild, id, Lease.Seconds(), nonceWindow.Seconds())
	if err == nil {
		return in, nil
	}
	if db.Missing(err) {
		in, err = Get(ctx, tx, guild, id)
		if err == nil && in.State != Sent {
			return Intent{}, ErrTaken
		}
	}
	return in, fault.Wrap(err, "take intent", id, "of guild", guild)
}

// Get returns an intent, or the error db.Missing.
func Get(ctx context.Context, tx *db.Tx, guild, id string) (Intent, error) {
	return db.Get[Intent](ctx, tx, `SELECT `+intentColumns+` FROM chat_intents i WHERE guild_id = $1 AND id = $2`, guild, id)
}

// Resume finds and locks the intent of an earlier run of the same request, or returns nil. The
// intent is unfinished, or it was finished after its caller had got an error, so that the request's
// key has no response.
func Resume(ctx context.Context, tx *db.Tx, guild, token, key string, fingerprint []byte) (*Intent, error) {
	in, err := db.Get[Intent](ctx, tx, `
		SELECT `+intentColumns+`, i.first_sent_at IS NOT NULL AS tried
		FROM chat_intents i
		WHERE token_id = $2 AND key = $3 AND guild_id = $1 AND fingerprint = $4
		  AND created_at > now() - interval '24 hours'
		ORDER BY created_at DESC
		LIMIT 1
		FOR NO KEY UPDATE`, guild, token, key, fingerprint)
	switch {
	case db.Missing(err):
		return nil, nil
	case err != nil:
		return nil, fault.Wrap(err, "find the intent of a repeated request in guild", guild)
	}
	return &in, nil
}

// Deliver posts the message of an intent that the caller has taken, and returns the platform's id
// of the message (empty if it has been deleted since). It holds no database connection while it
// calls the platform.
//
// If the message may have been posted so long ago that the platform has forgotten the nonce,
// Deliver first searches the channel. If the channel cannot be read, nothing is posted and the
// outcome stays unknown.
//
// channelID is the channel where the message belongs now: a message that was certainly not posted
// is posted there, whichever channel was intended before.
func Deliver(ctx context.Context, d db.Doer, p Platform, in *Intent, channelID string) (string, error) {
	if in.Late {
		id, err := Find(ctx, d, p, in)
		if id != "" || err != nil {
			return id, err
		}
	}
	if !in.Tried && (in.Late || in.ChannelID != channelID) {
		if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			n, err := db.Exec(ctx, tx, `
				UPDATE chat_intents SET first_sent_at = now(), channel_id = $4
				WHERE guild_id = $1 AND id = $2 AND lease_gen = $3 AND state = 'sending'`, in.GuildID, in.ID, in.LeaseGen, channelID)
			if err == nil && n == 0 {
				err = ErrTaken
			}
			return err
		}); err != nil {
			return "", fault.Wrap(err, "note a new attempt of intent", in.ID)
		}
		in.ChannelID, in.Late = channelID, false
	}
	return p.SendMessage(ctx, in.message())
}

// message returns the intent's Message.
func (in Intent) message() Message {
	m := Message{
		Channel: Channel{in.GuildID, in.ChannelID, Purpose{SubjectID: in.SubjectID}},
		Content: in.Content, Nonce: in.Nonce, Mentions: in.Mentions, Kind: in.Kind, IntentID: in.ID,
	}
	if in.ReplyTo != nil {
		m.ReplyTo = *in.ReplyTo
	}
	return m
}

// Find searches the channel for the message of an intent that may have been posted before, and
// returns the message's id. It returns "" if the message was not posted, and stores that in the
// intent. A message that belongs to another intent is not counted.
func Find(ctx context.Context, d db.Doer, p Platform, in *Intent) (string, error) {
	ids, err := p.FindMessages(ctx, in.message(), in.FirstSentAt.Add(-5*time.Second))
	if f, ok := errors.AsType[*Failure](err); ok {
		if f.Code == CodeUnknownChannel && f.Lasting() {
			in.Tried = false // if the channel is gone, so are its messages
			return "", nil
		}
		if f.unsent == unsentAsked {
			return "", f
		}
		unread := *f
		unread.Uncertain, unread.NotAllowed = true, false
		return "", &unread
	}
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		var taken bool
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			taken, err = db.Get[bool](ctx, tx, `
				SELECT EXISTS (SELECT FROM chat_intents WHERE guild_id = $1 AND channel_id = $2 AND message_id = $3 AND id <> $4)`,
				in.GuildID, in.ChannelID, id, in.ID)
			return err
		})
		if err != nil {
			return "", fault.Wrap(err, "compare message", id, "with other intents")
		}
		if !taken {
			return id, nil
		}
	}
	in.Tried = false
	return "", nil
}

// RecordResult records the state of an intent in the caller's transaction. False means that another
// sender has taken over the lease, so the caller must roll back.
//
// If the operator's bot has meanwhile answered for the message, the intent does not become unknown;
// it is taken again when the lease ends.
func RecordResult(ctx context.Context, tx *db.Tx, in Intent, state, messageID string) (bool, error) {
	ours, err := db.Select[bool](ctx, tx, `
		UPDATE chat_intents
		SET state = CASE WHEN $4 = 'unknown' AND message_id IS NOT NULL THEN 'sending' ELSE $4 END,
		    message_id = coalesce(nullif($5, ''), message_id),
		    lease_until = CASE WHEN $4 = 'unknown' AND message_id IS NOT NULL THEN lease_until END,
		    first_sent_at = CASE WHEN $4 = 'refused' THEN NULL ELSE first_sent_at END,
		    try_at = CASE WHEN $4 <> 'sent' THEN try_at END
		WHERE guild_id = $1 AND id = $2 AND lease_gen = $3 AND state = 'sending'
		RETURNING true`, in.GuildID, in.ID, in.LeaseGen, state, messageID)
	return len(ours) == 1, fault.Wrap(err, "record the result of intent", in.ID, "of guild", in.GuildID)
}

// Recorded reports whether the intent has the state under the caller's lease, set by a transaction
// of the caller whose COMMIT had an uncertain outcome.
func Recorded(ctx context.Context, q db.Querier, in Intent, state string) (done bool, err error) {
	done, err = db.Get[bool](ctx, q, `
		SELECT EXISTS (SELECT FROM chat_intents WHERE guild_id = $1 AND id = $2 AND lease_gen = $3 AND state = $4)`,
		in.GuildID, in.ID, in.LeaseGen, state)
	return done, fault.Wrap(err, "look what became of intent", in.ID, "of guild", in.GuildID)
}

// PostedAs returns the platform's id of an intent's message, or "" if there is none or none is
// known.
func PostedAs(ctx context.Context, q db.Querier, in Intent) (messageID string, err error) {
	messageID, err = db.Get[string](ctx, q, `
		SELECT coalesce(message_id, '')
		FROM chat_intents
		WHERE guild_id = $1 AND id = $2`, in.GuildID, in.ID)
	if db.Missing(err) {
		return "", nil
	}
	return messageID, fault.Wrap(err, "look as what intent", in.ID, "of guild", in.GuildID, "was posted")
}

// Taken reports whether the transaction has committed in which the caller took the intent.
func Taken(ctx context.Context, d db.Doer, in Intent) (taken bool, err error) {
	err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		taken, err = Recorded(ctx, tx, in, "sending")
		return err
	})
	return taken, err
}

// Outcome returns the state of an intent after a failed delivery. Even a certain refusal says
// nothing about earlier attempts.
func (in Intent) Outcome(err error) string {
	if f, ok := errors.AsType[*Failure](err); ok && !f.Uncertain && (!in.Tried || f.unsent == unsentRefused) {
		return Refused
	}
	return Unknown
}

// Post posts the message of an intent that the caller has taken, and records the result. In the
// transaction that records a posted message it calls posted, unless posted is nil or the lease was
// lost. It returns nil once the message is posted; after any other error the intent has to be taken
// and posted again. ErrAsked means that the operator's bot has been asked: its answer makes the
// intent due by TryAgain.
func Post(ctx context.Context, d db.Doer, p Platform, in Intent, posted func(ctx context.Context, tx *db.Tx, messageID string) error) error {
	message, failed := Deliver(ctx, d, p, &in, in.ChannelID)
	state := Sent
	if failed != nil {
		state = in.Outcome(failed)
	}
	err := d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		ours, err := RecordResult(ctx, tx, in, state, message)
		if err != nil || !ours {
			return err
		}
		if errors.Is(failed, ErrAsked) {
			return leaveToBot(ctx, tx, in)
		}
		if message == "" || posted == nil {
			return err
		}
		return posted(ctx, tx, message)
	})
	return errors.Join(failed, err)
}

// Abandoned returns up to limit intents of a kind whose sender has disappeared: intents whose lease
// has ended, and intents older than a minute that were never taken.
func Abandoned(ctx context.Context, d db.Doer, kind string, limit int) ([]Intent, error) {
	var list []Intent
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		list, err = db.Select[Intent](ctx, tx, `
			SELECT `+intentColumns+` FROM chat_intents i
			WHERE kind = $1
			  AND (state = 'sending' AND lease_until <= now() OR state = 'pending' AND created_at <= now() - interval '1 minute')
			  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = i.guild_id AND g.removed_at IS NOT NULL)
			ORDER BY created_at
			LIMIT $2`, kind, limit)
		return err
	})
	return list, fault.Wrap(err, "look for abandoned intents")
}

// Sweep calls finish for the abandoned intents of the given kinds, a few concurrently, so that one
// slow channel does not delay the others. A panic fails only the one intent.
func Sweep(ctx context.Context, d db.Doer, limit int, finish func(context.Context, Intent) error, kinds ...string) error {
	var group errgroup.Group
	group.SetLimit(8)
	var failed error
	for _, kind := range kinds {
		left, err := Abandoned(ctx, d, kind, limit)
		failed = errors.Join(failed, err)
		for _, in := range left {
			group.Go(func() error {
				return fault.Wrap(fault.Caught(func() error { return finish(ctx, in) }), "finish intent", in.ID)
			})
		}
	}
	return errors.Join(failed, group.Wait())
}

// Expired returns the expiry of intents and work that no caller can refer to any more.
func Expired() []db.Expiry {
	return []db.Expiry{{
		Table: "chat_intents", Key: "id", Since: "created_at", Kept: "48 hours",
		And: "t.state IN ('sent', 'refused', 'unknown')",
	}, {
		Table: "bot_work", Key: "id", Since: "created_at", Kept: "48 hours",
		And: "t.result IS NOT NULL",
	}}
}
