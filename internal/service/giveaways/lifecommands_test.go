package giveaways

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/lanes"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/transfer"
)

// course is a kind of life: what happens at first, one command after the other, and the commands
// from which each round chooses, each as often as it weighs.
type course struct{ begins, goesOn []string }

// courses are a life of all kinds, and lives around the message, around who takes part, and after
// the end.
var courses = map[string]course{
	"all": {nil, []string{
		"pause", "resume", "resume", "move", "move", "end", "end", "reroll", "reroll", "replace", "replace",
		"update", "update", "update", "cancel", "disqualify", "disqualify", "enter", "enter",
		"transitions", "transitions", "announce", "announce", "announce",
		"draw", "draw", "gather", "gather", "gather", "react", "edit", "edit", "pass", "pass", "platform", "members", "delete",
	}},
	"message": {[]string{"hour", "transitions", "announce"}, []string{
		"update", "update", "update", "edit", "edit", "edit", "edit",
		"pause", "resume", "end", "cancel", "gather", "gather", "draw", "pass", "platform", "delete", "delete",
	}},
	"entries": {[]string{"hour", "transitions", "announce", "enter", "enter"}, []string{
		"disqualify", "disqualify", "disqualify", "enter", "enter", "enter", "members",
		"end", "gather", "gather", "draw", "pass", "delete",
	}},
	"draws": {[]string{"hour", "transitions", "announce", "enter", "enter", "end", "gather", "draw"}, []string{
		"reroll", "reroll", "replace", "replace", "replace", "edit", "announce", "pass",
	}},
}

var lifeChannels = []string{"381886868708655104", "381886868708655105"}

// create creates the giveaway that the sequence drives.
func (l *giveawayLife) create() {
	s := &Service{Chat: l.room}
	body := gen.CreateGiveawayRequest{
		ChannelID: lifeChannels[0], Prize: "Nitro", WinnerCount: rapid.IntRange(1, 3).Draw(l.rt, "winners"),
		EndsAt: wire.At(time.Now().Add(3 * time.Hour)),
	}
	if rapid.Bool().Draw(l.rt, "starts later") {
		at := wire.At(time.Now().Add(time.Hour))
		body.StartsAt = &at
	}
	n := l.nodes[0]
	err := l.asked(n, func(ctx context.Context) error {
		ctx, err := s.PrepareCreate(ctx, &body)
		if err != nil {
			return err
		}
		made, err := s.CreateGiveaway(ctx, gen.CreateGiveawayRequestObject{Body: &body})
		if err == nil {
			l.id = made.(gen.CreateGiveaway201JSONResponse).Body.Data.ID
		}
		return err
	})(context.Background())
	if err != nil {
		l.rt.Fatal(err)
	}
	for _, status := range []string{scheduled, active, paused, drawing, ended, cancelled} { // other giveaways that never become due
		l.giveaway("bystander-"+status, status, 1, 2, equal)
		dbtest.Exec(l.rt, l.DB, `
			UPDATE giveaways
			SET source = 'api', message_id = '4', starts_at = now() + interval '1 year', ends_at = now() + interval '2 years',
			    redraw_at = now() + interval '1 year', react_at = now() + interval '1 year', edit_at = now() + interval '1 year',
			    pot = CASE WHEN status = 'drawing' THEN 'gathering' WHEN status IN ('ended', 'cancelled') THEN 'frozen' ELSE 'open' END
			WHERE id = 'bystander-' || $1`, status)
	}
	dbtest.Exec(l.rt, l.DB, `
		INSERT INTO giveaway_disqualified (guild_id, giveaway_id, user_id) VALUES ($1, 'bystander-active', $2)`, guild, accused[0])
	l.bystanders = l.others()
	l.course = courses[rapid.SampledFrom([]string{"all", "all", "message", "entries", "draws"}).Draw(l.rt, "course")]
	l.was = l.get(l.id)
	l.life = life{status: l.was.Status, prize: l.was.Prize, winners: l.was.WinnerCount}
}

