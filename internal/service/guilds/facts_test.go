package guilds_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/records"
)

// platform returns the same description for every guild, or an error.
type platform struct {
	mu    sync.Mutex // guards the fields below
	about chat.About
	err   error
	calls int
	turns bool   // call turn before each call, as the client does
	while func() // called while the platform is asked
}

// About returns the description or the error.
func (p *platform) About(ctx context.Context, _ string, turn func(context.Context) error) (chat.About, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	for range 2 {
		if !p.turns {
			break
		}
		if err := turn(ctx); err != nil {
			return chat.About{}, err
		}
	}
	if p.while != nil {
		p.while()
	}
	return p.about, p.err
}

func factsOf(d *db.DB, p guilds.AboutGuilds) *guilds.Facts {
	return guilds.NewFacts(d, p, records.Curve, slog.New(slog.DiscardHandler), nil)
}

// sweep makes all guilds due, runs a sweep and returns how many calls it made.
func sweep(t testutil.Test, f *guilds.Facts, p *platform) int {
	t.Helper()
	before := p.calls
	if err := f.Sweep(context.Background()); err != nil {
		t.Fatalf("sweep: %v", err)
	}
	return p.calls - before
}

func addGuilds(t testutil.Test, d *db.DB, ids ...string) {
	dbtest.AddGuilds(t, d, ids...)
	dbtest.Exec(t, d, `INSERT INTO guild_settings (guild_id) SELECT id FROM guilds`)
}

// pass moves the stored times of guilds into the past.
func pass(t testutil.Test, d *db.DB, minutes int) {
	t.Helper()
	dbtest.Exec(t, d, `UPDATE guilds SET `+dbtest.Earlier("make_interval(mins => $1)", "facts_due_at"), minutes)
}

var ravens = chat.About{
	Name: "The\nRavens ", IconURL: "https://cdn.example/i.png", OwnerID: "7", Members: 4711, Locale: "de",
	JoinedAt: time.Date(2026, 2, 3, 4, 5, 6, 123456000, time.UTC),
}

func TestWhatAGuildIsFollowsThePlatform(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	p := &platform{about: ravens}
	f := factsOf(api.DB(), p)
	if n := sweep(t, f, p); n != 1 {
		t.Errorf("on first sight it is asked %d times", n)
	}
	api.Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"The Ravens","icon_url":"https://cdn.example/i.png","owner_id":"7",
		"member_count":4711,"locale":"de","joined_at":"2026-02-03T04:05:06.123Z"}}`)
	api.WantEvent(t, "guild.updated", `{"origin":{"type":"system","token_id":null,"key_id":null},
		"data":{"guild":{"name":"The Ravens","member_count":4711},"changed":["name","icon_url","owner_id","locale"]}}`)
	pass(t, api.DB(), 55)
	if n := sweep(t, f, p); n != 0 {
		t.Error("it is asked again within the hour")
	}
	pass(t, api.DB(), 10)
	if n := sweep(t, f, p); n != 1 {
		t.Error("it is not asked again after the hour")
	}
	api.WantNoEvent(t)
	p.about.Members, p.about.IconURL, p.about.Locale, p.about.JoinedAt = 4712, "", "", time.Time{}
	pass(t, api.DB(), 70)
	sweep(t, f, p)
	api.Do(t, "getGuild", "").
		Want(t, 200, `{"data":{"icon_url":null,"member_count":4712,"locale":"de","joined_at":"2026-02-03T04:05:06.123Z"}}`)
	api.WantEvent(t, "guild.updated", `{"data":{"changed":["icon_url"]}}`)
	p.about.Members = 4713
	pass(t, api.DB(), 70)
	sweep(t, f, p)
	api.WantNoEvent(t) // a change of the number of members records no event
	for _, nothing := range []chat.About{{}, {OwnerID: "me"}, {OwnerID: "7", Locale: string(make([]byte, 40))}} {
		p.about = nothing
		pass(t, api.DB(), 70*24)
		if n := sweep(t, f, p); n != 1 {
			t.Errorf("after %+v it is not asked after a day", nothing)
		}
		api.Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"The Ravens","owner_id":"7","locale":"de"}}`)
	}
	pass(t, api.DB(), 23*60)
	if n := sweep(t, f, p); n != 0 {
		t.Error("what is no answer is asked for again within the day")
	}
}

