package api_test

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/server/api/apitest"
)

// mostPage is what the largest page of a list may have, in bytes.
const mostPage = 2 << 20

// largerPages are the lists whose largest page may have more.
var largerPages = map[string]int{
	"listCaseChanges":    4 << 20,
	"listTicketMessages": 8 << 20,
}

// fewerRows are the lists of which there are fewer than a page has.
var fewerRows = map[string]int{
	"listWebhookEndpoints": 10,
	"listBotStreams":       5, // four, and that of work
}

// The largest page of each list, with all texts as long as the contract lets them be, has a
// bound: a caller of a page, or a hundred callers of it, cannot fill the server's memory.
func TestTheLargestPageOfEachListHasABound(t *testing.T) {
	t.Parallel()
	lists := 0
	each(t, func(t *testing.T, op apitest.Operation) {
		parameter := op.Spec.Parameters.GetByInAndName("query", "per_page")
		if parameter == nil {
			return
		}
		lists++
		rows, most := int(*parameter.Schema.Value.Max), mostPage
		if n, few := fewerRows[op.ID]; few {
			rows = n
		}
		if n, larger := largerPages[op.ID]; larger {
			most = n
		}
		page := op.Spec.Responses.Status(200).Value.Content.Get("application/json").Schema.Value
		if n := largestJSON(t, "data", page.Properties["data"].Value, rows); n > most {
			t.Errorf("a page can have %d bytes, at most %d", n, most)
		}
	})
	if lists < 10 {
		t.Errorf("%d lists were looked at", lists)
	}
}

// largestJSON is how many bytes a value of a schema can have as JSON. rows is how many items
// the value has if it is a page.
func largestJSON(t *testing.T, name string, s *openapi3.Schema, rows int) (n int) {
	switch {
	case name == "metadata":
		return 8 << 10 // by its description
	case name == "changes":
		// The reason and the metadata, each before and after, and all other differences.
		return 2*(2+6*1000) + 2*(8<<10) + 46*128
	case len(s.OneOf) > 0:
		for _, one := range s.OneOf {
			n = max(n, largestJSON(t, name, one.Value, rows))
		}
		return n
	case len(s.Enum) > 0:
		for _, value := range s.Enum {
			text, _ := value.(string)
			n = max(n, len(text)+2)
		}
		return n
	case s.Type.Is("string"):
		if s.MaxLength == nil {
			t.Errorf("%s has no bound", name)
			return 0
		}
		return 2 + int(*s.MaxLength)*widest(name, s)
	case s.Type.Is("array"):
		if rows == 0 && s.MaxItems != nil {
			rows = int(*s.MaxItems)
		}
		if rows == 0 {
			t.Errorf("%s has no bound", name)
		}
		return 2 + rows*(1+largestJSON(t, name, s.Items.Value, 0))
	case s.Type.Is("object"):
		if s.AdditionalProperties.Schema != nil {
			t.Errorf("%s has any number of members", name)
		}
		for member, p := range s.Properties {
			n += len(member) + len(`"":,`) + largestJSON(t, member, p.Value, 0)
		}
		return n + 2
	}
	return 20 // a number, or a boolean
}

// widest is how many bytes a character of a text can have: six where it may be a control
// character, which JSON escapes; one in what is made of ASCII.
func widest(name string, s *openapi3.Schema) int {
	if s.Format != "" || *s.MaxLength <= 64 || strings.HasSuffix(name, "url") || name == "content_type" || name == "reference" {
		return 1
	}
	return 6
}
