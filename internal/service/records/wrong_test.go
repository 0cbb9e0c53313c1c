package records_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/contract"
	"guildhall/internal/server/api/apitest"
)

// kinds holds, by kind, the schema and a valid record: when a test makes one member wrong, that is
// the only error.
var kinds = map[string]struct {
	schema string
	good   map[string]any
}{
	"guild":          {"RecordGuild", map[string]any{}},
	"settings":       {"RecordSettings", map[string]any{}},
	"case":           {"RecordCase", map[string]any{"user_id": "1", "moderator_id": "2", "type": "warn", "reason": "x"}},
	"wallet":         {"RecordWallet", map[string]any{"user_id": "1", "balance": 1}},
	"level":          {"RecordLevel", map[string]any{"user_id": "1", "total_xp": 1}},
	"ticket":         {"RecordTicket", map[string]any{"opener_id": "1"}},
	"ticket_message": {"RecordTicketMessage", map[string]any{"ticket_id": "t", "content": "x"}},
	"giveaway":       {"RecordGiveaway", map[string]any{"prize": "p", "channel_id": "7"}},
	"giveaway_entry": {"RecordGiveawayEntry", map[string]any{"giveaway_id": "g", "user_id": "1"}},
	"reference":      {"RecordReference", map[string]any{"reference": "r"}},
}

// wrongs returns values that a schema does not accept. null is not among them, since for a member
// that cannot be null it means the same as leaving the member out.
func wrongs(name string, s *openapi3.Schema) []any {
	list := []any{[]any{}, true, 1.5}
	if s.Type.Is("array") {
		list[0] = map[string]any{}
	}
	if s.Type.Is("boolean") {
		list[1] = "true"
	}
	if s.Type.Is("object") {
		list = append(list, map[string]any{"No such member!": "x"})
	}
	if s.Type.Is("string") {
		if s.MaxLength != nil {
			list = append(list, strings.Repeat("x", int(*s.MaxLength)+1))
		}
		if s.MinLength > 0 || s.Pattern != "" && name != "content" && name != "reason" && name != "description" && name != "close_reason" {
			list = append(list, "")
		}
		if len(s.Enum) > 0 || s.Format != "" {
			list = append(list, "nonsense")
		}
		if strings.HasPrefix(s.Pattern, "^[1-9]") {
			list = append(list, "0", "007", "x")
		}
		if name != "if_updated_at" && s.Format == "" {
			list = append(list, "a\x00b")
		}
	}
	if s.Type.Is("integer") {
		list = append(list, "1", *s.Min-1, *s.Max+1)
	}
	return list
}

// Each member of each kind is made wrong in each way, in the first, the middle and the last of 500
// records. The response names the place and the rule, and nothing is stored, whatever on_refusal
// says.
func TestEachWrongMemberIsNamedInItsPlace(t *testing.T) {
	t.Parallel()
	bot, back := bot(t)
	good := make([]string, 500)
	for i := range good {
		good[i] = `{"record":"reference","reference":"r` + strconv.Itoa(i) + `"}`
	}
	tried := 0
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[kind]
		doc, err := contract.Document()
		if err != nil {
			t.Fatal(err)
		}
		properties := doc.Components.Schemas[k.schema].Value.Properties
		if required := doc.Components.Schemas[k.schema].Value.Required; len(required) == 0 {
			t.Errorf("a %s requires nothing", kind)
		}
		for _, name := range append(slices.Sorted(maps.Keys(properties)), "no_such_member") {
			values := []any{1}
			if p := properties[name]; p != nil {
				values = wrongs(name, p.Value)
			}
			for _, value := range values {
				place := []int{0, 250, 499}[tried%3]
				wrong(t, bot, good, kind, name, value, place, []string{"all", "skip"}[tried%2])
				tried++
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d values were tried", tried)
	}
	if n := dbtest.Value[int](t, back.DB(), `SELECT count(*) FROM ledger_references`); n != 0 {
		t.Errorf("%d records of refused calls are kept", n)
	}
	bot.WantNoEvent(t)
}

// A record's unknown member, and a member of another kind, are answered with the members of the
// record's own kind. Of a record without a known kind only that is said.
func TestAnUnknownMemberIsAnsweredWithTheMembersOfItsKind(t *testing.T) {
	t.Parallel()
	bot, _ := bot(t)
	const wallet = "is not a member of this object; its members are balance, guild_id, if_updated_at, record, updated_at, user_id"
	const unknown = `body /records/0/record: must be one of ["guild","settings","case","wallet","level","ticket","ticket_message",` +
		`"giveaway","giveaway_entry","reference","member"]`
	for _, c := range []struct{ record, message string }{
		{
			`{"record":"wallet","user_id":"1","amount":5,"prize":"x"}`,
			"body /records/0/amount: " + wallet + "; body /records/0/prize: " + wallet,
		},
		{`{"record":"wallet","userId":"1"}`, "body /records/0/userId: is not a member of this object; did you mean user_id?"},
		{`{"record":"member","user_id":"1","nam":"x"}`, "body /records/0/nam: is not a member of this object; did you mean name?"},
		{`{"user_id":"1","amount":5}`, "body /records/0/record: is required"},
		{`{"kind":"wallet","user_id":"1","coins":5}`, "body /records/0/record: is required"},
		{`{"record":"purse","user_id":"1","amount":5}`, unknown},
		{`{"record":7,"amount":5}`, unknown},
	} {
		a := bot.Do(t, "writeRecords", records(c.record)).WantError(t, 400, "invalid_request")
		if message := a.Str(t, "error.message"); message != c.message {
			t.Errorf("%s is answered\n%s\nwant\n%s", c.record, message, c.message)
		}
	}
}

func wrong(t *testing.T, bot *apitest.API, good []string, kind, name string, value any, place int, refusal string) {
	t.Helper()
	r := maps.Clone(kinds[kind].good)
	r["record"] = kind
	r[name] = value
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	list := slices.Clone(good)
	list[place] = string(text)
	a := bot.Do(t, "writeRecords", `{"on_refusal":"`+refusal+`","records":[`+strings.Join(list, ",")+`]}`)
	message := ""
	if a.Status == 400 {
		message = a.Str(t, "error.message")
	}
	at := fmt.Sprintf("body /records/%d", place)
	if a.Status != 400 || a.Code() != "invalid_request" || !strings.HasPrefix(message, at+"/"+name) && !strings.HasPrefix(message, at+": ") ||
		!strings.Contains(message, name) || len(message) < len(at)+12 {
		t.Errorf("%s in place %d (%s) is answered %d %s", text, place, refusal, a.Status, a.Body)
	}
}
