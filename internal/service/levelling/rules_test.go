package levelling

import (
	"fmt"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
)

// The expected values are published in the API document; a bot that computes levels itself is
// tested with the same table.
func TestLevelHasThePublishedCheckValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		xp    int64
		level int
	}{
		{0, 0}, {99, 0}, {100, 1}, {254, 1}, {255, 2}, {1150, 5}, {4675, 10}, {23850, 20},
	} {
		if got := Level(c.xp); got != c.level {
			t.Errorf("Level(%d) = %d, want %d", c.xp, got, c.level)
		}
	}
}

// TestEveryLevelBeginsWhereTheCostsEnd adds up the costs of all levels, which is the definition of
// the curve, and compares Level with the sum just before and at each new level.
func TestEveryLevelBeginsWhereTheCostsEnd(t *testing.T) {
	t.Parallel()
	var sum, l int64
	for ; sum <= MaxXP; l++ {
		if got := threshold(l); got != sum {
			t.Fatalf("threshold(%d) = %d, want %d", l, got, sum)
		}
		if got := int64(Level(sum)); got != l {
			t.Fatalf("Level(%d) = %d, want %d", sum, got, l)
		}
		if got := int64(Level(sum - 1)); l > 0 && got != l-1 {
			t.Fatalf("Level(%d) = %d, want %d", sum-1, got, l-1)
		}
		for _, xp := range []int64{sum - 1, sum} {
			if d := estimate(max(xp, 0)) - int64(Level(xp)); d < -1 || d > 1 {
				t.Fatalf("estimate(%d) is %d levels off, so Level would need a long walk", xp, d)
			}
		}
		sum += cost(l)
	}
	if got := int64(Level(MaxXP)); got != l-1 {
		t.Errorf("Level(MaxXP) = %d, want %d", got, l-1)
	}
}

// The curve in SQL is the same as Level at the beginning of each level, up to MaxXP.
func TestTheDatabaseKnowsTheCurve(t *testing.T) {
	t.Parallel()
	var begin []int64
	for l := int64(0); threshold(l) <= MaxXP; l++ {
		begin = append(begin, threshold(l))
	}
	got := dbtest.Value[string](t, dbtest.New(t).DB, `
		SELECT format('%s levels, %s wrong, the most is %s', count(*), count(*) FILTER (WHERE `+levelOf("xp")+` <> n - 1
			OR n > 1 AND `+levelOf("xp - 1")+` <> n - 2), max(`+levelOf(fmt.Sprint(int64(MaxXP)))+`))
		FROM unnest($1::bigint[]) WITH ORDINALITY AS g (xp, n)`, db.Integers(begin))
	if want := fmt.Sprintf("%d levels, 0 wrong, the most is %d", len(begin), Level(MaxXP)); got != want {
		t.Errorf("the database has %s, want %s", got, want)
	}
}

func TestProgressStaysInsideItsLevel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		xp   int64
		want Progress
	}{
		{0, Progress{0, 100, 0}},
		{99, Progress{99, 100, 99}},
		{100, Progress{0, 155, 0}},
		{254, Progress{154, 155, 99}},
		{1150, Progress{0, 475, 0}},
		{1625 - 238, Progress{237, 475, 49}},
		{-7, Progress{0, 100, 0}},
	} {
		if got := ProgressOf(c.xp); got != c.want {
			t.Errorf("ProgressOf(%d) = %+v, want %+v", c.xp, got, c.want)
		}
	}
}

func FuzzLevel(f *testing.F) {
	for _, xp := range []int64{0, 1, 99, 100, 254, 255, 23850, 1 << 31, 1 << 40, MaxXP - 1, MaxXP} {
		f.Add(xp, int64(1))
	}
	f.Fuzz(func(t *testing.T, xp, more int64) {
		xp &= MaxXP
		more &= MaxXP
		l := int64(Level(xp))
		if threshold(l) > xp || threshold(l+1) <= xp {
			t.Fatalf("Level(%d) = %d, which covers %d to %d", xp, l, threshold(l), threshold(l+1)-1)
		}
		if richer := min(xp+more, MaxXP); int64(Level(richer)) < l {
			t.Fatalf("%d XP are level %d, but %d XP are level %d", xp, l, richer, Level(richer))
		}
		p := ProgressOf(xp)
		if p.Current < 0 || p.Current >= p.Required || p.Percent < 0 || p.Percent > 99 {
			t.Fatalf("ProgressOf(%d) = %+v", xp, p)
		}
		if p.Required != cost(l) || p.Current != xp-threshold(l) {
			t.Fatalf("ProgressOf(%d) = %+v does not belong to level %d", xp, p, l)
		}
	})
}

func BenchmarkLevel(b *testing.B) {
	for b.Loop() {
		Level(MaxXP)
	}
}
