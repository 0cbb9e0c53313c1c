package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// headingsOf are the names under which people and bots have a member, without case,
// blanks, _ and -.
var headingsOf = map[string][]string{
	"user_id":      {"userid", "id", "discordid", "memberid", "user"},
	"balance":      {"balance", "coins", "points", "money", "total"},
	"cash":         {"cash"},
	"bank":         {"bank"},
	"total_xp":     {"totalxp", "xp", "exp", "experience", "score"},
	"level":        {"level", "lvl"},
	"moderator_id": {"moderatorid", "modid", "moderator", "authorid", "staffid"},
	"type":         {"type", "action"},
	"reason":       {"reason", "message"},
	"created_at":   {"createdat", "date", "timestamp", "time"},
	"expires_at":   {"expiresat", "until"},
	"number":       {"number", "case", "caseid", "casenumber"},
	"updated_at":   {"updatedat"},
}

// tables are the members of each record that a table can hold; the first must be there.
var tables = map[string][]string{
	"wallet": {"user_id", "balance", "cash", "bank", "updated_at"},
	"level":  {"user_id", "total_xp", "level", "updated_at"},
	"case":   {"user_id", "type", "moderator_id", "reason", "created_at", "expires_at", "number", "updated_at"},
}

var csvFormat = &format{
	name: "csv", title: "Tables", items: "row", once: true, xp: "keep",
	where: "any table: an export, a spreadsheet saved as CSV, or what a query of a bot's database gives (see the recipes).\n" +
		"Say what a row is: --record wallet, level or case. Columns are found by their headings, or named with --map.",
	notes: []string{
		"A case has the id csv-NUMBER or, without a column for numbers, csv-ROW. So give all cases of a guild in one call: " +
			"those of another table would change the first's.",
		"NULL and \\N without quotes, as MySQL writes them, are nothing.",
	},
	flags: []string{"record", "map", "no-header", "separator", "timezone", "xp", "curve", "balance", "moderator", "numbers", "in-force", "case-type"},
	table: headingRows(),
	start: func(r *conversion) (handler, error) { return newCSV(r) },
	read: func(r *conversion, in *Input, src *source) (int64, error) {
		h := r.h.(*csvHandler)
		return r.rows(in.Name, src, h.sep, !r.o.NoHeader, h.choose(in.Name), h.row)
	},
	survey: func(r *conversion) bool { return r.o.Record == "case" },
}

// headingRows is the table of the format, made of the headings.
func headingRows() []row {
	var rows []row
	for _, record := range slices.Sorted(maps.Keys(tables)) {
		for _, member := range tables[record] {
			to := map[string]string{"cash": "balance", "bank": "balance", "level": "total_xp"}[member]
			rows = append(rows, row{path: strings.Join(headingsOf[member], ", "), to: record + "." + cond(to != "", to, member)})
		}
	}
	return append(rows, row{path: "others"})
}

type csvHandler struct {
	r       *conversion
	sep     byte
	mapping map[string]string
	n       int // rows of all files
}

func newCSV(r *conversion) (*csvHandler, error) {
	h := &csvHandler{r: r, mapping: map[string]string{}}
	members, ok := tables[r.o.Record]
	if !ok {
		return nil, usage("--record: say what a row is: wallet, level or case")
	}
	if err := h.named(members); err != nil {
		return nil, err
	}
	switch r.o.Separator {
	case "":
	case "tab", "\t":
		h.sep = '\t'
	case ",", ";":
		h.sep = r.o.Separator[0]
	default:
		return nil, usage("--separator: must be , or ; or tab")
	}
	if r.o.NoHeader && h.mapping["user_id"] == "" {
		return nil, usage("--no-header: say which columns are meant, by number: --map user_id=1")
	}
	// A flag that this record does not know would be passed over in silence.
	for flag, of := range map[string]struct {
		given  bool
		record string
	}{
		"balance": {r.o.Balance != "", "wallet"}, "xp": {r.o.XP != "", "level"}, "curve": {r.o.Curve != "", "level"}, "moderator": {r.o.Moderator != "", "case"},
		"numbers": {r.o.Numbers != "", "case"}, "in-force": {r.o.InForce != "", "case"}, "case-type": {len(r.o.CaseTypes) > 0, "case"},
	} {
		if of.given && of.record != r.o.Record {
			return nil, usage("--%s means nothing for --record %s", flag, r.o.Record)
		}
	}
	return h, nil
}

