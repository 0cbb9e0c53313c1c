package main

import (
	"errors"
	"flag"
	"fmt"
	"time"

	"guildhall/bench/rig"
)

// giveawayBench measures how long it takes a node until the last of many giveaways that
// end in the same second is in drawing and drawn, and how long other guilds wait for their
// draws while one guild draws from very many entries.
func giveawayBench(flags *flag.FlagSet) func(*rig.Run) {
	server := flags.String("server", "bin/guildhall", "the server `program`")
	count := flags.Int("giveaways", 10_000, "giveaways that end in the same second")
	guilds := flags.Int("guilds", 1_000, "guilds that they belong to")
	entries := flags.Int("entries", 100_000, "entries of the large giveaway")
	return func(r *rig.Run) {
		d := draws{r.Place(rig.Config{Program: *server})}
		d.Serve()
		d.together(*count, *guilds)
		d.beside(*entries)
	}
}

type draws struct{ *rig.Place }

// together lets many giveaways end at once.
func (d draws) together(count, guilds int) {
	d.Fill([]string{
		`INSERT INTO guilds (id, name, owner_id)
		 SELECT (1000 + i)::text, 'Guild', '1' FROM generate_series(0, $2::int - 1) i WHERE $1::int > 0`,
		`INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, entrant_count, entry_count)
		 SELECT (1000 + i % $2::int)::text, 'g' || i, 'active', 'A prize', 3, '1', '2', now() - interval '1 hour',
		        now() + interval '1 day', 10, 10
		 FROM generate_series(1, $1::int) i`,
		`INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
		 SELECT (1000 + g % $2::int)::text, 'g' || g, (5000 + u)::text FROM generate_series(1, $1::int) g, generate_series(1, 10) u`,
	}, count, guilds)
	ends := time.Now().Add(2 * time.Second)
	d.Exec(`UPDATE giveaways SET ends_at = $1::timestamptz`, ends)
	drawing := d.until(`status = 'active'`)
	drawn := d.until(`status <> 'ended'`)
	d.Say("%d giveaways of %d guilds end in the same second: the last is in drawing after %.1f s (at most 5), drawn after %.1f s (at most 30)",
		count, guilds, drawing.Sub(ends).Seconds(), drawn.Sub(ends).Seconds())
}

// beside lets one guild draw from very many entries while others end.
func (d draws) beside(entries int) {
	const large = 8
	d.Exec(`INSERT INTO guilds (id, name, owner_id) SELECT '999', 'A large guild', '1'`)
	d.Fill([]string{
		`INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, entrant_count, entry_count)
		 SELECT '999', 'large' || i, 'active', 'A prize', 100, '1', '2', now() - interval '1 hour', now() + interval '1 day', $2::int, $2::int
		 FROM generate_series(1, $1::int) i`,
		`INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
		 SELECT '999', 'large' || i, (5000000 + u)::text FROM generate_series(1, $1::int) i, generate_series(1, $2::int) u`,
	}, large, entries)
	d.Exec(`UPDATE giveaways SET status = 'active', ends_at = now() WHERE guild_id = '999'`)
	begin := time.Now()
	var worst time.Duration
	for n := 1; ; n++ {
		id := fmt.Sprint("small", n)
		d.Exec(`
			INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, pot)
			VALUES ('1000', $1, 'drawing', 'A prize', 1, '1', '2', now() - interval '1 hour', now(), 'frozen')`, id)
		asked := time.Now()
		worst = max(worst, d.until(`id = '`+id+`' AND status <> 'ended'`).Sub(asked))
		if d.Count(`SELECT count(*) FROM giveaways WHERE guild_id = '999' AND status <> 'ended'`) == 0 {
			d.Say("one guild draws %d times from %d entries in %.1f s; meanwhile another guild's draws took at most %.2f s, of %d",
				large, entries, time.Since(begin).Seconds(), worst.Seconds(), n)
			return
		}
	}
}

// until waits until no giveaway meets the condition any more.
func (d draws) until(condition string) time.Time {
	left := `SELECT count(*) FROM (SELECT 1 FROM giveaways WHERE ` + condition + ` LIMIT 1) AS one`
	if !d.Await(5*time.Minute, func() bool { return d.Count(left) == 0 }) {
		d.Must(errors.New("waited five minutes in vain"))
	}
	return time.Now()
}
