package giveaways_test

import (
	"context"
	"strconv"

	"guildhall/internal/outbound/chat"
)

// crowd is a platform on which n members have reacted to every message. The reader of
// the reactions dies now and then, right after a page has been answered.
type crowd struct {
	chat.StandIn
	n, calls, dieAfter int
	die                context.CancelFunc
}

// Reactors counts up from the user 10^17.
func (c *crowd) Reactors(ctx context.Context, _ chat.Channel, _, _ string, way chat.Reaction, after string) ([]chat.Reactor, error) {
	if err := ctx.Err(); err != nil {
		return nil, &chat.Failure{Message: err.Error()}
	}
	if way == chat.Super {
		return nil, nil
	}
	c.calls++
	const first = 100_000_000_000_000_000
	from := 0
	if after != "" {
		last, err := strconv.Atoi(after)
		if err != nil {
			return nil, err
		}
		from = last - first + 1
	}
	page := []chat.Reactor{}
	for i := from; i < c.n && len(page) < chat.ReactorsPage; i++ {
		page = append(page, chat.Reactor{UserID: strconv.Itoa(first + i)})
	}
	if c.dieAfter > 0 && c.calls%c.dieAfter == 0 {
		c.die()
	}
	return page, nil
}

// EditMessage accepts.
func (c *crowd) EditMessage(context.Context, chat.Channel, string, string) error { return nil }
