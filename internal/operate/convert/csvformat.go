package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// headingsOf lists the headings of each member, in lower case without blanks, _ and -.
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
	"duration":     {"duration", "length"},
	"name":         {"name", "username", "nickname", "displayname"},
	"avatar_url":   {"avatarurl"},
	"joined_at":    {"joinedat", "joined"},
	"left_at":      {"leftat", "left"},
	"guild":        {"guildid", "guild", "serverid", "server", "gid"},
}

// tables lists the members of each record that a row can hold. The first one is required.
var tables = map[string][]string{
	"wallet": {"user_id", "balance", "cash", "bank", "updated_at", "guild"},
	"level":  {"user_id", "total_xp", "level", "updated_at", "guild"},
	"case":   {"user_id", "type", "moderator_id", "reason", "created_at", "expires_at", "duration", "number", "updated_at", "guild"},
	"member": {"user_id", "name", "avatar_url", "joined_at", "left_at", "guild"},
}

var csvFormat = &format{
	name: "csv", title: "Tables", items: "row", once: true, xp: "keep", people: "column",
	where: "any table: an export, a spreadsheet saved as CSV, or what a query of a bot's database gives (see the recipes).\n" +
		"Say what a row is: --record wallet, level, case or member. Columns are found by their headings, or named with --map.",
	notes: []string{
		"A case has the id csv-NUMBER or, without a column for numbers, csv-ROW. So give all cases of a guild in one call: " +
			"those of another table would change the first's.",
		"NULL and \\N without quotes, as MySQL writes them, are nothing.",
	},
	flags: []string{
		"record", "map", "no-header", "separator", "timezone", "dates", "decimal", "source-guild",
		"xp", "curve", "balance", "moderator", "numbers", "in-force", "case-type",
	},
	table: headingRows(),
	start: func(r *conversion) (handler, error) { return newCSV(r) },
	read: func(r *conversion, in *Input, src *source) (int64, error) {
		h := r.h.(*csvHandler)
		return r.rows(in.Name, src, h.sep, !r.o.NoHeader, h.choose(in.Name), func(it *item, c columnMap) error {
			return h.row(it, func(member string) *value { return c.cell(it, member) }, func() { r.unread(c) })
		})
	},
	survey: func(r *conversion) bool { return r.o.Record == "case" },
}

// headingRows returns the format's table, made from the headings.
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
	rowHandler
	sep byte
}

func newCSV(r *conversion) (*csvHandler, error) {
	rows, err := newRows(r)
	if err != nil {
		return nil, err
	}
	h := &csvHandler{rowHandler: rows}
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
	return h, nil
}

var noSeparators = strings.NewReplacer(" ", "", "_", "", "-", "")

func plain(s string) string { return noSeparators.Replace(strings.ToLower(s)) }

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
		// The total of cash and bank is computed here, so a column with the total has no place in a
		// guild file.
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

// enough returns an error for a table without a column that the record or a flag requires.
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
	return &Error{File: file, missing: true, Text: fmt.Sprintf("there is no column for %s; the columns are %s. Say which: --map %s=COLUMN",
		member, shorten(strings.Join(headings, ", "), 400), member)}
}

// chooseColumns finds the column of each member: the column named with --map, or else the column
// whose heading is one of the member's headings.
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
				// If another column names the member, a column called id is the row's own id.
				if member == "user_id" && plain(headings[before]) == "id" {
					c.of[member] = n
					continue
				}
				if member == "user_id" && plain(heading) == "id" {
					continue
				}
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

// named returns the index of the column with that heading, or with that number if the table has no
// headings.
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

func (h *csvHandler) item(*item) error { return nil }

// unread counts the columns of a row that are not used for any member.
func (r *conversion) unread(c columnMap) {
	mapped := slices.Collect(maps.Values(c.of))
	for n, heading := range c.headings {
		if !slices.Contains(mapped, n) {
			r.dropAt(deeper("", heading))
		}
	}
}
