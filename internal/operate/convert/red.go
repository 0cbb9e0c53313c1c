package convert

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

const (
	redBank     = "/384734293238749"
	redModLog   = "/1354799444"
	redWarnings = "/5757575755"
	redLevelUp  = "/117117117" // before version 4
	redWarn     = "/260"       // WarnSystem
)

var redFormat = &format{
	name: "red", title: "Red", items: "entry",
	needs: []needed{
		{path: redBank + "/MEMBER/{guild}/{user}"},
		{path: redBank + "/USER/{user}"},
		{path: redModLog + "/CASES/{guild}/{number}", members: "action_type=text"},
		{path: redModLog + "/GUILD/{guild}/cases/{number}", members: "action_type=text"},
		{path: redWarnings + "/MEMBER/{guild}/{user}"},
		{path: "/configs/{guild}/users/{user}", members: "xp=number"},
		{path: "/users/{user}", members: "xp=number level=number"},
		{path: redLevelUp + "/GUILD/{guild}/users/{user}"},
		{path: redWarn + "/MODLOGS/{guild}/{user}/x/#", members: "level=number"},
	},
	xp: "level", manyGuilds: true,
	where: "files of the JSON backend below the bot's data folder, any of them in one call: Bank/settings.json, ModLog/settings.json,\n" +
		"Warnings/settings.json of core, LevelUp.json (or a server's backup of it), LevelUp/settings.json, WarnSystem/settings.json. Of Postgres first make files: redbot-setup convert INSTANCE json.",
	notes: []string{
		"A global bank belongs to no guild; --source-guild global with --guild ID takes it for one. The currency's name comes with --settings only.",
		"The other kinds of case end, mute or become notes: smute, vmute, cmute and voiceban are mutes, sunmute, vunmute, cunmute and voiceunban end one.",
		"LevelUp keeps levels by base · level^exp (100 and 2 where the file does not say); members keep their level and the share of the way to the next.",
	},
	flags: []string{"source-guild", "moderator", "numbers", "in-force", "case-type", "settings", "xp", "curve"},
	kinds: map[string]becomes{
		"smute": {kind: "mute"}, "vmute": {kind: "mute"}, "cmute": {kind: "mute"}, "voiceban": {kind: "mute"}, "filterban": {kind: "ban"},
		"sunmute": {ends: "mute"}, "vunmute": {ends: "mute"}, "cunmute": {ends: "mute"}, "voiceunban": {ends: "mute"},
	},
	table: redTable(),
	start: func(r *conversion) (handler, error) {
		if r.source == "global" && r.guild == "" {
			return nil, usage("--source-guild global: say which guild is written: --guild ID")
		}
		return &red{r: r, base: 100, exp: 2, ownCurve: r.o.Curve != ""}, nil
	},
	survey: func(*conversion) bool { return true },
}

func redTable() []row {
	var rows []row
	for _, of := range [][]row{
		redBankRows(), redCaseRows(redModLog + "/CASES/{guild}/{number}"), redCaseRows(redModLog + "/GUILD/{guild}/cases/{number}"), redOtherRows(),
		levelUpRows("/configs/{guild}"), levelUpRows(""), // the second is the backup of a server
		levelUp3Rows(redLevelUp + "/GUILD/{guild}"), warnSystemRows(redWarn + "/MODLOGS/{guild}/{user}/x/#"),
	} {
		rows = append(rows, of...)
	}
	return rows
}

func redBankRows() []row {
	return []row{
		{path: redBank + "/MEMBER/{guild}/{user}", item: true},
		{path: redBank + "/MEMBER/{guild}/{user}/balance", to: "wallet.balance"},
		{path: redBank + "/MEMBER/{guild}/{user}/name"},
		{path: redBank + "/MEMBER/{guild}/{user}/created_at"},
		{path: redBank + "/USER/{user}", item: true},
		{path: redBank + "/USER/{user}/balance", to: "wallet.balance"},
		{path: redBank + "/USER/{user}/name"},
		{path: redBank + "/USER/{user}/created_at"},
		{path: redBank + "/GLOBAL/is_global", to: "whether the bank is of no guild"},
		{path: redBank + "/GLOBAL/bank_name"},
		{path: redBank + "/GLOBAL/currency"},
		{path: redBank + "/GLOBAL/default_balance"},
		{path: redBank + "/GLOBAL/max_balance"},
		{path: redBank + "/GLOBAL/schema_version"},
		{path: redBank + "/GUILD/{guild}/bank_name"},
		{path: redBank + "/GUILD/{guild}/default_balance"},
		{path: redBank + "/GUILD/{guild}/max_balance"},
		{path: redBank + "/GUILD/{guild}/currency", to: "settings.economy.currency_name"},
	}
}

