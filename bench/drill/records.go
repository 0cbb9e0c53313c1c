package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
)

// recordsSize is how big the drill is.
type recordsSize struct {
	wallets int           // of the guild in which the bot writes
	length  time.Duration // of each stage
	guilds  int           // in which levels change
	rate    int           // level changes a second in each of them
	measure bool          // hold times
}

var fullRecords = recordsSize{wallets: 1_000_000, length: 20 * time.Second, guilds: 100, rate: 50, measure: true}

// bot is a key of every guild, at a server.
type bot struct{ address, key string }

func (p place) bot(ctx context.Context, s *server) (*bot, error) {
	d, err := db.Open(db.Config{URL: p.databaseURL, Writers: 1, Readers: 1, Name: "drill"})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	key, err := auth.CreateKey(ctx, d, auth.NewKey{Env: "test", Name: "drill"})
	return &bot{s.HTTP, key.Secret}, err
}

// writtenRecord is what became of a record.
type writtenRecord struct {
	ID        string  `json:"id"`
	UpdatedAt *string `json:"updated_at"`
	Result    string  `json:"result"`
}

// call makes a call in a guild, and reads the data of its answer into out.
func (b *bot) call(ctx context.Context, guild, method, path string, body, out any) (status int, took time.Duration, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+b.address+"/api/v1"+path, bytes.NewReader(text))
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+b.key)
	req.Header.Set("Guild-Id", guild)
	req.Header.Set("X-Forwarded-Proto", "https")
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	begun := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if text, err = io.ReadAll(res.Body); err != nil || out == nil || res.StatusCode >= 300 {
		return res.StatusCode, time.Since(begun), err
	}
	return res.StatusCode, time.Since(begun), json.Unmarshal(text, &struct {
		Data any `json:"data"`
	}{out})
}

// write sends records without pause until the stage ends: wallets and levels of the same
// members, each with the instant at which it last changed, and cases, new and changed.
func (b *bot) write(ctx context.Context, guild string, seen *tally) error {
	last := make(map[string]*string)
	for round := 0; ctx.Err() == nil; round++ {
		var list []map[string]any
		add := func(n int, kind, member string, points int) {
			for i := range n {
				user := fmt.Sprint(800000000000000000 + i)
				r := map[string]any{"record": kind, "user_id": user, member: points + i}
				if at := last[kind+user]; at != nil {
					r["if_updated_at"] = *at
				}
				list = append(list, r)
			}
		}
		add(225, "wallet", "balance", round*7)
		add(225, "level", "total_xp", round*90)
		for i := range 50 {
			list = append(list, map[string]any{
				"record": "case", "id": fmt.Sprint("c-", i), "user_id": fmt.Sprint(800000000000000000 + i), "moderator_id": "7",
				"type": "warn", "reason": fmt.Sprint("round ", round),
			})
		}
		var answers []writtenRecord
		status, took, err := b.call(ctx, guild, http.MethodPost, "/records", map[string]any{"records": list}, &answers)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the time is over
		}
		if err != nil {
			return err
		}
		seen.add(response{status: status, took: took})
		if status != http.StatusOK {
			return fmt.Errorf("a call with %d records is answered %d", len(list), status)
		}
		for i, a := range answers {
			last[fmt.Sprint(list[i]["record"])+a.ID] = a.UpdatedAt
		}
	}
	return nil
}

// deepPage reads the middle of a leaderboard again and again.
func (b *bot) deepPage(ctx context.Context, guild string, page int, seen *tally) {
	for pause(ctx, 50*time.Millisecond) {
		status, took, err := b.call(ctx, guild, http.MethodGet, fmt.Sprintf("/economy/leaderboard?per_page=25&page=%d", page), nil, nil)
		if err == nil && ctx.Err() == nil {
			seen.add(response{status: status, took: took})
		}
	}
}

