package convert

import (
	"slices"
	"strings"
)

const giveawayMembers = "messageId|messageID=id channelId|channelID=id winnerCount=number prize=text"

var giveawaysFormat = &format{
	name: "discord-giveaways", title: "discord-giveaways", items: "giveaway",
	needs:      []needed{{path: "/#", members: giveawayMembers}, {members: giveawayMembers}},
	manyGuilds: true,
	where:      "giveaways.json of a bot that uses the npm library discord-giveaways.",
	notes: []string{"Entries are reactions and not in the file, so giveaways that run are left out; with --running they come too, and their entries have to come " +
		"from the bot before the end. Program text in the file is never run."},
	flags: []string{"source-guild", "running"},
	table: giveawayTable(), prepare: unwrap,
	start: func(r *conversion) (handler, error) { return &giveaways{r: r}, nil },
}

// giveawayTable accepts an array, and one document per line as mongoexport writes it. Before
// version 5 of the library, the names of ids ended in ID.
func giveawayTable() []row {
	var all []row
	for _, of := range []string{"/#", ""} {
		all = append(all, row{path: of, item: true})
		for _, m := range [][2]string{
			{"messageId", "giveaway.id, giveaway.message_id"},
			{"messageID", "giveaway.id, giveaway.message_id"},
			{"channelId", "giveaway.channel_id"},
			{"channelID", "giveaway.channel_id"},
			{"guildId", "guild"},
			{"guildID", "guild"},
			{"startAt", "giveaway.starts_at, giveaway.created_at"},
			{"endAt", "giveaway.ends_at, giveaway.ended_at"},
			{"ended", "giveaway.status"},
			{"pauseOptions/isPaused", "giveaway.status"},
			{"winnerCount", "giveaway.winner_count"},
			{"prize", "giveaway.prize"},
			{"hostedBy", "giveaway.host_id"},
			{"winnerIds/#", "giveaway.winners"},
			{"winnerIDs/#", "giveaway.winners"},
		} {
			all = append(all, row{path: of + "/" + m[0], to: m[1]})
		}
		all = append(all, rows("", of,
			"_id", "__v", "allowedMentions", "bonusEntries", "botsCanWin", "embedColor", "embedColorEnd", "entrantIds", "exemptMembers", "exemptPermissions",
			"extraData", "image", "isDrop", "lastChance", "messages", "pauseOptions/content", "pauseOptions/unPauseAfter", "pauseOptions/unpauseAfter",
			"pauseOptions/embedColor", "pauseOptions/durationAfterPause", "pauseOptions/infiniteDurationText", "reaction", "thumbnail",
		)...)
	}
	return all
}

type giveaways struct {
	r *conversion
	silent
}

const maxWinners = 100

func (g *giveaways) item(it *item) error {
	members, err := needs(it.value, either(it.value, "messageId", "messageID"), either(it.value, "channelId", "channelID"), "endAt", "winnerCount", "prize")
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

// either returns older, a member's older name, if the object has a member of that name, else name.
func either(v *value, name, older string) string { return cond(v.get(older) != nil, older, name) }

func (g *giveaways) times(it *item, record *giveawayRecord, end *value) (err error) {
	if record.StartsAt, err = g.r.since(it.get("startAt"), record.MessageID, it.value); err != nil {
		return err
	}
	record.CreatedAt = record.StartsAt
	over, err := parseFlag(it.get("ended"))
	if err != nil {
		return err
	}
	paused, err := parseFlag(it.get("pauseOptions").get("isPaused"))
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

// unfit returns the reason why a giveaway cannot be written, or an empty string.
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

// host reads the mention of the host. If the bot has stored a name instead, the host is left out.
func (g *giveaways) host(v *value) (string, error) {
	s, err := g.r.prose(v)
	if err != nil || s == "" {
		return "", err
	}
	s = strings.TrimSpace(s)
	if m := mention.FindStringSubmatch(s); m != nil {
		s = m[1]
	}
	id := v.as(s)
	if _, err := snowflake(id); err != nil {
		if s != "0" {
			g.r.change(v, "names no member as its host, and has none", v.text)
		}
		return "", nil
	}
	return g.r.person(id, "host_id")
}

func (g *giveaways) winners(it *item, record *giveawayRecord) error {
	for _, w := range it.get(either(it.value, "winnerIds", "winnerIDs")).list() {
		id, err := g.r.person(w, "winners")
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
