package giveaways

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"guildhall/gen"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/wire"
	"guildhall/internal/service/transfer"
)

// set is a set of users: bit i stands for user i of a list.
type set uint

// of returns the users of the set.
func (s set) of(list []string) (users []string) {
	for i, user := range list {
		if s&(1<<i) != 0 {
			users = append(users, user)
		}
	}
	return users
}

// reported are the users of whom only records tell. reporters also has a member who reacts, and
// accused has those whom callers disqualify.
var (
	reported  = []string{"20001", "20002", "20003"}
	reporters = append(slices.Clone(reported), strays[3])
	accused   = []string{reported[0], reported[1], strays[0], strays[3], "10000", "10010"}
)

// stored returns which users of list have a row in a table of the giveaway.
func (l *giveawayLife) stored(table string, list []string) (s set) {
	var users []string
	err := l.DB.Reader().SelectContext(context.Background(), &users, `SELECT user_id FROM `+table+` WHERE giveaway_id = $1`, l.id)
	if err != nil {
		l.rt.Fatal(err)
	}
	for i, user := range list {
		if slices.Contains(users, user) {
			s |= 1 << i
		}
	}
	return s
}

// events returns how often each event was recorded, with those that name the disqualified under
// "disqualified", and how many tell of changes by callers. It follows post_problem through its
// events to the row.
func (l *giveawayLife) events(g row) (n map[string]int, edits int) {
	var list []struct {
		Type string `db:"type"`
		Data []byte `db:"data"`
	}
	err := l.DB.Reader().SelectContext(context.Background(), &list, `
		SELECT type, convert_from(payload, 'UTF8')::json -> 'data' AS data FROM webhook_events ORDER BY occurred_at, id`)
	if err != nil {
		l.rt.Fatal(err)
	}
	n = make(map[string]int)
	problem := ""
	for _, e := range list {
		var data struct {
			Changed     []string
			PostProblem *string `json:"post_problem"`
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			l.rt.Fatal(err)
		}
		n[e.Type]++
		if e.Type == "giveaway.ended" && l.gone && data.PostProblem == nil {
			l.rt.Fatal("the message was deleted before drawing began, and the end says nothing of it")
		}
		switch changed := strings.Join(data.Changed, " "); changed {
		case "", "channel_id":
		case "disqualified":
			n[changed]++
		case "post_problem":
			if is := or(data.PostProblem); is == problem {
				l.rt.Fatalf("that post_problem is %q was told twice", is)
			}
			problem = or(data.PostProblem)
		default:
			edits++
		}
	}
	if problem != or(g.PostProblem) {
		l.rt.Fatalf("post_problem is %q, and %q was told", or(g.PostProblem), problem)
	}
	return n, edits
}

// or returns the text, or an empty one for nil.
func or(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// entriesHold compares who has an entry with the records, with who is disqualified, and with what
// could be read.
func (l *giveawayLife) entriesHold(g row, entrants []string) {
	for _, user := range l.out.of(accused) {
		if slices.Contains(entrants, user) || slices.Contains(g.Winners, user) {
			l.rt.Fatalf("%s is disqualified; entrants are %v, winners %v", user, entrants, g.Winners)
		}
	}
	for _, user := range l.entered.of(reported) {
		if !slices.Contains(entrants, user) {
			l.rt.Fatalf("a record told of %s, who has no entry", user)
		}
	}
	unread := g.Pot == open || l.gone
	for _, user := range entrants {
		if unread && !slices.Contains(reporters, user) {
			l.rt.Fatalf("%s has an entry of which no record told, and no reaction was read", user)
		}
	}
	if l.gone && !g.running() && g.Status != cancelled && g.Pot == frozen && g.PostProblem == nil {
		l.rt.Fatalf("the message was deleted before drawing began, and the giveaway is %s without a word of it", g.Status)
	}
}

// postHolds checks that the message shows the giveaway if no edit is due and no problem is known.
func (l *giveawayLife) postHolds(g row) {
	if g.MessageID == nil || g.EditAt != nil || g.PostProblem != nil {
		return
	}
	if m := l.room.message(*g.MessageID); !m.deleted && m.says() != postText(g) {
		l.rt.Fatalf("no edit is due, and the message of a giveaway that says %q says %q", postText(g), m.says())
	}
}

// whileRunning returns the effect of a change that only a giveaway allows that is not being drawn
// and not over.
func whileRunning(change func(life) life) []func(life) []outcome {
	return []func(life) []outcome{func(s life) []outcome {
		if s.status != scheduled && s.status != active && s.status != paused {
			return []outcome{{s, "giveaway_not_running"}}
		}
		return []outcome{{change(s), ""}}
	}}
}

// rarely makes one command of four that it is asked for.
func (l *giveawayLife) rarely(makes func(*lifeNode) *lifeCommand) func(*lifeNode) *lifeCommand {
	return func(n *lifeNode) *lifeCommand {
		if rapid.IntRange(0, 3).Draw(l.rt, "rarely") > 0 {
			return nil
		}
		return makes(n)
	}
}

// update returns a change of the prize, the number of winners or the end.
func (l *giveawayLife) update(n *lifeNode) *lifeCommand {
	var body gen.UpdateGiveawayRequest
	change := func(s life) life { s.edits++; return s }
	switch rapid.SampledFrom([]string{"prize", "winners", "end"}).Draw(l.rt, "member") {
	case "prize":
		prize := rapid.SampledFrom([]string{"Nitro", "A hat", "A cap"}).Draw(l.rt, "prize")
		body.Prize = &prize
		change = func(s life) life {
			if s.prize != prize {
				s.prize, s.edits = prize, s.edits+1
			}
			return s
		}
	case "winners":
		count := rapid.IntRange(1, 3).Draw(l.rt, "winners")
		body.WinnerCount = &count
		change = func(s life) life {
			if s.winners != count {
				s.winners, s.edits = count, s.edits+1
			}
			return s
		}
	default:
		// Each update sets another second, since a second update of a round to the same end would change
		// nothing. Nor may time that passes, by multiples of five seconds, lead back to the text that the
		// message showed before: it moves the end, but not the hash of what is shown.
		l.extended++
		minutes := time.Duration(rapid.IntRange(90, 300).Draw(l.rt, "minutes")) * time.Minute
		at := wire.At(time.Now().Add(minutes + time.Duration(l.extended)*1001*time.Millisecond))
		body.EndsAt = &at
	}
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).UpdateGiveaway(ctx, gen.UpdateGiveawayRequestObject{ID: l.id, Body: &body})
		return err
	})
	return &lifeCommand{Command: &dbtest.Command{Name: "update", Run: run}, effects: whileRunning(change), check: func() {
		switch end := body.EndsAt; {
		case end == nil || !l.was.running():
		case !l.was.EndsAt.Alike(*end):
			l.rt.Fatalf("it was to end at %v and ends at %v", end, l.was.EndsAt)
		case l.was.Status == paused && !l.was.PausedAt.Alike(l.was.UpdatedAt):
			l.rt.Fatalf("the end was set at %v, and the pause moves it since %v", l.was.UpdatedAt, l.was.PausedAt)
		}
	}}
}

