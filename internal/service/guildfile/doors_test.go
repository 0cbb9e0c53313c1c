package guildfile_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/testutil"
	"guildhall/internal/contract"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/transfer"
)

// object is a JSON object.
type object = map[string]any

// resource is a kind of record, with the schemas of the contract that contain it.
type resource struct {
	kind, record, file, shown string

	event, change string // the event of a change: its type, and the schema of its data if that lists the changed members
	list          string // operation; in fills its path
	get           string // operation; empty if there is none
	in            []apitest.Arg

	before []object // records that must exist before the resource

	// first and second are values for members whose schema does not suggest good ones; nil leaves a
	// member out.
	first, second object

	apart   []string // members whose changes have an event of another type
	unshown []string // members of records that the API does not show
	says    []string // members of records that describe the change, not the resource
	derived []string // members that the API shows and nobody can set

	requests []request
}

// request is an operation with members of a resource in its body.
type request struct {
	operation, schema string
	first             object // overrides the resource's first
	makes             bool   // creates a resource; otherwise changes one
	unshown           []string
}

var resources = []resource{
	{
		kind: "case", record: "RecordCase", file: "GuildFileCase", shown: "Case",
		event: "case.updated", change: "CaseChange", get: "getCase", list: "listCases",
		first: object{"number": 5, "source": "bot"}, second: object{"number": 5, "source": "bot"},
		says: []string{"author_id"},
		requests: []request{
			{operation: "createCase", schema: "CreateCaseRequest", makes: true},
			{operation: "updateCase", schema: "UpdateCaseRequest", unshown: []string{"author_id"}},
		},
	},
	{
		kind: "ticket", record: "RecordTicket", file: "GuildFileTicket", shown: "Ticket",
		event: "ticket.updated", change: "TicketChange", get: "getTicket", list: "listTickets",
		first: object{"number": 5, "status": "closed"}, second: object{"number": 5, "status": "closed"},
		apart: []string{"claimed_by_id"}, derived: []string{"message_count", "last_message_at"},
	},
	{
		kind: "ticket_message", record: "RecordTicketMessage", file: "GuildFileTicketMessage", shown: "TicketMessage",
		event: "ticket.message_updated", list: "listTicketMessages", in: []apitest.Arg{apitest.Path("id", "t")},
		before: []object{{"record": "ticket", "id": "t", "opener_id": "42"}},
		first: object{
			"ticket_id": "t", "kind": "message", "internal": false, "attachments": []any{fileNamed("a")}, "edited_at": "2026-01-01T00:00:01.000Z",
			"deleted_at": "2026-01-01T00:00:02.000Z", "original_content": "First",
		},
		second: object{
			"ticket_id": "t", "kind": "note", "internal": true, "attachments": []any{fileNamed("b")}, "edited_at": "2026-01-01T00:00:03.000Z",
			"deleted_at": "2026-01-01T00:00:02.000Z", "original_content": "First",
		},
		requests: []request{
			{operation: "createTicketMessage", schema: "CreateTicketMessageRequest", makes: true, first: object{"internal": true}},
		},
	},
	{
		kind: "giveaway", record: "RecordGiveaway", file: "GuildFileGiveaway", shown: "Giveaway",
		event: "giveaway.updated", change: "GiveawayChange", get: "getGiveaway", list: "listGiveaways",
		first:  object{"status": "paused", "source": "bot", "ends_at": "2040-01-01T00:00:01.000Z", "ended_at": nil, "winners": nil},
		second: object{"status": "ended", "source": "bot", "ends_at": "2040-01-01T00:00:02.000Z", "paused_at": nil},
		apart:  []string{"status", "winners", "ended_at", "paused_at"}, unshown: []string{"source", "paused_at"},
		derived: []string{"entrant_count", "entry_count", "post_problem"},
		requests: []request{{
			operation: "createGiveaway", schema: "CreateGiveawayRequest", makes: true,
			first: object{"starts_at": "2039-01-01T00:00:00.000Z", "ends_at": "2040-01-01T00:00:01.000Z"},
		}},
	},
	{
		kind: "giveaway_entry", record: "RecordGiveawayEntry", file: "GuildFileGiveawayEntry", shown: "GiveawayEntry",
		list: "listGiveawayEntries", in: []apitest.Arg{apitest.Path("id", "g")},
		before: []object{{"record": "giveaway", "id": "g", "prize": "A hat", "channel_id": "5", "ends_at": "2040-01-01T00:00:00Z"}},
		first:  object{"giveaway_id": "g", "user_id": "42"}, second: object{"giveaway_id": "g", "user_id": "42"},
		unshown: []string{"giveaway_id"},
	},
}

