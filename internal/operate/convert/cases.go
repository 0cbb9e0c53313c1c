package convert

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// incident is a case as a format's reader has parsed it.
type incident struct {
	at                 *value
	id                 string
	number             int64 // 0 if the source has no number
	user, moderator    *value
	member             string // the user's id, if the source stores it as a key and not as a value
	kind               string
	reason             string
	reasonAt           *value
	made, ends, change *stamp
}

// becomes says which kind of case a source's kind becomes in a guild file.
type becomes struct {
	kind string // empty if the record is left out
	mark bool   // write the source's kind before the reason
	ends string // the kind of case that this kind ends, such as ban for an unban
}

// kinds maps the names that bots give to kinds of case. A case of any other kind becomes
// a note whose reason begins with the kind.
var kinds = map[string]becomes{
	"note": {kind: "note"}, "warn": {kind: "warn"}, "kick": {kind: "kick"}, "ban": {kind: "ban"}, "mute": {kind: "mute"}, "timeout": {kind: "timeout"},
	"softban": {kind: "kick", mark: true}, "hackban": {kind: "ban"}, "tempban": {kind: "ban"}, "forceban": {kind: "ban"},
	"warning": {kind: "warn"}, "tempmute": {kind: "mute"},
	"banned": {kind: "ban"}, "tempbanned": {kind: "ban"}, "muted": {kind: "mute"}, "tempmuted": {kind: "mute"}, "timedout": {kind: "timeout"},
	"kicked": {kind: "kick"}, "softbanned": {kind: "kick", mark: true}, "warned": {kind: "warn"}, "noted": {kind: "note"},
	"unban": {ends: "ban"}, "unbanned": {ends: "ban"},
	"unmute": {ends: "mute"}, "unmuted": {ends: "mute"}, "untimeout": {ends: "mute"}, "timeoutremoved": {ends: "mute"},
}

// span is a ban or a mute with its beginning and end, or the unban or unmute that ends one.
type span struct {
	user     string
	kind     string // ban or mute; a timeout is a mute here
	at, over int64  // ms since the epoch; over is 0 if the end is unknown
	seq      int    // position among all cases of the input
}

// casebook collects facts about a case that only the whole input shows: whether a later unban or
// unmute ended the case, and whether the case is still in force.
type casebook struct {
	named   map[string]becomes // --case-type
	seq     int
	numbers map[int64]bool

	spans, ends []span         // collected by the survey
	revoked     map[int]*stamp // status and end of ended cases, by seq
	used        map[int]string // why an unban or unmute ended no case, by seq; empty if it ended one
	force       []*inForce
	holding     map[int]*inForce
}

// inForce is a row of --in-force: a ban or a mute that is in force now.
type inForce struct {
	user, kind string
	until      *stamp
	at         *value
	found      bool
}

func newCasebook(r *conversion) (*casebook, error) {
	if r.o.InForce == "-" {
		return nil, usage("--in-force: name a file; - is one of the files to read")
	}
	b := &casebook{named: map[string]becomes{}, revoked: map[int]*stamp{}, used: map[int]string{}, holding: map[int]*inForce{}}
	for _, s := range r.o.CaseTypes {
		name, kind, ok := strings.Cut(s, "=")
		types := []string{"note", "warn", "kick", "ban", "timeout", "mute", "unban", "unmute", ""}
		if !ok || !slices.Contains(types, kind) || kindName(name) == "" {
			return nil, usage("--case-type %q: must be NAME=TYPE, where TYPE is note, warn, kick, ban, timeout, mute, unban, unmute or empty", s)
		}
		if _, twice := b.named[kindName(name)]; twice {
			return nil, usage("--case-type: %q is given twice", kindName(name))
		}
		b.named[kindName(name)] = becomes{kind: kind}
		if ends, ok := strings.CutPrefix(kind, "un"); ok {
			b.named[kindName(name)] = becomes{ends: ends}
		}
	}
	return b, nil
}

// kindName returns a kind of case in lower case, without blanks, _ and -, because bots and people
// write kinds in different ways.
func kindName(s string) string { return plain(strings.Join(strings.Fields(s), "")) }

