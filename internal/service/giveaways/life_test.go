package giveaways

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
)

// life is the model of a giveaway: its status, how often it entered each status, and what callers
// have changed. The expected events follow from it.
type life struct {
	status                           string
	starts, pauses, resumes, rerolls int

	prize            string
	winners          int
	edits, sentences int // changes of prize, winners or end, and of who is disqualified
	out, entered     set // who is disqualified, and which of those told by records have an entry
}

// outcome is a possible result of a command on a giveaway: another life, or the code of a refusal.
type outcome struct {
	to   life
	code string
}

// lifeCommand is a command that affects the giveaway.
type lifeCommand struct {
	*dbtest.Command
	effects []func(life) []outcome // its effects in order; none: it affects nothing in the model
	maybe   bool                   // an effect may be missing
	check   func()                 // called after it has succeeded while no other command ran
}

// decision is an effect of a command, whose result is known or not.
type decision struct {
	effect func(life) []outcome
	code   string // the code of its refusal
	maybe  bool
}

// after adds to found the possible states after some steps in any order.
func (s life) after(steps []decision, found map[life]bool) {
	if len(steps) == 0 {
		found[s] = true
	}
	for i, p := range steps {
		others := slices.Delete(slices.Clone(steps), i, i+1)
		if p.maybe {
			s.after(others, found)
		}
		for _, m := range p.effect(s) {
			if m.code == p.code {
				m.to.after(others, found)
			}
		}
	}
}

// lifeNode is a node whose requests to Postgres pass a gate.
type lifeNode struct {
	gate *dbtest.Gate
	db   *db.DB
}

// giveawayLife drives one giveaway: callers change its status, workers do what is due, members
// react, the platform is down or loses responses, and hours pass.
type giveawayLife struct {
	giveawayDB
	life
	rt     *rapid.T
	room   *room
	nodes  []*lifeNode
	id     string
	was    row      // the row after the previous round
	pot    []string // who had entries when the entries were frozen
	gone   bool     // the message was deleted before drawing began
	course course

	extended int // how many updates of the end were made

	bystanders string // all data of other giveaways
}

// round runs some commands concurrently and compares the result with the model.
func (l *giveawayLife) round(commands []*lifeCommand) {
	gated := make([]*dbtest.Command, len(commands))
	for i, c := range commands {
		gated[i] = c.Command
	}
	if l.was.Pot == open {
		l.room.reset()
		l.gone = l.gone || l.was.MessageID != nil && l.room.message(*l.was.MessageID).deleted
	}
	dbtest.Interleave(l.rt, l.DB, gated...)
	var steps []decision
	ran := make(map[string]int)
	for _, c := range commands {
		if !c.Ran() {
			continue
		}
		ran[c.Name]++
		code := ""
		if f, ok := errors.AsType[*fault.Error](c.Err); ok {
			code = f.Code
		} else if c.Err != nil && !c.Died {
			l.rt.Fatalf("%s: %v", c.Name, c.Err)
		}
		for _, effect := range c.effects {
			steps = append(steps, decision{effect, code, c.maybe || c.Err != nil && code == ""})
		}
	}
	g := l.get(l.id)
	now := l.told(g)
	found := make(map[life]bool)
	if l.after(steps, found); !found[now] {
		l.rt.Fatalf("the giveaway is %+v, was %+v, and may be %v", now, l.life, slices.Collect(maps.Keys(found)))
	}
	before := l.was
	l.life, l.was = now, g
	if ran["pass"] == 0 {
		l.instantsHold(before, g, ran)
	}
	l.holds(g)
	l.room.hurried(l.rt, ran["pass"] > 0 && len(ran) > 1)
	l.postHolds(g)
	if c := commands[0]; len(ran) == 1 && ran[c.Name] == 1 && c.Err == nil && !c.Died && c.check != nil {
		if c.check(); c.Name == "resume" && g.EndsAt.Time.Sub(before.EndsAt.Time) != g.UpdatedAt.Time.Sub(before.PausedAt.Time) {
			l.rt.Fatalf("paused at %v, resumed at %v, it ends at %v instead of %v", before.PausedAt, g.UpdatedAt, g.EndsAt, before.EndsAt)
		}
	}
}

