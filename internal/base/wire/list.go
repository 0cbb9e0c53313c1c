package wire

import "strings"

// separators are the characters between the items of a typed list.
const separators = ", \t\r\n"

// Items splits lists that people have typed, at commas and white space, and returns all their
// items.
func Items(lists ...string) []string {
	return strings.FieldsFunc(strings.Join(lists, ","), func(r rune) bool { return strings.ContainsRune(separators, r) })
}
