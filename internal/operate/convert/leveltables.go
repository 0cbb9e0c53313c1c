package convert

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// ladder describes a bot that has only levels.
type ladder struct {
	format
	lists    []string // paths of the lists of items
	user, xp string   // names of members; user may be several names
	level    string   // empty if the bot stores no level
	within   bool     // xp counts from the beginning of the level
	none     []string // members of an item that have no place in a guild file
	more     []row
}

var ladders = []ladder{
	{
		format: format{
			name: "lurkr", title: "Lurkr", items: "member", xp: "level", curve: "lurkr",
			where: "the bot's dashboard, Danger Zone, Download Leveling Data.",
			notes: []string{"Level n begins at 50n² − 100n + 150 XP unless the owner has changed it; then name the curve with --curve. Members keep level and progress."},
			flags: []string{"source-guild", "xp", "curve"},
		},
		lists: []string{"/levels/#"}, user: "userId", xp: "xp", level: "level", none: []string{"avatar", "messageCount", "tag"},
		more: []row{{path: "/guild/id", to: "guild"}},
	},
	{
		format: format{
			name: "arcane", title: "Arcane", items: "member", xp: "level",
			where: "the answer of the leaderboard's API, api/guilds/GUILD/levels/leaderboard, which asks for a login; or its list alone.",
			notes: []string{"Its XP are those within the level. Which of its three curves holds is not in the file: without --curve members stand at their level's start, " +
				"with arcane-linear, arcane-exponential or arcane-flat they keep their progress."},
			flags: []string{"xp", "curve"},
		},
		lists: []string{"/#", "/levels/#"}, user: "userId id", xp: "xp", level: "level", within: true,
		none: []string{"avatar", "discriminator", "messageCount", "rank", "tag", "username"},
	},
	{
		format: format{
			name: "amari", title: "Amari", items: "member", xp: "level", curve: "amari",
			where: "https://amaribot.com/api/v1/guild/leaderboard/GUILD?page=N&limit=1000 with a key of the bot's makers, a file a page.",
			notes: []string{"Level n begins at 20n² − 40n + 55 XP. Members keep level and progress."},
			flags: []string{"xp", "curve"},
		},
		lists: []string{"/data/#"}, user: "id", xp: "exp", level: "level", none: []string{"username", "weeklyExp"},
		more: []row{{path: "/count"}, {path: "/total_count"}},
	},
	{
		format: format{
			name: "polaris", title: "Polaris", items: "member", xp: "level", seeks: true,
			where: "the bot's export of all XP, settings and users; a list of users with id and xp; or a table with the columns ID and Total XP.",
			notes: []string{"It writes no level: that follows from the XP by the curve in settings (x³ + 50x² + 100x to the next hundred where there is none). Members keep level and progress."},
			flags: []string{"xp", "curve"},
		},
		lists: []string{"/users/{user}", "/#"}, user: "id", xp: "xp", none: []string{"cooldown", "hidden", "username", "tag"},
		more: []row{
			{path: "/settings/curve/{power}", to: "the curve"},
			{path: "/settings/rounding", to: "the curve"},
			{path: "/settings/maxLevel", to: "the highest level"},
			{path: "/settings/enabled"},
			{path: "/settings/gain"},
			{path: "/settings/hideMultipliers"},
			{path: "/settings/leaderboard"},
			{path: "/settings/levelUp"},
			{path: "/settings/manualPerms"},
			{path: "/settings/multipliers"},
			{path: "/settings/rankCard"},
			{path: "/settings/rewardSyncing"},
			{path: "/settings/rewards"},
			{path: "/info"},
			{path: "/_id"},
		},
	},
	{
		format: format{
			name: "tatsu", title: "Tatsu", items: "member", xp: "keep",
			where: "https://api.tatsu.gg/v1/guilds/GUILD/rankings/all?offset=N with a key of your account, a file for each hundred.",
			notes: []string{"It has no levels by guild: members keep their XP. Its points are to be had for one member at a time only, so there are no wallets."},
			flags: []string{"source-guild", "xp", "curve"},
		},
		lists: []string{"/rankings/#"}, user: "user_id", xp: "score", none: []string{"rank"},
		more: []row{{path: "/guild_id", to: "guild"}},
	},
}

