package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

const fixtures = "../../internal/operate/convert/testdata/"

// conversions lists the flags with which the expected files of the fixtures were made.
var conversions = map[string][]string{
	"arcane": {"--from", "arcane", "--guild", "500000000000000004", "--curve", "arcane-linear", "arcane.json"},
	"csv-case": {
		"--from", "csv", "--guild", "500000000000000006", "--record", "case", "--map", "created_at=When", "--map",
		"user_id=Who", "--map", "moderator_id=Staff", "--map", "type=Action", "--map", "reason=Why", "csv-case.csv",
	},
	"csv-wallet":        {"--from", "csv", "--guild", "500000000000000005", "--record", "wallet", "csv-wallet.csv"},
	"discord-giveaways": {"--from", "discord-giveaways", "--guild", "500000000000000011", "discord-giveaways.json"},
	"discord-tickets":   {"--from", "discord-tickets", "discord-tickets.zip"},
	"lurkr":             {"--from", "lurkr", "--guild", "500000000000000003", "lurkr.json"},
	"mee6":              {"--from", "mee6", "mee6.0.json", "mee6.1.json"},
	"modmail":           {"--from", "modmail", "modmail.json"},
	"red": {
		"--from", "red", "--guild", "500000000000000008", "--settings", "red.Bank.settings.json",
		"red.ModLog.settings.json", "red.Warnings.settings.json", "red.LevelUp.json",
	},
	"unbelievaboat": {"--from", "unbelievaboat", "--guild", "500000000000000002", "unbelievaboat.json"},
	"zeppelin":      {"--from", "zeppelin", "--guild", "500000000000000007", "zeppelin.json"},
}

// indexed returns the conversions of index.json that have an expected file.
func indexed(t *testing.T) map[string][]string {
	t.Helper()
	var index []struct {
		Args, Files []string
		Out         string
	}
	text, err := os.ReadFile(fixtures + "index.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &index); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, c := range index {
		if name, ok := strings.CutSuffix(c.Out, ".out.jsonl"); ok {
			for i, f := range c.Files {
				c.Files[i] = filepath.Base(f)
			}
			all[name] = slices.Concat(c.Args, c.Files)
		}
	}
	return all
}

// conversion returns a command line with the paths of fixture files.
func conversion(args ...string) []string {
	all := []string{"convert", "--at", "2024-06-01T00:00:00Z"}
	for _, a := range args {
		if !filepath.IsAbs(a) && slices.Contains([]string{".json", ".jsonl", ".csv", ".zip", ".html"}, filepath.Ext(a)) {
			a = fixtures + a
		}
		all = append(all, a)
	}
	return all
}

// recordsIn returns the records of a guild file by their keys.
func recordsIn(t *testing.T, file string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for line := range strings.Lines(file) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint(r["record"], r["id"])
		if r["id"] == nil {
			name += fmt.Sprint(r["user_id"])
		}
		all[name] = r
	}
	return all
}

func TestWhatIsConvertedIsImportedAndExportedAgain(t *testing.T) {
	t.Parallel()
	all := maps.Clone(conversions)
	maps.Copy(all, indexed(t))
	found, err := filepath.Glob(fixtures + "*.out.jsonl")
	if err != nil || len(found) != len(all) {
		t.Fatalf("%d expected files, %d conversions (%v)", len(found), len(all), err)
	}
	for name, args := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.New(t).URL
			want, err := os.ReadFile(fixtures + name + ".out.jsonl")
			if err != nil {
				t.Fatal(err)
			}
			file := call(t, "", conversion(args...)...).ok(t)
			if file != string(want) {
				t.Fatalf("got\n%s\nwant\n%s", file, want)
			}
			call(t, file, "import", "--update", "-", "--database-url", url).ok(t)
			guild := recordsIn(t, file)
			var id string
			for _, r := range guild {
				if r["record"] == "guild" {
					id = r["id"].(string)
				}
			}
			// The same import again changes nothing.
			again := call(t, file, "import", "--update", "-", "--database-url", url).ok(t)
			for line := range strings.Lines(again) {
				if !strings.Contains(line, ": 0 created, 0 updated, ") || !strings.HasSuffix(line, ", 0 kept\n") {
					t.Errorf("the second import says %q", line)
				}
			}
			kept := recordsIn(t, call(t, "", "export", "--guild", id, "--database-url", url).ok(t))
			isThere(t, kept, guild)
		})
	}
}

