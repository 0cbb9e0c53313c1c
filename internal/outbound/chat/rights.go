package chat

import (
	"context"
	"errors"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/disgo/rest"
)

// ErrNotInGuild is returned when the bot is not a member of a guild.
var ErrNotInGuild = errors.New("the bot is not in the guild")

// rights lists the permissions that the bot needs in a guild, under the platform's names; some are
// needed only in guilds that archive or delete the channels of closed tickets. A bot can deny only
// permissions that it has, so locking a channel needs all of writing. docs/operate/discord.md lists
// them too.
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

// Bot asks the platform for the bot's id, which also shows whether the token is accepted.
func (d *Discord) Bot(ctx context.Context) (id string, err error) {
	var user struct {
		ID string `json:"id"`
	}
	if err := d.do(ctx, Channel{}, rest.GetCurrentUser.Compile(nil), nil, &user); err != nil {
		return "", err
	}
	return user.ID, nil
}

// Lacks returns the names of the needed permissions that the bot lacks in a guild. closing is what
// the guild does with the channel of a closed ticket: archive or delete. A channel's overwrites may
// still allow or deny more. It returns ErrNotInGuild if the bot is no member.
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
