package contract

import (
	"fmt"
	"strings"
	"testing"

	"guildhall/internal/base/schema"
)

// The contract has no readOnly or writeOnly members. So schema.Visit need not tell kin-openapi that
// it checks a request, which would cost sorting the member names of each object.
func TestNoMemberIsReadOrWrittenAlone(t *testing.T) {
	t.Parallel()
	doc, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	members := 0
	for name, object := range doc.Components.Schemas {
		for member, s := range object.Value.Properties {
			members++
			if s.Value.ReadOnly || s.Value.WriteOnly {
				t.Errorf("%s.%s is read or written alone: Visit has to judge a request", name, member)
			}
		}
	}
	if members < 100 {
		t.Errorf("only %d members were looked at", members)
	}
}

// A value that is wrong in two ways gets one problem: a number that exceeds both its format's size
// and the maximum, or an id that is too long and contains letters.
func TestAPlaceIsComplainedAboutOnce(t *testing.T) {
	t.Parallel()
	doc, err := Document()
	if err != nil {
		t.Fatal(err)
	}
	parameters := doc.Components.Parameters
	for name, value := range map[string]any{"Page": 999999999999.0, "UserIdFilter": strings.Repeat("x", 30)} {
		p := parameters[name]
		if p == nil {
			t.Fatalf("there is no parameter %s", name)
		}
		if found := schema.Visit(p.Value.Schema.Value, value); len(found) != 1 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// BenchmarkCheck reads request bodies and checks them against their schemas.
func BenchmarkCheck(b *testing.B) {
	record := `{"record":"wallet","user_id":"%d","balance":%d,"if_updated_at":"2026-11-25T18:25:07.163Z"}`
	var records []string
	for i := range 500 {
		records = append(records, fmt.Sprintf(record, 800000000000000000+i, i))
	}
	for name, body := range map[string]string{
		"AdjustBalanceRequest": `{"user_id":"190320984123768832","delta":25,"reason":"Order 1001","reference":"order-1001"}`,
		"WriteRecordsRequest":  `{"records":[` + strings.Join(records, ",") + `]}`,
	} {
		b.Run("Read/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := schema.Read([]byte(body), 1<<20, ""); !ok {
					b.Fatal("the body was not read")
				}
			}
		})
		b.Run("Check/"+name, func(b *testing.B) {
			check := Checker(name)
			value, _, ok := schema.Read([]byte(body), 1<<20, "")
			if !ok {
				b.Fatal("the body was not read")
			}
			b.ReportAllocs()
			for b.Loop() {
				if found := check(value, nil); len(found) > 0 {
					b.Fatal(found)
				}
			}
		})
	}
}