func redCaseRows(of string) []row {
	return []row{
		{path: of, item: true},
		{path: of + "/action_type", to: "case.type"},
		{path: of + "/user", to: "case.user_id"},
		{path: of + "/moderator", to: "case.moderator_id"},
		{path: of + "/reason", to: "case.reason"},
		{path: of + "/created_at", to: "case.created_at"},
		{path: of + "/until", to: "case.expires_at"},
		{path: of + "/modified_at", to: "case.updated_at"},
		{path: of + "/case_number"},
		{path: of + "/guild"},
		{path: of + "/last_known_username"},
		{path: of + "/channel"},
		{path: of + "/parent_channel"},
		{path: of + "/parent_channel_id"},
		{path: of + "/amended_by"},
		{path: of + "/message"},
	}
}

func redOtherRows() []row {
	return []row{
		{path: redModLog + "/GLOBAL"},
		{path: redModLog + "/CASETYPES"},
		{path: redModLog + "/GUILD/{guild}/casetypes"},
		{path: redModLog + "/GUILD/{guild}/latest_case_number"},
		{path: redModLog + "/GUILD/{guild}/mod_log"},
		{path: redWarnings + "/MEMBER/{guild}/{user}", item: true},
		{path: redWarnings + "/MEMBER/{guild}/{user}/warnings/{message}/description", to: "case.reason"},
		{path: redWarnings + "/MEMBER/{guild}/{user}/warnings/{message}/mod", to: "case.moderator_id"},
		{path: redWarnings + "/MEMBER/{guild}/{user}/warnings/{message}/points"},
		{path: redWarnings + "/MEMBER/{guild}/{user}/total_points"},
		{path: redWarnings + "/MEMBER/{guild}/{user}/status"},
		{path: redWarnings + "/GUILD/{guild}"},
		{path: redWarnings + "/GLOBAL"},
		{path: "/ignored_guilds"},
		{path: "/cache_seconds"},
		{path: "/render_gifs"},
		{path: "/force_embeds"},
		{path: "/internal_api_port"},
		{path: "/external_api_url"},
		{path: "/auto_cleanup"},
		{path: "/ignore_bots"},
		{path: "/weekly"},
		{path: "/users_weekly"},
	}
}

func levelUpRows(of string) []row {
	all := []row{
		{path: of + "/users/{user}", item: true},
		{path: of + "/users/{user}/xp", to: "level.total_xp"},
		{path: of + "/users/{user}/level", to: "level.total_xp"},
		{path: of + "/algorithm/base", to: "the curve"},
		{path: of + "/algorithm/exp", to: "the curve"},
	}
	all = append(all, rows("", of+"/users/{user}",
		"voice", "messages", "stars", "prestige", "last_active", "show_displayname", "profile", "weekly")...)
	return append(all, rows("", of,
		"autoremove", "channelbonus", "cmd_cooldown", "cmd_requirements", "cmd_xp", "command_xp", "cooldown", "default_background", "emojis",
		"ignore_deafened", "ignore_invisible", "ignore_muted", "ignore_solo", "ignoredchannels", "ignoredroles", "ignoredusers", "allowedchannels",
		"allowedroles", "keep_level_roles", "keep_prestige_roles", "leaderboard", "levelroles", "levelup_dm", "levelup_msg", "min_length", "notify",
		"notifydm", "notifylog", "notifymention", "prestigedata", "prestigelevel", "role_awarded_dm", "role_awarded_msg", "role_groups", "rolebonus",
		"schema", "showbalance", "stackprestigeroles", "starcooldown", "starmention", "starmentionautodelete", "streambonus", "style_override",
		"use_embeds", "use_exp_roles", "voice_channel", "voicexp", "weeklysettings", "xp", "xp_per_dollar",
	)...)
}

