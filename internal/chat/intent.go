package chat

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"time"

	"guildhall/internal/db"
)

// The kinds of messages.
const (
	KindTicketMessage    = "ticket_message"
	KindGiveawayEnded    = "giveaway_ended"
	KindGiveawayRerolled = "giveaway_rerolled"
)

// The states an intent is left in.
const (
	Sent    = "sent"    // posted
	Refused = "refused" // certainly not posted
	Unknown = "unknown" // perhaps posted
)

// nonceWindow is how long after the first try the platform surely knows the
// nonce. It promises only "a few minutes".
const nonceWindow = 120 * time.Second

// Lease is how long one attempt owns an intent: longer than a call's budget.
const Lease = 15 * time.Second

// Intent is one message the bot was asked to post. It is stored before the
// platform is called, and whoever settles it says what became of it.
type Intent struct {
	GuildID     string    `db:"guild_id"`
	ID          string    `db:"id"`
	Kind        string    `db:"kind"`
	SubjectID   string    `db:"subject_id"`
	ChannelID   string    `db:"channel_id"`
	ReplyTo     *string   `db:"reply_to"`
	Content     string    `db:"content"`
	AuthorID    *string   `db:"author_id"`
	TokenID     *string   `db:"token_id"`
	Key         *string   `db:"key"`
	Fingerprint []byte    `db:"fingerprint"`
	Nonce       string    `db:"nonce"`
	State       string    `db:"state"`
	FirstSentAt time.Time `db:"first_sent_at"`
	MessageID   *string   `db:"message_id"`
	LeaseGen    int64     `db:"lease_gen"`
	CreatedAt   time.Time `db:"created_at"`
	// Late is set by Take when the nonce may be forgotten by now.
	Late bool `db:"late"`
}

// Nonce is the name of an intent's message on the platform: 22 characters made
// from the intent's id.
func Nonce(intentID string) string {
	sum := sha256.Sum256([]byte(intentID))
	text := new(big.Int).SetBytes(sum[:16]).Text(62)
	for len(text) < 22 {
		text = "0" + text
	}
	return text
}

const intentColumns = `guild_id, id, kind, subject_id, channel_id, reply_to, content, author_id, token_id, key, fingerprint,
	nonce, state, coalesce(first_sent_at, now()) AS first_sent_at, message_id, lease_gen, created_at`

// Prepare stores an intent in the caller's unit, with a new id. Nothing is sent
// until somebody takes it.
func Prepare(ctx context.Context, tx *db.Tx, in Intent) (Intent, error) {
	in.ID = db.NewID()
	err := tx.GetContext(ctx, &in, `
		INSERT INTO chat_intents (guild_id, id, kind, subject_id, channel_id, reply_to, content, author_id, token_id, key, fingerprint, nonce)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		RETURNING `+intentColumns,
		in.GuildID, in.ID, in.Kind, in.SubjectID, in.ChannelID, in.ReplyTo, in.Content, in.AuthorID,
		in.TokenID, in.Key, in.Fingerprint, Nonce(in.ID))
	if err != nil {
		return Intent{}, fmt.Errorf("store the intent to say something in channel %s: %w", in.ChannelID, err)
	}
	return in, nil
}

// ErrTaken says that somebody else is sending the intent's message right now.
var ErrTaken = errors.New("the message is being sent by somebody else")

// Take makes the caller the one who sends the intent's message, for as long as
// the lease. An intent that is settled as sent is returned as it is; one that
// somebody else holds is ErrTaken.
func Take(ctx context.Context, tx *db.Tx, guild, id string) (Intent, error) {
	var in Intent
	// After a certain refusal, or when nobody has tried, nothing can have been
	// posted, so the window of the nonce starts anew.
	err := tx.GetContext(ctx, &in, `
		UPDATE chat_intents
		SET state = 'sending', lease_until = now() + make_interval(secs => $3), lease_gen = lease_gen + 1, settled_at = NULL,
		    first_sent_at = CASE WHEN state IN ('pending', 'refused') THEN now() ELSE coalesce(first_sent_at, now()) END
		WHERE guild_id = $1 AND id = $2
		  AND (state IN ('pending', 'refused', 'unknown') OR state = 'sending' AND lease_until <= now())
		RETURNING `+intentColumns+`, first_sent_at < now() - make_interval(secs => $4) AS late`,
		guild, id, Lease.Seconds(), nonceWindow.Seconds())
	if err == nil {
		return in, nil
	}
	if db.Missing(err) {
		err = tx.GetContext(ctx, &in, `SELECT `+intentColumns+` FROM chat_intents WHERE guild_id = $1 AND id = $2`, guild, id)
		if err == nil && in.State != Sent {
			return Intent{}, ErrTaken
		}
	}
	if err != nil {
		return Intent{}, fmt.Errorf("take intent %s of guild %s: %w", id, guild, err)
	}
	return in, nil
}

// Resume finds the unfinished intent of an earlier run of the same request and
// returns its id, or an empty string.
func Resume(ctx context.Context, tx *db.Tx, guild, token, key string, fingerprint []byte) (string, error) {
	var id string
	err := tx.GetContext(ctx, &id, `
		SELECT id FROM chat_intents
		WHERE token_id = $2 AND key = $3 AND guild_id = $1 AND fingerprint = $4
		  AND state <> 'sent' AND created_at > now() - interval '24 hours'
		ORDER BY created_at DESC
		LIMIT 1`, guild, token, key, fingerprint)
	if err != nil && !db.Missing(err) {
		return "", fmt.Errorf("find the intent of a repeated request in guild %s: %w", guild, err)
	}
	return id, nil
}

