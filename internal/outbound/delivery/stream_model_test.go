package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
)

// told is the model of one event.
type told struct {
	guild   string
	at      time.Time
	byBot   bool
	wanted  bool // the stream had subscribed to it when it happened
	id      string
	fetched bool      // a fetch has returned it
	leased  time.Time // end of its lease
	settled bool      // an acknowledgement of the event got a response
	perhaps bool      // an acknowledgement without an answer, or concurrent with the fetch
}

// streamTest tests one stream. Commands run one at a time, or up to three at once: then each except
// the last stops between two of its statements until the next command has ended, has itself
// stopped, or waits for a lock; and its node may die there.
type streamTest struct {
	*deliveryDB
	rt    *rapid.T
	nodes []*node
	now   time.Time
	apart bool // each statement names one guild, as with Citus

	guilds  []string
	founded int    // number of guilds that commands have created
	stream  string // id of the stream
	events  []string
	echo    bool
	echoed  bool      // the stream had subscribed to the echo at some time
	asked   time.Time // last fetch before this round
	told    []*told
}

// streamCommand is a command of a caller or a node.
type streamCommand struct {
	*dbtest.Command
	node             *node
	check            func()    // called after the command has succeeded
	settles, returns []int     // events that the command acknowledges or returns
	gets             []int     // events that the command has fetched
	until            time.Time // end of the lease
	changes          bool      // changes the stream's subscription
	asked            bool      // instant of its fetch
}

func (m *streamTest) start() {
	m.stream, m.events, m.echo, m.echoed, m.asked, m.told = db.NewID(), []string{event.CaseCreated}, false, false, m.now, nil
	m.exec(`INSERT INTO bot_streams (id, name, events, echo, backfilled, created_at) VALUES ($1, 'mirror', $2, false, '', $3)`,
		m.stream, db.Array(m.events), m.now)
}

// part draws the part of a fetch: everything, a shard, or the guilds of a key.
func (m *streamTest) part() Part {
	return rapid.SampledFrom([]Part{
		{Stream: "mirror", Shards: 1},
		{Stream: "mirror", Shards: 2},
		{Stream: "mirror", Shard: 1, Shards: 2},
		{Stream: "mirror", Shards: 1, Guilds: m.guilds[:1]},
	}).Draw(m.rt, "part")
}

func (m *streamTest) record(n *node) *streamCommand {
	guild, typ := rapid.SampledFrom(m.guilds).
		Draw(m.rt, "guild"),
		rapid.SampledFrom([]string{event.CaseCreated, event.CaseUpdated}).
			Draw(m.rt, "type")
	by := auth.By{GuildID: guild, ID: "token"}
	if rapid.Bool().Draw(m.rt, "by the bot") {
		by.ID = "bk_one"
	}
	number := len(m.told)
	one := &told{guild: guild, at: m.now, byBot: by.ID == "bk_one"}
	m.told = append(m.told, one)
	c := &streamCommand{Command: new(dbtest.Command)}
	c.Run = func(ctx context.Context) error {
		return n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			return event.Record(ctx, tx, event.From(by).On(one.at), typ, number)
		})
	}
	wants := slices.Contains(m.events, typ) && (m.echo || !one.byBot)
	c.check = func() { one.wanted = wants }
	return c
}

func (m *streamTest) fetch(n *node) *streamCommand {
	p, limit := m.part(), rapid.IntRange(1, 6).Draw(m.rt, "limit")
	lease := time.Duration(rapid.SampledFrom([]int{10, 60, 600}).Draw(m.rt, "lease")) * time.Second
	c := &streamCommand{Command: new(dbtest.Command), until: m.now.Add(lease)}
	c.Run = func(ctx context.Context) error {
		var got Fetched
		err := n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			tx.Distributed = tx.Distributed || m.apart
			got, err = fetchStream(ctx, tx, &m.now, p, "caller", limit, lease)
			return err
		})
		if err != nil {
			return err
		}
		for _, payload := range got.Events {
			var e struct {
				ID    string `json:"id"`
				Guild string `json:"guild_id"`
				Data  int    `json:"data"`
			}
			if err := json.Unmarshal(payload, &e); err != nil {
				return err
			}
			if !p.has(e.Guild) {
				return fmt.Errorf("%+v came, of guild %s", p, e.Guild)
			}
			c.gets = append(c.gets, e.Data)
			m.told[e.Data].id = e.ID // at most one caller of a round gets each event
		}
		if len(got.Events) > limit {
			return fmt.Errorf("%d events came, %d were asked for", len(got.Events), limit)
		}
		return nil
	}
	c.check = func() { c.asked = true }
	return c
}

