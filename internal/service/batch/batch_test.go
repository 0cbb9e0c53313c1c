package batch

import (
	"database/sql/driver"
	"strings"
	"testing"

	"guildhall/internal/access/idempotency"
)

// payment is a change as tests have it.
type payment struct {
	guild, user    string
	amount         int64
	key, reference *string
	trace          string
}

func columns() []Column[payment] {
	return []Column[payment]{
		Texts("user_id", func(p payment) string { return p.user }),
		Integers("amount", func(p payment) int64 { return p.amount }),
		Nullable("reference", func(p payment) *string { return p.reference }),
	}
}

func text(s string) *string { return &s }

func TestAFormIsWhatTheChangesNeed(t *testing.T) {
	t.Parallel()
	one, other := payment{guild: "1"}, payment{guild: "2"}
	keyed, referenced := payment{guild: "1", key: text("k")}, payment{guild: "1", reference: text("r")}
	traced := payment{guild: "1", trace: "t"}
	for name, c := range map[string]struct {
		changes []payment
		want    Form
	}{
		"one":                 {[]payment{one}, Form{Collected: true}},
		"two of a guild":      {[]payment{one, one}, Form{Collected: true}},
		"two guilds":          {[]payment{one, other}, Form{Collected: true, Several: true}},
		"the second has keys": {[]payment{one, keyed}, Form{Collected: true, Keyed: true}},
		"a reference":         {[]payment{referenced, one}, Form{Collected: true, Referenced: true}},
		"a trace":             {[]payment{one, traced}, Form{Collected: true, Traced: true}},
		"everything": {
			[]payment{keyed, referenced, other, traced},
			Form{Collected: true, Several: true, Keyed: true, Referenced: true, Traced: true},
		},
	} {
		got := FormOf(c.changes, func(p payment) string { return p.guild },
			func(p payment) bool { return p.key != nil }, func(p payment) bool { return p.reference != nil },
			func(p payment) bool { return p.trace != "" })
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Each form is composed at start: one that was missing could not be run.
func TestThereIsAStatementForEachForm(t *testing.T) {
	t.Parallel()
	seen := map[Form]bool{}
	for _, f := range Collected(true) {
		seen[f] = f.Collected
	}
	if len(seen) != 16 {
		t.Errorf("%d forms with references, want 16: %v", len(seen), seen)
	}
	for _, f := range Collected(false) {
		if f.Referenced || !seen[f] {
			t.Errorf("%+v is no form without references", f)
		}
	}
	if n := len(Collected(false)); n != 8 {
		t.Errorf("%d forms without references, want 8", n)
	}
}

// Columns, their names and the arguments stand in one order, behind the guild.
func TestColumnsAndArgumentsGoTogether(t *testing.T) {
	t.Parallel()
	changes := []payment{{guild: "1", user: "42", amount: 5}, {guild: "2", user: "43", amount: -1, reference: text("r")}}
	for _, several := range []bool{false, true} {
		c := Changes[payment]{
			Form:    Form{Collected: true, Several: several},
			GuildOf: func(p payment) string { return p.guild }, Columns: columns(),
		}
		given := c.Given()
		for _, want := range []string{"$2::text[]", "$3::bigint[]", "$4::text[]"} {
			if !strings.Contains(given, want) {
				t.Errorf("several %t: no %s in %s", several, want, given)
			}
		}
		if strings.Contains(given, "$5") || strings.Contains(given, "$1::text[]") != several {
			t.Errorf("several %t: %s", several, given)
		}
		if args := c.Arguments(changes); len(args) != 4 || (args[0] == "1") == several {
			t.Errorf("several %t: %v", several, args)
		}
		if got, want := c.Names("g"), "g.number, g.guild_id, g.user_id, g.amount, g.reference"; got != want {
			t.Errorf("the names are %s, want %s", got, want)
		}
	}
}

// Who waits for other transactions: a change by itself does, for as long as it
// takes, and a collected one for nobody's row and for keys a moment only.
func TestWhoWaits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		form         Form
		skips, hasty bool
	}{
		{form: Form{}},
		{form: Form{Keyed: true, Referenced: true}},
		{form: Form{Collected: true}, skips: true},
		{form: Form{Collected: true, Keyed: true}, skips: true, hasty: true},
		{form: Form{Collected: true, Referenced: true}, skips: true, hasty: true},
	} {
		if got := strings.Contains(c.form.Lock(), "SKIP LOCKED"); got != c.skips {
			t.Errorf("%+v skips what is held: %t", c.form, got)
		}
		given := Changes[payment]{Form: c.form, Columns: columns()}.Given()
		if got := strings.Contains(given, "'lock_timeout', '10ms'"); got != c.hasty {
			t.Errorf("%+v gives up after 10 ms: %t", c.form, got)
		}
	}
}

func TestKeysAreColumnsOfTheirChanges(t *testing.T) {
	t.Parallel()
	keys := Keys(func(p payment) *idempotency.Request {
		if p.key == nil {
			return nil
		}
		return &idempotency.Request{TokenID: "token", Key: *p.key}
	})
	c := Changes[payment]{Form: Form{Keyed: true}, Columns: keys}
	if free := c.Free(); free == "true" || free == "" {
		t.Errorf("nothing is asked of the keys: %q", free)
	}
	if free := (Changes[payment]{Columns: keys}).Free(); free != "true" {
		t.Errorf("without keys it asks %q", free)
	}
	for i, want := range []struct{ name, values string }{{"token_id", `{NULL,"token"}`}, {"key", `{NULL,"k"}`}} {
		values, err := keys[i].Of([]payment{{}, {key: text("k")}}).(driver.Valuer).Value()
		if keys[i].Name != want.name || values != want.values || err != nil {
			t.Errorf("column %d is %s with %v, %v, want %+v", i, keys[i].Name, values, err, want)
		}
	}
}