// Every member that the contract has of a resource is accepted and stored by each way in:
// operations, records, guild files and updates from guild files; and each list, response, event and
// export shows it. If a developer adds a member and forgets a place, this test names the place.
func TestEveryMemberPassesEveryDoor(t *testing.T) {
	t.Parallel()
	schemas := schemasOf(t)
	for _, r := range resources {
		t.Run(r.kind, func(t *testing.T) {
			t.Parallel()
			d := &doors{resource: r, schemas: schemas}
			d.agree(t)
			d.byRecords(t)
			d.byFiles(t)
			d.byRequests(t)
		})
	}
}

// doors is the test of one resource.
type doors struct {
	resource
	schemas object
}

// fileNamed returns an attachment as records and responses show it.
func fileNamed(name string) object {
	return object{"name": name, "url": "https://cdn.example/" + name, "content_type": "text/plain", "size": 3}
}

func schemasOf(t *testing.T) object {
	t.Helper()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	return testutil.Object(t, doc.Components.Schemas)
}

// properties returns the properties of a schema, except those named in but.
func (d *doors) properties(t *testing.T, name string, but ...string) object {
	t.Helper()
	s, ok := d.schemas[name].(object)
	if !ok {
		t.Fatalf("the document has no schema %s", name)
	}
	properties := maps.Clone(s["properties"].(object))
	maps.DeleteFunc(properties, func(name string, _ any) bool { return slices.Contains(but, name) })
	return properties
}

// value returns the nth value for a member with the schema s.
func (d *doors) value(name string, s object, n int) any {
	if ref, ok := s["$ref"].(string); ok {
		s = d.schemas[ref[strings.LastIndex(ref, "/")+1:]].(object)
	}
	if values, ok := s["enum"].([]any); ok {
		return values[n%len(values)]
	}
	text := fmt.Sprint(name, " ", n)
	switch s["type"] {
	case "boolean":
		return n%2 == 1
	case "integer":
		least, _ := s["minimum"].(float64)
		return least + float64(n)
	case "array":
		return []any{d.value(name, s["items"].(object), n)}
	case "object":
		properties, ok := s["properties"].(object)
		if !ok {
			return object{name: text}
		}
		return d.values(properties, nil, n)
	}
	pattern, _ := s["pattern"].(string)
	switch {
	case s["format"] == "date-time":
		return fmt.Sprintf("2024-01-01T00:%02d:%02d.000Z", len(name), n)
	case strings.HasPrefix(pattern, "^[1-9][0-9]"):
		return fmt.Sprint(1000*len(name) + n)
	case strings.HasPrefix(pattern, "^https://"):
		return fmt.Sprintf("https://example.com/%d", n)
	}
	return text
}

// values returns the nth values of properties, replaced by those in chosen; nil leaves a member
// out.
func (d *doors) values(properties, chosen object, n int) object {
	values := object{}
	for name, s := range properties {
		values[name] = d.value(name, s.(object), n)
	}
	maps.Copy(values, chosen)
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	return values
}

// ignored lists members of records that do not describe the thing itself.
var ignored = []string{"record", "guild_id", "updated_at", "if_updated_at"}

