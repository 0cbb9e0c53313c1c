package giveaways_test

import (
	"context"
	"strconv"

	"guildhall/internal/outbound/chat"
)

// crowd is a platform on which n members have reacted to every message. It sometimes kills the
// reader of the reactions right after it has returned a page.
type crowd struct {
	chat.StandIn
	n, calls, dieAfter int
	die                context.CancelFunc
}

// Reactors returns consecutive user ids from 10^17 on.
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

// EditMessage does nothing.
func (c *crowd) EditMessage(context.Context, chat.Channel, string, string) error { return nil }