// instantsHold compares the instants of the giveaway before and after a round in which no time has
// passed.
func (l *giveawayLife) instantsHold(before, g row, ran map[string]int) {
	if ran["resume"] == 0 && ran["update"] == 0 && !g.EndsAt.Alike(before.EndsAt) {
		l.rt.Fatalf("it was to end at %v and ends at %v", before.EndsAt, g.EndsAt)
	}
	bothPaused := before.PausedAt != nil && g.PausedAt != nil
	if ran["resume"] == 0 && bothPaused && g.EndsAt.Alike(before.EndsAt) && !g.PausedAt.Alike(*before.PausedAt) {
		l.rt.Fatalf("its end is moved by the pause since %v instead of %v", g.PausedAt, before.PausedAt)
	}
	if g.UpdatedAt.Time.Before(before.UpdatedAt.Time) {
		l.rt.Fatalf("it was changed at %v and then at %v", before.UpdatedAt, g.UpdatedAt)
	}
}

// others returns all data of other giveaways, which must not change.
func (l *giveawayLife) others() string {
	return dbtest.Value[string](l.rt, l.DB, `
		SELECT (SELECT jsonb_agg(to_jsonb(g) ORDER BY id) FROM giveaways g WHERE id <> $1)::text ||
		       (SELECT jsonb_agg(to_jsonb(e) ORDER BY giveaway_id, user_id) FROM giveaway_entries e WHERE giveaway_id <> $1)::text ||
		       (SELECT jsonb_agg(to_jsonb(d) ORDER BY giveaway_id, user_id) FROM giveaway_disqualified d WHERE giveaway_id <> $1)::text`, l.id)
}

// told returns the life that the recorded events describe.
func (l *giveawayLife) told(g row) life {
	if others := l.others(); others != l.bystanders {
		l.rt.Fatalf("other giveaways were\n%s\nand are\n%s", l.bystanders, others)
	}
	n, edits := l.events(g)
	over := map[string]int{drawing: 1, ended: 1}[g.Status]
	stopped := map[string]int{cancelled: 1}[g.Status]
	if n["giveaway.created"] != 1 || n["giveaway.drawing"] != over || n["giveaway.cancelled"] != stopped ||
		n["giveaway.ended"] != min(g.Rounds, 1) || n["giveaway.rerolled"] != max(g.Rounds-1, 0) {
		l.rt.Fatalf("of a giveaway that is %s after %d rounds was told %v", g.Status, g.Rounds, n)
	}
	return life{
		g.Status, n["giveaway.started"], n["giveaway.paused"], n["giveaway.resumed"], n["giveaway.rerolled"],
		g.Prize, g.WinnerCount, edits, n["disqualified"], l.stored("giveaway_disqualified", accused), l.stored("giveaway_entries", reported),
	}
}

// holds compares the state after a round with the model.
func (l *giveawayLife) holds(g row) {
	if g.running() != (g.Pot == open) || g.over() && g.Pot != frozen {
		l.rt.Fatalf("the entries of a giveaway that is %s are %s", g.Status, g.Pot)
	}
	if (g.Status == ended) != (g.Rounds > 0) || g.over() != (g.EndedAt != nil) || (g.Status == paused) != (g.PausedAt != nil) {
		l.rt.Fatalf("a giveaway that is %s: %d rounds, ended at %v, paused at %v", g.Status, g.Rounds, g.EndedAt, g.PausedAt)
	}
	if len(l.room.astray) > 0 {
		l.rt.Fatalf("looked for was %q", l.room.astray)
	}
	entrants := l.entrants()
	if g.EntrantCount != int64(len(entrants)) || g.EntryCount != int64(len(entrants)) {
		l.rt.Fatalf("%d entrants with %d entries are counted, there are %d", g.EntrantCount, g.EntryCount, len(entrants))
	}
	l.entriesHold(g, entrants)
	switch {
	case g.Pot != frozen:
	case l.pot == nil:
		l.pot = entrants
		known := append(l.out.of(accused), reporters...)
		l.room.compare(l.rt, entrants, g.Status == cancelled || g.ReactionsMissed || g.MessageID == nil, known)
	case !slices.Equal(entrants, l.pot):
		l.rt.Fatalf("the entries were frozen as %v and are %v", l.pot, entrants)
	}
	if g.Status == ended {
		if want := min(g.WinnerCount, len(entrants)); len(distinct(g.Winners)) != want || len(g.Winners) != want {
			l.rt.Fatalf("%d of %d entrants were to win, and %v have", g.WinnerCount, len(entrants), g.Winners)
		}
		if l.wantRepeatable(l.id); l.t.Failed() {
			l.rt.FailNow()
		}
	}
	for kind, want := range map[string]int{
		chat.KindGiveawayResumed: l.resumes, chat.KindGiveawayEnded: min(g.Rounds, 1), chat.KindGiveawayRerolled: l.rerolls,
	} {
		if n := l.countOf(`SELECT count(*) FROM chat_intents WHERE kind = $1`, kind); n != want {
			l.rt.Fatalf("%d messages of kind %s are to be posted, want %d", n, kind, want)
		}
	}
}

