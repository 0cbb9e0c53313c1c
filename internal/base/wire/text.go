package wire

import "unicode"

// OneLine reports whether a text can stand in a line of a table or a log: it
// holds no control characters and no line breaks of any kind.
func OneLine(s string) bool {
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return true
}
