package delivery

import (
	"context"
	"slices"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/event"
)

func called(name string, run func(context.Context) error) *command {
	return &command{Command: &dbtest.Command{Name: name, Run: run}}
}

// draw draws the commands of a round: mostly one, otherwise two or three of different workers, each
// of which except the last stops somewhere.
func (l *lifeTest) draw() []*command {
	makes := map[string]func(*node) *command{
		"event": l.event, "claim": l.claim, "answer": l.answer, "die": l.die, "pass": l.pass, "disable": l.disable,
		"enable": l.enable, "test": l.test, "redeliver": l.redeliver, "recover": l.recover, "move": l.move, "rotate": l.rotate,
		"remove": l.remove, "follow": l.follows,
	}
	names := []string{
		"event", "claim", "claim", "claim", "answer", "answer", "answer", "answer", "answer", "answer", "die", "pass",
		"disable", "enable", "enable",
		"test", "redeliver", "recover", "move", "rotate", "remove", "follow", "follow",
	}
	free := slices.Clone(l.nodes)
	var list []*command
	for range rapid.SampledFrom([]int{1, 2, 2, 3}).Draw(l.rt, "at once") {
		name := rapid.SampledFrom(names).Draw(l.rt, "command")
		i := rapid.IntRange(0, len(free)-1).Draw(l.rt, "node")
		if busy := slices.IndexFunc(free, func(n *node) bool { return len(n.hand) > 0 }); busy >= 0 && name == "answer" {
			i = busy
		}
		n := free[i]
		free = slices.Delete(free, i, i+1)
		c := makes[name](n)
		if c == nil {
			continue
		}
		c.node, c.Gate = n, n.gate
		c.Stop = rapid.IntRange(0, 6).Draw(l.rt, "stop")
		fates := []dbtest.Fate{dbtest.Pass, dbtest.Pass, dbtest.Pass, dbtest.Pass, dbtest.Break, dbtest.Lose}
		c.Fate = rapid.SampledFrom(fates).Draw(l.rt, "fate")
		list = append(list, c)
	}
	return list
}

// claim makes a claim, whose sends start before its commit.
func (l *lifeTest) claim(n *node) *command {
	take, d := rapid.IntRange(1, 4).Draw(l.rt, "slots"), n.d
	return called("claim", func(ctx context.Context) error {
		var rows []claimed
		err := n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			chosen := []*candidate{{GuildID: l.guild, EndpointID: l.e.ID, Known: true, take: take}}
			rows = nil
			locked, err := lockIdle(ctx, tx, l.cfg.OneGuild, d.now(), chosen)
			if err != nil || len(locked) == 0 {
				return err
			}
			if rows, err = d.takeLocked(ctx, tx, chosen, locked, time.Now()); err != nil {
				return err
			}
			for _, c := range rows {
				l.begins(d, c)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, c := range rows {
			d.limiter.begin(c, time.Now())
		}
		n.hand = append(n.hand, rows...)
		return nil
	})
}

// begins checks that a delivery may be sent now.
func (l *lifeTest) begins(d *Deliverer, c claimed) {
	if _, unsent := d.unsent(c); unsent {
		return
	}
	if state, ok := l.final[c.ID]; ok {
		l.breaks("%s is sent though it is %s", c.ID, state)
	}
	if c.Cause != "test" && l.closed.Load() {
		l.breaks("%s is sent to an endpoint that is off", c.ID)
	}
	secrets, err := d.open(c, time.Now())
	if err != nil {
		l.breaks("the secrets of %s: %v", c.ID, err)
		return
	}
	l.mu.Lock()
	known := slices.Contains(secrets, l.secrets.current) && (secrets[0] == l.secrets.current || slices.Contains(l.secrets.news, secrets[0]))
	l.mu.Unlock()
	if !known {
		l.breaks("%s is not signed with the present secret", c.ID)
	}
}

// answer records the result of one claimed delivery; the worker may have lost its lease.
func (l *lifeTest) answer(n *node) *command {
	if len(n.hand) == 0 {
		return nil
	}
	i, d := rapid.IntRange(0, len(n.hand)-1).Draw(l.rt, "which"), n.d
	c := n.hand[i]
	n.hand = slices.Delete(n.hand, i, i+1)
	v, unsent := d.unsent(c)
	if !unsent {
		o := rapid.SampledFrom([]outcome{delivered, delivered, serverError, timedOut, throttled, badAddress, gone}).Draw(l.rt, "answer")
		pause := time.Duration(0)
		if o == throttled {
			pause = time.Duration(rapid.IntRange(0, 90).Draw(l.rt, "retry after")) * time.Second
		}
		v = d.schedule.judge(c.Step, o, pause, 0.5)
	}
	if rapid.IntRange(0, 9).Draw(l.rt, "frozen") == 0 {
		v = decision{State: StatePending, Step: c.Step}
	}
	d.limiter.end(c, v, time.Now())
	r := newResult(c, v, egress.Response{}, l.now, 0)
	out := called("answer "+string(v.Outcome), func(ctx context.Context) error {
		if err := d.record(ctx, []result{r}); err != nil {
			return err
		}
		d.limiter.recorded([]result{r})
		return nil
	})
	out.maybe = v.Failing
	if v.Failing || v.Disable != "" { // status 410; or a failure that may complete the five days
		out.effect = func(s life) life {
			if len(r.url)-len(l.e.URL) == s.moves {
				s.on = false
			}
			return s
		}
	}
	return out
}

// die kills a worker with its claimed deliveries.
func (l *lifeTest) die(n *node) *command {
	l.restart(n)
	return nil
}

func (l *lifeTest) pass(*node) *command {
	l.now = l.now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 25, 100, 1000}).Draw(l.rt, "seconds")) * time.Second)
	return nil
}