// version returns a record in which every JSON field is set. n selects the first (1) or the second
// (2) set of values.
func (d *doors) version(t *testing.T, name string, n int) object {
	t.Helper()
	chosen := maps.Clone(d.first)
	if n == 2 {
		chosen = maps.Clone(d.second)
	}
	properties := d.properties(t, name, append(d.says, ignored...)...)
	if _, named := properties["id"]; named {
		if chosen == nil {
			chosen = object{}
		}
		chosen["id"] = "x"
	}
	if _, dated := properties["created_at"]; dated {
		chosen["created_at"] = "2024-01-01T00:00:00.000Z"
	}
	return d.values(properties, chosen, n)
}

// agree compares the schemas that accept the resource with the one that shows it.
func (d *doors) agree(t *testing.T) {
	t.Helper()
	takes := slices.Sorted(maps.Keys(d.properties(t, d.record, append(d.says, ignored...)...)))
	if file := slices.Sorted(maps.Keys(d.properties(t, d.file, ignored...))); !slices.Equal(file, takes) {
		t.Errorf("%s has the members %v, %s has %v", d.record, takes, d.file, file)
	}
	shows := slices.Concat(slices.Collect(maps.Keys(d.properties(t, d.shown, append(d.derived, "updated_at")...))), d.unshown)
	if slices.Sort(shows); !slices.Equal(shows, takes) {
		t.Errorf("%s takes %v, %s and the list of what is not shown have %v", d.record, takes, d.shown, shows)
	}
	if d.change == "" {
		return
	}
	change, shown := d.properties(t, d.change, "changed", "author_id"), d.properties(t, d.shown)
	if !slices.Equal(slices.Sorted(maps.Keys(change)), slices.Sorted(maps.Keys(shown))) {
		t.Errorf("%s has the members %v, %s others", d.change, slices.Sorted(maps.Keys(change)), d.shown)
	}
}