// levelUp3Rows returns the rows for the versions that used Red's settings.json.
func levelUp3Rows(of string) []row {
	all := []row{
		{path: of + "/users/{user}", item: true},
		{path: of + "/users/{user}/xp", to: "level.total_xp"},
		{path: of + "/users/{user}/level", to: "level.total_xp"},
		{path: of + "/base", to: "the curve"},
		{path: of + "/exp", to: "the curve"},
		{path: redLevelUp + "/GLOBAL"},
	}
	all = append(all, rows("", of+"/users/{user}", "background", "blur", "colors", "emoji", "font", "full", "messages", "prestige", "stars", "voice")...)
	return append(all, rows("", of,
		"autoremove", "barlength", "channelbonuses", "cooldown", "deafened", "emojis", "ignored", "ignoredchannels", "ignoredroles", "ignoredusers",
		"invisible", "length", "levelchannel", "levelroles", "levelup_dm", "levelup_msg", "lvlmessage", "mention", "muted", "notify", "notifydm", "notifylog",
		"prestige", "prestigedata", "rolebonuses", "schema", "showbalance", "solo", "stackprestigeroles", "starcooldown", "starmention",
		"starmentionautodelete", "stars", "streambonus", "tableversion", "usepics", "voicexp", "weekly", "xp",
	)...)
}

func warnSystemRows(of string) []row {
	return []row{
		{path: of, item: true},
		{path: of + "/level", to: "case.type"},
		{path: of + "/author", to: "case.moderator_id"},
		{path: of + "/reason", to: "case.reason"},
		{path: of + "/time", to: "case.created_at"},
		{path: of + "/duration", to: "case.expires_at, from created_at"},
		{path: of + "/roles"},
		{path: of + "/modlog_message"},
		{path: redWarn + "/GUILD"}, // its temporary_warns are copies of those in MODLOGS
		{path: redWarn + "/GLOBAL"},
	}
}

// red stores values that a file states after the items that need them: the curve comes after the
// members.
type red struct {
	r              *conversion
	base, exp      float64
	ownCurve       bool
	currency       economy
	modLog, warned *value
}

