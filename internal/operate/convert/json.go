package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// peopleHeadings are the names of objects that hold a person.
var peopleHeadings = map[string][]string{
	"user_id":      {"user/id"},
	"moderator_id": {"mod/id", "moderator/id"},
}

var jsonFormat = &format{
	name: "json", title: "Any JSON", items: "item", once: true, equalTwice: true, xp: "keep", people: "path", seeks: true,
	where: "any JSON with ids of members: a bot's users.json, a database's export, also a document a line as mongoexport writes it.\n" +
		"Say what an item is: --record wallet, level, case or member. Members are found by the names below, or named with --map.",
	notes: []string{
		"--path says where the items are: names, # for each item of a list, {user}, {guild} and {number} for each member by key, as in /data/members/# or /{guild}/{user}.",
		"Without it the first is taken that fits of /#, the document itself, /{user} and /{guild}/{user}, then /NAME/# or /NAME/{user} if one alone fits.",
		"A case has the id json-NUMBER, without a number json-ID, without an id json-row-ROW. What is not mapped has no place.",
	},
	flags: []string{
		"record", "path", "map", "timezone", "dates", "source-guild", "xp", "curve", "balance", "moderator", "numbers", "in-force", "case-type",
	},
	table:   jsonRows(),
	prepare: unwrap,
	start:   func(r *conversion) (handler, error) { return newJSON(r) },
	survey:  func(r *conversion) bool { return r.o.Record == "case" },
	read: func(r *conversion, in *Input, src *source) (int64, error) {
		return r.h.(*jsonHandler).read(in, src)
	},
}

// jsonRows returns the table of the format: the headings of tables, and the paths of people.
func jsonRows() []row {
	rows := headingRows()
	for i, row := range rows {
		for member, paths := range peopleHeadings {
			if strings.HasSuffix(row.to, "."+member) {
				rows[i].path = row.path + ", " + strings.Join(paths, ", ")
			}
		}
	}
	return rows
}

// jsonHandler makes a record from each item, wherever the items are in the document.
type jsonHandler struct {
	rowHandler
	used map[*value]bool // values of the item that were used for a member
}

func newJSON(r *conversion) (*jsonHandler, error) {
	rows, err := newRows(r)
	if err != nil {
		return nil, err
	}
	if p := r.o.Path; p != "" && p != "/" && !strings.HasPrefix(p, "/") {
		return nil, usage("--path %q: must begin with /; an example is /data/members/#", p)
	}
	h := &jsonHandler{rowHandler: rows, used: map[*value]bool{}}
	h.prefix, h.id = "json-", h.rowID
	return h, nil
}

// read reads a file along the path of its items.
func (h *jsonHandler) read(in *Input, src *source) (int64, error) {
	path := strings.TrimSuffix(h.r.o.Path, "/")
	if h.r.o.Path == "" {
		var err error
		if path, err = h.find(in); err != nil {
			return 0, err
		}
	}
	root := grow([]row{{path: path, item: true}})
	root.rest()
	if strings.Contains(path, "{guild}") {
		h.r.ofGuilds = true
	}
	return h.r.walk(in.Name, src, root)
}

// rest marks everything outside the items as having no place in a guild file.
func (p *pattern) rest() {
	if p.row == nil {
		p.row = &row{path: p.shown}
	}
	p.bare, p.list, p.object = p.item(), p.list || p.index.item(), true
	for _, c := range p.children() {
		c.rest()
	}
}

// find looks for the items at the start of a file.
func (h *jsonHandler) find(in *Input) (string, error) {
	head, _ := in.head()
	root := beginning(in.Name, head) // the walker reports any error after this part
	if root == nil {
		return "", nil
	}
	unwrap(root)
	for _, path := range []string{"/#", "", "/{user}", "/{guild}/{user}"} {
		if h.fits(root, path) {
			return path, nil
		}
	}
	var named []string
	for _, m := range root.members() {
		for _, below := range []string{"/#", "/{user}"} {
			if path := "/" + m.name + below; h.fits(root, path) {
				named = append(named, path)
			}
		}
	}
	if len(named) == 1 {
		return named[0], nil
	}
	if text := refusal(root); text != "" {
		return "", &Error{File: in.Name, Line: 1, Text: text}
	}
	there := described(root)
	if len(there) == 0 {
		return "", &Error{File: in.Name, Line: 1, Text: holds(root) + ", and no list of objects; say where the items are: --path PATH"}
	}
	return "", &Error{File: in.Name, Line: 1, Text: "holds " + strings.Join(there, ", ") + "; say which: --path PATH"}
}

// fits reports whether the first item at a path has what a record needs.
func (h *jsonHandler) fits(root *value, path string) bool {
	it := &item{value: root, keys: map[string]string{}}
	for word := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		switch {
		case path == "":
		case word == "#":
			if it.kind != kindArray || it.first == nil {
				return false
			}
			it.value = it.first
		case strings.HasPrefix(word, "{"):
			key := it.value
			for it.value = key.firstMember(); it.value != nil && !isID(it.value.name); it.value = it.next {
			}
			if it.value == nil {
				return false
			}
			it.keys[strings.Trim(word, "{}")] = it.name
		default:
			if it.value = it.get(word); it.value == nil {
				return false
			}
		}
	}
	clear(h.used)
	cell := h.cells(it)
	if cell("user_id") == nil {
		return false
	}
	switch h.r.o.Record {
	case "wallet":
		return cell("balance") != nil || cell("cash") != nil && cell("bank") != nil
	case "level":
		return cell("total_xp") != nil || cell("level") != nil
	case "case":
		return cell("type") != nil
	}
	return it.kind == kindObject
}

