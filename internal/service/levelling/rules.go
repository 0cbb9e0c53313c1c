package levelling

import (
	"math"

	"guildhall/internal/base/db"
)

// The level curve: going from level L to L+1 costs
// Quadratic*L^2 + Linear*L + Base XP.
const (
	Base      = 100
	Linear    = 50
	Quadratic = 5
)

// MaxXP is the most XP a member can have: the largest integer that every JSON reader represents
// exactly.
const MaxXP = 1<<53 - 1

// Progress is the progress of a member from one level to the next.
type Progress struct {
	Current  int64 // XP earned since the level was reached
	Required int64 // XP the step to the next level costs
	Percent  int   // 0..99, rounded down
}

// Level returns the highest level that xp pays for. It is exact for every xp from 0 to MaxXP, and
// takes the same few operations for any xp.
func Level(xp int64) int {
	if xp <= 0 {
		return 0
	}
	l := estimate(xp)
	for threshold(l) > xp {
		l--
	}
	for threshold(l+1) <= xp {
		l++
	}
	return int(l)
}

// ProgressOf returns the progress of xp beyond the level that it pays for.
func ProgressOf(xp int64) Progress {
	xp = max(xp, 0)
	l := int64(Level(xp))
	current, required := xp-threshold(l), cost(l)
	return Progress{Current: current, Required: required, Percent: int(current * 100 / required)}
}

// cost returns the XP that the step from level l to l+1 costs.
func cost(l int64) int64 { return Quadratic*l*l + Linear*l + Base }

// threshold returns the XP at which level l begins: the sum of cost(0) to cost(l-1),
// which is 5l(2l^2 + 27l + 91)/6. The product is always divisible by 6, and it
// stays far below 2^63 for every level that MaxXP can pay for.
func threshold(l int64) int64 { return 5 * l * (2*l*l + 27*l + 91) / 6 }

// estimate solves threshold(l) = xp in floating point. With u = l + 4.5 the
// equation is u^3 - 15.25u - 22.5 = 0.6xp, and u is close to r + 15.25/(3r)
// where r is the cube root of 0.6xp + 22.5. The result is at most one level off;
// Level corrects it with integers, because the last digit of a float is not reliable.
func estimate(xp int64) int64 {
	r := math.Cbrt(0.6*float64(xp) + 22.5)
	return int64(r + 15.25/(3*r) - 4.5)
}

// levelOf returns Level in SQL, for an expression of XP from 0 to MaxXP. OFFSET keeps Postgres
// from expanding the root and the estimate wherever they are used, a dozen times: a statement
// would take a third longer to start.
func levelOf(xp string) string {
	begins := func(level string) string {
		return db.With("5 * (:l) * (2 * (:l) * (:l) + 27 * (:l) + 91) / 6", "l", level)
	}
	return db.With(`(
		SELECT e.level + CASE WHEN `+begins("e.level + 1")+` <= :xp THEN 1 WHEN `+begins("e.level")+` > :xp THEN -1 ELSE 0 END
		FROM (SELECT cbrt(0.6::float8 * (:xp) + 22.5) AS r OFFSET 0) root, LATERAL (SELECT trunc(r + 15.25 / (3 * r) - 4.5)::bigint AS level OFFSET 0) e
	)`, "xp", xp)
}