// isThere checks that an export contains what a file contained.
func isThere(t *testing.T, kept, file map[string]map[string]any) {
	t.Helper()
	for name, r := range file {
		for member, value := range r {
			if member == "economy" || member == "updated_at" {
				continue // settings have more members than in a file, and an import dates new rows itself
			}
			if got := kept[name][member]; fmt.Sprint(got) != fmt.Sprint(value) && !sameInstant(got, value) {
				t.Errorf("%s: %s is %v after the import, %v before", name, member, got, value)
			}
		}
	}
}

// intoGuild returns the command line of a fixture with another guild, in which its numbers may be
// in use.
func intoGuild(t *testing.T, guild, name string, args []string) []string {
	t.Helper()
	if i := slices.Index(args, "--guild"); i >= 0 {
		args = slices.Concat(args[:i], args[i+2:])
	}
	from := args[slices.Index(args, "--from")+1]
	if !slices.Contains(args, "--source-guild") && from != "arcane" && from != "zeppelin" { // whose files name no guild
		args = append([]string{"--source-guild", guildOf(t, name)}, args...)
	}
	if slices.Contains([]string{"zeppelin", "red", "discord-tickets", "dyno", "tickets-bot", "ticket-tool"}, from) {
		args = append([]string{"--numbers", "new"}, args...)
	}
	return conversion(append([]string{"--guild", guild}, args...)...)
}

// guildOf returns the guild of a fixture's expected file.
func guildOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(fixtures + name + ".out.jsonl")
	var guild struct{ ID string }
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(text)).Decode(&guild)
	}
	if err != nil {
		t.Fatal(err)
	}
	return guild.ID
}

// Every fixture is imported twice into one guild while a bot and a token write to the same members
// and numbers. The second import changes nothing.
func TestWhatIsConvertedComesIntoAGuildThatIsWrittenTo(t *testing.T) {
	t.Parallel()
	further := indexed(t)
	maps.DeleteFunc(further, func(name string, _ []string) bool { return conversions[name] != nil })
	for name, all := range map[string]map[string][]string{"the first formats": conversions, "the index": further} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			comesIntoAGuild(t, all)
		})
	}
}

func comesIntoAGuild(t *testing.T, all map[string][]string) {
	t.Helper()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var written atomic.Int64
	write := func(by *apitest.API, operation, body string) {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			got, err := by.Retry(apitest.Find(t, operation), strings.ReplaceAll(body, "USER", fmt.Sprint(n%40+1)))
			if err != nil || got.Status >= 300 {
				t.Errorf("%s: %+v, %v", operation, got, err)
				return
			}
			written.Add(1)
		}
	}
	writers.Go(func() { write(api, "adjustBalance", `{"user_id":"USER","delta":3}`) })
	writers.Go(func() { write(api, "adjustBalance", `{"user_id":"190320984123768832","delta":3}`) })
	writers.Go(func() { write(bot, "adjustXp", `{"user_id":"205566812371058688","delta":7}`) })
	writers.Go(func() {
		write(bot, "createCase", `{"user_id":"190320984123768832","moderator_id":"USER","type":"warn","reason":"Noise"}`)
	})
	files := map[string]map[string]any{}
	for round := range 2 {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			before := written.Load()
			testutil.Eventually(t, "others write", func() bool { return written.Load() > before })
			file := call(t, "", intoGuild(t, api.Guild, name, all[name])...).ok(t)
			said := call(t, file, "import", "--update", "-", "--database-url", api.Server.DBURL).ok(t)
			for line := range strings.Lines(said) {
				if round > 0 && !strings.Contains(line, ": 0 created, 0 updated, ") {
					t.Errorf("%s: the second import says %q", name, line)
				}
			}
			maps.Copy(files, recordsIn(t, file))
		}
	}
	close(stop)
	writers.Wait()
	kept := recordsIn(t, call(t, "", "export", "--guild", api.Guild, "--database-url", api.Server.DBURL).ok(t))
	for name, r := range files {
		if r["record"] == "wallet" || r["record"] == "level" { // others have changed these meanwhile, and the import keeps the changes
			if kept[name] == nil {
				t.Errorf("%s is not there", name)
			}
			delete(files, name)
		}
	}
	isThere(t, kept, files)
}

// sameInstant compares instants, since an export writes milliseconds in all of them.
func sameInstant(a, b any) bool {
	x, y := fmt.Sprint(a), fmt.Sprint(b)
	return strings.HasSuffix(x, ".000Z") && strings.TrimSuffix(x, ".000Z")+"Z" == y
}

