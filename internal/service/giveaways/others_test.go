package giveaways_test

import (
	"context"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

// others inserts giveaways in each status that have work later, with entries, draws and messages of
// their own.
const others = `
	WITH made AS (
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, paused_at,
			source, bot_run, pot, redraw_at, react_at, edit_at, drawing_at, rounds, post_id)
		SELECT $1, 'other-' || n, status, 'Another', 1, '381886868708655104', message,
		       now() + starts * interval '1 hour', now() + interval '1 day', CASE WHEN status = 'paused' THEN now() END,
		       source, source = 'bot', pot, now() + interval '1 hour', CASE WHEN status = 'active' THEN now() + interval '1 hour' END,
		       CASE WHEN status IN ('drawing', 'ended') THEN now() + interval '1 hour' END,
		       CASE WHEN status IN ('drawing', 'ended') THEN now() END, CASE WHEN status = 'ended' THEN 1 ELSE 0 END, 'post-' || n
		FROM (VALUES
			(1, 'scheduled', NULL, 1, 'api', 'open'), (2, 'active', '901', -1, 'api', 'open'), (3, 'active', NULL, -1, 'api', 'open'),
			(4, 'paused', '903', -1, 'api', 'open'), (5, 'drawing', '904', -1, 'api', 'gathering'),
			(6, 'drawing', '905', -1, 'bot', 'open'), (7, 'drawing', '906', -1, 'api', 'frozen'), (8, 'ended', '907', -1, 'api', 'frozen')
		) AS o (n, status, message, starts, source, pot)
		RETURNING id, rounds
	), entered AS (
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries)
		SELECT $1, id, u, 1 FROM made, unnest(ARRAY['7001', '7002']) u
	)
	INSERT INTO giveaway_draws (guild_id, giveaway_id, round, seed, entries_hash, excluded, drawn, replaced,
		entry_count, drawn_at)
	SELECT $1, id, 1, decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex'), '{}', '{7001}', '{}', 2, now()
	FROM made
	WHERE rounds > 0`

// snapshot selects all data of all giveaways but one.
const snapshot = `
	SELECT (SELECT string_agg(to_jsonb(g)::text, E'\n' ORDER BY id) FROM giveaways g WHERE id <> $1) ||
	       (SELECT string_agg(to_jsonb(e)::text, E'\n' ORDER BY giveaway_id, user_id) FROM giveaway_entries e WHERE giveaway_id <> $1) ||
	       (SELECT string_agg(to_jsonb(d)::text, E'\n' ORDER BY giveaway_id) FROM giveaway_draws d WHERE giveaway_id <> $1)`

// A giveaway goes step by step through its life, and no step changes another giveaway of the guild.
func TestALifeChangesNoOtherGiveaway(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	ctx, p, d := context.Background(), discord(t, server.URL), s.DB()
	id := s.Do(t, "createGiveaway", quote(map[string]any{
		"channel_id": channel, "prize": "Nitro", "winner_count": 1, "starts_at": in(1e12), "ends_at": in(2e12),
	})).Want(t, 201, `{"data":{"status":"scheduled"}}`).Str(t, "data.id")
	dbtest.Exec(t, d, others, s.Guild)
	dbtest.Exec(t, d, giveaways.Recount)
	was := dbtest.Value[string](t, d, snapshot, id)
	here := apitest.Path("id", id)
	call := func(operation, body string, status int) func() error {
		return func() error { s.Do(t, operation, body, here).Want(t, status, ""); return nil }
	}
	due := func(column string) func() error {
		return func() error {
			dbtest.Exec(t, d, `UPDATE giveaways SET `+column+` = now() WHERE id = $1`, id)
			return giveaways.Transitions(ctx, d)
		}
	}
	announce := func() error {
		intent := dbtest.Value[string](t, d, `SELECT id FROM chat_intents WHERE subject_id = $1 AND state <> 'sent'`, id)
		return giveaways.Announce(ctx, d, p, s.Guild, intent)
	}
	answered := func() error {
		return d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			return giveaways.Answered(ctx, tx, chat.Answered{GuildID: s.Guild, GiveawayID: id})
		})
	}
	for _, step := range []struct {
		name, then string
		do         func() error
	}{
		{"start", "active", due("starts_at")},
		{"post", "active", announce},
		{"react", "active", func() error { return giveaways.React(ctx, d, p, s.Guild, id) }},
		{"pause", "paused", call("pauseGiveaway", "", 200)},
		{"resume", "active", call("resumeGiveaway", "", 200)},
		{"say so", "active", announce},
		{"enter", "active", func() error {
			server.React(channel, dbtest.Value[string](t, d, `SELECT message_id FROM giveaways WHERE id = $1`, id), party, members(2000, 3)...)
			return nil
		}},
		{"end", "drawing", due("ends_at")},
		{"answered", "drawing", answered},
		{"edit", "drawing", func() error { return giveaways.Edit(ctx, d, p, s.Guild, id) }},
		{"gather", "drawing", func() error { return giveaways.Gather(ctx, d, p, s.Guild, id) }},
		{"draw", "ended", func() error { return giveaways.Draw(ctx, d, s.Guild, id) }},
		{"announce", "ended", announce},
		{"edit again", "ended", func() error { return giveaways.Edit(ctx, d, p, s.Guild, id) }},
		{"reroll", "ended", call("rerollGiveaway", `{"count":1}`, 200)},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if status := dbtest.Value[string](t, d, `SELECT status FROM giveaways WHERE id = $1`, id); status != step.then {
			t.Errorf("after %s the giveaway is %s, want %s", step.name, status, step.then)
		}
		if is := dbtest.Value[string](t, d, snapshot, id); is != was {
			t.Fatalf("%s has changed others: they were\n%s\nand are\n%s", step.name, was, is)
		}
	}
	s.Do(t, "getGiveaway", "", here).Want(t, 200, `{"data":{"entrant_count":3,"entry_count":3}}`)
}