// Data from a bot takes precedence over the platform's. RELIABILITY.md, Guilds.
func TestABotsWordCountsBeforeThePlatforms(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	p := &platform{about: ravens}
	f := factsOf(api.DB(), p)
	say := func(body string) {
		t.Helper()
		bot.Do(t, "writeRecords", `{"records":[`+body+`]}`).Want(t, 200, "")
	}
	for _, word := range []string{`{"record":"guild","name":"Crows","member_count":3}`, `{"record":"guild","name":"Crows"}`} {
		say(word) // the second record changes nothing, and still counts as a bot's data
		pass(t, api.DB(), 23*60+58)
		if n := sweep(t, f, p); n != 0 {
			t.Errorf("it is asked within a day of %s", word)
		}
	}
	pass(t, api.DB(), 10)
	p.while = func() { say(`{"record":"guild","name":"Crows"}`) }
	if n := sweep(t, f, p); n != 1 {
		t.Fatal("it is not asked after a day")
	}
	api.Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"Crows","member_count":3}}`) // the platform's answer is dropped
	p.while = nil
	pass(t, api.DB(), 23*60+58)
	if n := sweep(t, f, p); n != 0 {
		t.Error("it is asked within a day of what came while it was asked")
	}
	// A record of another kind, or one that was refused, does not count as a bot's description of
	// the guild.
	dbtest.Exec(t, api.DB(), `UPDATE guilds SET facts_due_at = '-infinity'`)
	say(`{"record":"guild"},{"record":"settings","timezone":"UTC"}`)
	bot.Do(t, "writeRecords", `{"on_refusal":"skip","records":[{"record":"guild","name":"Daws","if_updated_at":null}]}`).
		Want(t, 200, `{"data":[{"result":"refused"}]}`)
	if n := sweep(t, f, p); n != 1 {
		t.Error("it is not asked where a bot has told nothing")
	}
	api.Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"The Ravens"}}`)
	const made = "302094807046684999"
	every := api.Bot(t).In(made)
	every.Do(t, "writeRecords", `{"records":[{"record":"guild","name":"New","owner_id":"9"}]}`).Want(t, 200, `{"data":[{"result":"created"}]}`)
	if n := sweep(t, f, p); n != 0 {
		t.Error("it is asked of a guild that a bot has made, with its name")
	}
}

func TestAPlatformThatRefusesIsAskedADayLater(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what         string
		err          error
		early, later int // minutes after which the guild is due
		fails        bool
	}{
		{"it has no such guild", chat.ErrNotInGuild, 23 * 60, 27 * 60, false},
		{"it refuses", &chat.Failure{Status: 403, Message: "no"}, 23 * 60, 27 * 60, false},
		{"it fails", &chat.Failure{Status: 500, Uncertain: true, Message: "oh"}, 8, 12, true},
		{"something else fails", errors.New("oh"), 8, 12, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			d := dbtest.New(t).DB
			addGuilds(t, d, "5", "6")
			p := &platform{err: c.err}
			f := factsOf(d, p)
			if err := f.Sweep(t.Context()); (err != nil) != c.fails || p.calls != 2 {
				t.Errorf("the sweep ends with %v after %d guilds", err, p.calls)
			}
			pass(t, d, c.early)
			if n := sweep(t, f, p); n != 0 {
				t.Errorf("%d are asked of after %d minutes", n, c.early)
			}
			pass(t, d, c.later-c.early)
			p.err, p.about = nil, ravens
			if n := sweep(t, f, p); n != 2 {
				t.Errorf("%d are asked of after %d minutes", n, c.later)
			}
		})
	}
	t.Run("it takes no calls at all", func(t *testing.T) {
		t.Parallel()
		d := dbtest.New(t).DB
		addGuilds(t, d, "5", "6")
		p := &platform{err: &chat.Failure{Status: 401, Message: "no"}}
		f := factsOf(d, p)
		if n := sweep(t, f, p) + sweep(t, f, p); n != 1 {
			t.Errorf("it is asked %d times", n)
		}
		p.err, p.about = nil, ravens
		pass(t, d, 12)
		if n := sweep(t, factsOf(d, p), p); n != 2 {
			t.Errorf("another node, and later this one, asks of %d", n)
		}
	})
}