// cancel returns the end of the giveaway without a draw.
func (l *giveawayLife) cancel(n *lifeNode) *lifeCommand {
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).CancelGiveaway(ctx, gen.CancelGiveawayRequestObject{ID: l.id})
		return err
	})
	return called("cancel", run, "giveaway_not_running", func(s life) life {
		s.status = cancelled
		return s
	}, scheduled, active, paused)
}

// disqualify returns a call that disqualifies members or takes that back. Their entries do not come
// back with it.
func (l *giveawayLife) disqualify(n *lifeNode) *lifeCommand {
	whom := set(rapid.IntRange(1, 1<<len(accused)-1).Draw(l.rt, "whom"))
	body := gen.DisqualifyRequest{UserIds: whom.of(accused)}
	if rapid.IntRange(0, 2).Draw(l.rt, "undo") == 0 {
		body.Undo = new(true)
	}
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).DisqualifyFromGiveaway(ctx, gen.DisqualifyFromGiveawayRequestObject{ID: l.id, Body: &body})
		return err
	})
	return &lifeCommand{Command: &dbtest.Command{Name: "disqualify", Run: run}, check: func() {}, effects: whileRunning(func(s life) life {
		out := s.out | whom
		if body.Undo != nil {
			out = s.out &^ whom
		}
		if out != s.out {
			s.out, s.sentences = out, s.sentences+1
			s.entered &^= out & 3 // the first two are the same in both lists
		}
		return s
	})}
}

// enter returns a record that gives a user an entry.
func (l *giveawayLife) enter(n *lifeNode) *lifeCommand {
	user := rapid.SampledFrom(reporters).Draw(l.rt, "user")
	record := fmt.Sprintf(`{"record":"giveaway_entry","guild_id":"%s","giveaway_id":"%s","user_id":"%s"}`, guild, l.id, user)
	run := l.asked(n, func(ctx context.Context) error { return written(ctx, transfer.NewBatch(Entrants), record) })
	told, out := only(reported, user), only(accused, user)
	effect := func(s life) []outcome {
		switch is := s; {
		case s.out&out != 0 || s.entered&told != 0:
			return []outcome{{s, ""}}
		case s.status == scheduled || s.status == active || s.status == paused:
			is.entered |= told
			return []outcome{{is, ""}}
		case told == 0: // a member whose reaction may have been read
			return []outcome{{s, ""}, {s, "giveaway_not_active"}}
		}
		return []outcome{{s, "giveaway_not_active"}}
	}
	return &lifeCommand{
		Command: &dbtest.Command{Name: "enter", Run: run}, effects: []func(life) []outcome{effect}, check: func() {},
	}
}

// only returns the set of one user, which is empty if the list does not have the user.
func only(list []string, user string) set {
	if i := slices.Index(list, user); i >= 0 {
		return 1 << i
	}
	return 0
}

// replaceWinners returns a reroll that names some of the winners. It is refused if one of them is
// no winner any more, and if too few entrants have never won.
func (l *giveawayLife) replaceWinners(n *lifeNode) *lifeCommand {
	was := slices.Clone(l.was.Winners)
	named := []string{"20004"} // never a winner
	if len(was) > 0 {
		named = set(rapid.IntRange(1, 1<<len(was)-1).Draw(l.rt, "replaced")).of(was)
	}
	body := gen.RerollGiveawayRequest{ReplaceUserIds: named}
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).RerollGiveaway(ctx, gen.RerollGiveawayRequestObject{ID: l.id, Body: &body})
		return err
	})
	c := l.reroll(n)
	effect := c.effects[0]
	c.effects = []func(life) []outcome{func(s life) []outcome {
		if s.status != ended {
			return effect(s)
		}
		return append(effect(s), outcome{s, "not_a_winner"})
	}}
	c.Command = &dbtest.Command{Name: "replace", Run: run}
	c.check = func() {
		for i, user := range l.was.Winners {
			if replaced := slices.Contains(named, was[i]); replaced == (user == was[i]) || replaced && slices.Contains(was, user) {
				l.rt.Fatalf("%v of the winners %v were replaced, and they are %v", named, was, l.was.Winners)
			}
		}
	}
	return c
}
