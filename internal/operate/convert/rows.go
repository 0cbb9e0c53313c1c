package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// cells returns the value of a row's member; nil if the row has none.
type cells func(member string) *value

// filled returns the same value; nil also if the value is empty.
func (c cells) filled(member string) *value {
	v := c(member)
	if v.none() || strings.TrimSpace(v.text) == "" {
		return nil
	}
	return v
}

// rowHandler makes a record from each row of a table or of any JSON.
type rowHandler struct {
	r       *conversion
	mapping map[string]string  // --map: the column or the path of a member
	n       int                // rows of all files
	prefix  string             // prefix of a case's id
	id      func(*item) string // id of a case without a number, if it does not come from the row
}

func newRows(r *conversion) (rowHandler, error) {
	h := rowHandler{r: r, mapping: map[string]string{}, prefix: "csv-"}
	members, ok := tables[r.o.Record]
	if !ok {
		return h, usage("--record: say what a row is: wallet, level, case or member")
	}
	if err := h.named(members); err != nil {
		return h, err
	}
	// Without this check, a flag that does not apply to this record would be ignored.
	for flag, of := range map[string]struct {
		given  bool
		record string
	}{
		"balance": {r.o.Balance != "", "wallet"}, "xp": {r.o.XP != "", "level"}, "curve": {r.o.Curve != "", "level"}, "moderator": {r.o.Moderator != "", "case"},
		"numbers": {r.o.Numbers != "", "case"}, "in-force": {r.o.InForce != "", "case"}, "case-type": {len(r.o.CaseTypes) > 0, "case"},
	} {
		if of.given && of.record != r.o.Record {
			return h, usage("--%s means nothing for --record %s", flag, r.o.Record)
		}
	}
	return h, nil
}

func (h *rowHandler) fact(string, *value) error { return nil }
func (h *rowHandler) end() error                { h.n = 0; return nil } //nolint:unparam // an end of others fails

// named parses --map.
func (h *rowHandler) named(members []string) error {
	o := &h.r.o
	for _, m := range o.Map {
		member, column, ok := strings.Cut(m, "=")
		if !ok || column == "" || !slices.Contains(members, member) {
			return usage("--map %q: must be MEMBER=COLUMN; the members of a %s are %s", m, o.Record, strings.Join(members, ", "))
		}
		if h.mapping[member] != "" {
			return usage("--map: %s is given twice", member)
		}
		h.mapping[member] = column
	}
	if h.mapping["balance"] != "" && (h.mapping["cash"] != "" || h.mapping["bank"] != "" || o.Balance != "") {
		return usage("--map balance says where all coins are: leave out --balance, and --map for cash and bank")
	}
	return nil
}

// row makes a record from a row. unread counts the values that are not used for any member.
func (h *rowHandler) row(it *item, cell cells, unread func()) error {
	h.n++
	r := h.r
	if elsewhere, err := r.otherGuild(cell("guild"), it.value); err != nil || elsewhere {
		return err
	}
	unread()
	it.who = cell("user_id")
	user, err := r.subject(it.who, it.value)
	if err != nil || user == "" {
		return err
	}
	if r.o.Record == "member" {
		return h.member(it, cell, user)
	}
	if r.o.Record != "case" {
		if it.since, err = r.instant(cell("updated_at")); err != nil {
			return err
		}
	}
	switch r.o.Record {
	case "wallet":
		return h.wallet(it, cell, user)
	case "level":
		s := standing{xp: cell.filled("total_xp"), level: cell.filled("level"), none: cell("level") == nil}
		if s.xp == nil && (s.level == nil || r.o.XP == "keep") {
			return wrong(cond(cell("total_xp") != nil, cell("total_xp"), cell("level")), `must be a whole number; it is ""`)
		}
		if s.level == nil && !s.none && !r.keep {
			return wrong(cell("level"), `must be a whole number; it is ""`)
		}
		return r.level(it, user, s)
	default:
		return h.incident(it, cell, user)
	}
}