func (d *red) fact(to string, v *value) error {
	switch to {
	case "settings.economy.currency_name":
		if !d.r.o.Settings {
			d.r.dropAt(redBank + "/GUILD/*/currency")
			return nil
		}
		name, err := d.r.text(v, cond(customEmoji.MatchString(v.text), 64, 32))
		if err == nil && name != "" && d.r.stage == surveying {
			d.currency = economy{CurrencyName: name}
			if m := customEmoji.FindStringSubmatch(name); m != nil {
				d.currency = economy{CurrencyName: m[1], CurrencySymbol: name}
			}
		}
		return err
	case "whether the bank is of no guild":
		global, err := parseFlag(v)
		if err != nil {
			return err
		}
		if global && d.r.source != "global" {
			return wrong(v, "the bank is global and belongs to no guild; if the guild is to get it, say so: --source-guild global")
		}
		return nil
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || v.kind != kindNumber || f <= 0 {
		return wrong(v, "must be a number above 0; it is "+v.shown())
	}
	if _, path := v.where(); strings.HasSuffix(path, "/exp") {
		d.exp = f
	} else {
		d.base = f
	}
	return nil
}

// end makes the curve from the values that the survey has found.
func (d *red) end() error {
	if err := d.settings(); err != nil {
		return err
	}
	if d.r.stage == writing && d.modLog != nil && d.warned != nil {
		d.r.warn(d.warned, "warnings come from both Warnings and ModLog; the same one may be there twice")
	}
	if d.r.stage != surveying || d.ownCurve {
		return nil
	}
	base, exp := d.base, d.exp
	d.r.curve = &curve{total: func(n int64) int64 { return clamp(math.Ceil(base * math.Pow(float64(n), exp))) }}
	return nil
}

func (d *red) item(it *item) error {
	if err := d.settings(); err != nil {
		return err
	}
	switch "/" + it.at.steps[0].name {
	case redModLog:
		return d.incident(it)
	case redWarnings:
		return d.warnings(it)
	case redBank:
		return d.account(it)
	case redWarn:
		return d.warnSystem(it)
	}
	user, err := d.r.subject(keyed(it.value, it.keys["user"]), it.value)
	if err != nil || user == "" {
		return err
	}
	s := standing{xp: it.get("xp"), level: it.get("level")}
	if s.xp == nil {
		s.xp = &value{kind: kindNumber, text: "0", line: it.line, at: it.at}
	}
	return d.r.level(it, user, s)
}

// customEmoji matches an emoji of a server as messages contain it.
var customEmoji = regexp.MustCompile(`^<a?:([A-Za-z0-9_]{2,32}):[0-9]{1,20}>$`)

// settings writes the settings record before the first other record.
func (d *red) settings() error {
	if d.currency.CurrencyName == "" || d.r.stage != writing {
		return nil
	}
	record := settingsRecord{Record: "settings", GuildID: d.r.guild, Economy: d.currency}
	d.currency = economy{}
	return d.r.write("GuildFileSettings", "settings", record, nil)
}

// keyed returns the name of an object's member as a value, with the place of the object.
func keyed(v *value, name string) *value {
	return &value{kind: kindText, text: name, line: v.line, at: v.at}
}

// account writes a wallet. An account without a balance has 0.
func (d *red) account(it *item) error {
	if it.at.steps[1].name == "USER" && d.r.source != "global" {
		d.r.leave(it.value, "is of the time when the bank was global")
		return nil
	}
	user, err := d.r.subject(keyed(it.value, it.keys["user"]), it.value)
	if err != nil || user == "" {
		return err
	}
	var coins amount
	v := it.get("balance")
	if v != nil {
		if coins, err = d.r.coins(v); err != nil {
			return err
		}
	} else {
		v = it.value
	}
	return d.r.wallet(it, user, d.r.inRange(coins, v, v.whole()))
}

func (d *red) incident(it *item) error {
	members, err := needs(it.value, "action_type", "user", "created_at")
	if err != nil {
		return err
	}
	if d.modLog == nil {
		d.modLog = detached(it.value)
	}
	c := incident{at: it.value, user: members[1], moderator: it.get("moderator"), kind: members[0].text, reasonAt: it.get("reason")}
	if members[0].kind != kindText {
		return wrong(members[0], "must be a text; it is "+members[0].shown())
	}
	if c.number, err = d.r.whole(keyed(it.value, it.keys["number"])); err != nil {
		return err
	}
	c.id = "red-" + strconv.FormatInt(c.number, 10)
	if c.reason, err = d.r.prose(c.reasonAt); err != nil {
		return err
	}
	if c.made, err = d.r.instant(members[2]); err != nil {
		return err
	}
	if c.ends, err = d.r.deadline(it.get("until")); err != nil {
		return err
	}
	if c.change, err = d.r.instant(it.get("modified_at")); err != nil {
		return err
	}
	return d.r.incident(c)
}

// warnSystemTypes are the kinds of WarnSystem's warnings, by level.
var warnSystemTypes = map[int64]string{1: "warn", 2: "mute", 3: "kick", 4: "softban", 5: "ban"}

// warnSystem writes a case for an entry of a member's modlog. Entries have no number, so the id is
// made from the position in the list.
func (d *red) warnSystem(it *item) error {
	members, err := needs(it.value, "level", "time")
	if err != nil {
		return err
	}
	who := it.keys["user"]
	c := incident{
		at: it.value, user: keyed(it.value, who), moderator: it.get("author"), reasonAt: it.get("reason"),
		id: "red-warnsystem-" + who + "-" + strconv.Itoa(it.at.steps[len(it.at.steps)-1].index+1),
	}
	level, err := d.r.whole(members[0])
	if err != nil {
		return err
	}
	if c.kind = warnSystemTypes[level]; c.kind == "" {
		c.kind = "level " + strconv.FormatInt(level, 10)
	}
	if c.reason, err = d.r.prose(c.reasonAt); err != nil {
		return err
	}
	if c.made, err = d.r.instant(members[1]); err != nil {
		return err
	}
	if c.ends, err = d.r.lasting(it.get("duration"), c.made); err != nil {
		return err
	}
	return d.r.incident(c)
}

// warnings writes a case for each warning of a member.
func (d *red) warnings(it *item) error {
	user, err := d.r.subject(keyed(it.value, it.keys["user"]), it.value)
	if err != nil || user == "" {
		return err
	}
	if d.warned == nil {
		d.warned = detached(it.value)
	}
	if list := it.get("warnings"); !list.none() && list.kind != kindObject {
		return wrong(list, "must be an object; it is "+list.shown())
	}
	for _, w := range it.get("warnings").members() {
		if w.kind != kindObject {
			return wrong(w, "must be an object; it is "+w.shown())
		}
		c := incident{at: w, id: "red-warning-" + w.name, member: user, moderator: w.get("mod"), kind: "warn", reasonAt: w.get("description")}
		if len(c.id) > maxID {
			return wrong(w, "has an id that is too long")
		}
		if c.reason, err = d.r.prose(c.reasonAt); err != nil {
			return err
		}
		c.made = d.r.made(w.name, w)
		if err := d.r.incident(c); err != nil {
			return err
		}
	}
	return nil
}
