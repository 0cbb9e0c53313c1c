package convert

import (
	"regexp"
	"slices"
	"strings"
)

var giveawaysFormat = &format{
	name: "discord-giveaways", title: "discord-giveaways", items: "giveaway",
	where: "giveaways.json of a bot that uses the npm library discord-giveaways.",
	notes: []string{"Entries are reactions and not in the file, so giveaways that run are left out; with --running they come too, and their entries have to come " +
		"from the bot before the end. Program text in the file is never run."},
	flags: []string{"source-guild", "running"},
	table: []row{
		{path: "/#", item: true},
		{path: "/#/messageId", to: "giveaway.id, giveaway.message_id"},
		{path: "/#/channelId", to: "giveaway.channel_id"},
		{path: "/#/guildId", to: "guild"},
		{path: "/#/startAt", to: "giveaway.starts_at, giveaway.created_at"},
		{path: "/#/endAt", to: "giveaway.ends_at, giveaway.ended_at"},
		{path: "/#/ended", to: "giveaway.status"},
		{path: "/#/pauseOptions/isPaused", to: "giveaway.status"},
		{path: "/#/winnerCount", to: "giveaway.winner_count"},
		{path: "/#/prize", to: "giveaway.prize"},
		{path: "/#/hostedBy", to: "giveaway.host_id"},
		{path: "/#/winnerIds/#", to: "giveaway.winners"},
		{path: "/#/allowedMentions"},
		{path: "/#/bonusEntries"},
		{path: "/#/botsCanWin"},
		{path: "/#/embedColor"},
		{path: "/#/embedColorEnd"},
		{path: "/#/exemptMembers"},
		{path: "/#/exemptPermissions"},
		{path: "/#/extraData"},
		{path: "/#/image"},
		{path: "/#/isDrop"},
		{path: "/#/lastChance"},
		{path: "/#/messages"},
		{path: "/#/pauseOptions"},
		{path: "/#/reaction"},
		{path: "/#/thumbnail"},
	},
	start: func(r *conversion) (handler, error) { return &giveaways{r: r}, nil },
}

type giveaways struct {
	r *conversion
	silent
}

const maxWinners = 100

func (g *giveaways) item(it *item) error {
	members, err := needs(it.value, "messageId", "channelId", "endAt", "winnerCount", "prize")
	if err != nil {
		return err
	}
	message, err := g.r.key(members[0])
	if err != nil {
		return err
	}
	record := giveawayRecord{Record: "giveaway", GuildID: g.r.guild, ID: "discord-giveaways-" + message, Status: "ended", MessageID: message}
	if record.ChannelID, err = g.r.id(members[1]); err != nil {
		return err
	}
	if record.WinnerCount, err = g.r.whole(members[3]); err != nil {
		return err
	}
	if record.Prize, err = g.r.text(members[4], 200); err != nil {
		return err
	}
	if err := g.times(it, &record, members[2]); err != nil {
		return err
	}
	if why := g.unfit(&record, members[2]); why != "" {
		g.r.leave(it.value, why)
		return nil
	}
	if record.HostID, err = g.host(it.get("hostedBy")); err != nil {
		return err
	}
	if record.Status == "ended" {
		if err := g.winners(it, &record); err != nil {
			return err
		}
		if len(record.Winners) > maxWinners {
			g.r.leave(it.value, "has more than 100 winners")
			return nil
		}
	}
	if g.r.cameBefore(record.ID, it.value) {
		return nil
	}
	return g.r.write("GuildFileGiveaway", "giveaway", record, it.value)
}

func (g *giveaways) times(it *item, record *giveawayRecord, end *value) (err error) {
	if record.StartsAt, err = g.r.since(it.get("startAt"), record.MessageID, it.value); err != nil {
		return err
	}
	record.CreatedAt = record.StartsAt
	over, err := truth(it.get("ended"))
	if err != nil {
		return err
	}
	paused, err := truth(it.get("pauseOptions").get("isPaused"))
	if err != nil {
		return err
	}
	if !over {
		record.Status = cond(paused, "paused", "active")
		record.EndsAt, err = g.r.deadline(end)
		return err
	}
	record.EndsAt, err = g.r.instant(end)
	record.EndedAt = record.EndsAt
	return err
}

// unfit says why a giveaway cannot be written; empty if it can.
func (g *giveaways) unfit(record *giveawayRecord, end *value) string {
	switch {
	case record.Status != "ended" && !g.r.o.Running:
		return "has not ended; --running writes it, and its entries have to come from the bot"
	case record.EndsAt == nil || end.none():
		return "never ends"
	case record.Status != "ended" && !record.EndsAt.After(g.r.o.At):
		return "has not ended though its time is over; it would be drawn with nobody in it"
	case record.Status != "ended" && record.StartsAt != nil && !record.EndsAt.After(record.StartsAt.Time):
		return "ends before it starts"
	case record.WinnerCount > maxWinners:
		return "has more than 100 winners"
	case record.Prize == "":
		return "has no prize"
	case record.ChannelID == "":
		return "has no channel"
	}
	return ""
}

var mention = regexp.MustCompile(`^<@!?([0-9]+)>$`)

// host is who is mentioned as the host; some bots write a name, which is no member.
func (g *giveaways) host(v *value) (string, error) {
	s, err := g.r.prose(v)
	if err != nil || s == "" {
		return "", err
	}
	s = strings.TrimSpace(s)
	if m := mention.FindStringSubmatch(s); m != nil {
		s = m[1]
	}
	id := &value{kind: kindText, text: s}
	if _, err := snowflake(id); err != nil {
		if s != "0" {
			g.r.change(v, "names no member as its host, and has none", v.text)
		}
		return "", nil
	}
	id.line, id.name, id.parent = v.line, v.name, v.parent
	return g.r.id(id)
}

func (g *giveaways) winners(it *item, record *giveawayRecord) error {
	for _, w := range it.get("winnerIds").list() {
		id, err := g.r.id(w)
		if err != nil {
			return err
		}
		if id == "" || slices.Contains(record.Winners, id) {
			g.r.change(w, "is nobody or came twice among the winners, and is left out", w.whole())
			continue
		}
		record.Winners = append(record.Winners, id)
	}
	return nil
}