func (m *streamTest) acknowledge(n *node) *streamCommand {
	c := &streamCommand{Command: new(dbtest.Command)}
	draw := func(what string, list *[]int) (ids []string) {
		ids = []string{"garbage", "ünï"}[:rapid.IntRange(0, 2).Draw(m.rt, "garbage")]
		for i, e := range m.told {
			if e.id != "" && rapid.IntRange(0, 2).Draw(m.rt, what) == 0 {
				ids, *list = append(ids, e.id), append(*list, i)
			}
		}
		return ids
	}
	settle, back := draw("record", &c.settles), draw("give back", &c.returns)
	c.Run = func(ctx context.Context) error {
		return n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			tx.Distributed = tx.Distributed || m.apart
			_, _, err := acknowledgeStream(ctx, tx, &m.now, Part{Stream: "mirror", Shards: 1}, slices.Clone(settle), slices.Clone(back))
			return err
		})
	}
	return c
}

// change subscribes the stream to more or fewer events, as putBotStream does.
func (m *streamTest) change(n *node) *streamCommand {
	events := rapid.SampledFrom([][]string{{event.CaseCreated}, {event.CaseUpdated}, {event.CaseCreated, event.CaseUpdated}}).
		Draw(m.rt, "events")
	echo := rapid.Bool().Draw(m.rt, "echo")
	narrows := (m.echo || !echo) && !slices.ContainsFunc(events, func(e string) bool { return !slices.Contains(m.events, e) })
	c := &streamCommand{Command: new(dbtest.Command), changes: true}
	c.Run = func(ctx context.Context) error {
		return n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `
				UPDATE bot_streams
				SET events = $2, echo = $3, backfilled = '', in_sync = false, complete_since = CASE WHEN $4 THEN complete_since END
				WHERE id = $1`, m.stream, db.Array(events), echo, narrows)
			return err
		})
	}
	c.check = func() { m.events, m.echo, m.echoed = events, echo, m.echoed || echo }
	return c
}