// players returns a leaderboard with that many players.
func players(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"id":"%d","xp":%d,"level":0}`, 190320984123768833+i, i%100)
	}
	return `{"guild":{"id":"500000000000000001"},"players":[` + strings.Join(list, ",\n") + `]}`
}

// RELIABILITY.md, Input.
func TestAPipeThatBreaksLeavesNothingInTheDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	broken := strings.TrimSuffix(players(3000), "]}")
	r := call(t, broken, "convert", "--from", "mee6", "--guild", "500000000000000001", "-")
	r.refused(t, 1, "standard input: line 3000: ends too early; fetch the file again")
	if !strings.HasSuffix(r.out, `{"record":"convert_failed"}`+"\n") || strings.Count(r.out, "\n") < 500 {
		t.Fatalf("%d lines went out, the last of them %q", strings.Count(r.out, "\n"), r.out[max(0, len(r.out)-60):])
	}
	call(t, r.out, "import", "-", "--database-url", d.URL).refused(t, 1, "nothing was kept")
	if n := dbtest.Value[int](t, d.DB, `SELECT (SELECT count(*) FROM guilds) + (SELECT count(*) FROM levels)`); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
	// Lines that were not written yet need no rollback.
	r = call(t, strings.TrimSuffix(players(3), "]}"), "convert", "--from", "mee6", "--guild", "500000000000000001", "-")
	if r.refused(t, 1, "ends too early"); r.out != "" {
		t.Errorf("%q went out", r.out)
	}
	// Without the guild's id the input is read twice, and nothing is written before the second
	// pass.
	r = call(t, broken, "convert", "--from", "mee6", "-")
	if r.refused(t, 1, "standard input: line 3000: ends too early"); r.out != "" {
		t.Errorf("%q went out", r.out)
	}
}

// folder returns the files of a directory with their modes.
func folder(t *testing.T, dir string) map[string]os.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]os.FileMode{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = info.Mode().Perm()
	}
	return all
}

// RELIABILITY.md, Input.
func TestFilesOfAConversionTakeTheirPlaceTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := []string{"--out", dir + "/guild.jsonl", "--report", dir + "/report.txt", "--left-out", dir + "/lost.txt"}
	r := call(t, "", conversion(append(files, "--from", "zeppelin", "--guild", "7", "zeppelin.json")...)...)
	if r.ok(t) != "" || !strings.Contains(r.err, "zeppelin: 1 file, 7 cases: 5 cases written.") {
		t.Errorf("it prints %q and %q", r.out, r.err)
	}
	all := folder(t, dir)
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, []string{"guild.jsonl", "lost.txt", "report.txt"}) {
		t.Errorf("there are %v", got)
	}
	for name, mode := range all {
		if mode != 0o600 {
			t.Errorf("%s has the mode %o", name, mode)
		}
	}
	var report struct {
		Format  string           `json:"format"`
		GuildID string           `json:"guild_id"`
		At      string           `json:"at"`
		Written map[string]int   `json:"written"`
		NoPlace map[string]int   `json:"no_place"`
		Unknown map[string]int   `json:"unknown"`
		Differ  *int             `json:"levels_that_differ"`
		Files   []map[string]any `json:"files"`
		LeftOut []struct {
			Why   string `json:"why"`
			Count int    `json:"count"`
		} `json:"left_out"`
		Changed []struct {
			Why   string           `json:"why"`
			Count int              `json:"count"`
			First []map[string]any `json:"first"`
		} `json:"changed"`
	}
	text, err := os.ReadFile(dir + "/report.txt")
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil || report.Format != "zeppelin" || report.GuildID != "7" ||
		report.At != "2024-06-01T00:00:00Z" || report.Written["case"] != 5 || report.Differ == nil ||
		len(report.LeftOut) != 1 || report.LeftOut[0].Count != 1 || len(report.Changed) != 3 || report.Changed[0].First[0]["line"] != float64(
		53) ||
		report.NoPlace["/cases/*/user_name"] != 7 || report.Unknown == nil || report.Files[0]["bytes"] != float64(
		3312) || report.Files[0]["items"] != float64(7) ||
		report.Files[0]["sha256"] != "07f493d75cd9b42510972189c09e54436c20d9876d569711a84dae25f14e3355" {
		t.Errorf("the report is %s (%v)", text, err)
	}
	lost, err := os.ReadFile(dir + "/lost.txt")
	if err != nil || strings.Count(string(lost), "\n") != 5 || !strings.Contains(string(lost), `"path":"/cases/4","why":"about nobody`) {
		t.Errorf("what was left out is %s (%v)", lost, err)
	}
	t.Run("when it fails", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/guild.jsonl", []byte("the one before\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		files := []string{"--out", dir + "/guild.jsonl", "--report", dir + "/report.txt", "--left-out", dir + "/lost.txt"}
		call(t, players(3000)[:100000], append([]string{"convert", "--from", "mee6", "--guild", "500000000000000001", "-"},
			files...)...).refused(t, 1, "ends too early")
		before, err := os.ReadFile(dir + "/guild.jsonl")
		if got := folder(t, dir); len(got) != 1 || err != nil || string(before) != "the one before\n" {
			t.Errorf("there are %v, and %q (%v)", got, before, err)
		}
	})
	t.Run("with --strict", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		files := []string{"--strict", "--out", dir + "/guild.jsonl", "--report", dir + "/report.txt", "--left-out", dir + "/lost.txt"}
		r := call(t, "", conversion(append(files, "--from", "mee6", "mee6.0.json", "mee6.1.json")...)...)
		if r.code != 1 || !strings.HasSuffix(r.err, "guildhall: something was left out, changed or is unknown, and --strict was given\n") {
			t.Errorf("exit code %d: %s", r.code, r.err)
		}
		if got := slices.Sorted(maps.Keys(folder(t, dir))); !slices.Equal(got, []string{"lost.txt", "report.txt"}) {
			t.Errorf("there are %v: what says why has to stay, the guild file must not be there", got)
		}
		// Members that cannot be converted are no reason to fail.
		call(t, "", conversion("--strict", "--from", "lurkr", "--guild", "7", "--out", dir+"/guild.jsonl", "lurkr.json")...).ok(t)
	})
	t.Run("to a device", func(t *testing.T) {
		t.Parallel()
		call(t, "", conversion("--from", "lurkr", "--guild", "7", "--out", os.DevNull, "lurkr.json")...).ok(t)
		if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
			t.Errorf("%s became a file (%v)", os.DevNull, err)
		}
	})
}