// recordsWritten has a bot write 500 records a call without pause in a big guild with two
// endpoints that listen, and then change levels in many guilds. Another guild must hardly
// notice.
func recordsWritten(ctx context.Context, p place, r *report, size recordsSize) (err error) {
	if err := p.load(ctx, func(w io.Writer) error {
		return guildsWith(w, map[string]int{guildA: size.wallets, guildB: 1000})
	}); err != nil {
		return err
	}
	s, err := p.serve(ctx, append(drillEnv, "GUILDHALL_RATE_BOT=off")...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	b, err := p.bot(ctx, s)
	if err != nil {
		return err
	}
	for range 2 {
		status, _, err := b.call(ctx, guildA, http.MethodPost, "/webhooks", map[string]any{"delivery": "pull", "events": []string{
			"economy.balance_changed", "xp.level_up", "xp.level_down", "case.created", "case.updated",
		}}, nil)
		if err != nil || status != http.StatusCreated {
			return errors.Join(err, fmt.Errorf("an endpoint is refused: %d", status))
		}
	}
	v := &victim{server: s}
	if v.tokens, err = p.tokens(ctx, guildB, 64); err != nil {
		return err
	}
	if v.fresh, err = p.tokens(ctx, guildB, 400); err != nil {
		return err
	}
	deep := max(1, size.wallets/50)
	var pagesAlone, pagesBeside, calls tally
	base, err := v.live(ctx, size.length, func(ctx context.Context) { b.deepPage(ctx, guildA, deep, &pagesAlone) })
	if err != nil {
		return err
	}
	base.judge(r, "alone", nil, false)
	var wrote error
	beside, err := v.live(ctx, size.length, func(ctx context.Context) {
		var all sync.WaitGroup
		all.Go(func() { b.deepPage(ctx, guildA, deep, &pagesBeside) })
		all.Go(func() { wrote = b.write(ctx, guildA, &calls) })
		all.Wait()
	})
	if err = errors.Join(err, wrote); err != nil {
		return err
	}
	beside.judge(r, "beside records", base, false)
	p95 := calls.at(0.95, ok)
	r.say("%d calls with 500 records, p50 %.1f ms, p95 %.1f ms", len(calls.all), ms(calls.at(0.5, ok)), ms(p95))
	r.say("a deep page: p95 %.1f ms alone, %.1f ms beside them", ms(pagesAlone.at(0.95, ok)), ms(pagesBeside.at(0.95, ok)))
	alone, with := base.calls.at(0.95, ok), beside.calls.at(0.95, ok)
	r.say("another guild's p95: %.1f ms alone, %.1f ms beside them", ms(alone), ms(with))
	r.hold(calls.count(ok) > 1, "the bot's calls succeed: %v", &calls)
	if size.measure {
		r.hold(p95 < 150*time.Millisecond, "500 records take less than 150 ms (p95 %.1f)", ms(p95))
		r.hold(with <= alone*11/10, "another guild's p95 moves by a tenth at most")
	}
	return b.manyLevels(ctx, r, size)
}

// manyLevels changes levels in many guilds, each so many times a second, by one call a
// second and guild.
func (b *bot) manyLevels(ctx context.Context, r *report, size recordsSize) error {
	for i := range size.guilds {
		if status, _, err := b.call(ctx, levelGuild(i), http.MethodPost, "/records", map[string]any{"records": []any{map[string]any{"record": "guild"}}}, nil); err != nil ||
			status != http.StatusOK {
			return errors.Join(err, fmt.Errorf("a guild is refused: %d", status))
		}
	}
	stage, stop := context.WithTimeout(ctx, size.length)
	defer stop()
	var calls tally
	var all sync.WaitGroup
	for i := range size.guilds {
		all.Go(func() {
			last := make(map[string]string)
			if !pause(stage, time.Duration(i)*time.Second/time.Duration(size.guilds)) {
				return
			}
			for round := 0; stage.Err() == nil; round++ {
				begun := time.Now()
				list := make([]map[string]any, size.rate)
				for j := range list {
					user := fmt.Sprint(900000000000000000 + j)
					list[j] = map[string]any{"record": "level", "user_id": user, "total_xp": round * 15}
					if at := last[user]; at != "" {
						list[j]["if_updated_at"] = at
					}
				}
				var answers []writtenRecord
				status, took, err := b.call(stage, levelGuild(i), http.MethodPost, "/records", map[string]any{"records": list}, &answers)
				if err != nil || stage.Err() != nil {
					return
				}
				calls.add(response{status: status, took: took})
				for _, a := range answers {
					if a.UpdatedAt != nil {
						last[a.ID] = *a.UpdatedAt
					}
				}
				pause(stage, time.Second-time.Since(begun))
			}
		})
	}
	all.Wait()
	due := size.guilds * int(size.length/time.Second)
	r.say("%d guilds, %d level changes a second each: %d calls of %d due, p50 %.1f ms, p95 %.1f ms", size.guilds, size.rate, len(calls.all), due,
		ms(calls.at(0.5, ok)), ms(calls.at(0.95, ok)))
	r.hold(calls.count(ok) > 0 && calls.count(ok) == len(calls.all), "every change of levels succeeds: %v", &calls)
	if size.measure {
		r.hold(len(calls.all) >= due*9/10, "%d level changes a second in each of %d guilds are kept up with", size.rate, size.guilds)
	}
	return nil
}

func levelGuild(i int) string { return fmt.Sprint(400000000000000000 + i) }
