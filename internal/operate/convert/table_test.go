package convert

import (
	"strings"
	"testing"
)

// A row without a place in a guild file covers everything below it. Above a mapped row, it would
// hide members that a real export has there.
func TestNoRowWithoutAPlaceStandsAboveAMappedOne(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		for _, none := range f.table {
			if none.to != "" || none.item || none.path == "" {
				continue // the rest of a document is named as one path
			}
			for _, mapped := range f.table {
				if mapped.to != "" && strings.HasPrefix(mapped.path, none.path+"/") {
					t.Errorf("%s: %s has no place, and %s below it has one", f.name, none.path, mapped.path)
				}
			}
		}
	}
}
