package guildfile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/transfer"
)

func update(t *testing.T, api *apitest.API, how guildfile.Update, lines ...string) map[string]guildfile.Outcome {
	t.Helper()
	list, err := how.Run(t.Context(), api.DB(), strings.NewReader(strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	byKind := make(map[string]guildfile.Outcome)
	for _, o := range list {
		byKind[o.Record] = o
	}
	return byKind
}

func file(api *apitest.API) []string {
	g := `"guild_id":"` + api.Guild + `"`
	return []string{
		`{"record":"guild","id":"` + api.Guild + `","name":"Harbour"}`,
		`{"record":"settings",` + g + `,"timezone":"Europe/Paris"}`,
		`{"record":"wallet",` + g + `,"user_id":"1","balance":10}`,
		`{"record":"wallet",` + g + `,"user_id":"2","balance":20}`,
		`{"record":"reference",` + g + `,"reference":"old-1"}`,
		`{"record":"level",` + g + `,"user_id":"1","total_xp":500}`,
	}
}

func TestAFileChangesWhatIsThereAndASecondTimeNothing(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	api.Do(t, "adjustBalance", `{"user_id":"1","delta":7}`).Want(t, 200, "")
	api.WantEvent(t, "economy.balance_changed", `{}`)
	dry := update(t, api, guildfile.Update{Balances: transfer.Keep, DryRun: true}, file(api)...)
	first := update(t, api, guildfile.Update{Balances: transfer.Keep}, file(api)...)
	if fmt.Sprint(dry) != fmt.Sprint(first) {
		t.Errorf("the dry run says %v, the import %v", dry, first)
	}
	want := map[string]guildfile.Outcome{
		"guild": {Record: "guild", Updated: 1}, "settings": {Record: "settings", Updated: 1}, "wallet": {Record: "wallet", Created: 1, Kept: 1},
		"reference": {Record: "reference", Created: 1}, "level": {Record: "level", Created: 1},
	}
	if fmt.Sprint(first) != fmt.Sprint(want) {
		t.Errorf("the import did %v, want %v", first, want)
	}
	api.WantNoEvent(t)
	api.Do(t, "getWallet", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"balance":7}}`)
	api.Do(t, "getGuildSettings", "").Want(t, 200, `{"data":{"timezone":"Europe/Paris"}}`)
	second := update(t, api, guildfile.Update{Balances: transfer.Keep}, file(api)...)
	for kind, o := range second {
		if o.Created+o.Updated != 0 {
			t.Errorf("the second time %s has %+v", kind, o)
		}
	}
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM ledger_entries WHERE created_at > now() + interval '1 minute'`); n != 0 {
		t.Errorf("%d ledger rows have no instant", n)
	}
}

func TestBalancesAreWhatTheImportWasTold(t *testing.T) {
	t.Parallel()
	for how, want := range map[transfer.Balances][3]int{
		transfer.Keep: {7, 30, 20}, transfer.Set: {10, 10, 20},
		transfer.Higher: {10, 30, 20}, transfer.Add: {17, 40, 20},
	} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			api := apitest.New(t)
			api.Do(t, "adjustBalance", `{"user_id":"1","delta":7}`).Want(t, 200, "")
			api.Do(t, "adjustBalance", `{"user_id":"3","delta":30}`).Want(t, 200, "")
			g := `"guild_id":"` + api.Guild + `"`
			update(t, api, guildfile.Update{Balances: how}, append(file(api), `{"record":"wallet",`+g+`,"user_id":"3","balance":10}`)...)
			for i, user := range []string{"1", "3", "2"} {
				api.Do(t, "getWallet", "", apitest.Path("userId", user)).Want(t, 200, fmt.Sprintf(`{"data":{"balance":%d}}`, want[i]))
			}
		})
	}
}