// asked returns a function that runs do in a transaction, as an API request does.
func (l *giveawayLife) asked(n *lifeNode, do func(context.Context) error) func(context.Context) error {
	by := &auth.Principal{By: auth.By{GuildID: guild, ID: "token"}}
	return func(ctx context.Context) error {
		return n.db.Do(auth.With(ctx, by), func(ctx context.Context, _ *db.Tx) error { return do(ctx) })
	}
}

// makes returns what makes the commands, by name. Between rounds members react and withdraw, and
// the platform goes down and comes back.
func (l *giveawayLife) makes() map[string]func(*lifeNode) *lifeCommand {
	return map[string]func(*lifeNode) *lifeCommand{
		"pause": l.pause, "resume": l.resume, "end": l.end, "reroll": l.reroll, "move": l.move,
		"update": l.update, "cancel": l.rarely(l.cancel), "disqualify": l.disqualify, "enter": l.enter, "replace": l.replaceWinners,
		"transitions": l.transitions, "announce": l.announce,
		"draw": l.lane(0), "gather": l.lane(1), "react": l.lane(2), "edit": l.lane(3),
		"pass": func(n *lifeNode) *lifeCommand {
			return l.passes(n, rapid.SampledFrom([]time.Duration{
				5 * time.Second, 20 * time.Second, 90 * time.Second, 20 * time.Minute, 70 * time.Minute, 25 * time.Hour,
			}).Draw(l.rt, "time"))
		},
		"hour": func(n *lifeNode) *lifeCommand { return l.passes(n, 61*time.Minute) },
		"platform": func(*lifeNode) *lifeCommand {
			l.room.set(rapid.SampledFrom([]string{"up", "up", "up", "away", "loses", "refuses"}).Draw(l.rt, "platform"))
			return nil
		},
		"members": func(*lifeNode) *lifeCommand {
			l.room.change(rapid.SliceOfN(rapid.IntRange(0, 2*len(strays)-1), 1, 4).Draw(l.rt, "members")...)
			return nil
		},
		"delete": func(*lifeNode) *lifeCommand {
			if rapid.IntRange(0, 2).Draw(l.rt, "deleted") == 0 {
				l.room.delete()
			}
			return nil
		},
	}
}

// begins runs the first commands of the course.
func (l *giveawayLife) begins() {
	for _, name := range l.course.begins {
		n := l.nodes[0]
		if c := l.makes()[name](n); c != nil {
			c.Gate, c.Stop = n.gate, 1_000_000
			l.round([]*lifeCommand{c})
		}
	}
}

// draw chooses the commands of a round: mostly one, sometimes two or three on different nodes, of
// which each but the last is held back somewhere.
func (l *giveawayLife) draw() (list []*lifeCommand) {
	free := slices.Clone(l.nodes)
	for range rapid.SampledFrom([]int{1, 2, 2, 3}).Draw(l.rt, "at once") {
		i := rapid.IntRange(0, len(free)-1).Draw(l.rt, "node")
		n := free[i]
		c := l.makes()[rapid.SampledFrom(l.course.goesOn).Draw(l.rt, "command")](n)
		if c == nil {
			continue
		}
		free = slices.Delete(free, i, i+1)
		c.Gate, c.Stop = n.gate, rapid.IntRange(0, 12).Draw(l.rt, "stop")
		fates := []dbtest.Fate{dbtest.Pass, dbtest.Pass, dbtest.Pass, dbtest.Break, dbtest.Lose}
		if c.Fate = rapid.SampledFrom(fates).Draw(l.rt, "fate"); c.Name == "pass" {
			c.Fate = dbtest.Pass // time passes for the platform and the database
		}
		list = append(list, c)
	}
	return list
}

// called returns a command. effect is its effect on a giveaway in one of the statuses `from`; in
// any other status it is refused.
func called(name string, run func(context.Context) error, refused string, effect func(life) life, from ...string) *lifeCommand {
	return &lifeCommand{
		Command: &dbtest.Command{Name: name, Run: run},
		effects: []func(life) []outcome{func(s life) []outcome {
			if !slices.Contains(from, s.status) {
				return []outcome{{s, refused}}
			}
			return []outcome{{effect(s), ""}}
		}},
		check: func() {},
	}
}

