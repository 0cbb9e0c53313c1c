package giveaways

import (
	"context"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/lanes"
	"guildhall/internal/outbound/chat"
)

// The slots of each lane, and how often they poll. A draw holds a database connection; the others
// hold none while they call the platform.
const (
	drawSlots        = 4
	gatherSlots      = 16
	reactSlots       = 8
	editSlots        = 8
	announceSlots    = 16
	drawInterval     = 200 * time.Millisecond
	slowInterval     = time.Second
	announceInterval = 200 * time.Millisecond
	announceTimeout  = 30 * time.Second
)

// The queues of giveaways. The conditions equal the predicates of partial indexes.
var (
	toDraw   = lanes.Queue{Table: "giveaways", At: "redraw_at", Failures: "failures", Condition: `status = 'drawing' AND pot <> 'gathering'`}
	toGather = lanes.Queue{Table: "giveaways", At: "redraw_at", Failures: "failures", Condition: `status = 'drawing' AND pot = 'gathering'`}
	toReact  = lanes.Queue{Table: "giveaways", At: "react_at", Failures: "failures", Condition: `react_at IS NOT NULL`}
	toEdit   = lanes.Queue{Table: "giveaways", At: "edit_at", Failures: "edit_failures", Condition: `edit_at IS NOT NULL`}
)

// Lanes returns the lanes for giveaways: drawing, reading reactions, adding the bot's own reaction,
// and editing the message when a giveaway has ended and when it has winners.
func Lanes(d *db.DB, p chat.Platform) []lanes.Lane {
	return []lanes.Lane{
		{Kind: "draw", Queue: toDraw, Slots: drawSlots, Interval: drawInterval, Do: func(ctx context.Context, guild, id string) error {
			return Draw(ctx, d, guild, id)
		}},
		{Kind: "gather", Queue: toGather, Slots: gatherSlots, Interval: slowInterval, Do: func(ctx context.Context, guild, id string) error {
			return Gather(chat.Background(ctx), d, p, guild, id)
		}},
		{Kind: "react", Queue: toReact, Slots: reactSlots, Interval: slowInterval, Do: func(ctx context.Context, guild, id string) error {
			return React(chat.Background(ctx), d, p, guild, id)
		}},
		{Kind: "edit", Queue: toEdit, Slots: editSlots, Interval: slowInterval, Do: func(ctx context.Context, guild, id string) error {
			return Edit(chat.Background(ctx), d, p, guild, id)
		}},
	}
}

// Announcing returns the lane that posts announcements about giveaways.
func Announcing(d *db.DB, p chat.Platform) lanes.Lane {
	return lanes.Lane{
		Kind: "announce_giveaway", Queue: chat.Announcements, Slots: announceSlots, Interval: announceInterval, Timeout: announceTimeout,
		Do: func(ctx context.Context, guild, intent string) error {
			return Announce(chat.Background(ctx), d, p, guild, intent)
		},
	}
}
