package convert

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"guildhall/internal/service/levelling"
)

func TestTheCurveOfGuildFilesIsTheProgramsOwn(t *testing.T) {
	t.Parallel()
	for l := int64(0); l <= maxLevel; l += 1 + l/100 {
		if got := levelling.Level(xpAtLevel(l)); int64(got) != l {
			t.Fatalf("level %d begins at %d, which is level %d", l, xpAtLevel(l), got)
		}
		if l > 0 && int64(levelling.Level(xpAtLevel(l)-1)) != l-1 {
			t.Fatalf("level %d begins before %d", l, xpAtLevel(l))
		}
	}
	if xpAtLevel(maxLevel) > maxWhole || xpAtLevel(maxLevel+1) <= maxWhole {
		t.Errorf("the highest level is not %d", maxLevel)
	}
}

func TestALevelThatTheSourceStatesIsKeptWithItsProgress(t *testing.T) {
	t.Parallel()
	r := &conversion{stage: writing, report: newReport(formatNamed("csv"), "", "")}
	for _, c := range []string{
		"mee6", "lurkr", "amari", "arcane-linear", "arcane-exponential", "arcane-flat", "total:0,1", "total:150,-100,50", "step:1",
		"step:75,100", "total:0,100,50,1",
	} {
		curve, err := curveNamed(c)
		if err != nil {
			t.Fatal(err)
		}
		r.curve = curve
		for level := int64(0); level <= 300; level++ {
			cost := curve.start(level+1) - curve.start(level)
			last := int64(-1)
			for _, progress := range []int64{0, 1, cost / 2, cost - 1} {
				if progress >= cost {
					continue
				}
				for _, within := range []bool{false, true} {
					xp := progress + cond(within, 0, curve.start(level))
					total, err := r.total(standing{
						xp: &value{kind: kindNumber, text: fmt.Sprint(xp)}, level: &value{kind: kindNumber, text: fmt.Sprint(level)}, within: within,
					}, &value{})
					if err != nil || int64(levelling.Level(total)) != level {
						t.Fatalf("%s: level %d with %d of %d became %d XP, level %d (%v)", c, level, progress, cost, total, levelling.Level(total), err)
					}
					if total < last || progress == 0 && total != xpAtLevel(level) {
						t.Fatalf("%s: level %d with %d of %d became %d XP, after %d", c, level, progress, cost, total, last)
					}
					last = total
				}
			}
		}
	}
	if r.report.LevelsThatDiffer != 0 {
		t.Errorf("%d levels differ", r.report.LevelsThatDiffer)
	}
}

func TestTheCurveOfEachBotIsItsOwn(t *testing.T) {
	t.Parallel()
	for name, total := range map[string]func(n int64) int64{
		"mee6":               func(n int64) int64 { return 5 * n * (2*n*n + 27*n + 91) / 6 },
		"lurkr":              func(n int64) int64 { return 150 - 100*n + 50*n*n },
		"amari":              func(n int64) int64 { return 55 - 40*n + 20*n*n },
		"arcane-linear":      func(n int64) int64 { return 75*n + 100*n*(n-1)/2 },
		"arcane-exponential": func(n int64) int64 { return 75*n + 50*n*(n-1)/2 + 5*(n-1)*n*(2*n-1)/6 },
		"arcane-flat":        func(n int64) int64 { return 1000 * n },
	} {
		c, err := curveNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for n := int64(1); n < 300; n++ {
			if c.start(n) != total(n) {
				t.Fatalf("%s: level %d begins at %d, not %d", name, n, c.start(n), total(n))
			}
			if c.level(c.start(n)) != n || c.level(c.start(n)-1) != n-1 {
				t.Fatalf("%s: %d XP are level %d", name, c.start(n), c.level(c.start(n)))
			}
		}
		if c.start(0) != 0 || c.level(0) != 0 {
			t.Errorf("%s begins at %d", name, c.start(0))
		}
	}
	for _, bad := range []string{
		"", "mee7", "total:", "total:a", "step:1.5", "total:0", "step:-5", "step:0,5", "poly:1",
		"total:9007199254740992",
	} {
		if c, err := curveNamed(bad); err == nil {
			t.Errorf("%q is a curve: %v", bad, c)
		}
	}
}