// member makes a member record from a row. The other records of the format write no members,
// because an old list would declare everybody to be present.
func (h *rowHandler) member(it *item, cell cells, user string) error {
	r := h.r
	m := memberRecord{Record: "member", GuildID: r.guild, UserID: user}
	var err error
	if m.Name, err = r.text(cell("name"), 100); err != nil {
		return err
	}
	if m.AvatarURL, err = r.address(cell("avatar_url"), 512); err != nil {
		return err
	}
	if m.JoinedAt, err = r.instant(cell("joined_at")); err != nil {
		return err
	}
	if m.LeftAt, err = r.instant(cell("left_at")); err != nil {
		return err
	}
	first, err := r.first(r.members, it, user, 0)
	if !first {
		return err
	}
	return r.write("GuildFileMember", "member", m, it.value)
}

// address reads an https address of at most most characters; any other value is reported and left
// out.
func (r *conversion) address(v *value, most int) (string, error) {
	s, err := r.prose(v)
	s = strings.TrimSpace(s)
	if err != nil || s == "" {
		return "", err
	}
	if !isAddress(s, most) {
		r.change(v, "is no https address of at most "+strconv.Itoa(most)+" characters, and is left out", s)
		return "", nil
	}
	return s, nil
}

// wallet makes a wallet from one column, or from cash and bank.
func (h *rowHandler) wallet(it *item, cell cells, user string) error {
	if cash := cell("cash"); cash != nil {
		return h.r.pockets(it, user, cash, cell("bank"))
	}
	v := cell("balance")
	coins, err := h.r.coins(v)
	if err != nil {
		return err
	}
	return h.r.wallet(it, user, h.r.inRange(coins, v, v.whole()))
}

// pockets makes a wallet from cash and bank, as --balance says.
func (r *conversion) pockets(it *item, user string, cash, bank *value) error {
	var sum amount
	for _, p := range []struct {
		pocket string
		v      *value
	}{{"cash", cash}, {"bank", bank}} {
		coins, err := r.coins(p.v)
		if err != nil {
			return err
		}
		if r.o.Balance == "" || r.o.Balance == "total" || r.o.Balance == p.pocket {
			// An infinite balance stays infinite, whatever the other column is.
			if sum.n != tooLarge && sum.n != -tooLarge {
				sum.n = cond(coins.n == tooLarge || coins.n == -tooLarge, coins.n, sum.n+coins.n)
			}
			sum.fraction = sum.fraction || coins.fraction
		}
	}
	was := map[string]any{"cash": cash.whole(), "bank": bank.whole()}
	return r.wallet(it, user, r.inRange(sum, it.value, was))
}

// ends returns the end of a case: expires_at, unless that is empty or a dash, otherwise the start
// plus the duration.
func (r *conversion) ends(expires, duration *value, made *stamp) (*stamp, error) {
	if duration == nil || !expires.none() && !slices.Contains([]string{"", "-", "–"}, strings.TrimSpace(expires.text)) {
		return r.deadline(expires)
	}
	return r.lasting(duration, made)
}

// incident makes a case from a row.
func (h *rowHandler) incident(it *item, cell cells, user string) error {
	r := h.r
	kind := cell("type")
	if strings.TrimSpace(kind.text) == "" {
		return wrong(kind, "must name the kind of case; it is empty")
	}
	i := incident{at: it.value, member: user, moderator: cell("moderator_id"), kind: kind.text, reasonAt: cell("reason")}
	number, err := cell.filled("number"), error(nil)
	switch {
	case number != nil:
		if i.number, err = r.whole(number); err != nil {
			return err
		}
		i.id = h.prefix + strconv.FormatInt(i.number, 10)
	case h.id != nil:
		i.id = h.id(it)
	case cell("number") != nil:
		i.id = h.prefix + "row-" + strconv.Itoa(h.n)
	default:
		i.id = h.prefix + strconv.Itoa(h.n)
	}
	if i.reason, err = r.prose(i.reasonAt); err != nil {
		return err
	}
	if i.made, err = r.instant(cell("created_at")); err != nil {
		return err
	}
	if i.ends, err = r.ends(cell("expires_at"), cell("duration"), i.made); err != nil {
		return err
	}
	if i.change, err = r.instant(cell("updated_at")); err != nil {
		return err
	}
	if r.records[i.id] > 0 {
		return wrong(cell("number"), fmt.Sprintf("case %d comes twice, first on %s; leave one row of each case", i.number, r.rowPlace(r.records[i.id])))
	}
	return r.incident(i)
}
