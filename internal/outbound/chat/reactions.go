package chat

import (
	"context"
	"net/url"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/disgo/rest"
)

// Reactor is a user who has reacted to a message.
type Reactor struct {
	UserID string `json:"id"`
	Bot    bool   `json:"bot"`
}

// ReactorsPage is the most reactors that one call returns. Fewer mean that it is the last page.
const ReactorsPage = 100

// Reaction is a type of reaction, as the platform numbers them.
type Reaction int

// The types of reactions. A member may have reacted in both ways.
const (
	Normal Reaction = 0
	Super  Reaction = 1
)

// Reactions is the part of Platform for reactions to messages. An emoji is passed as the character
// itself.
type Reactions interface {
	// AddReaction adds the bot's own reaction to a message. The call may be repeated.
	AddReaction(ctx context.Context, c Channel, messageID, emoji string) error
	// Reactors returns the users who have reacted to a message with an emoji in the given way and
	// whose id is greater than after, in the order of their ids. An empty after starts at the
	// beginning.
	Reactors(ctx context.Context, c Channel, messageID, emoji string, way Reaction, after string) ([]Reactor, error)
}

// AddReaction adds the bot's own reaction.
func (d *Discord) AddReaction(ctx context.Context, c Channel, messageID, emoji string) error {
	return d.in(ctx, c, rest.AddReaction.Compile(nil, c.ID, messageID, url.PathEscape(emoji)), nil, nil)
}

// Reactors returns one page of reactors.
func (d *Discord) Reactors(ctx context.Context, c Channel, messageID, emoji string, way Reaction, after string) ([]Reactor, error) {
	query := discord.QueryValues{"limit": ReactorsPage, "type": int(way)}
	if after != "" {
		query["after"] = after
	}
	var page []Reactor
	err := d.in(ctx, c, rest.GetReactions.Compile(query, c.ID, messageID, url.PathEscape(emoji)), nil, &page)
	if err != nil {
		return nil, err
	}
	return page, nil
}

// AddReaction logs the call.
func (s *StandIn) AddReaction(ctx context.Context, c Channel, messageID, _ string) error {
	s.log.InfoContext(ctx, "chat stand-in: reaction added", "channel_id", c.ID, "message_id", messageID)
	return nil
}

// Reactors returns the stand-in's members.
func (s *StandIn) Reactors(_ context.Context, _ Channel, _, _ string, way Reaction, after string) (list []Reactor, err error) {
	for _, user := range s.members {
		if way == Normal && Later(user, after) {
			list = append(list, Reactor{UserID: user})
		}
	}
	return list, nil
}

// Later reports whether the snowflake a is numerically greater than b, which means later in time.
func Later(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}
