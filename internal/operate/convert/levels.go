package convert

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// xpAtLevel is Guildhall's own curve: the total XP at which a level begins. A test compares
// it with the curve of package levelling.
func xpAtLevel(level int64) int64 { return 5 * level * (2*level*level + 27*level + 91) / 6 }

// maxLevel is the highest level whose XP fit into a record.
var maxLevel = func() int64 {
	l := int64(0)
	for xpAtLevel(l+1) <= maxWhole {
		l++
	}
	return l
}()

// curve computes where the levels of a source begin, and caches the results.
type curve struct {
	starts []int64
	total  func(n int64) int64 // total XP at which level n begins, n ≥ 1; or
	step   func(n int64) int64 // XP from level n to level n+1
}

// start returns the total XP at which a level begins.
func (c *curve) start(level int64) int64 {
	if len(c.starts) == 0 {
		c.starts = []int64{0}
	}
	for n := int64(len(c.starts)); n <= level; n++ {
		next := int64(0)
		if c.total != nil {
			next = c.total(n)
		} else {
			next = c.starts[n-1] + c.step(n-1)
		}
		c.starts = append(c.starts, min(max(next, 0), tooLarge))
	}
	return c.starts[level]
}

// level returns the highest level that begins at or below xp.
func (c *curve) level(xp int64) int64 {
	low, high := int64(0), int64(1)
	for high < maxLevel && c.start(high) <= xp {
		low, high = high, min(2*high, maxLevel)
	}
	for high-low > 1 {
		if mid := (low + high) / 2; c.start(mid) <= xp {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

var curves = map[string]string{
	"mee6": "step:100,50,5", "lurkr": "total:150,-100,50", "amari": "total:55,-40,20",
	"arcane-linear": "step:75,100", "arcane-exponential": "step:75,50,5", "arcane-flat": "step:1000",
}

// curveNamed parses --curve: a name, or the factors of a polynomial of the level.
func curveNamed(s string) (*curve, error) {
	if c, ok := curves[s]; ok {
		s = c
	}
	form, list, _ := strings.Cut(s, ":")
	var factors []float64
	for f := range strings.SplitSeq(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(f), 10, 64)
		if err != nil || n > maxWhole || n < -maxWhole || form != "total" && form != "step" {
			return nil, usage("--curve: must be mee6, lurkr, amari, arcane-linear, arcane-exponential, arcane-flat, total:C0,C1,… or step:C0,C1,… with whole numbers")
		}
		factors = append(factors, float64(n))
	}
	at := func(n int64) int64 { return clamp(polynomial(factors, n)) }
	c := &curve{step: at}
	if form == "total" {
		c = &curve{total: at}
	}
	if c.start(1) <= 0 {
		return nil, usage("--curve: level 1 has to begin above 0 XP")
	}
	return c, nil
}

// polynomial evaluates factors at n. It is exact for every level whose XP fit into a record.
func polynomial(factors []float64, n int64) float64 {
	sum := 0.0
	for k := len(factors) - 1; k >= 0; k-- {
		sum = sum*float64(n) + factors[k]
	}
	return sum
}

func clamp(x float64) int64 {
	if math.IsNaN(x) {
		return tooLarge
	}
	return int64(min(max(x, -tooLarge), tooLarge))
}

// standing holds the XP and the level that a source states for a member.
type standing struct {
	xp, level *value
	within    bool // xp counts from the beginning of the level
	none      bool // the source has no levels; the level follows from the XP
}

// level writes the level record of a member, at most once per member.
func (r *conversion) level(it *item, user string, s standing) error {
	total, err := r.total(s, it.value)
	if err != nil {
		return err
	}
	first, err := r.first(r.levels, it, user, total)
	if !first {
		return err
	}
	return r.write("GuildFileLevel", "level", levelRecord{Record: "level", GuildID: r.guild, UserID: user, TotalXP: total, Updated: it.since}, it.value)
}

// total returns the XP of a member in the guild file. If the source states a level, the member
// keeps that level, and the same share of the way to the next level; if the curve leads to another
// level, that is only counted.
func (r *conversion) total(s standing, at *value) (int64, error) {
	xp, level := int64(0), int64(0)
	var err error
	if s.xp != nil {
		if xp, err = r.xp(s.xp); err != nil {
			return 0, err
		}
	}
	stated := s.level != nil
	if stated {
		if level, err = r.xp(s.level); err != nil {
			return 0, err
		}
	}
	if r.keep && s.xp != nil {
		if stated && !s.within && cond(r.curve != nil, r.curve, r.own).level(xp) != min(level, maxLevel) {
			r.differ()
		}
		return xp, nil
	}
	if s.none && r.curve != nil {
		level = r.curve.level(xp)
	}
	if level > maxLevel {
		r.change(at, "has a level above "+strconv.FormatInt(maxLevel, 10)+" and gets the most XP there can be", level)
		return maxWhole, nil
	}
	return min(xpAtLevel(level)+r.share(s, xp, level), maxWhole), nil
}

// share returns how far the member is on the way to the next level, in Guildhall's XP.
func (r *conversion) share(s standing, xp, level int64) int64 {
	if r.curve == nil || s.xp == nil {
		return 0
	}
	from, to := r.curve.start(level), r.curve.start(level+1)
	if !s.within {
		xp -= from
	}
	cost := to - from
	if xp < 0 || xp >= cost {
		r.differ()
	}
	step := xpAtLevel(level+1) - xpAtLevel(level)
	switch {
	case xp < 0 || cost <= 0:
		return 0
	case xp >= cost:
		return step - 1
	}
	high, low := bits.Mul64(uint64(xp), uint64(step))
	share, _ := bits.Div64(high, low, uint64(cost))
	return int64(share)
}

func (r *conversion) differ() {
	if r.stage == writing {
		r.report.LevelsThatDiffer++
	}
}

// wallet writes the wallet record of a member, at most once per member.
func (r *conversion) wallet(it *item, user string, balance int64) error {
	first, err := r.first(r.wallets, it, user, balance)
	if !first {
		return err
	}
	return r.write("GuildFileWallet", "wallet", walletRecord{Record: "wallet", GuildID: r.guild, UserID: user, Balance: balance, Updated: it.since}, it.value)
}

// first reports whether this is the first item of a member; after an error it returns false. The
// pages of a leaderboard may shift while a person downloads them, so further items of a member are
// only counted. In a table, which a person maintains, two rows of one member are an error.
func (r *conversion) first(seen map[uint64]int64, it *item, user string, n int64) (bool, error) {
	key, err := strconv.ParseUint(user, 10, 64)
	if err != nil {
		return false, err
	}
	before, twice := seen[key]
	switch {
	case !twice && r.f.once:
		seen[key] = r.row(it.value)
		if r.f.equalTwice {
			r.seenAs[key] = n
		}
	case !twice:
		seen[key] = n
	case r.f.equalTwice && r.seenAs[key] == n:
		r.leave(it.value, "came twice")
	case r.f.once:
		return false, wrong(it.who, "member "+user+" comes twice, first on "+r.rowPlace(before)+"; leave one row of each member")
	case before != n:
		r.leave(it.value, "came twice, with another value")
	default:
		r.leave(it.value, "came twice")
	}
	return !twice, nil
}