func TestARefusedLineOfAnUpdateIsNamedAndNothingIsKept(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	g := `"guild_id":"` + api.Guild + `"`
	for line, want := range map[string]string{
		`{"record":"wallet",` + g + `,"user_id":"9"}`:   "line 7: wallet: balance is required of what is new",
		`{"record":"wallet","user_id":"9","balance":1}`: "line 7: wallet: guild_id is required",
		`{"record":"wallet",` + g +
			`,"user_id":"9","balance":-1}`: "line 7: wallet: balance must be an integer, at least 0, at most 9007199254740991",
		`{"record":"wallet",` + g + `,"user_id":"2","balance":1}`: "line 7: wallet: what it names stands in a line before already",
		`{"record":"settings",` + g + `,"timezone":"Mars"}`:       "line 7: settings: what it names stands in a line before already",
		`{"record":"level","guild_id":"5","user_id":"9","total_xp":1}`: "line 7: level: guild 5 is neither " +
			"in the lines before nor in the database",
		`{"record":"wallets"}`: `line 7: there is no record kind "wallets"`,
		`{"record"`:            "line 7: must be well-formed JSON; it ends too early at line 1, column 10",
	} {
		_, err := guildfile.Update{Balances: transfer.Keep}.Run(t.Context(), api.DB(),
			strings.NewReader(strings.Join(append(file(api), line), "\n")), nil)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	api.Do(t, "getGuild", "").Want(t, 200, `{"data":{"name":"The Test Guild"}}`)
}

// Nothing is imported into a guild that is being removed, and an import does not restore it.
func TestAGuildThatLeavesTakesNoFile(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.Exec(t, api.DB(), `UPDATE guilds SET removed_at = now(), removed_after = now() + interval '1 day' WHERE id = $1`, api.Guild)
	wallet := `{"record":"wallet","guild_id":"` + api.Guild + `","user_id":"9","balance":1}`
	plain := func(text string) error {
		_, err := guildfile.Import(t.Context(), api.DB(), strings.NewReader(text), nil)
		return err
	}
	updating := func(dry bool) func(text string) error {
		return func(text string) error {
			_, err := guildfile.Update{Balances: transfer.Keep, DryRun: dry}.Run(t.Context(), api.DB(), strings.NewReader(text), nil)
			return err
		}
	}
	for name, c := range map[string]struct {
		bring func(text string) error
		text  string
		want  string
	}{
		"a plain import":         {plain, wallet, "line 1: wallet: guild "},
		"a plain import of it":   {plain, strings.Join(file(api), "\n"), "line 1: guild: guild "},
		"an update":              {updating(false), strings.Join(file(api), "\n"), "line 1: guild: guild "},
		"an update of its rows":  {updating(false), wallet, "line 1: wallet: guild "},
		"a dry run of an update": {updating(true), wallet, "line 1: wallet: guild "},
	} {
		if err := c.bring(c.text); err == nil || !strings.Contains(err.Error(), c.want+api.Guild+" is being removed") {
			t.Errorf("%s says %v", name, err)
		}
	}
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM wallets`); n != 0 {
		t.Errorf("%d wallets came in", n)
	}
}

// A bot and an integrator continue to write while a file is imported, and imported again.
func TestAFileComesIntoAGuildThatIsWrittenTo(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	var lines []string
	for i := range 500 {
		lines = append(lines, fmt.Sprintf(`{"record":"wallet","guild_id":"%s","user_id":"%d","balance":%d}`, api.Guild, i+1, i))
	}
	var writers sync.WaitGroup
	write := func(by *apitest.API, operation, body string) {
		writers.Go(func() {
			got, err := by.Retry(apitest.Find(t, operation), body)
			if err != nil {
				t.Error(err)
				return
			}
			got.Want(t, 200, "")
		})
	}
	for i := range 20 {
		write(api, "adjustBalance", fmt.Sprintf(`{"user_id":"%d","delta":1000}`, i*25+1))
		write(bot, "writeRecords",
			fmt.Sprintf(`{"on_refusal":"skip","records":[{"record":"wallet","user_id":"%d","balance":5,"if_updated_at":null}]}`, i*25+2))
	}
	update(t, api, guildfile.Update{Balances: transfer.Keep}, lines...)
	writers.Wait()
	again := update(t, api, guildfile.Update{Balances: transfer.Keep}, lines...)["wallet"]
	if again.Created+again.Updated != 0 || again.Unchanged+again.Kept != 500 {
		t.Errorf("the second time: %+v", again)
	}
}

// A wallet inserted between the import's SELECT and its INSERT counts as existing.
func TestWhatComesWhileAFileIsWrittenIsThere(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	var got []guildfile.Outcome
	done := make(chan error, 1)
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, '2', 0)`, api.Guild)
		if err != nil {
			return err
		}
		go func() {
			var err error
			got, err = guildfile.Update{Balances: transfer.Keep}.Run(
				context.Background(), api.DB(), strings.NewReader(strings.Join(file(api), "\n")), nil)
			done <- err
		}()
		testutil.Eventually(t, "the import waits for the wallet", func() bool { return dbtest.Waiting(t, api.DB()) > 0 })
		return nil
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, want := range []guildfile.Outcome{{Record: "guild", Updated: 1}, {Record: "wallet", Created: 1, Kept: 1}} {
		if !slices.Contains(got, want) {
			t.Errorf("the import did %+v, which lacks %+v", got, want)
		}
	}
	api.Do(t, "getWallet", "", apitest.Path("userId", "1")).Want(t, 200, `{"data":{"balance":10}}`)
	api.Do(t, "getWallet", "", apitest.Path("userId", "2")).Want(t, 200, `{"data":{"balance":0}}`)
}

