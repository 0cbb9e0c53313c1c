package wire

import "strings"

// separators stand between the items of a list that somebody types.
const separators = ", \t\r\n"

// Items are those of lists that people type, with commas, blanks or lines between them.
func Items(lists ...string) []string {
	return strings.FieldsFunc(strings.Join(lists, ","), func(r rune) bool { return strings.ContainsRune(separators, r) })
}
