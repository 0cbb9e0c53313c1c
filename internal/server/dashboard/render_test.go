package dashboard

import "testing"

// A page whose template is broken would fail for the first person who opens it.
func TestEachPageHasAValidTemplate(t *testing.T) {
	t.Parallel()
	pages, err := new(Server).readPages()
	if err != nil || len(pages) < 20 {
		t.Fatal(len(pages), err)
	}
	for name, read := range pages {
		if page, err := read(); err != nil || page.Lookup(name+".html") == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
