package convert

import "fmt"

var mee6Format = &format{
	name: "mee6", title: "MEE6", items: "player",
	needs: []needed{{path: "/players/#", members: "id=id xp=number"}, {path: "/#", members: "id=id xp=number"}, {path: "/#/players/#", members: "id=id xp=number"}},
	xp:    "keep", curve: "mee6",
	where: "https://mee6.xyz/api/plugins/levels/leaderboard/GUILD?limit=1000&page=N, for N from 0 until players is empty, a file each.\n" +
		"The owner has to make the leaderboard public first. Fetch slowly: it is rate limited.",
	notes: []string{"An array of players, as scripts save it, and an array of pages are read too.", "Its curve is Guildhall's, so everybody keeps XP and level. Members who have left are in it. MEE6's cases and coins have no export."},
	flags: []string{"source-guild", "xp", "curve"},
	table: mee6Table(),
	start: func(r *conversion) (handler, error) { return &mee6{r: r}, nil },
}

// mee6Table accepts a page, an array of players as scripts save it, and an array of pages.
func mee6Table() []row {
	all := []row{
		{path: "/status_code", to: "an error"},
		{path: "/error"},
		{path: "/players/#", item: true},
		{path: "/#", item: true},
	}
	for _, page := range []string{"", "/#"} {
		all = append(all, row{path: page + "/guild/id", to: "guild"})
		all = append(all, rows("", page,
			"page", "guild/allow_join", "guild/application_commands_enabled", "guild/commands_prefix", "guild/icon", "guild/invite_leaderboard",
			"guild/leaderboard_url", "guild/name", "guild/premium", "xp_rate", "xp_per_message", "role_rewards", "admin", "banner_url", "country",
			"is_member", "monetize_options", "player", "user_guild_settings")...)
	}
	for _, player := range []string{"/players/#", "/#/players/#", "/#"} {
		all = append(all, []row{
			{path: player + "/id", to: "level.user_id"},
			{path: player + "/guild_id", to: "guild"},
			{path: player + "/xp", to: "level.total_xp"},
			{path: player + "/level", to: "the level, which is held against the curve"},
		}...)
		all = append(all, rows("", player,
			"avatar", "detailed_xp", "discriminator", "is_monetize_subscriber", "message_count", "monetize_xp_boost", "username")...)
	}
	return all
}

type mee6 struct {
	r *conversion
	silent
}

// silent is a handler that ignores everything except the items.
type silent struct{}

func (silent) fact(string, *value) error { return nil }
func (silent) end() error                { return nil }

func (m *mee6) fact(_ string, v *value) error {
	e := &Error{Text: "the leaderboard cannot be read (" + shorten(fmt.Sprint(v.whole()), 100) + "); fetch it again"}
	if v.text == "401" || v.text == "404" {
		e.Text = "the leaderboard is private or not there (" + v.text + "); make it public and fetch it again"
	}
	e.File, _ = v.where()
	return e
}

func (m *mee6) item(it *item) error {
	players := it.get("players")
	if players == nil {
		return m.player(it)
	}
	if players.kind != kindArray {
		return wrong(players, "must be a list; it is "+players.shown())
	}
	for p := players.first; p != nil; p = p.next {
		if p.kind != kindObject {
			return wrong(p, "must be an object; it is "+p.shown())
		}
		elsewhere, err := m.r.otherGuild(p.get("guild_id"), p)
		if err != nil {
			return err
		}
		if elsewhere {
			continue
		}
		if err := m.player(&item{value: p}); err != nil {
			return err
		}
	}
	return nil
}

func (m *mee6) player(it *item) error {
	id, err := required(it.value, "id")
	if err != nil {
		return err
	}
	xp, err := required(it.value, "xp")
	if err != nil {
		return err
	}
	user, err := m.r.subject(id, it.value)
	if err != nil || user == "" {
		return err
	}
	return m.r.level(it, user, standing{xp: xp, level: it.get("level")})
}