// A batch that conflicts with a row of another writer is rewritten in pieces, so that the next
// conflict affects one piece and not the whole batch.
func TestABatchThatMeetsOthersIsWrittenAnewInPieces(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	var lines []string
	for i := range 1800 {
		lines = append(lines, fmt.Sprintf(`{"record":"reference","guild_id":"%s","reference":"order-%d"}`, api.Guild, i))
	}
	var got []guildfile.Outcome
	done := make(chan error, 1)
	dbtest.Do(t, api.DB(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'order-1700')`, api.Guild)
		if err != nil {
			return err
		}
		go func() {
			var err error
			update := guildfile.Update{Balances: transfer.Keep}
			got, err = update.Run(context.Background(), api.DB(), strings.NewReader(strings.Join(lines, "\n")), nil)
			done <- err
		}()
		testutil.Eventually(t, "the import waits for the reference", func() bool { return dbtest.Waiting(t, api.DB()) > 0 })
		return nil
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := []guildfile.Outcome{{Record: "reference", Created: 1799, Unchanged: 1}}; !slices.Equal(got, want) {
		t.Errorf("the import did %+v, want %+v", got, want)
	}
	pieces := dbtest.Value[int](t, api.DB(),
		`SELECT count(DISTINCT xmin::text) FROM ledger_references WHERE guild_id = $1 AND reference <> 'order-1700'`, api.Guild)
	if pieces != 4 {
		t.Errorf("1,800 references were written in %d pieces, want 4", pieces)
	}
}

// A dry run of every kind locks nothing: neither stored rows nor what the file would create. A real
// import of the same file changes nothing.
func TestADryRunOfAnExportLocksNothingAndChangesNothing(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	imported(t, d, everything)
	file := exported(t, d, "1")
	unchanged := func(dry bool) {
		t.Helper()
		list, err := guildfile.Update{Balances: transfer.Set, DryRun: dry}.Run(t.Context(), d, strings.NewReader(file), nil)
		if err != nil {
			t.Fatalf("dry %v: %v", dry, err)
		}
		if len(list) < 8 {
			t.Errorf("dry %v: only %+v", dry, list)
		}
		for _, o := range list {
			if o.Created+o.Updated+o.Kept != 0 || o.Unchanged == 0 {
				t.Errorf("dry %v: %+v", dry, o)
			}
		}
	}
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		for table, guild := range map[string]string{
			"guilds": "id", "cases": "guild_id", "wallets": "guild_id", "levels": "guild_id", "tickets": "guild_id", "giveaways": "guild_id",
		} {
			if _, err := tx.ExecContext(ctx, `SELECT FROM `+table+` WHERE `+guild+` = '1' FOR UPDATE`); err != nil {
				return err
			}
		}
		unchanged(true)
		return nil
	})
	unchanged(false)
	// Into an empty database everything is inserted; a new guild gets default settings, which the
	// file then changes.
	empty := dbtest.New(t).DB
	for _, dry := range []bool{true, false} {
		list, err := guildfile.Update{Balances: transfer.Keep, DryRun: dry}.Run(t.Context(), empty, strings.NewReader(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list {
			want := guildfile.Outcome{Record: o.Record, Created: o.Created}
			if o.Record == "settings" {
				want = guildfile.Outcome{Record: o.Record, Updated: 1}
			}
			if o != want || o.Created+o.Updated == 0 {
				t.Errorf("into an empty database, dry %v: %+v", dry, o)
			}
		}
	}
}

// A dry run refuses what the import would refuse and accepts what it would accept, also if a line
// needs things from an earlier batch of the file.
func TestADryRunRefusesWhatTheImportWould(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	g := `"guild_id":"` + api.Guild + `"`
	seed := strings.Repeat("0", 64)
	draw := func(guild string) string {
		return `{"record":"giveaway_draw","guild_id":"` + guild + `","giveaway_id":"n","round":1,"seed":"` + seed +
			`","entries_hash":"` + seed + `","entry_count":0}`
	}
	both := func(text string) (list [2][]guildfile.Outcome, errs [2]error) {
		for i, dry := range []bool{true, false} {
			list[i], errs[i] = guildfile.Update{Balances: transfer.Keep, DryRun: dry}.Run(t.Context(), api.DB(), strings.NewReader(text), nil)
		}
		return list, errs
	}
	for line, want := range map[string]string{
		`{"record":"ticket_message",` + g + `,"ticket_id":"n","content":"x"}`:    "line 1: ticket_message: No such ticket.",
		`{"record":"giveaway_entry",` + g + `,"giveaway_id":"n","user_id":"55"}`: "line 1: giveaway_entry: No such giveaway.",
		draw("999"): "line 1: giveaway_draw: guild 999 is neither in the lines before nor in the database",
		draw(api.Guild): `line 1: giveaway_draw: giveaway "n" of guild ` + api.Guild +
			" is neither in the lines before nor in the database",
	} {
		for i, err := range second(both(line)) {
			if err == nil || err.Error() != want {
				t.Errorf("%s, %d: %v, want %s", line, i, err, want)
			}
		}
	}
	var rest strings.Builder
	for i := range 17_000 { // more than a batch
		fmt.Fprintf(&rest, `{"record":"reference",%s,"reference":"%d"}`+"\n", g, i)
	}
	list, errs := both(draw(api.Guild) + `
{"record":"ticket",` + g + `,"id":"n","opener_id":"1"}
{"record":"giveaway",` + g + `,"id":"n","prize":"x","channel_id":"5","status":"ended","winners":["42"]}
` + rest.String() + `{"record":"ticket_message",` + g + `,"ticket_id":"n","content":"x"}
{"record":"giveaway_entry",` + g + `,"giveaway_id":"n","user_id":"55"}
` + strings.Replace(draw(api.Guild), `"round":1`, `"round":2`, 1) + `
` + draw(api.Guild))
	if errs[0] != nil || errs[1] != nil || !slices.Equal(list[0], list[1]) || len(list[0]) != 6 {
		t.Errorf("the dry run says %v, %v, the import %v, %v", list[0], errs[0], list[1], errs[1])
	}
	numbered := `{"record":"case",` + g + `,"user_id":"1","moderator_id":"2","type":"warn","number":7}` + "\n"
	for i, err := range second(both(numbered + strings.ReplaceAll(rest.String(), `"reference":"`, `"reference":"r`) + numbered)) {
		if want := "line 17002: case: number is taken by another of the guild"; err == nil || err.Error() != want {
			t.Errorf("a number twice, %d: %v, want %s", i, err, want)
		}
	}
}

func second[A, B any](_ A, b B) B { return b }

// Whatever makes a line wrong is found: its text, its kind, the order of kinds, or its guild.
func TestAnUpdateNamesTheFirstWrongLine(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	dbtest.AddGuilds(t, api.DB(), "2")
	of := func(guild, kind, rest string) string {
		return `{"record":"` + kind + `","guild_id":"` + guild + `",` + rest + "}\n"
	}
	seed := strings.Repeat("0", 64)
	fine := of(api.Guild, "case", `"user_id":"1","moderator_id":"2","type":"warn","number":7`) // a second attempt would find the number in use
	entry := of("2", "giveaway_entry", `"giveaway_id":"n","user_id":"55"`)
	message := of(api.Guild, "ticket_message", `"ticket_id":"n","content":"x"`)
	draw := of("2", "giveaway_draw", `"giveaway_id":"n","round":1,"seed":"`+seed+`","entries_hash":"`+seed+`","entry_count":0`)
	for text, kind := range map[string]string{
		fine + entry + "{\n":                  "giveaway_entry",
		fine + entry + message:                "giveaway_entry",
		fine + draw + entry:                   "giveaway_draw",
		fine + draw + message + entry + "{\n": "giveaway_draw",
		fine + entry + of("2", "ticket_message", `"ticket_id":"n","content":"x"`):                       "giveaway_entry",
		fine + of("3", "wallet", `"user_id":"1","balance":5`) + message + `{"record":"guild","id":"3"}`: "wallet",
	} {
		for _, dry := range []bool{true, false} {
			_, err := guildfile.Update{Balances: transfer.Keep, DryRun: dry}.Run(t.Context(), api.DB(), strings.NewReader(text), nil)
			if err == nil || !strings.HasPrefix(err.Error(), "line 2: "+kind+": ") {
				t.Errorf("dry %v: %v, of %s", dry, err, text)
			}
		}
	}
	if n := dbtest.Value[int](t, api.DB(), `SELECT count(*) FROM cases`); n != 0 {
		t.Errorf("%d cases were kept", n)
	}
}

// A thing may occur in a file once, however many batches lie between its lines: a balance would be
// added twice, or whatever is stored would be overwritten. RELIABILITY.md, Input.
func TestAThingThatStandsTwiceInAFileIsRefusedHoweverFarApart(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	g := `"guild_id":"` + api.Guild + `"`
	api.Do(t, "adjustBalance", `{"user_id":"1","delta":7}`).Want(t, 200, "")
	var between strings.Builder
	for i := range 17_000 { // more than a batch
		fmt.Fprintf(&between, `{"record":"reference",%s,"reference":"%d"}`+"\n", g, i)
	}
	for kind, line := range map[string]string{
		"wallet": `{"record":"wallet",` + g + `,"user_id":"1","balance":5}`,
		"level":  `{"record":"level",` + g + `,"user_id":"1","total_xp":5}`,
		"case":   `{"record":"case",` + g + `,"id":"c","user_id":"1","moderator_id":"2","type":"warn"}`,
		"guild":  `{"record":"guild","id":"` + api.Guild + `","name":"Harbour"}`,
	} {
		for _, dry := range []bool{true, false} {
			_, err := guildfile.Update{Balances: transfer.Add, DryRun: dry}.Run(t.Context(), api.DB(),
				strings.NewReader(line+"\n"+between.String()+line), nil)
			if want := "line 17002: " + kind + ": what it names stands in a line before already"; err == nil || err.Error() != want {
				t.Errorf("dry %v: %v, want %s", dry, err, want)
			}
		}
	}
}

// besideImport starts the import of a record, makes a call that waits for it, ends the import and
// returns the response.
func besideImport(t *testing.T, api *apitest.API, run func(ctx context.Context, r io.Reader) error, record string,
	call func() (*apitest.Response, error),
) *apitest.Response {
	t.Helper()
	file, end := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(context.Background(), file) }()
	var lines strings.Builder
	lines.WriteString(record + "\n")
	for i := range 16_384 {
		fmt.Fprintf(&lines, `{"record":"reference","guild_id":"%s","reference":"%d"}`+"\n", api.Guild, i)
	}
	lines.WriteString(strings.Repeat("\n", 2<<20)) // more than the reader's buffer: once it is read, the batch has been stored
	if _, err := io.WriteString(end, lines.String()); err != nil {
		t.Fatal(err)
	}
	var got *apitest.Response
	var failed error
	var waits sync.WaitGroup
	waits.Go(func() { got, failed = call() })
	testutil.Eventually(t, "the call waits for the import", func() bool { return dbtest.Waiting(t, api.DB()) > 0 })
	err := errors.Join(end.Close(), <-done)
	if waits.Wait(); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return got
}

