package chat

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/lanes"
)

// Withdraw deletes an intent whose message has certainly not been posted, so that it is never
// posted. It returns false if the message has been or may have been posted. If the operator's bot
// was asked to post the message and has not fetched the request, the request is withdrawn too.
func Withdraw(ctx context.Context, tx *db.Tx, guild, id string) (bool, error) {
	if err := takeBack(ctx, tx, guild, Nonce(id)); err != nil {
		return false, err
	}
	n, err := db.Exec(ctx, tx, `
		DELETE FROM chat_intents
		WHERE guild_id = $1
		  AND id = $2
		  AND state IN ('pending', 'refused')`, guild, id)
	return n == 1, fault.Wrap(err, "withdraw intent", id, "of guild", guild)
}

// State returns the state of an intent, or "" if there is no such intent.
func State(ctx context.Context, tx *db.Tx, guild, id string) (string, error) {
	state, err := db.Get[string](ctx, tx, `
		SELECT state FROM chat_intents
		WHERE guild_id = $1
		  AND id = $2`, guild, id)
	if err != nil && !db.Missing(err) {
		return "", fault.Wrap(err, "read intent", id, "of guild", guild)
	}
	return state, nil
}

// leaveToBot takes an intent out of its lane until TryAgain, because the operator's bot has been
// asked to post it. It does nothing if TryAgain was called after the caller took the intent.
func leaveToBot(ctx context.Context, tx *db.Tx, in Intent) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE chat_intents
		SET try_at = NULL
		WHERE guild_id = $1
		  AND id = $2
		  AND try_at = $3`, in.GuildID, in.ID, in.TryAt)
	return fault.Wrap(err, "leave intent", in.ID, "of guild", in.GuildID, "to the bot")
}

// TryAgain makes an unposted intent due.
func TryAgain(ctx context.Context, tx *db.Tx, guild, id string) error {
	_, err := db.Exec(ctx, tx, `
		UPDATE chat_intents
		SET try_at = now(), tries = 0
		WHERE guild_id = $1
		  AND id = $2
		  AND state <> 'sent'`, guild, id)
	return fault.Wrap(err, "make intent", id, "of guild", guild, "due")
}

// Announcements is the queue of intents that a lane posts: all except ticket messages, which are
// posted by their requests. An announcement is given up after a day.
var Announcements = lanes.Queue{
	Table: "chat_intents", At: "try_at", Failures: "tries", Condition: "try_at IS NOT NULL", Since: "created_at", MaxAge: 24 * time.Hour,
}
