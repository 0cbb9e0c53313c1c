package wire

import "unicode"

// OneLine reports whether a text fits into one line of a table or a log: it has no control
// characters and no line breaks of any kind.
func OneLine(s string) bool {
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return false
		}
	}
	return true
}

// IsJoining reports whether the format character text[i] belongs to the visible text around it: a
// joiner or non-joiner between letters or emoji, or a tag in a flag sequence. Any other format
// character is invisible.
func IsJoining(text []rune, i int) bool {
	switch r := text[i]; {
	case r == '\u200c' || r == '\u200d':
		return i > 0 && i+1 < len(text) && joins(text[i-1]) && joins(text[i+1])
	case isTag(r):
		first, last := i, i
		for first > 0 && isTag(text[first-1]) {
			first--
		}
		for last+1 < len(text) && isTag(text[last+1]) {
			last++
		}
		return first > 0 && text[first-1] == '\U0001F3F4' && last > first && text[last] == tagEnd
	default:
		return false
	}
}

// tagEnd ends the tag sequence that turns the black flag into another flag.
const tagEnd = '\U000E007F'

func isTag(r rune) bool { return r >= '\U000E0020' && r <= tagEnd }

// joins reports whether a joiner may follow or precede r: a letter or a combining mark, an emoji,
// an emoji's skin tone or a variation selector.
func joins(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.So, unicode.Sk, unicode.Sm)
}

// HasUnseen reports whether s contains an invisible format character (see IsJoining).
func HasUnseen(s string) bool {
	text := []rune(s)
	for i, r := range text {
		if unicode.Is(unicode.Cf, r) && !IsJoining(text, i) {
			return true
		}
	}
	return false
}
