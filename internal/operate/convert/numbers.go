package convert

import (
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// amount is a number of the source, rounded down and limited so that the sum of two amounts does
// not overflow.
type amount struct {
	n        int64
	fraction bool
}

const tooLarge = 1 << 60 // upper limit: larger numbers are cut to tooLarge

// decimal parses a number with any number of digits.
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
		e, _ := strconv.Atoi(exponent) // for a number out of range, Atoi returns the largest or smallest int
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

// number parses XP or coins. Cells of a table may have separators between thousands.
func (r *conversion) number(v *value) (amount, error) {
	s := strings.TrimSpace(v.text)
	if r.o.Decimal == "" && v.unclear(s) {
		return amount{}, wrong(v, fmt.Sprintf("%q could be %s or %s; say which sign begins the decimals: --decimal , or --decimal .", shorten(s, 40),
			strings.NewReplacer(".", "", ",", "").Replace(s), strings.ReplaceAll(s, ",", ".")))
	}
	if v.kind == kindNumber || v.kind == kindText {
		if a, ok := decimal(r.plainNumber(v, s)); ok {
			return a, nil
		}
	}
	return amount{}, wrong(v, "must be a whole number; it is "+v.shown())
}

var (
	threeDecimals = regexp.MustCompile(`^[+-]?[0-9]{1,3}\.[0-9]{3}$`)
	withComma     = regexp.MustCompile(`^[+-]?[0-9]+,[0-9]+$`)
)

// unclear reports whether a cell could be one of two numbers. If the separator of a table is not a
// comma, the table may come from a country where 1.250 means more than a thousand.
func (v *value) unclear(s string) bool {
	at := v.table()
	return at != nil && at.separator != ',' && (threeDecimals.MatchString(s) || withComma.MatchString(s) && !v.quoted)
}

// plainNumber removes the separators between thousands from a cell's number and writes a
// point before its decimals. Any other text is returned as it is.
func (r *conversion) plainNumber(v *value, s string) string {
	point, divides := ".", ","
	switch {
	case v.table() == nil:
		return s
	case r.o.Decimal == "" && !v.quoted:
		return s
	case r.o.Decimal == ",":
		point, divides = ",", "."
	}
	if r.o.Decimal != "" {
		s = strings.NewReplacer(" ", divides, "\u00a0", divides, "\u202f", divides).Replace(s)
	}
	whole, decimals, has := strings.Cut(s, point)
	if thousands(whole, divides) {
		whole = strings.ReplaceAll(whole, divides, "")
	}
	return whole + cond(has, ".", "") + decimals
}

// thousands reports whether a text is digits in groups of three: 1,234,567.
func thousands(s, divides string) bool {
	groups := strings.Split(strings.TrimPrefix(s, "-"), divides)
	for i, g := range groups {
		if !digits(g) || len(g) > 3 || i > 0 && len(g) < 3 {
			return false
		}
	}
	return len(groups) > 1
}

// coins parses a balance, which may be infinite. UnbelievaBoat writes null for an infinite
// balance; other bots write null where nothing was ever stored.
func (r *conversion) coins(v *value) (amount, error) {
	switch {
	case v.kind == kindNull && !r.f.nullIsEndless:
		r.change(v, "was null and became 0", nil)
		return amount{}, nil
	case v.kind == kindNull, v.text == "Infinity":
		return amount{n: tooLarge}, nil
	case v.text == "-Infinity":
		return amount{n: -tooLarge}, nil
	}
	return r.number(v)
}

// inRange returns the nearest number that a record can hold, and reports a change at the
// given value with was as the old number.
func (r *conversion) inRange(a amount, at *value, was any) int64 {
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

// xp parses a number of XP.
func (r *conversion) xp(v *value) (int64, error) {
	a, err := r.number(v)
	if err != nil {
		return 0, err
	}
	return r.inRange(a, v, v.whole()), nil
}

// whole parses a positive whole number, such as a case's number.
func (r *conversion) whole(v *value) (int64, error) {
	a, err := r.number(v)
	if err != nil || a.fraction || a.n < 1 || a.n > maxNumber {
		err = wrong(v, "must be a whole number from 1; it is "+v.shown())
	}
	return a.n, err
}