func TestAGuildThatLeavesIsNotAskedOf(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	addGuilds(t, d, "5", "6")
	leave := func(guild string) {
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
			_, err := guilds.Remove(ctx, tx, guild, 7)
			return err
		})
	}
	leave("5")
	p := &platform{about: ravens}
	p.while = func() { leave("6") }
	f := factsOf(d, p)
	if n := sweep(t, f, p); n != 1 {
		t.Errorf("%d are asked of", n)
	}
	if n := dbtest.Value[int](t, d, `SELECT count(*) FROM guilds WHERE name = 'The Ravens'`); n != 0 {
		t.Error("what the platform said of a guild that has left meanwhile is kept")
	}
	p.while = nil
	if taken, err := restore(t, d, "6"); err != nil || !taken {
		t.Fatal(taken, err)
	}
	pass(t, d, 3)
	if n := sweep(t, f, p); n != 1 {
		t.Errorf("of the one that came back is asked %d times", n)
	}
}

// Two nodes together make two calls a second, however many guilds are due.
func TestAllNodesTogetherAskTwiceASecond(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	addGuilds(t, d, "1", "2", "3", "4")
	begin := time.Now()
	var all sync.WaitGroup
	asked := 0
	nodes := []*platform{{about: ravens, turns: true}, {about: ravens, turns: true}}
	for _, p := range nodes {
		all.Go(func() {
			if err := factsOf(d, p).Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, p := range nodes {
		asked += p.calls
	}
	// The first of eight calls is made at once.
	if took := time.Since(begin); asked != 4 || took < 3500*time.Millisecond {
		t.Errorf("%d guilds were asked of in %s", asked, took)
	}
}

// Bots and the platform describe a guild in random order, compared with a model: the last
// description is shown, and the platform is asked after an hour, or after a day if a bot has sent
// data. RELIABILITY.md, Guilds.
func TestFactsProperty(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	d, write := api.DB(), apitest.Find(t, "writeRecords")
	rapid.Check(t, func(t *rapid.T) {
		dbtest.Exec(t, d, `UPDATE guilds SET facts_due_at = '-infinity'`)
		p := &platform{about: chat.About{Name: "0", OwnerID: "7"}}
		f := factsOf(d, p)
		say := func(name string) {
			if _, err := bot.Retry(write, `{"records":[{"record":"guild","name":"`+name+`"}]}`); err != nil {
				t.Fatal(err)
			}
		}
		shown, due, n := "", 0, 0 // due is the minute from which on the guild is due; the sweep may be ten minutes late
		now := 0
		fresh := func() string {
			n++
			return strconv.Itoa(rapid.IntRange(1, 3).Draw(t, "name"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"the platform's name changes": func(*rapid.T) { p.about.Name = fresh() },
			"time goes by": func(t *rapid.T) {
				by := rapid.SampledFrom([]int{20, 80, 23 * 60, 25 * 60}).Draw(t, "minutes")
				now += by
				pass(t, d, by)
			},
			"the bot tells": func(*rapid.T) {
				shown = fresh()
				say(shown)
				due = now + 24*60
			},
			"a sweep": func(t *rapid.T) {
				word := ""
				if rapid.Bool().Draw(t, "told meanwhile") {
					word = fresh()
				}
				p.while = func() {
					if word != "" {
						say(word)
					}
				}
				asked := sweep(t, f, p)
				switch {
				case now < due && asked != 0, now > due+15 && asked != 1:
					t.Fatalf("asked %d times in minute %d, due in minute %d", asked, now, due)
				case asked == 1 && word != "":
					shown, due = word, now+24*60
				case asked == 1:
					shown, due = p.about.Name, now+55
				}
			},
			"": func(t *rapid.T) {
				name := dbtest.Value[string](t, d, `SELECT name FROM guilds WHERE id = $1`, api.Guild)
				if shown != "" && name != shown {
					t.Fatalf("it shows %q, want %q", name, shown)
				}
			},
		})
	})
}