func (v *value) firstMember() *value {
	if v.kind != kindObject {
		return nil
	}
	return v.first
}

// isID reports whether a key is an id of the platform.
func isID(s string) bool { return digits(s) && len(s) >= minPerson && len(s) <= maxPerson }

// cells returns a function that finds the members of an item: where --map says, or by their names.
func (h *jsonHandler) cells(it *item) cells {
	return func(member string) *value {
		v := h.cell(it, member)
		if v != nil {
			h.used[v] = true
		}
		return v
	}
}

func (h *jsonHandler) cell(it *item, member string) *value {
	if path := h.mapping[member]; path != "" {
		return it.below(path)
	}
	key := map[string]string{"user_id": "user", "number": "number"}[member]
	if id := it.keys[key]; id != "" {
		return keyed(it.value, id)
	}
	if it.kind != kindObject {
		if member == map[string]string{"wallet": "balance", "level": "total_xp"}[h.r.o.Record] {
			return it.value
		}
		return nil
	}
	var found *value
	for m := it.first; m != nil; m = m.next {
		// A member called id is the item's own id if another member names the user.
		if slices.Contains(headingsOf[member], plain(m.name)) && m.kind > kindArray && (found == nil || plain(found.name) == "id") {
			found = m
		}
	}
	for _, path := range peopleHeadings[member] {
		if v := it.below(path); v != nil && (found == nil || plain(found.name) == "id") {
			found = v
		}
	}
	return found
}

// below returns the value at a path below v.
func (v *value) below(path string) *value {
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		v = v.get(name)
	}
	return v
}

func (h *jsonHandler) item(it *item) error {
	clear(h.used)
	if h.r.o.Record == "wallet" && h.mapping["balance"] == "" {
		cash, bank := h.cell(it, "cash"), h.cell(it, "bank")
		if (cash == nil) != (bank == nil) && h.cell(it, "balance") == nil {
			return h.without(it, cond(cash == nil, "cash", "bank"))
		}
	}
	cell := h.cells(it)
	for _, member := range h.need() {
		if cell(member) == nil && (member != "balance" || cell("cash") == nil) {
			return h.without(it, member)
		}
	}
	if h.r.o.Record == "level" && cell("total_xp") == nil && cell("level") == nil {
		return h.without(it, "total_xp")
	}
	return h.row(it, cell, func() { h.unused(it.value, "") })
}

// need returns the members that a record must have.
func (h *jsonHandler) need() []string {
	return append([]string{"user_id"}, map[string][]string{"wallet": {"balance"}, "case": {"type"}}[h.r.o.Record]...)
}

func (h *jsonHandler) without(it *item, member string) error {
	file, path := it.where()
	return &Error{File: file, Line: it.line, Path: path, Text: "there is nothing for " + member + "; " + holds(it.value) + ". Say which: --map " + member + "=PATH"}
}

// unused counts the values that were not used for any member.
func (h *jsonHandler) unused(v *value, path string) {
	switch {
	case h.used[v]:
	case v.kind == kindObject:
		for m := v.first; m != nil; m = m.next {
			h.unused(m, deeper(path, m.name))
		}
	case v.kind == kindArray:
		for m := v.first; m != nil; m = m.next {
			h.unused(m, path+"/*")
		}
	default:
		h.r.dropAt(cond(path == "", "/", path))
	}
}

// jsonPaths returns the paths of lists of objects, and of objects by id.
func jsonPaths(root *value) []string {
	return slices.Sorted(maps.Keys(candidates(root, "")))
}

// described lists these paths with the member names of the first item.
func described(root *value) []string {
	var all []string
	of := candidates(root, "")
	for _, path := range slices.Sorted(maps.Keys(of)) {
		var names []string
		for m := of[path].firstMember(); m != nil && len(names) < 8; m = m.next {
			names = append(names, shorten(m.name, 40))
		}
		all = append(all, fmt.Sprintf("%s (%s)", path, strings.Join(names, ", ")))
	}
	return all[:min(len(all), 8)]
}

const maxDepth = 4 // depth down to which items are searched

func candidates(v *value, path string) map[string]*value {
	all := map[string]*value{}
	if strings.Count(path, "/") >= maxDepth || v == nil {
		return all
	}
	switch {
	case v.kind == kindArray && v.first != nil && v.first.kind == kindObject:
		all[path+"/#"] = v.first
	case v.kind == kindObject:
		for m := v.first; m != nil; m = m.next {
			if isID(m.name) {
				switch below := m.firstMember(); {
				case below != nil && isID(below.name):
					all[path+"/{guild}/{user}"] = below
				case m.kind == kindObject:
					all[path+"/{user}"] = m
				}
				break
			}
			maps.Copy(all, candidates(m, deeper(path, m.name)))
		}
	}
	return all
}

// rowID returns the id of a case: from its number, from its own id, or from its position.
func (h *jsonHandler) rowID(it *item) string {
	for _, name := range []string{"id", "_id"} {
		if v := it.get(name); v != nil && !h.used[v] && (v.kind == kindText || v.kind == kindNumber) && v.text != "" && len(h.prefix+v.text) <= maxID {
			h.used[v] = true
			return h.prefix + v.text
		}
	}
	return h.prefix + "row-" + strconv.Itoa(h.n)
}
