package convert

import (
	"math/big"
	"strconv"
	"strings"
)

// amount is a number as a bot wrote it: rounded down, and held within what can be
// added without running over.
type amount struct {
	n        int64
	fraction bool
}

const tooLarge = 1 << 60 // stands for everything that is too much

// decimal reads a number as it was written.
func decimal(s string) (amount, bool) {
	if len(s) > maxDigits {
		return amount{}, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return amount{n: min(max(n, -tooLarge), tooLarge)}, true
	}
	if !isNumber([]byte(strings.TrimPrefix(s, "+"))) {
		return amount{}, false
	}
	mantissa, exponent, has := strings.Cut(strings.ToLower(s), "e")
	if has {
		e, _ := strconv.Atoi(exponent) // the largest or the smallest, where it is beyond them
		switch {
		case strings.Trim(mantissa, "+-0.") == "":
			return amount{}, true
		case e > maxDigits:
			return amount{n: cond[int64](strings.HasPrefix(s, "-"), -tooLarge, tooLarge)}, true
		case e < -2*maxDigits:
			return amount{n: cond[int64](strings.HasPrefix(s, "-"), -1, 0), fraction: true}, true
		}
	}
	q, ok := new(big.Rat).SetString(s)
	if !ok {
		return amount{}, false
	}
	whole, rest := new(big.Int).DivMod(q.Num(), q.Denom(), new(big.Int))
	a := amount{n: tooLarge, fraction: rest.Sign() != 0}
	if q.Sign() < 0 {
		a.n = -tooLarge
	}
	if whole.IsInt64() {
		a.n = min(max(whole.Int64(), -tooLarge), tooLarge)
	}
	return a, true
}

// number reads XP or coins. In a table thousands may stand apart, in quotes.
func (r *conversion) number(v *value) (amount, error) {
	s := strings.TrimSpace(v.text)
	if v.quoted && thousands(s) {
		s = strings.ReplaceAll(s, ",", "")
	}
	if v.kind == kindNumber || v.kind == kindText {
		if a, ok := decimal(s); ok {
			return a, nil
		}
	}
	return amount{}, wrong(v, "must be a whole number; it is "+v.shown())
}

// thousands reports whether a text is 1,234,567.
func thousands(s string) bool {
	whole, _, _ := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	groups := strings.Split(whole, ",")
	for i, g := range groups {
		if !digits(g) || len(g) > 3 || i > 0 && len(g) < 3 {
			return false
		}
	}
	return len(groups) > 1
}

// coins reads a pocket, which may be without a bottom.
func (r *conversion) coins(v *value) (amount, error) {
	switch {
	case v.kind == kindNull, v.text == "Infinity":
		return amount{n: tooLarge}, nil
	case v.text == "-Infinity":
		return amount{n: -tooLarge}, nil
	}
	return r.number(v)
}

// settle makes of a number one that a record can hold, and says where that changed
// it. was is what is listed, at where it stood.
func (r *conversion) settle(a amount, at *value, was any) int64 {
	switch {
	case a.n < 0:
		r.change(at, "was below 0 and became 0", was)
		return 0
	case a.n > maxWhole:
		r.change(at, "was above 9007199254740991 and became that", was)
		return maxWhole
	case a.fraction:
		r.change(at, "was a fraction and is rounded down", was)
	}
	return a.n
}

// xp reads a number of XP.
func (r *conversion) xp(v *value) (int64, error) {
	a, err := r.number(v)
	if err != nil {
		return 0, err
	}
	return r.settle(a, v, v.whole()), nil
}

// whole reads a number that counts something, such as a case's own.
func (r *conversion) whole(v *value) (int64, error) {
	a, err := r.number(v)
	if err != nil || a.fraction || a.n < 1 || a.n > maxNumber {
		err = wrong(v, "must be a whole number from 1; it is "+v.shown())
	}
	return a.n, err
}