// named reads --map.
func (h *csvHandler) named(members []string) error {
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

func plain(s string) string {
	return strings.NewReplacer(" ", "", "_", "", "-", "").Replace(strings.ToLower(s))
}

// choose finds the columns of a file.
func (h *csvHandler) choose(file string) func(headings []string) (columnMap, error) {
	return func(headings []string) (columnMap, error) {
		aliases := map[string][]string{}
		for _, m := range tables[h.r.o.Record] {
			if !h.r.o.NoHeader {
				aliases[m] = headingsOf[m]
			}
		}
		need := []string{"user_id"}
		if h.r.o.Record == "case" {
			need = append(need, "type")
		}
		c, err := chooseColumns(file, headings, aliases, need, h.mapping)
		if err != nil {
			return c, err
		}
		if err := h.enough(file, c); err != nil {
			return c, err
		}
		// Two pockets are added up here; a sum beside them has no place.
		_, cash := c.of["cash"]
		if _, bank := c.of["bank"]; bank && cash && h.mapping["balance"] == "" {
			delete(c.of, "balance")
			return c, nil
		}
		delete(c.of, "cash")
		delete(c.of, "bank")
		return c, nil
	}
}

// enough says what else a table must have.
func (h *csvHandler) enough(file string, c columnMap) error {
	has := func(m string) bool { _, ok := c.of[m]; return ok }
	var missing string
	switch {
	case h.r.o.Record == "wallet" && h.r.o.Balance != "" && (!has("cash") || !has("bank")):
		missing = cond(has("cash"), "bank", "cash")
	case h.r.o.Record == "wallet" && has("cash") != has("bank") && !has("balance"):
		missing = cond(has("cash"), "bank", "cash")
	case h.r.o.Record == "wallet" && !has("balance") && !has("cash"):
		missing = "balance"
	case h.r.o.Record == "level" && !has("total_xp") && (!has("level") || h.r.o.XP == "keep"):
		missing = "total_xp"
	case h.r.o.Record == "level" && h.r.o.XP == "level" && !has("level") && h.r.curve == nil:
		return usage("--xp level: there is no column for level; name the curve that makes levels of XP: --curve CURVE")
	default:
		return nil
	}
	return noColumn(file, missing, c.headings)
}

func noColumn(file, member string, headings []string) error {
	return &Error{File: file, Text: fmt.Sprintf("there is no column for %s; the columns are %s. Say which: --map %s=COLUMN",
		member, shorten(strings.Join(headings, ", "), 400), member)}
}

// chooseColumns finds the column of each member: the one that the caller names, or
// the one whose heading means it.
func chooseColumns(file string, headings []string, aliases map[string][]string, need []string, mapping map[string]string) (columnMap, error) {
	c := columnMap{headings: headings, of: map[string]int{}}
	taken := map[int]bool{}
	for _, member := range slices.Sorted(maps.Keys(mapping)) {
		n, err := named(file, headings, member, mapping[member])
		if err != nil {
			return c, err
		}
		if taken[n] {
			return c, &Error{File: file, Text: fmt.Sprintf("column %q is named for %s and for another; give each its own --map", headings[n], member)}
		}
		c.of[member], taken[n] = n, true
	}
	for _, member := range slices.Sorted(maps.Keys(aliases)) {
		if mapping[member] != "" {
			continue
		}
		for n, heading := range headings {
			if taken[n] || !slices.Contains(aliases[member], plain(heading)) {
				continue
			}
			if before, twice := c.of[member]; twice {
				return c, &Error{File: file, Text: fmt.Sprintf("columns %q and %q could both be %s. Say which: --map %s=COLUMN", headings[before], heading, member, member)}
			}
			c.of[member] = n
		}
	}
	for _, member := range need {
		if _, ok := c.of[member]; !ok {
			return c, noColumn(file, member, headings)
		}
	}
	return c, nil
}

// named is the column of that heading, or of that number where there are none.
func named(file string, headings []string, member, column string) (int, error) {
	found := -1
	for n, heading := range headings {
		if heading == column || found < 0 && plain(heading) == plain(column) {
			if found >= 0 && headings[found] == column {
				return 0, &Error{File: file, Text: fmt.Sprintf("two columns are called %q; give them different names for --map %s", column, member)}
			}
			found = n
		}
	}
	if found < 0 {
		return 0, &Error{File: file, Text: fmt.Sprintf("there is no column %q for %s; the columns are %s", column, member, shorten(strings.Join(headings, ", "), 400))}
	}
	return found, nil
}

func (h *csvHandler) fact(string, *value) error { return nil }
func (h *csvHandler) end() error                { h.n = 0; return nil }
func (h *csvHandler) item(*item) error          { return nil }

// unread counts the columns of a row that are no member's.
func (r *conversion) unread(c columnMap) {
	mapped := slices.Collect(maps.Values(c.of))
	for n, heading := range c.headings {
		if !slices.Contains(mapped, n) {
			r.dropAt(deeper("", heading))
		}
	}
}

// row makes a record of a row.
func (h *csvHandler) row(it *item, c columnMap) error {
	h.n++
	r := h.r
	r.unread(c)
	it.who = c.cell(it, "user_id")
	user, err := r.subject(it.who, it.value)
	if err != nil || user == "" {
		return err
	}
	if r.o.Record != "case" {
		if it.since, err = r.instant(c.cell(it, "updated_at")); err != nil {
			return err
		}
	}
	switch r.o.Record {
	case "wallet":
		return h.wallet(it, c, user)
	case "level":
		s := standing{xp: c.filled(it, "total_xp"), level: c.filled(it, "level"), none: c.cell(it, "level") == nil}
		if s.xp == nil && (s.level == nil || r.o.XP == "keep") {
			return wrong(cond(c.cell(it, "total_xp") != nil, c.cell(it, "total_xp"), c.cell(it, "level")), `must be a whole number; it is ""`)
		}
		if s.level == nil && !s.none && !r.keep {
			return wrong(c.cell(it, "level"), `must be a whole number; it is ""`)
		}
		return r.level(it, user, s)
	default:
		return h.incident(it, c, user)
	}
}

// wallet makes a wallet of one column, or of two pockets.
func (h *csvHandler) wallet(it *item, c columnMap, user string) error {
	if cash := c.cell(it, "cash"); cash != nil {
		return h.r.pockets(it, user, cash, c.cell(it, "bank"))
	}
	v := c.cell(it, "balance")
	coins, err := h.r.coins(v)
	if err != nil {
		return err
	}
	return h.r.wallet(it, user, h.r.settle(coins, v, v.whole()))
}

// pockets makes a wallet of cash and bank, by --balance.
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
			// A sum without a bottom stays so, whatever is in the other pocket.
			if sum.n != tooLarge && sum.n != -tooLarge {
				sum.n = cond(coins.n == tooLarge || coins.n == -tooLarge, coins.n, sum.n+coins.n)
			}
			sum.fraction = sum.fraction || coins.fraction
		}
	}
	was := map[string]any{"cash": cash.whole(), "bank": bank.whole()}
	return r.wallet(it, user, r.settle(sum, it.value, was))
}