func (b *casebook) rewind() { b.seq, b.numbers = 0, map[int64]bool{} }

// class returns the kind that an unban (ban) or an unmute (mute, timeout) ends.
func class(kind string) string {
	switch kind {
	case "ban":
		return "ban"
	case "mute", "timeout":
		return "mute"
	}
	return ""
}

// match reads --in-force and finds the cases that each unban, unmute and row of
// --in-force refers to.
func (b *casebook) match(r *conversion) error {
	if r.o.InForce != "" {
		if err := b.readInForce(r); err != nil {
			return err
		}
	}
	wanted := make(map[string]bool)
	for _, e := range b.ends {
		wanted[e.user] = true
	}
	for _, f := range b.force {
		wanted[f.user] = true
	}
	of := make(map[string][]span)
	for _, s := range b.spans {
		if wanted[s.user] {
			of[s.user+s.kind] = append(of[s.user+s.kind], s)
		}
	}
	order := func(a, b span) int {
		if r.f.newestFirst {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.seq, a.seq))
		}
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	}
	for _, list := range of {
		slices.SortFunc(list, order)
	}
	slices.SortFunc(b.ends, order)
	for _, e := range b.ends {
		b.used[e.seq] = b.end(e, of[e.user+e.kind], order)
	}
	for _, f := range b.force {
		if list := of[f.user+f.kind]; len(list) > 0 {
			f.found = true
			b.holding[list[len(list)-1].seq] = f
		}
	}
	b.spans, b.ends = nil, nil
	return nil
}

// end revokes every case of list that was in force when e happened, because whoever lifts a ban
// wants the member to be free. If there is no such case, end returns the reason.
func (b *casebook) end(e span, list []span, order func(a, b span) int) string {
	n, _ := slices.BinarySearchFunc(list, e, order)
	why := "ends a " + e.kind + " that is not in the input"
	ended := false
	for _, s := range list[:n] {
		switch {
		case b.revoked[s.seq] != nil:
			why = "ends a " + e.kind + " that was ended before"
		case s.over != 0 && s.over <= e.at:
			why = "ends a " + e.kind + " that was over already"
		default:
			b.revoked[s.seq], ended = &stamp{time.UnixMilli(e.at).UTC()}, true
		}
	}
	return cond(ended, "", why)
}

// incident writes a case. An unban or unmute is not written; it ends other cases.
func (r *conversion) incident(c incident) error {
	user, err := c.member, error(nil)
	if user == "" {
		if user, err = r.subject(c.user, c.at); err != nil || user == "" {
			return err
		}
	}
	if r.cameBefore(c.id, c.at) {
		return nil
	}
	r.cases.seq++
	b := r.kind(c)
	if b.ends != "" {
		return r.ended(c, user, b.ends)
	}
	if b.kind == "" {
		r.leave(c.at, "is of a kind that --case-type leaves out")
		return nil
	}
	moderator, err := r.moderator(c)
	if err != nil {
		return err
	}
	if c.made == nil {
		r.warn(c.at, "has no instant and gets that of the import")
	}
	if r.stage == surveying {
		if k := class(b.kind); k != "" {
			r.cases.spans = append(r.cases.spans, span{user: user, kind: k, at: milli(c.made), over: milli(c.ends), seq: r.cases.seq})
		}
		return nil
	}
	record := caseRecord{
		Record: "case", GuildID: r.guild, ID: c.id, Number: r.numbered(c), UserID: user, ModeratorID: moderator, Type: b.kind,
		Reason: c.reason, ExpiresAt: c.ends, CreatedAt: c.made, UpdatedAt: c.change,
	}
	if b.mark {
		record.Reason = strings.TrimSpace("[" + shorten(oneLine(c.kind), 40) + "] " + c.reason)
	}
	record.Reason = r.cut(cond(c.reasonAt != nil, c.reasonAt, c.at), record.Reason, 1000)
	r.state(&record, c.at)
	return r.write("GuildFileCase", "case", record, c.at)
}