func TestConvertSaysInOneLineWhatIsWrong(t *testing.T) {
	t.Parallel()
	call(t, "", "convert", "--from", "nobody", "x").refused(t, 2, `there is no format "nobody"; there are csv, json, mee6, unbelievaboat`)
	call(t, "", "convert", "x").refused(t, 2, "--from")
	call(t, "", "convert", "--from", "mee6").refused(t, 2, "name the files to read")
	call(t, "", "convert", "--from", "mee6", "--at", "now", "-").refused(t, 2, "--at: must be an existing RFC 3339 date")
	call(t, "", "convert", "--from", "mee6", "--in-force", "x", "-").refused(t, 2, "--in-force means nothing for mee6")
	call(t, "", "convert", "--from", "mee6", "--guild", "", "-").refused(t, 2, "--guild is given and says nothing")
	call(t, "", "convert", "--from", "csv", "--separator", "", "-").refused(t, 2, "--separator is given and says nothing")
	call(t, "user_id,cash,bank\n190320984123768832,5,6\n", "convert", "--from", "csv", "--guild", "7", "--record", "wallet",
		"--separator", ",", "-").ok(t)
	call(t, players(1), "convert", "--from", "mee6", "--left-out", "-", "-").refused(t, 2, "name a file for --report and --left-out")
	call(t, "", "convert", "--from", "mee6", t.TempDir()+"/none.json").refused(t, 1, "no such file")
	call(t, "", conversion("--from", "zeppelin", "--guild", "7", "--in-force", t.TempDir()+"/none", "zeppelin.json")...).refused(t, 1,
		"no such file")
	call(t, "", conversion("--from", "lurkr", "--guild", "7", "--out", t.TempDir()+"/no/folder/x", "lurkr.json")...).refused(t, 1,
		"no such file")
	b, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	r := call(t, `{"players":[{"id":`+string(b)+`,"xp":1}]}`, "convert", "--from", "mee6", "--guild", "7", "-")
	r.refused(t, 1, "/players/0/id: must be an id of digits")
	printable(t, "an error", r.err)
	r = call(t, `{"players":[{"id":"190320984123768832","xp":1,`+string(b)+`:1}]}`, "convert", "--from", "mee6", "--guild", "7", "-")
	r.ok(t)
	printable(t, "a report", r.err)
	help := call(t, "", "convert", "--from", "help").ok(t)
	for _, part := range []string{"mee6\n", "/players/#/xp ", "level.total_xp", "no place", "discord-giveaways\n"} {
		if !strings.Contains(help, part) {
			t.Errorf("the help does not say %q", part)
		}
	}
}