// incident makes a case of a row.
func (h *csvHandler) incident(it *item, c columnMap, user string) error {
	r := h.r
	kind := c.cell(it, "type")
	if strings.TrimSpace(kind.text) == "" {
		return wrong(kind, "must name the kind of case; it is empty")
	}
	i := incident{at: it.value, id: "csv-" + strconv.Itoa(h.n), member: user, moderator: c.cell(it, "moderator_id"), kind: kind.text, reasonAt: c.cell(it, "reason")}
	var err error
	if _, has := c.of["number"]; has {
		i.id = "csv-row-" + strconv.Itoa(h.n)
		if number := c.filled(it, "number"); number != nil {
			if i.number, err = r.whole(number); err != nil {
				return err
			}
			i.id = "csv-" + strconv.FormatInt(i.number, 10)
		}
	}
	if i.reason, err = r.prose(i.reasonAt); err != nil {
		return err
	}
	if i.made, err = r.instant(c.cell(it, "created_at")); err != nil {
		return err
	}
	if i.ends, err = r.deadline(c.cell(it, "expires_at")); err != nil {
		return err
	}
	if i.change, err = r.instant(c.cell(it, "updated_at")); err != nil {
		return err
	}
	if r.records[i.id] > 0 {
		return wrong(c.cell(it, "number"), fmt.Sprintf("case %d comes twice, first on %s; leave one row of each case", i.number, r.rowPlace(r.records[i.id])))
	}
	return r.incident(i)
}