func (l *giveawayLife) pause(n *lifeNode) *lifeCommand {
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).PauseGiveaway(ctx, gen.PauseGiveawayRequestObject{ID: l.id})
		return err
	})
	return called("pause", run, "giveaway_not_active", func(s life) life {
		s.status, s.pauses = paused, s.pauses+1
		return s
	}, active)
}

func (l *giveawayLife) resume(n *lifeNode) *lifeCommand {
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).ResumeGiveaway(ctx, gen.ResumeGiveawayRequestObject{ID: l.id})
		return err
	})
	return called("resume", run, "giveaway_not_paused", func(s life) life {
		s.status, s.resumes = active, s.resumes+1
		return s
	}, paused)
}

func (l *giveawayLife) end(n *lifeNode) *lifeCommand {
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).EndGiveaway(ctx, gen.EndGiveawayRequestObject{ID: l.id})
		return err
	})
	return called("end", run, "giveaway_not_running", func(s life) life {
		s.status = drawing
		return s
	}, scheduled, active, paused)
}

// reroll returns a reroll, which is refused if too few entrants have never won.
func (l *giveawayLife) reroll(n *lifeNode) *lifeCommand {
	count := rapid.IntRange(1, 3).Draw(l.rt, "count")
	run := l.asked(n, func(ctx context.Context) error {
		_, err := new(Service).RerollGiveaway(ctx, gen.RerollGiveawayRequestObject{ID: l.id, Body: &gen.RerollGiveawayRequest{Count: &count}})
		return err
	})
	c := called("reroll", run, "giveaway_not_ended", nil, ended)
	c.effects = []func(life) []outcome{func(s life) []outcome {
		if s.status != ended {
			return []outcome{{s, "giveaway_not_ended"}}
		}
		more := s
		more.rerolls++
		return []outcome{{s, "not_enough_entries"}, {more, ""}}
	}}
	return c
}

// move returns a record by which the bot moves the giveaway to another channel while its message is
// not posted. It is refused if the giveaway has changed meanwhile.
func (l *giveawayLife) move(n *lifeNode) *lifeCommand {
	if l.was.MessageID != nil {
		return nil
	}
	record := fmt.Sprintf(`{"record":"giveaway","guild_id":"%s","id":"%s","channel_id":"%s","if_updated_at":"%s"}`,
		guild, l.id, rapid.SampledFrom(lifeChannels).Draw(l.rt, "channel"), l.was.UpdatedAt)
	run := l.asked(n, func(ctx context.Context) error { return written(ctx, transfer.NewBatch(Records), record) })
	c := called("move", run, "", nil)
	c.effects = []func(life) []outcome{func(s life) []outcome { return []outcome{{s, ""}, {s, "record_changed"}} }}
	return c
}

// written writes one record, as the bot's call does.
func written(ctx context.Context, b transfer.Batch, record string) error {
	tx := db.Write(ctx)
	c, r := &transfer.Call{By: auth.By{GuildID: guild}, Now: time.Now(), Emit: true}, &transfer.Record{Text: []byte(record)}
	if _, err := b.Add(c, r); err != nil {
		return err
	}
	if err := errors.Join(b.Write(ctx, tx, c), r.Err); err != nil {
		return err
	}
	return b.Emit(ctx, tx, c)
}

// transitions returns the sweep that changes the status of due giveaways. A locked giveaway is left
// for the next run.
func (l *giveawayLife) transitions(n *lifeNode) *lifeCommand {
	begins := func(s life) []outcome {
		if s.status != scheduled || l.countOf(`SELECT count(*) FROM giveaways WHERE id = $1 AND starts_at <= now()`, l.id) == 0 {
			return nil
		}
		s.status, s.starts = active, s.starts+1
		return []outcome{{s, ""}}
	}
	finishes := func(s life) []outcome {
		if s.status != active || l.countOf(`SELECT count(*) FROM giveaways WHERE id = $1 AND ends_at <= now()`, l.id) == 0 {
			return nil
		}
		s.status = drawing
		return []outcome{{s, ""}}
	}
	due := l.countOf(`
		SELECT count(*) FROM giveaways
		WHERE id = $1 AND (status = 'scheduled' AND starts_at <= now() OR status = 'active' AND ends_at <= now())`, l.id)
	was := l.life
	return &lifeCommand{
		Command: &dbtest.Command{Name: "transitions", Run: func(ctx context.Context) error { return Transitions(ctx, n.db) }},
		effects: []func(life) []outcome{begins, finishes}, maybe: true,
		check: func() {
			if due > 0 && l.life == was {
				l.rt.Fatalf("what was due has not moved: %+v", was)
			}
		},
	}
}

