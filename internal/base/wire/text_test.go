package wire_test

import (
	"testing"

	"guildhall/internal/base/wire"
)

// Joiners and flag tags count as text where a language or an emoji needs them. Anywhere else
// HasUnseen finds them.
func TestHasUnseen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"فروشگاه می\u200cخواهم": false, // Persian, with a non-joiner
		"क्\u200dष":             false, // Devanagari, with a joiner
		"👨\u200d👩\u200d👧":       false,
		"🏳\ufe0f\u200d🌈":        false,
		"👩🏽\u200d💻":             false,
		"🙂\u200d↔\ufe0f":        false,
		"\U0001F3F4\U000E0067\U000E0062\U000E0073\U000E0063\U000E0074\U000E007F": false, // Scotland
		"\U0001F3F4\U000E0067\U000E0062":                                         true,  // tags without an end
		"\U0001F3F4\U000E007F":                                                   true,  // an end without tags
		"a\U000E0067\U000E007F":                                                  true,  // tags without a flag
		"pay\u200bday":                                                           true,
		"\u200dpayday":                                                           true,
		"payday\u200c":                                                           true,
		"pay \u200d day":                                                         true,
		"a\u200d\u200db":                                                         true,
		"1\u200d2":                                                               true,
		"a\u202eb":                                                               true,
		"a\ufeffb":                                                               true,
		"":                                                                       false,
	} {
		if got := wire.HasUnseen(text); got != want {
			t.Errorf("HasUnseen(%+q) = %v, want %v", text, got, want)
		}
	}
}