func (l *giveawayLife) countOf(query string, args ...any) int {
	return dbtest.Value[int](l.rt, l.DB, query, args...)
}

func (l *giveawayLife) entrants() []string {
	list := []string{}
	if err := l.DB.Reader().SelectContext(context.Background(), &list, `
		SELECT user_id FROM giveaway_entries WHERE giveaway_id = $1 AND entries = 1 ORDER BY user_id`, l.id); err != nil {
		l.rt.Fatal(err)
	}
	return list
}

// ends lets time pass without further commands, with a working platform, until nothing changes any
// more, and checks the result: the winners are drawn, each announcement is in the channel once, and
// the message by which members entered names the winners.
func (l *giveawayLife) ends() {
	l.room.set("up")
	last := l.nodes[0]
	run := func(c *lifeCommand) {
		c.Gate = last.gate
		c.Stop = 1_000_000
		l.round([]*lifeCommand{c})
	}
	if l.status == paused {
		run(l.resume(last))
	}
	open := 0
	for range 80 { // more than a day, after which a giveaway waits for nothing
		run(l.passes(last, 20*time.Minute))
		run(l.transitions(last))
		for _, lane := range append(Lanes(last.db, l.room), Announcing(last.db, l.room)) {
			run(l.works(last, lane))
		}
		open = l.countOf(`
			SELECT (SELECT count(*) FROM giveaways
			        WHERE id = $1 AND (status NOT IN ('ended', 'cancelled') OR react_at IS NOT NULL OR edit_at IS NOT NULL)) +
			       (SELECT count(*) FROM chat_intents WHERE state <> 'sent' AND created_at > now() - interval '1 day')`, l.id)
		if open == 0 {
			break
		}
	}
	g := l.get(l.id)
	if open > 0 {
		l.rt.Fatalf("in the end %d things wait; the giveaway is %+v, and the bot is to say %s", open, g,
			dbtest.Value[string](l.rt, l.DB, `SELECT coalesce(jsonb_agg(to_jsonb(i)), '[]')::text FROM chat_intents i`))
	}
	if g.MessageID != nil {
		if m := l.room.message(*g.MessageID); m.channel != g.ChannelID {
			l.rt.Fatalf("in the end the message is in %s, the giveaway in %s", m.channel, g.ChannelID)
		} else if !m.deleted && g.PostProblem == nil && m.says() != postText(g) {
			l.rt.Fatalf("in the end the message says %q", m.content)
		}
	}
	for text, n := range l.room.said() {
		if want := l.countOf(`SELECT count(*) FROM chat_intents WHERE content = $1`, text); n > want {
			l.rt.Fatalf("%q was posted %d times instead of %d: %q", text, n, want, l.room.asked)
		}
	}
	if n := l.countOf(`SELECT count(*) FROM chat_intents WHERE state = 'sent' AND message_id IS NULL`); n > l.room.gone {
		l.rt.Fatalf("%d messages were posted and have no id", n)
	}
}

// A giveaway's whole life in random order: commands run between the statements of others, workers
// die there, the platform is down or loses responses, members react and withdraw, callers change the
// giveaway, cancel it and disqualify members, and its message is deleted. The giveaway is drawn once
// or cancelled, the events match what was decided, the draw uses the members whose reactions exist
// and those told by records but nobody who is disqualified, the message shows the giveaway or
// post_problem says why not, and the winners are announced once. RELIABILITY.md, Giveaways.
func TestAGiveawaysLifeFollowsTheModel(t *testing.T) {
	t.Parallel()
	s := newGiveawayDB(t)
	var nodes []*lifeNode
	for range 3 {
		g := dbtest.NewGate(t, s.URL)
		nodes = append(nodes, &lifeNode{gate: g, db: dbtest.Open(t, g.URL).DB})
	}
	rapid.Check(t, func(rt *rapid.T) {
		for _, table := range []string{
			"giveaway_draws", "giveaway_entries", "giveaway_disqualified", "giveaways", "chat_intents", "webhook_deliveries", "webhook_events",
		} {
			dbtest.Exec(rt, s.DB, `DELETE FROM `+table)
		}
		l := &giveawayLife{giveawayDB: s, rt: rt, nodes: nodes, room: newRoom(rt)}
		l.create()
		l.begins()
		for range rapid.SampledFrom([]int{2, 5, 10, 15, 25}).Draw(rt, "rounds") {
			if list := l.draw(); len(list) > 0 {
				l.round(list)
			}
		}
		l.ends()
	})
}