// lane returns the command that runs the due work of one lane.
func (l *giveawayLife) lane(i int) func(*lifeNode) *lifeCommand {
	return func(n *lifeNode) *lifeCommand { return l.works(n, Lanes(n.db, l.room)[i]) }
}

// works makes a node poll a lane once and do the work that it finds.
func (l *giveawayLife) works(n *lifeNode, of lanes.Lane) *lifeCommand {
	c := &lifeCommand{maybe: true, Command: &dbtest.Command{Name: of.Kind, Run: func(ctx context.Context) error {
		found, err := db.Select[db.Found](ctx, n.db.Reader(), of.Queue.Scan(n.db.Distributed()), "", 100, of.Slots)
		if err != nil {
			return nil //nolint:nilerr // the next poll finds what is due
		}
		for _, r := range found {
			if r.ID == "" || of.Do(ctx, r.GuildID, r.ID) == nil {
				continue
			}
			_ = n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error { // postponed, or due again when its lease ends
				_, err := db.Exec(ctx, tx, of.Queue.Postpone(), r.GuildID, r.ID)
				return err
			})
		}
		return nil
	}}}
	if of.Kind == "draw" {
		c.effects = []func(life) []outcome{func(s life) []outcome {
			if s.status != drawing {
				return nil
			}
			s.status = ended
			return []outcome{{s, ""}}
		}}
	}
	return c
}

// announce makes a node post one of the announcements that are due.
func (l *giveawayLife) announce(n *lifeNode) *lifeCommand {
	var left []string
	if err := l.DB.Reader().SelectContext(context.Background(), &left, `SELECT id FROM chat_intents ORDER BY created_at, id`); err != nil {
		l.rt.Fatal(err)
	}
	if len(left) == 0 {
		return nil
	}
	id := rapid.SampledFrom(left).Draw(l.rt, "message")
	return &lifeCommand{Command: &dbtest.Command{Name: "announce", Run: func(ctx context.Context) error { return l.says(ctx, n, id) }}}
}

// says posts a message; if the platform does not accept it, the message is tried again later.
func (l *giveawayLife) says(ctx context.Context, n *lifeNode, id string) error {
	err := Announce(ctx, n.db, l.room, guild, id)
	if _, ok := errors.AsType[*chat.Failure](err); ok || errors.Is(err, chat.ErrTaken) {
		return nil
	}
	return err
}

// passes moves all instants into the past. It waits for commands that have locked the rows, however
// long a busy machine takes.
func (l *giveawayLife) passes(n *lifeNode, d time.Duration) *lifeCommand {
	interval := fmt.Sprintf("interval '%d seconds'", int(d.Seconds()))
	return &lifeCommand{Command: &dbtest.Command{Name: "pass", Run: func(ctx context.Context) error {
		return n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `SET LOCAL lock_timeout = '30s'; SET LOCAL statement_timeout = '30s'`)
			if err == nil {
				_, err = tx.ExecContext(ctx, `UPDATE giveaways SET `+dbtest.Earlier(interval, "starts_at", "ends_at", "paused_at", "redraw_at",
					"ended_at", "created_at", "updated_at", "drawing_at", "react_at", "edit_at", "edited_at")+` WHERE id = $1`, l.id)
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, `UPDATE chat_intents SET `+dbtest.Earlier(interval, "first_sent_at", "lease_until",
					"created_at", "try_at"))
			}
			if err == nil {
				l.room.pass(d)
			}
			return err
		})
	}}}
}