// numbered returns the case's number, or 0 if the case has none or another case has the same
// number.
func (r *conversion) numbered(c incident) int64 {
	if r.o.Numbers == "new" || c.number == 0 {
		return 0
	}
	if r.cases.numbers[c.number] {
		r.change(c.at, "has a number that another case has, and gets the next one", c.number)
		return 0
	}
	r.cases.numbers[c.number] = true
	return c.number
}

// moderator returns the id of the moderator. If the source names none, moderator returns
// --moderator, or the guild's id.
func (r *conversion) moderator(c incident) (string, error) {
	id, err := r.person(c.moderator, "moderator_id")
	if err != nil || id != "" {
		return id, err
	}
	stand := cond(r.o.Moderator != "", r.o.Moderator, r.guild)
	var was any
	if c.moderator != nil {
		was = c.moderator.whole()
	}
	r.change(cond(c.moderator != nil, c.moderator, c.at), "has no moderator, and gets "+stand, was)
	return stand, nil
}

// kind returns what the case's kind becomes.
func (r *conversion) kind(c incident) becomes {
	name := kindName(c.kind)
	if b, ok := r.cases.named[name]; ok {
		return b
	}
	b, ok := r.f.kinds[name]
	if !ok {
		b, ok = kinds[name]
	}
	if !ok {
		b = becomes{kind: "note", mark: true}
	}
	if b.mark {
		r.change(c.at, strconv.Quote(shorten(strings.ToLower(oneLine(c.kind)), 40))+" became a "+b.kind+", with its kind before the reason", c.kind)
	}
	return b
}

// ended records an unban or unmute during the survey, and reports its outcome while writing.
func (r *conversion) ended(c incident, user, kind string) error {
	if r.stage == surveying {
		r.cases.ends = append(r.cases.ends, span{user: user, kind: kind, at: milli(c.made), seq: r.cases.seq})
		return nil
	}
	if why := r.cases.used[r.cases.seq]; why != "" {
		r.leave(c.at, why)
	} else {
		r.absorb(c, kind)
	}
	return nil
}

// absorb reports an unban or unmute that ended a case. The ended case keeps the instant in its
// status and updated_at; a guild file has no field for the moderator and the reason of the unban.
func (r *conversion) absorb(c incident, kind string) {
	for _, has := range []struct {
		what string
		is   bool
	}{{"moderator", !c.moderator.none()}, {"reason", c.reason != ""}} {
		if has.is {
			r.dropAt("the " + has.what + " of what ends a " + kind)
		}
	}
	r.fail(r.lost.add(r.place(c.at), "ended a "+kind+", whose record is revoked; its moderator and reason have no place", c.at.whole()))
}

// state sets the status of a case. A case that is over must be imported as over: an active
// case past its end would expire right after the import and emit an event.
func (r *conversion) state(c *caseRecord, at *value) {
	c.Status = "active"
	open := c.Type == "mute" || c.Type == "timeout"
	if f := r.cases.holding[r.cases.seq]; f != nil {
		c.ExpiresAt, open = f.until, false
	} else if ended := r.cases.revoked[r.cases.seq]; ended != nil {
		c.Status, open = "revoked", false
		if ended.UnixMilli() != 0 {
			c.UpdatedAt = ended
		}
	}
	switch {
	case c.Status == "revoked":
	case c.ExpiresAt != nil && !c.ExpiresAt.After(r.o.At):
		c.Status = "expired"
	case c.ExpiresAt == nil && open:
		c.Status = "expired"
		r.warn(at, "says no end and comes in as over; --in-force says what holds now")
	}
}

// unmatched reports the rows of --in-force for which the input has no case.
func (b *casebook) unmatched(r *conversion) {
	for _, f := range b.force {
		if !f.found {
			r.leave(f.at, "holds now, but its case is not in the input")
		}
	}
}

func milli(at *stamp) int64 {
	if at == nil {
		return 0
	}
	return at.UnixMilli()
}

// oneLine returns s as a single line without zero bytes, for use in names and messages.
func oneLine(s string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(s, "\x00", "")), " ")
}