func (l *lifeTest) disable(n *node) *command {
	c := called("disable", l.closes(l.unit(n, func(ctx context.Context, tx *db.Tx) error { return Disable(ctx, tx, l.guild, l.e.ID, "") })))
	c.effect = func(s life) life { s.on = false; return s }
	return c
}

// closes wraps a command after whose end no send may start.
func (l *lifeTest) closes(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := run(ctx)
		if err == nil && !l.opening {
			l.closed.Store(true)
		}
		return err
	}
}

func (l *lifeTest) enable(n *node) *command {
	more := rapid.Bool().Draw(l.rt, "more follows")
	c := called("enable", l.unit(n, func(ctx context.Context, tx *db.Tx) error { return Enable(ctx, tx, l.guild, l.e.ID) }))
	c.effect = func(s life) life { s.on = !s.gone; return s }
	c.check = func() {
		if more {
			return
		}
		l.follow(n.d)
		if waits := l.count(`SELECT count(*) FROM webhook_deliveries WHERE state IN ('held', 'pending') AND lease_until IS NULL
			AND (state = 'held' OR due_at > $1)`, l.now); waits > 0 {
			l.rt.Fatalf("%d deliveries of an endpoint that was enabled wait: %s", waits, l.states())
		}
	}
	return c
}

func (l *lifeTest) test(n *node) *command {
	return called("test", l.engineUnit(n, func(ctx context.Context, tx *db.Tx) error {
		_, err := Ping(ctx, tx, event.System(l.guild), l.e.ID)
		return err
	}))
}

func (l *lifeTest) redeliver(n *node) *command {
	id := dbtest.Value[string](l.t, l.DB, `SELECT coalesce(min(id), '') FROM webhook_deliveries`)
	if id == "" {
		return nil
	}
	return called("redeliver", l.engineUnit(n, func(ctx context.Context, tx *db.Tx) error {
		_, err := Redeliver(ctx, tx, l.guild, l.e.ID, id)
		return err
	}))
}

func (l *lifeTest) recover(n *node) *command {
	return called("recover", l.engineUnit(n, func(ctx context.Context, tx *db.Tx) error {
		_, err := Recover(ctx, tx, l.guild, l.e.ID, l.since, 100)
		return err
	}))
}

func (l *lifeTest) move(n *node) *command {
	c := called("move", l.unit(n, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE webhook_endpoints SET url = url || '/' WHERE guild_id = $1 AND id = $2`, l.guild, l.e.ID)
		if err != nil {
			return err
		}
		return ResetHealth(ctx, tx, l.guild, l.e.ID)
	}))
	c.effect = func(s life) life {
		if !s.gone {
			s.moves++
		}
		return s
	}
	return c
}

// rotate gives the endpoint a new secret; the previous secret still signs for a day.
func (l *lifeTest) rotate(n *node) *command {
	secret := newSecret()
	l.secrets.news = append(l.secrets.news, secret)
	sealed, until := l.cfg.Box.Seal([]byte(secret), BoundTo(l.guild, l.e.ID)), time.Now().Add(24*time.Hour)
	return called("rotate", l.unit(n, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `
			UPDATE webhook_endpoints
			SET secret = $3,
			    old_secrets = ('[{"sealed": "' || translate(encode(secret, 'base64'), E'\n', '') ||
			        '", "until": "' || $4 || '"}]')::jsonb || old_secrets
			WHERE guild_id = $1 AND id = $2`, l.guild, l.e.ID, sealed, until.Format(time.RFC3339))
		return err
	}))
}

func (l *lifeTest) remove(n *node) *command {
	if rapid.IntRange(0, 3).Draw(l.rt, "deleted") > 0 {
		return nil
	}
	c := called("remove", l.closes(l.unit(n, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM webhook_endpoints WHERE guild_id = $1 AND id = $2`, l.guild, l.e.ID); err != nil {
			return err
		}
		return Forget(ctx, tx, l.guild, l.e.ID)
	})))
	c.effect = func(s life) life { return life{gone: true, moves: s.moves} }
	return c
}

func (l *lifeTest) follows(n *node) *command { return called("follow", n.d.follow) }
