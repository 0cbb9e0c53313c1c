package convert

import "fmt"

var mee6Format = &format{
	name: "mee6", title: "MEE6", items: "player", xp: "keep", curve: "mee6",
	where: "https://mee6.xyz/api/plugins/levels/leaderboard/GUILD?limit=1000&page=N, for N from 0 until players is empty, a file each.\n" +
		"The owner has to make the leaderboard public first. Fetch slowly: it is rate limited.",
	notes: []string{"Its curve is Guildhall's, so everybody keeps XP and level. Members who have left are in it. MEE6's cases and coins have no export."},
	flags: []string{"source-guild", "xp", "curve"},
	table: []row{
		{path: "/guild/id", to: "guild"},
		{path: "/players/#", item: true},
		{path: "/players/#/id", to: "level.user_id"},
		{path: "/players/#/guild_id", to: "guild"},
		{path: "/players/#/xp", to: "level.total_xp"},
		{path: "/players/#/level", to: "the level, which is held against the curve"},
		{path: "/status_code", to: "an error"},
		{path: "/error"},
		{path: "/page"},
		{path: "/guild"},
		{path: "/xp_rate"},
		{path: "/xp_per_message"},
		{path: "/role_rewards"},
		{path: "/admin"},
		{path: "/banner_url"},
		{path: "/country"},
		{path: "/is_member"},
		{path: "/monetize_options"},
		{path: "/player"},
		{path: "/user_guild_settings"},
		{path: "/players/#/avatar"},
		{path: "/players/#/detailed_xp"},
		{path: "/players/#/discriminator"},
		{path: "/players/#/is_monetize_subscriber"},
		{path: "/players/#/message_count"},
		{path: "/players/#/monetize_xp_boost"},
		{path: "/players/#/username"},
	},
	start: func(r *conversion) (handler, error) { return &mee6{r: r}, nil },
}

type mee6 struct {
	r *conversion
	silent
}

// silent is a handler for which nothing beside the items matters.
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
