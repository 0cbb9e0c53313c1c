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

// IsJoining reports whether the format character text[i] is part of the writing around it,
// and not a mark that nobody sees: a joiner or non-joiner between letters or emoji, or a tag
// of a flag's sequence.
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

// tagEnd closes the tags that make another flag of the black one.
const tagEnd = '\U000E007F'

func isTag(r rune) bool { return r >= '\U000E0020' && r <= tagEnd }

// joins reports whether a joiner may stand beside r: a letter or its marks, an emoji, or the
// emoji's skin tone or variation selector.
func joins(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.So, unicode.Sk, unicode.Sm)
}

// HasUnseen reports whether s holds a format character that is not part of the writing
// around it.
func HasUnseen(s string) bool {
	text := []rune(s)
	for i, r := range text {
		if unicode.Is(unicode.Cf, r) && !IsJoining(text, i) {
			return true
		}
	}
	return false
}
