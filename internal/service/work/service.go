// Package work receives the answers of the operator's bot, if the bot acts on the chat platform.
// Package chat asks the bot; the domains handle the consequences of an answer.
package work

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/outbound/chat"
)

// Follow handles the consequences of an answer, in the transaction that stores it.
type Follow func(ctx context.Context, tx *db.Tx, a chat.Answered) error

// Service implements the operation of the tag Work.
type Service struct {
	Tickets, Giveaways Follow
}

// AnswerBotWork stores the bot's answer. The first answer counts.
func (s *Service) AnswerBotWork(ctx context.Context, r gen.AnswerBotWorkRequestObject) (gen.AnswerBotWorkResponseObject, error) {
	tx, by := db.Write(ctx), auth.From(ctx)
	var a chat.Answer
	switch {
	case r.Body.Refused != nil:
		a.Refused = r.Body.Refused.Reason
	case r.Body.Done.MessageID != nil:
		a.MessageID = *r.Body.Done.MessageID
	}
	guild, err := chat.FindWork(ctx, tx, by.Guilds(), r.ID, a)
	if err != nil {
		return nil, err
	}
	done, err := s.apply(ctx, tx, guild, r.ID, by.ID, a)
	if err != nil {
		return nil, err
	}
	return gen.AnswerBotWork200JSONResponse{Data: gen.BotWork{WorkID: done.ID, Result: done.Result, MessageID: done.MessageID}}, nil
}

func (s *Service) apply(ctx context.Context, tx *db.Tx, guild, id, by string, a chat.Answer) (chat.Answered, error) {
	done, first, err := chat.AnswerWork(ctx, tx, guild, id, by, a)
	switch {
	case err != nil || !first:
		return done, err
	case done.TicketID != "":
		return done, s.Tickets(ctx, tx, done)
	}
	return done, s.Giveaways(ctx, tx, done)
}

// Expire refuses work that was not answered before its deadline. A sweep calls it; several may run
// at once.
func (s *Service) Expire(ctx context.Context, d *db.DB) error {
	return db.Sweep{What: "work that nobody has answered", Due: chat.WorkOverdue, Look: 1000, Chunk: 100, AtOnce: 2, Do: s.expire}.Run(ctx, d)
}

func (s *Service) expire(ctx context.Context, tx *db.Tx, guild string, ids []string) (int, error) {
	for _, id := range ids {
		if _, err := s.apply(ctx, tx, guild, id, "", chat.Answer{Refused: chat.Unanswered}); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}
