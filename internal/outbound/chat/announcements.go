package chat

import (
	"context"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
)

// Withdraw deletes an intent whose message has certainly not been posted, so
// that nobody will post it. It returns false when the message is posted, or may
// be. The operator's bot is no longer asked for a message that it has not fetched.
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

// State returns the state of an intent; it is empty when there is no such
// intent.
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

// The statement by which announcements are found that nobody is posting.
const unposted = `
	(SELECT ` + intentColumns + `
	FROM chat_intents i
	WHERE state IN ('pending', 'sending')
	  AND kind <> 'ticket_message'
	  AND created_at <= now() - interval '15 seconds'
	  AND (state = 'sending' AND lease_until <= now() OR state = 'pending' AND created_at <= now() - interval '1 minute')
	  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = i.guild_id AND g.removed_at IS NOT NULL)
	ORDER BY created_at
	LIMIT $1)
	UNION ALL
	(SELECT ` + intentColumns + `
	FROM chat_intents i
	WHERE state IN ('refused', 'unknown')
	  AND kind <> 'ticket_message'
	  AND settled_at <= now() - interval '20 minutes'
	  AND settled_at > now() - interval '1 day'
	  AND created_at > now() - interval '1 day'
	  AND NOT EXISTS (SELECT FROM guilds g WHERE g.id = i.guild_id AND g.removed_at IS NOT NULL)
	ORDER BY settled_at
	LIMIT $1)`

// Unposted returns announcements that are to be posted and that no job seems to
// be at: nobody took them for a minute, their sender has vanished, or they
// failed longer ago than the longest pause between two tries. Those older than a
// day are left alone.
func Unposted(ctx context.Context, tx *db.Tx, limit int) ([]Intent, error) {
	list, err := db.Select[Intent](ctx, tx, unposted, limit)
	return list, fault.Wrap(err, "look for announcements that nobody posts")
}