func (l *ladder) asFormat() *format {
	f := &l.format
	for _, list := range l.lists {
		n := needed{path: list, members: l.xp + "=number"}
		if !strings.HasSuffix(list, "}") {
			n.members += " " + strings.ReplaceAll(cond(list == "/levels/#", strings.Fields(l.user)[len(strings.Fields(l.user))-1], l.user), " ", "|") + "=id"
		}
		if l.level != "" {
			n.members += " " + l.level + "=number"
		}
		if l.within {
			n.without = "detailed_xp" // the XP in MEE6's files are a member's total
		}
		f.needs = append(f.needs, n)
		f.table = append(f.table, row{path: list, item: true})
		for user := range strings.FieldsSeq(l.user) {
			if !strings.HasSuffix(list, "}") {
				f.table = append(f.table, row{path: list + "/" + user, to: "level.user_id"})
			}
		}
		f.table = append(f.table, row{path: list + "/" + l.xp, to: "level.total_xp"})
		if l.level != "" {
			f.table = append(f.table, row{path: list + "/" + l.level, to: "level.total_xp"})
		}
		for _, name := range l.none {
			f.table = append(f.table, row{path: list + "/" + name})
		}
	}
	f.table = append(f.table, l.more...)
	f.start = func(r *conversion) (handler, error) {
		if f.name == "tatsu" && r.o.XP == "level" && r.o.Curve == "" {
			return nil, usage("--xp level: tatsu has no levels; name the curve that makes them of XP: --curve CURVE")
		}
		if f.name == "polaris" {
			return &polaris{rungs: rungs{r: r, l: l}, factors: map[int]float64{}}, nil
		}
		return &rungs{r: r, l: l}, nil
	}
	if f.name == "polaris" {
		f.read = readPolaris(f)
		f.survey = func(r *conversion) bool { return r.o.Curve == "" }
	}
	return f
}

// rungs makes a level record from each item.
type rungs struct {
	r *conversion
	l *ladder
	silent
}

func (h *rungs) item(it *item) error {
	var who *value
	for name := range strings.FieldsSeq(h.l.user) {
		if who == nil {
			who = it.get(name)
		}
	}
	if key := it.keys["user"]; key != "" {
		who = keyed(it.value, key)
	}
	if who == nil {
		_, err := required(it.value, strings.Fields(h.l.user)[0])
		return err
	}
	if m := it.get("detailed_xp"); m != nil && h.l.within {
		// If a file of MEE6 were read as Arcane's, with XP within the level, XP would be lost.
		err, _ := asError(wrong(m, "is a member of MEE6, and not of "+h.l.title))
		err.missing = true
		return err
	}
	xp, err := required(it.value, h.l.xp)
	if err != nil {
		return err
	}
	s := standing{xp: xp, within: h.l.within, none: h.l.level == ""}
	if h.l.level != "" {
		if s.level, err = required(it.value, h.l.level); err != nil {
			return err
		}
	}
	user, err := h.r.subject(who, it.value)
	if err != nil || user == "" {
		return err
	}
	return h.r.level(it, user, s)
}

// polaris reads its curve from the file, where the curve may come after the members.
type polaris struct {
	rungs
	factors  map[int]float64 // factors of the polynomial, by power
	rounding float64
	highest  int64
	at       *Error // place of the curve in the file
}

func (p *polaris) fact(to string, v *value) error {
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || v.kind != kindNumber {
		return wrong(v, "must be a number; it is "+v.shown())
	}
	file, path := v.where()
	if p.at == nil {
		p.at = &Error{File: file, Line: v.line, Path: "/settings/curve", Text: "level 1 has to begin above 0 XP; name the curve with --curve"}
	}
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case to == "the highest level":
		p.highest = clamp(f)
	case last == "rounding":
		p.rounding = f
	default:
		power, err := strconv.Atoi(last)
		if err != nil || power < 0 || power > 10 {
			return wrong(v, "must be the factor of a power of the level from 0 to 10")
		}
		p.factors[power] = f
	}
	return nil
}

func (p *polaris) end() error {
	if p.r.stage != surveying {
		return nil
	}
	factors := make([]float64, 11)
	for power, f := range p.factors {
		factors[power] = f
	}
	if len(p.factors) == 0 {
		copy(factors, []float64{0, 100, 50, 1})
	}
	rounding := cond(p.rounding == 0 && len(p.factors) == 0, 100, p.rounding)
	highest := p.highest
	p.r.curve = &curve{total: func(n int64) int64 {
		if highest > 0 && n > highest {
			return tooLarge // no member can reach this level
		}
		x := polynomial(factors, n)
		if rounding > 1 {
			return clamp(rounding * math.Floor(x/rounding+0.5))
		}
		return clamp(math.Floor(x + 0.5))
	}}
	if p.at != nil && p.r.curve.start(1) <= 0 {
		return p.at
	}
	return nil
}

// readPolaris reads JSON, or the table that some programs make from it.
func readPolaris(f *format) func(r *conversion, in *Input, src *source) (int64, error) {
	return func(r *conversion, in *Input, src *source) (int64, error) {
		head := make([]byte, 512)
		n, _ := in.file.ReadAt(head, 0)
		begin := bytes.TrimSpace(bytes.TrimPrefix(head[:n], []byte("\xef\xbb\xbf")))
		if len(begin) == 0 || begin[0] == '{' || begin[0] == '[' {
			return r.walk(in.Name, src, f.roots[0])
		}
		aliases := map[string][]string{"user_id": headingsOf["user_id"], "total_xp": headingsOf["total_xp"]}
		return r.rows(in.Name, src, 0, true, func(headings []string) (columnMap, error) {
			return chooseColumns(in.Name, headings, aliases, []string{"user_id", "total_xp"}, nil)
		}, func(it *item, c columnMap) error {
			r.unread(c)
			it.who = c.cell(it, "user_id")
			user, err := r.subject(it.who, it.value)
			if err != nil || user == "" {
				return err
			}
			return r.level(it, user, standing{xp: c.cell(it, "total_xp"), none: true})
		})
	}
}