func TestLevelsThatAreOthersThanTheCurvesAreCounted(t *testing.T) {
	t.Parallel()
	lurkr := func(o Options, members ...string) result {
		o.From, o.Guild = "lurkr", g1
		return of(t, o, "a.json", `{"levels":[`+strings.Join(members, ",")+`]}`)
	}
	member := func(id string, xp, level any) string {
		return fmt.Sprintf(`{"userId":%q,"xp":%v,"level":%v}`, id, xp, level)
	}
	for _, c := range []struct {
		xp, level int64
		want      int64
		differ    int64
	}{
		{300, 3, xpAtLevel(3), 0},
		{549, 3, xpAtLevel(3) + 293, 0},
		{550, 3, xpAtLevel(4) - 1, 1},
		{299, 3, xpAtLevel(3), 1},
		{
			9_000_000, 3, xpAtLevel(4) - 1,
			1,
		},
		{maxWhole, 0, 99, 1},
		{0, 50, xpAtLevel(50), 1},
	} {
		r := lurkr(Options{}, member(ada, c.xp, c.level))
		same(t, fmt.Sprint(c), r.ok(t), levelLine(ada, c.want))
		if r.report.LevelsThatDiffer != c.differ {
			t.Errorf("%v: %d levels differ", c, r.report.LevelsThatDiffer)
		}
	}
	// Kept XP may mean another level in Guildhall's curve, or the same level.
	r := lurkr(Options{XP: "keep"}, member(ada, 425, 3), member(bo, 425, 4), member(cy, 425, 3))
	same(t, "keep", r.ok(t), levelLine(ada, 425)+levelLine(bo, 425)+levelLine(cy, 425))
	if r.report.LevelsThatDiffer != 1 {
		t.Errorf("%d levels differ", r.report.LevelsThatDiffer)
	}
	// If the source states no level, or the XP are those within one level, there is nothing to
	// compare.
	for from, text := range map[string]string{
		"arcane": `[{"userId":"` + ada + `","xp":90,"level":14}]`, "tatsu": `{"rankings":[{"user_id":"` + ada + `","score":5000}]}`,
	} {
		if r := of(t, Options{From: from, Guild: g1, XP: "keep"}, "a.json", text); r.err != nil || r.report.LevelsThatDiffer != 0 {
			t.Errorf("%s: %v, %+v", from, r.err, r.report)
		}
	}
	r = of(t, Options{From: "csv", Record: "level", Guild: g1, Curve: "amari"}, "a.csv", "id,level\n"+ada+",3\n")
	if same(t, "without XP", r.ok(t), levelLine(ada, xpAtLevel(3))); r.report.LevelsThatDiffer != 0 {
		t.Errorf("%d levels differ", r.report.LevelsThatDiffer)
	}
	// If a level costs nothing, no XP are needed for the next level.
	r = lurkr(Options{Curve: "total:100"}, member(ada, 150, 1))
	if same(t, "no cost", r.ok(t), levelLine(ada, 100)); r.report.LevelsThatDiffer != 1 {
		t.Errorf("%d levels differ", r.report.LevelsThatDiffer)
	}
	r = lurkr(Options{Curve: "arcane-flat"}, member(ada, 3500, 3))
	same(t, "another curve", r.ok(t), levelLine(ada, xpAtLevel(3)+(xpAtLevel(4)-xpAtLevel(3))/2))
	r = lurkr(Options{}, member(ada, 1, maxLevel+1), member(bo, 1, maxLevel), member(cy, 1, "1e300"))
	same(t, "high levels", r.ok(t), levelLine(ada, maxWhole)+levelLine(bo, xpAtLevel(maxLevel))+levelLine(cy, maxWhole))
	wants(t, r.report.Changed, "has a level above", 2)
}

func TestEachOfTheFiveTablesIsRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    Options
		file string
		want string
	}{
		"arcane by the API": {Options{From: "arcane"}, `{"levels":[{"id":"` + ada + `","xp":737,"level":14}]}`, levelLine(ada, 10045)},
		"arcane, a list":    {Options{From: "arcane"}, `[{"userId":"` + ada + `","xp":737,"level":14}]`, levelLine(ada, 10045)},
		"amari": {Options{From: "amari"}, `{"count":1,"data":[{"id":"` + ada +
			`","exp":"75","level":2,"weeklyExp":1,"username":"a"}]}`, levelLine(ada, 255+220*20/60)},
		"tatsu": {
			Options{From: "tatsu"},
			`{"guild_id":"` + g1 + `","rankings":[{"rank":1,"score":4321,"user_id":"` + ada + `"}]}`,
			levelLine(ada, 4321),
		},
		"tatsu by level": {Options{From: "tatsu", XP: "level", Curve: "arcane-flat"}, `{"rankings":[{"score":2500,"user_id":"` + ada +
			`"}]}`, levelLine(ada, 255+110)},
		"polaris": {
			Options{From: "polaris"},
			`{"users":{"` + ada + `":{"xp":200},"` + bo + `":{"xp":199,"cooldown":5}},"settings":{"enabled":true}}`,
			levelLine(ada, 100) + levelLine(bo, 99),
		},
		"polaris with its curve behind": {
			Options{From: "polaris"}, `{"users":{"` + ada + `":{"xp":150}},"settings":{"curve":{"1":90,"2":0.4,"3":0},"rounding":50}}`, levelLine(
				ada, 100+155/2),
		},
		"polaris up to its highest level": {
			Options{From: "polaris"}, `{"users":{"` + ada + `":{"xp":99999}},"settings":{"curve":{"1":100},"maxLevel":3}}`, levelLine(ada, xpAtLevel(
				3)),
		},
		"polaris with another curve": {Options{From: "polaris", Curve: "arcane-flat"}, `[{"id":"` + ada + `","xp":1500}]`, levelLine(ada, 100+
			155/2)},
		"polaris as a table": {Options{From: "polaris"}, "ID,Total XP\n" + ada + ",200\n", levelLine(ada, 100)},
	} {
		c.o.Guild = g1
		same(t, name, of(t, c.o, "a", c.file).ok(t), c.want)
	}
	r := of(t, Options{From: "polaris", Guild: g1}, "a.csv", "ID,Name,Total XP\n"+ada+",a,200\n")
	if same(t, "polaris with names", r.ok(t), levelLine(ada, 100)); r.report.NoPlace["/Name"] != 1 {
		t.Errorf("no place: %v", r.report.NoPlace)
	}
	r = of(t, Options{From: "arcane", Guild: g1}, "a.json", `[{"userId":"`+ada+`","level":null,"xp":1}]`)
	if r.err == nil || !strings.Contains(r.err.Error(), "/0/level: must be a whole number; it is null") {
		t.Errorf("a level that is null: %v", r.err)
	}
}

func TestLevelUpKeepsLevelsByItsOwnPolynomial(t *testing.T) {
	t.Parallel()
	start := func(base, exp float64, n int64) int64 { return int64(math.Ceil(base * math.Pow(float64(n), exp))) }
	file := func(algorithm string) string {
		return `{"configs":{"` + g1 + `":{"users":{"` + ada + `":{"xp":` + fmt.Sprint(start(50, 1.7, 5)) + `,"level":5},"` + bo + `":{}}` +
			algorithm + `}}}`
	}
	r := of(t, Options{From: "red"}, "a.json", file(`,"algorithm":{"exp":1.7,"base":50}`))
	same(t, "its own", r.ok(t), levelLine(ada, xpAtLevel(5))+levelLine(bo, 0))
	if r.report.LevelsThatDiffer != 0 {
		t.Errorf("%d levels differ", r.report.LevelsThatDiffer)
	}
	r = of(t, Options{From: "red"}, "a.json", file(""))
	r.ok(t)
	if r.report.LevelsThatDiffer != 1 {
		t.Errorf("by 100 n²: %d levels differ", r.report.LevelsThatDiffer)
	}
	r = of(t, Options{From: "red", Guild: g1}, "a.json", `{"users":{"`+ada+`":{"xp":900,"level":3}},"algorithm":{"base":100}}`)
	same(t, "a server's backup", r.ok(t), levelLine(ada, xpAtLevel(3)))
}
