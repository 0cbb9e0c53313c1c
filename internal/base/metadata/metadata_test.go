package metadata_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/metadata"
)

// A change sets the names with values, removes the names with null and leaves the rest, in each of
// the ways in which a change arrives. A change whose result exceeds the limits changes nothing.
func TestAMergeDoesWhatItsMembersSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.Custom(func(t *rapid.T) string {
			return "n" + rapid.StringOfN(rapid.RuneFrom([]rune("0123456789")), 1, 2, -1).Draw(t, "name")
		})
		value := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "<&>", "\u2028", strings.Repeat("🎉", 500)}), rapid.StringN(0, 40, -1))
		have := metadata.Values{}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			change := metadata.Change(rapid.MapOfN(name, rapid.Ptr(value, true), 0, 15).Draw(t, "change"))
			want, before := maps.Clone(map[string]string(have)), maps.Clone(have)
			for n, v := range change {
				delete(want, n)
				if v != nil {
					want[n] = *v
				}
			}
			text, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			// The limit counts the JSON without escapes for HTML.
			size := len(text) - 5*strings.Count(string(text), `\u003c`) - 5*strings.Count(string(text), `\u003e`) - 5*strings.Count(string(text),
				`\u0026`)
			_, differs := have.Merge(change)
			got, err := have.With(change)
			if !maps.Equal(have, before) {
				t.Fatalf("the merge changed %v to %v", before, have)
			}
			if differs != !maps.Equal(want, before) {
				t.Fatalf("%v with %v: differs is %v", before, change, differs)
			}
			if tooMuch := differs && (len(want) > 20 || size > 8192); tooMuch != fault.Is(err, "too_much_metadata") {
				t.Fatalf("%d members of %d bytes: %v", len(want), size, err)
			} else if tooMuch {
				continue
			}
			if !maps.Equal(got, want) {
				t.Fatalf("%v with %v is %v, want %v", before, change, got, want)
			}
			read := maps.Clone(before)
			text, err = json.Marshal(change)
			if err == nil {
				err = json.Unmarshal(text, &read)
			}
			if err != nil || !maps.Equal(read, want) {
				t.Fatalf("%v read over %v is %v, want %v: %v", change, before, read, want, err)
			}
			var stored metadata.Values
			column, err := got.Value()
			if err == nil {
				err = stored.Scan([]byte(column.(string)))
			}
			if err != nil || !maps.Equal(stored, want) {
				t.Fatalf("%v comes out of a column as %v: %v", want, stored, err)
			}
			have = got
		}
	})
}