// A plain import replaces a guild's default settings: a change of settings that waits for it
// applies to the new ones.
func TestAChangeOfSettingsWaitsForAnImportOfThem(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	bot := api.Bot(t).In(api.Guild)
	imports := func(ctx context.Context, r io.Reader) error {
		_, err := guildfile.Import(ctx, api.DB(), r, nil)
		return err
	}
	record := `{"record":"settings","guild_id":"` + api.Guild + `","timezone":"Europe/Paris"}`
	besideImport(t, api, imports, record, func() (*apitest.Response, error) {
		return bot.Retry(apitest.Find(t, "updateGuildSettings"), `{"tickets":{"require_close_reason":true}}`)
	}).Want(t, 200, `{"data":{"timezone":"Europe/Paris","tickets":{"require_close_reason":true}}}`)
	api.WantEvent(t, "guild.updated", `{"data":{"changed":["tickets"]}}`)
}

// A case that waits for an import gets the next number and a later instant than the cases that the
// import has created.
func TestTheNumbersOfCasesAndTheirInstantsAgreeBesideAnImport(t *testing.T) {
	t.Parallel()
	for _, updates := range []bool{false, true} {
		api := apitest.New(t)
		imports := func(ctx context.Context, r io.Reader) (err error) {
			if updates {
				_, err = guildfile.Update{Balances: transfer.Keep}.Run(ctx, api.DB(), r, nil)
			} else {
				_, err = guildfile.Import(ctx, api.DB(), r, nil)
			}
			return err
		}
		record := `{"record":"case","guild_id":"` + api.Guild + `","user_id":"42","moderator_id":"7","type":"warn"}`
		besideImport(t, api, imports, record, func() (*apitest.Response, error) {
			return api.Retry(apitest.Find(t, "createCase"), `{"user_id":"42","moderator_id":"7","type":"note","reason":"x"}`)
		}).Want(t, 201, `{"data":{"number":2}}`)
		api.WantEvent(t, "case.created", "")
		if got := dbtest.Value[string](t, api.DB(), `
			SELECT string_agg(number::text, ' ' ORDER BY created_at) || bool_and(created_at < clock_timestamp() + interval '1 second')
			FROM cases`); got != "1 2true" {
			t.Errorf("updates %v: by their instants the numbers, none of the future, are %s", updates, got)
		}
	}
}
