package chat

import (
	"context"
	"errors"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/disgo/rest"
)

// ErrNotInGuild says that the bot is not a member of a guild.
var ErrNotInGuild = errors.New("the bot is not in the guild")

// rights are what the bot needs in a guild, in the words of the platform, and what
// only guilds need of it that have the channels of closed tickets archived, or
// deleted. A bot can deny only what it may do itself: so to lock a channel takes all
// of writing. docs/operate/discord.md has the list.
var rights = []struct {
	name    string
	bit     discord.Permissions
	closing string // empty: every guild
}{
	{"View Channels", discord.PermissionViewChannel, ""},
	{"Send Messages", discord.PermissionSendMessages, ""},
	{"Send Messages in Threads", discord.PermissionSendMessagesInThreads, ""},
	{"Read Message History", discord.PermissionReadMessageHistory, ""},
	{"Add Reactions", discord.PermissionAddReactions, ""},
	{"Manage Threads", discord.PermissionManageThreads, ""},
	{"Manage Roles", discord.PermissionManageRoles, "archive"},
	{"Create Public Threads", discord.PermissionCreatePublicThreads, "archive"},
	{"Create Private Threads", discord.PermissionCreatePrivateThreads, "archive"},
	{"Manage Channels", discord.PermissionManageChannels, "delete"},
}

// Bot asks the platform who the bot is, and thereby whether it takes the token.
func (d *Discord) Bot(ctx context.Context) (id string, err error) {
	var user struct {
		ID string `json:"id"`
	}
	if err := d.do(ctx, Channel{}, rest.GetCurrentUser.Compile(nil), nil, &user); err != nil {
		return "", err
	}
	return user.ID, nil
}

// Lacks asks the platform which of the rights that it needs the bot does not
// have in a guild, by their names; closing is what the guild has done with the channel
// of a closed ticket: archive or delete. A channel may still take rights away, or give
// them. It is ErrNotInGuild where the bot is no member.
func (d *Discord) Lacks(ctx context.Context, guild, bot, closing string) ([]string, error) {
	var about guildAbout
	var member memberAbout
	in := Channel{GuildID: guild}
	if err := d.do(ctx, in, rest.GetGuild.Compile(nil, guild), nil, &about); err != nil {
		return nil, absent(err)
	}
	if err := d.do(ctx, in, rest.GetMember.Compile(nil, guild, bot), nil, &member); err != nil {
		return nil, absent(err)
	}
	has, err := about.permissions(guild, member)
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, r := range rights {
		if (r.closing == "" || r.closing == closing) && !has.Has(r.bit) && !has.Has(discord.PermissionAdministrator) {
			lacks = append(lacks, r.name)
		}
	}
	return lacks, nil
}
