package doctor

import (
	"context"
	"time"

	"guildhall/internal/base/db"
)

// slowWork is the age from which on unanswered work of the bot is reported.
const slowWork = 10 * time.Minute

// work finds work that the operator's bot was asked for and has not answered.
func (x *examination) work(ctx context.Context) Finding {
	type waiting struct {
		Pieces int  `db:"pieces"`
		Oldest *int `db:"oldest"` // in seconds
	}
	open, err := db.Get[waiting](ctx, x.db.Reader(), `
		SELECT count(*) AS pieces, extract(epoch FROM now() - min(created_at))::int AS oldest
		FROM bot_work
		WHERE result IS NULL`)
	switch {
	case err != nil:
		return fail("the work for the bot could not be read: %v", err)
	case open.Pieces == 0:
		return ok("GUILDHALL_DISCORD_URL is bot: the chat platform is not asked, and no work waits for the bot")
	}
	oldest := time.Duration(*open.Oldest) * time.Second
	if oldest < slowWork {
		return ok("GUILDHALL_DISCORD_URL is bot: the chat platform is not asked; pieces of work that wait for the bot: %d", open.Pieces)
	}
	return warn("the bot has not answered %d pieces of work, the oldest for %v; is it fetching from the stream work, and answering?", open.Pieces, oldest)
}