// Deliver posts the message of an intent that the caller has taken, and returns
// the platform's id for it (empty when it was deleted since). No database
// connection is held while the platform is called.
//
// A message that may have been posted so long ago that its nonce is forgotten
// is looked for in the channel first. Where the channel cannot be read nothing
// is posted: the outcome stays unknown.
func Deliver(ctx context.Context, d db.Doer, p Platform, in Intent) (string, error) {
	if in.Late {
		id, err := Find(ctx, d, p, in)
		if id != "" || err != nil {
			return id, err
		}
		// It is not there, so this is a first sending.
		if err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `
				UPDATE chat_intents SET first_sent_at = now()
				WHERE guild_id = $1 AND id = $2 AND lease_gen = $3`, in.GuildID, in.ID, in.LeaseGen)
			return err
		}); err != nil {
			return "", fmt.Errorf("note a new attempt of intent %s: %w", in.ID, err)
		}
	}
	m := Message{ChannelID: in.ChannelID, Content: in.Content, Nonce: in.Nonce}
	if in.ReplyTo != nil {
		m.ReplyTo = *in.ReplyTo
	}
	return p.SendMessage(ctx, m)
}

// Find looks in the channel for the message of an intent that was tried
// before, and returns its id, or an empty string when it was not posted. A
// message that another intent accounts for is not taken for this one's.
func Find(ctx context.Context, d db.Doer, p Platform, in Intent) (string, error) {
	ids, err := p.FindMessages(ctx, in.ChannelID, in.Content, in.FirstSentAt.Add(-5*time.Second))
	if err != nil {
		if f := (*Failure)(nil); errors.As(err, &f) {
			unread := *f
			unread.Uncertain = true
			return "", &unread
		}
		return "", err
	}
	for _, id := range ids {
		var taken bool
		err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			return tx.GetContext(ctx, &taken, `
				SELECT EXISTS (SELECT FROM chat_intents WHERE channel_id = $1 AND message_id = $2)`, in.ChannelID, id)
		})
		if err != nil {
			return "", fmt.Errorf("compare message %s with other intents: %w", id, err)
		}
		if !taken {
			return id, nil
		}
	}
	return "", nil
}

// Settle records in the caller's unit what became of an intent. False means
// that the caller has lost the lease to somebody else and must undo its unit.
func Settle(ctx context.Context, tx *db.Tx, in Intent, state, messageID string) (bool, error) {
	var ours []bool
	err := tx.SelectContext(ctx, &ours, `
		UPDATE chat_intents
		SET state = $4, message_id = nullif($5, ''), lease_until = NULL, settled_at = now()
		WHERE guild_id = $1 AND id = $2 AND lease_gen = $3 AND state = 'sending'
		RETURNING true`, in.GuildID, in.ID, in.LeaseGen, state, messageID)
	if err != nil {
		return false, fmt.Errorf("settle intent %s of guild %s: %w", in.ID, in.GuildID, err)
	}
	return len(ours) == 1, nil
}

// Outcome is the state that a failed delivery leaves an intent in.
func Outcome(err error) string {
	if f := (*Failure)(nil); errors.As(err, &f) && !f.Uncertain {
		return Refused
	}
	return Unknown
}

// Announce posts the message of a prepared intent once, however often it is
// called: by a job and, after a crash, by another one. It returns nil when the
// message is posted. A *Failure that is lasting means that it never will be; any
// other error asks to be called again.
func Announce(ctx context.Context, d db.Doer, p Platform, guild, id string) error {
	var in Intent
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		in, err = Take(ctx, tx, guild, id)
		return err
	})
	if err != nil || in.State == Sent {
		return err
	}
	message, failed := Deliver(ctx, d, p, in)
	state := Sent
	if failed != nil {
		state = Outcome(failed)
	}
	err = d.Do(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		_, err := Settle(ctx, tx, in, state, message)
		return err
	})
	return errors.Join(failed, err)
}

// Abandoned returns up to limit intents of a kind whose sender has vanished:
// those sent under a lease that is over and, when they are older than a
// minute, those nobody ever took.
func Abandoned(ctx context.Context, d db.Doer, kind string, limit int) ([]Intent, error) {
	var list []Intent
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.SelectContext(ctx, &list, `
			SELECT `+intentColumns+` FROM chat_intents
			WHERE kind = $1
			  AND (state = 'sending' AND lease_until <= now() OR state = 'pending' AND created_at <= now() - interval '1 minute')
			ORDER BY created_at
			LIMIT $2`, kind, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("look for abandoned intents: %w", err)
	}
	return list, nil
}

// Prune deletes up to a thousand intents that nobody can ask for any more.
func Prune(ctx context.Context, d db.Doer) (int, error) {
	var gone []int
	err := d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.SelectContext(ctx, &gone, `
			DELETE FROM chat_intents
			WHERE (guild_id, id) IN (
				SELECT guild_id, id FROM chat_intents
				WHERE created_at < now() - interval '48 hours' AND state IN ('sent', 'refused', 'unknown')
				LIMIT 1000 FOR UPDATE SKIP LOCKED)
			RETURNING 1`)
	})
	if err != nil {
		return 0, fmt.Errorf("prune intents: %w", err)
	}
	return len(gone), nil
}