func line(t *testing.T, kind, guild string, members object) string {
	t.Helper()
	members = maps.Clone(members)
	if _, other := members["record"]; !other {
		members["record"] = kind
	}
	if guild != "" {
		members["guild_id"] = guild
	}
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (d *doors) byRecords(t *testing.T) {
	t.Helper()
	back := apitest.New(t)
	bot := back.Bot(t).In(back.Guild)
	write := func(list ...string) {
		t.Helper()
		bot.Do(t, "writeRecords", `{"records":[`+strings.Join(list, ",")+`]}`).Want(t, 200, "")
	}
	for _, needed := range d.before {
		write(line(t, "", "", needed))
	}
	first, second := d.version(t, d.record, 1), d.version(t, d.record, 2)
	write(line(t, d.kind, "", first))
	d.isEverywhere(t, back, "a record", first)
	write(line(t, d.kind, "", second))
	d.isEverywhere(t, back, "a second record", second)
	if d.event == "" {
		return
	}
	data := d.lastEvent(t, back)
	d.is(t, "the event "+d.event, data, second)
	if d.change == "" {
		return
	}
	var want []string
	for name := range d.properties(t, d.record, slices.Concat(d.apart, d.says, ignored)...) {
		if !reflect.DeepEqual(first[name], second[name]) {
			want = append(want, name)
		}
	}
	changed := d.properties(t, d.change)["changed"].(object)["items"].(object)["x-extensible-enum"].([]any)
	var got []string
	for _, name := range data["changed"].([]any) {
		got = append(got, name.(string))
		if !slices.Contains(changed, name) {
			t.Errorf("%s does not list %s under changed", d.change, name)
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s says that %v changed, want %v", d.event, got, want)
	}
}

func (d *doors) byFiles(t *testing.T) {
	t.Helper()
	for _, n := range []int{1, 2} {
		back := apitest.New(t)
		var lines []string
		for _, needed := range d.before {
			lines = append(lines, line(t, "", back.Guild, needed))
		}
		version := d.version(t, d.file, n)
		imported(t, back.DB(), strings.Join(append(lines, line(t, d.kind, back.Guild, version)), "\n"))
		d.isEverywhere(t, back, "a file", version)
		if n == 1 {
			version = d.version(t, d.file, 2)
			if d.kind == "giveaway" { // a file with updates does not make the bot run a giveaway
				version["status"], version["winners"], version["ended_at"] = "active", []any{}, nil
				maps.DeleteFunc(version, func(_ string, v any) bool { return v == nil })
			}
			update(t, back, guildfile.Update{Balances: transfer.Set}, line(t, d.kind, back.Guild, version))
			d.isEverywhere(t, back, "a file that updates", version)
		}
	}
}

func (d *doors) byRequests(t *testing.T) {
	t.Helper()
	for _, r := range d.requests {
		back := apitest.New(t)
		var lines []string
		for _, needed := range d.before {
			lines = append(lines, line(t, "", back.Guild, needed))
		}
		in := d.in
		if !r.makes {
			lines = append(lines, line(t, d.kind, back.Guild, d.version(t, d.file, 1)))
			in = append(in, apitest.Path("id", "x"))
		}
		imported(t, back.DB(), strings.Join(lines, "\n"))
		body := d.values(d.properties(t, r.schema), r.first, 2)
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Data object }
		back.Do(t, r.operation, string(text), in...).Into(t, &answer)
		want := maps.Clone(body)
		maps.DeleteFunc(want, func(name string, _ any) bool { return slices.Contains(r.unshown, name) })
		d.is(t, r.operation, answer.Data, want)
		d.isEverywhereAs(t, back, r.operation, fmt.Sprint(answer.Data["id"]), want)
	}
}

// isEverywhere reads the resource in each way that shows it.
func (d *doors) isEverywhere(t *testing.T, back *apitest.API, by string, want object) {
	t.Helper()
	id, _ := want["id"].(string)
	d.isEverywhereAs(t, back, by, cmp.Or(id, "x"), want)
}

func (d *doors) isEverywhereAs(t *testing.T, back *apitest.API, by, id string, want object) {
	t.Helper()
	if d.get != "" {
		var answer struct{ Data object }
		back.Do(t, d.get, "", apitest.Path("id", id)).Want(t, 200, "").Into(t, &answer)
		d.is(t, d.get+" after "+by, answer.Data, want)
	}
	var page struct{ Data []object }
	back.Do(t, d.list, "", d.in...).Want(t, 200, "").Into(t, &page)
	if i := slices.IndexFunc(page.Data, func(o object) bool { return o["id"] == nil || o["id"] == id }); i < 0 {
		t.Errorf("%s after %s does not list %s", d.list, by, id)
	} else {
		d.is(t, d.list+" after "+by, page.Data[i], want)
	}
	for text := range strings.Lines(exported(t, back.DB(), back.Guild)) {
		var o object
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if o["record"] == d.kind && (o["id"] == nil || o["id"] == id) {
			compare(t, "the export after "+by, o, want)
		}
	}
}

// is compares what the API shows with what was set.
func (d *doors) is(t *testing.T, where string, got, want object) {
	t.Helper()
	want = maps.Clone(want)
	maps.DeleteFunc(want, func(name string, _ any) bool { return slices.Contains(d.unshown, name) })
	compare(t, where, got, want)
}

func compare(t *testing.T, where string, got, want object) {
	t.Helper()
	for name, value := range testutil.Object(t, want) {
		if !reflect.DeepEqual(got[name], value) {
			t.Errorf("%s: %s is %v, want %v", where, name, got[name], value)
		}
	}
}

// lastEvent returns the data of the newest event of the resource's type.
func (d *doors) lastEvent(t *testing.T, back *apitest.API) object {
	t.Helper()
	payloads, err := db.Select[[]byte](t.Context(), back.DB().Reader(),
		`SELECT payload FROM webhook_events WHERE guild_id = $1 AND type = $2 ORDER BY id`, back.Guild, d.event)
	if err != nil || len(payloads) == 0 {
		t.Fatalf("there are %d events %s: %v", len(payloads), d.event, err)
	}
	var e struct{ Data object }
	if err := json.Unmarshal(payloads[len(payloads)-1], &e); err != nil {
		t.Fatal(err)
	}
	return e.Data
}