// found creates a guild.
func (m *streamTest) found(n *node) *streamCommand {
	m.founded++
	guild := fmt.Sprint(197038439483310086 + 4194304*(1000+m.founded))
	c := &streamCommand{Command: new(dbtest.Command)}
	c.Run = func(ctx context.Context) error {
		return n.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO guilds (id, name, owner_id, member_count) VALUES ($1, 'g', '1', 1)`, guild)
			if err != nil {
				return err
			}
			return SubscribeNew(ctx, tx, []string{guild})
		})
	}
	c.check = func() { m.guilds = append(m.guilds, guild) }
	return c
}

func (m *streamTest) tell(n *node) *streamCommand {
	c := &streamCommand{Command: new(dbtest.Command)}
	c.Run = func(ctx context.Context) error { return backfillStreams(ctx, n.db, m.cfg.Log, &m.now) }
	return c
}

func (m *streamTest) prune(n *node) *streamCommand {
	c := &streamCommand{Command: new(dbtest.Command)}
	c.Run = n.d.prune
	return c
}

func (m *streamTest) draw() (commands []*streamCommand) {
	free := slices.Clone(m.nodes)
	made := false
	for range rapid.SampledFrom([]int{1, 2, 2, 3}).Draw(m.rt, "at once") {
		n := free[0]
		free = free[1:]
		drawn := rapid.SampledFrom([]struct {
			name string
			of   func(*node) *streamCommand
		}{
			{"record", m.record},
			{"record", m.record},
			{"fetch", m.fetch},
			{"fetch", m.fetch},
			{"fetch", m.fetch},
			{"acknowledge", m.acknowledge},
			{"acknowledge", m.acknowledge},
			{"change", m.change},
			{"found", m.found},
			{"tell", m.tell},
			{"prune", m.prune},
		}).Draw(m.rt, "command")
		if drawn.name == "found" || drawn.name == "change" {
			if made {
				continue // at most one of these in a round
			}
			made = true
		}
		c := drawn.of(n)
		c.Name, c.Gate, c.node = drawn.name, n.gate, n
		c.Stop, c.Fate = rapid.IntRange(1, 8).
			Draw(m.rt, "stop"),
			rapid.SampledFrom([]dbtest.Fate{dbtest.Pass, dbtest.Pass, dbtest.Break, dbtest.Lose}).
				Draw(m.rt, "fate")
		commands = append(commands, c)
	}
	return commands
}

// round runs commands and compares the result with the model.
func (m *streamTest) round(commands []*streamCommand) {
	gated := make([]*dbtest.Command, len(commands))
	for i, c := range commands {
		gated[i] = c.Command
	}
	dbtest.Interleave(m.rt, m.DB, gated...)
	ran := slices.DeleteFunc(commands, func(c *streamCommand) bool { return !c.Ran() })
	for _, c := range ran {
		if c.Died {
			m.restart(c.node)
		}
	}
	m.judge(ran)
	m.holds()
	if slices.ContainsFunc(ran, func(c *streamCommand) bool { return c.asked }) {
		m.asked = m.now
	}
}

// judge changes the model by the commands.
func (m *streamTest) judge(ran []*streamCommand) {
	changing := slices.ContainsFunc(ran, func(c *streamCommand) bool { return c.changes })
	given := make(map[int]bool)
	for _, c := range ran {
		for _, i := range c.returns {
			m.told[i].leased = time.Time{} // not certain
		}
	}
	for _, c := range ran {
		if c.Err != nil && !c.Died && !errors.Is(c.Err, noSuchStream) {
			m.rt.Fatalf("%s: %v", c.Name, c.Err)
		}
		for _, i := range c.gets {
			e := m.told[i]
			switch {
			case e.settled:
				m.rt.Fatalf("event %d came after it was acknowledged: %+v", i, e)
			case e.byBot && !m.echoed && !changing:
				m.rt.Fatalf("event %d came, which the bot has caused: %+v", i, e)
			case m.now.Sub(e.at) > keep:
				m.rt.Fatalf("event %d came, which is too old: %+v", i, e)
			case e.leased.After(m.now) ||
				given[i] && !slices.ContainsFunc(ran, func(c *streamCommand) bool { return slices.Contains(c.returns, i) }):
				m.rt.Fatalf("event %d came, which another is at: %+v", i, e)
			}
			given[i] = true
		}
	}
	for _, c := range ran {
		for _, i := range c.settles {
			e := m.told[i]
			if e.settled = e.settled || c.Err == nil && e.fetched; !e.settled {
				e.perhaps = true
			}
		}
	}
	for _, c := range ran {
		returned := slices.ContainsFunc(ran, func(o *streamCommand) bool { return o.Name == "acknowledge" })
		for _, i := range c.gets {
			if m.told[i].fetched = true; !returned {
				m.told[i].leased = c.until
			}
		}
		if c.Err == nil && c.check != nil && (c.Name != "record" || !changing) {
			c.check()
		}
	}
	for _, c := range ran {
		if c.changes && c.Err != nil { // the change may have been made in spite of the error
			var is struct {
				Events db.Strings `db:"events"`
				Echo   bool       `db:"echo"`
			}
			if err := m.DB.Reader().GetContext(m.rt.Context(), &is, `SELECT events, echo FROM bot_streams WHERE id = $1`, m.stream); err == nil {
				m.events, m.echo, m.echoed = is.Events, is.Echo, m.echoed || is.Echo
			}
		}
	}
}

// holds compares the waiting events with the model: every event that the stream had subscribed to
// and that happened since complete_since waits until it is acknowledged or too old.
func (m *streamTest) holds() {
	var s struct {
		Complete *time.Time `db:"complete_since"`
	}
	err := m.DB.Reader().GetContext(m.rt.Context(), &s, `SELECT complete_since FROM bot_streams WHERE id = $1 AND ended_at IS NULL`, m.stream)
	if db.Missing(err) {
		if m.now.Sub(m.asked) < streamEnds {
			m.rt.Fatalf("the stream has ended %s after a fetch", m.now.Sub(m.asked))
		}
		m.start()
		return
	}
	if err != nil {
		m.rt.Fatal(err)
	}
	waits := make(map[int]bool)
	numbers, err := db.Select[int](m.rt.Context(), m.DB.Reader(), `
		SELECT (convert_from(v.payload, 'UTF8')::json ->> 'data')::int
		FROM stream_deliveries w
		JOIN webhook_events v ON v.guild_id = w.guild_id AND v.id = w.event_id
		WHERE w.stream_id = $1`, m.stream)
	if err != nil {
		m.rt.Fatal(err)
	}
	for _, n := range numbers {
		waits[n] = true
	}
	for i, e := range m.told {
		switch {
		case e.settled && waits[i]:
			m.rt.Fatalf("event %d waits, which was acknowledged: %+v", i, e)
		case e.wanted && !e.settled && !e.perhaps && m.now.Sub(e.at) <= keep && s.Complete != nil && e.at.After(*s.Complete) && !waits[i]:
			m.rt.Fatalf("event %d is lost: %+v; nothing is since %s", i, e, s.Complete)
		}
	}
}

// ends fetches the remaining events: each event once, and none is left.
func (m *streamTest) ends() {
	m.now = m.now.Add(601 * time.Second)
	left := m.count(`SELECT count(*) FROM stream_deliveries WHERE stream_id = $1 AND event_at >= $2`, m.stream, m.now.Add(-keep))
	for {
		c := m.fetch(m.nodes[0])
		if c.Run(m.rt.Context()) != nil {
			return // the stream has ended
		}
		m.judge([]*streamCommand{c})
		if left -= len(c.gets); len(c.gets) == 0 {
			break
		}
	}
	var got Fetched
	m.unit(func(ctx context.Context, tx *db.Tx) (err error) {
		got, err = fetchStream(ctx, tx, &m.now, Part{Stream: "mirror", Shards: 1}, "caller", 100, time.Minute)
		return err
	})
	if left -= len(got.Events); left != 0 || got.More {
		m.rt.Fatalf("%d events are left that nobody can fetch, more: %v", left, got.More)
	}
}

func (m *streamTest) restart(n *node) {
	cfg := m.cfg
	cfg.Clock = func() time.Time { return m.now }
	if err := n.restart(cfg); err != nil {
		m.rt.Fatal(err)
	}
}

// Whatever callers and nodes do, with commands between the statements of others and nodes that die
// there: each event since complete_since that the stream has subscribed to can be fetched again
// until it is acknowledged, by one caller at a time, and never after that. RELIABILITY.md, Events.
func TestAStreamFollowsTheModel(t *testing.T) {
	t.Parallel()
	w := newDeliveryDB(t)
	nodes := []*node{newNode(t, w.URL), newNode(t, w.URL), newNode(t, w.URL)}
	beside := fmt.Sprint(197038439483310086 + 4194304) // a guild of the other shard
	dbtest.AddGuilds(t, w.DB, beside)
	rapid.Check(t, func(rt *rapid.T) {
		for _, statement := range []string{
			`DELETE FROM stream_deliveries`, `DELETE FROM stream_listeners`, `DELETE FROM webhook_events`,
			`DELETE FROM bot_streams WHERE id <> 'work'`,
		} {
			w.exec(statement)
		}
		w.exec(`DELETE FROM guilds WHERE id NOT IN ($1, $2)`, w.guild, beside)
		m := &streamTest{
			deliveryDB: w,
			rt:         rt,
			nodes:      nodes,
			now:        time.Now().Add(time.Hour).Truncate(time.Millisecond),
			guilds:     []string{w.guild, beside},
			apart:      rapid.Bool().Draw(rt, "apart"),
		}
		m.start()
		for _, n := range nodes {
			m.restart(n)
		}
		if rapid.Bool().Draw(rt, "guilds know of it") {
			if err := backfillStreams(rt.Context(), w.DB, w.cfg.Log, &m.now); err != nil {
				rt.Fatal(err)
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "rounds") {
			m.now = m.now.Add(
				time.Duration(
					rapid.SampledFrom([]int{1, 1, 1, 1, 1, 10_000, 60_000, 600_000, 86_400_000, 8 * 86_400_000}).Draw(rt, "ms"),
				) * time.Millisecond,
			)
			m.round(m.draw())
		}
		m.ends()
	})
}
