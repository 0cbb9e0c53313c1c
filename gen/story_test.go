package gen_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/testutil"
)

// object is a JSON object in an example.
type object = map[string]any

// story holds all examples of the document. Together they show one guild over a few days, so they
// must not contradict one another.
type story struct {
	doc      *openapi3.T
	requests map[string][]object // request bodies by operation
	answers  map[string]object   // response bodies of successes by operation
	events   map[string]object   // payloads by event type
	emits    map[string]string   // the event type that an operation's description says it emits
}

func readStory(t *testing.T) story {
	t.Helper()
	s := story{document(t), map[string][]object{}, map[string]object{}, map[string]object{}, map[string]string{}}
	emitted := regexp.MustCompile("Emits\\s`([a-z_.]+)`")
	for _, item := range s.doc.Paths.Map() {
		for _, op := range item.Operations() {
			if m := emitted.FindStringSubmatch(op.Description); m != nil {
				s.emits[op.OperationID] = m[1]
			}
			if op.RequestBody != nil {
				s.requests[op.OperationID] = exampleValues(t, op.RequestBody.Value.Content)
			}
			for status, r := range op.Responses.Map() {
				if shown := exampleValues(t, r.Value.Content); status[0] == '2' && len(shown) > 0 {
					s.answers[op.OperationID] = shown[0]
				}
			}
		}
	}
	for name, ref := range s.doc.Components.Schemas {
		if ref.Value.Example != nil && strings.HasPrefix(name, "Event") {
			event := testutil.Object(t, ref.Value.Example)
			s.events[event["type"].(string)] = event
		}
	}
	return s
}

// exampleValues returns the examples of a body in the order of their names.
func exampleValues(t *testing.T, content openapi3.Content) (list []object) {
	t.Helper()
	media := content.Get("application/json")
	if media == nil {
		return nil
	}
	if media.Example != nil {
		return []object{testutil.Object(t, media.Example)}
	}
	for _, name := range slices.Sorted(maps.Keys(media.Examples)) {
		list = append(list, testutil.Object(t, media.Examples[name].Value.Value))
	}
	return list
}

// things calls fn with every object in the responses and events, and with its place.
func (s story) things(fn func(at string, o object)) {
	var walk func(at string, v any)
	walk = func(at string, v any) {
		switch v := v.(type) {
		case object:
			fn(at, v)
			for _, name := range slices.Sorted(maps.Keys(v)) {
				walk(at+"/"+name, v[name])
			}
		case []any:
			for _, item := range v {
				walk(at, item)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.answers)) {
		walk(id, s.answers[id])
	}
	for _, typ := range slices.Sorted(maps.Keys(s.events)) {
		walk(typ, s.events[typ])
	}
}

// data returns the member `data` of an operation's response.
func (s story) data(t *testing.T, operation string) object {
	t.Helper()
	data, ok := s.answers[operation]["data"].(object)
	if !ok {
		t.Fatalf("%s shows no thing under data", operation)
	}
	return data
}

// rows returns the items of a list's response.
func (s story) rows(t *testing.T, operation string) (rows []object) {
	t.Helper()
	list, ok := s.answers[operation]["data"].([]any)
	if !ok || len(list) == 0 {
		t.Fatalf("%s shows no rows", operation)
	}
	for _, row := range list {
		rows = append(rows, row.(object))
	}
	return rows
}

// event returns the data of an event type's example.
func (s story) event(t *testing.T, typ string) object {
	t.Helper()
	data, ok := s.events[typ]["data"].(object)
	if !ok {
		t.Fatalf("there is no example of the event %s", typ)
	}
	return data
}

func instant(t *testing.T, o object, name string) (at time.Time, ok bool) {
	t.Helper()
	text, ok := o[name].(string)
	if !ok {
		return at, false
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return at, true
}

// wantAlike compares the members that two objects have in common.
func wantAlike(t *testing.T, one, other string, a, b object) {
	t.Helper()
	for name, value := range a {
		if has, ok := b[name]; ok && !reflect.DeepEqual(value, has) {
			t.Errorf("%s has the %s %v, %s has %v", one, name, value, other, has)
		}
	}
}

// An id always names the same thing, which looks the same in every example unless it has changed
// between them. Members that never change are always the same.
func TestExamplesAgreeOnWhatAnIDNames(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	type seen struct {
		at string
		o  object
	}
	byID, ofMessage := map[string][]seen{}, map[string]string{}
	s.things(func(at string, o object) {
		id, ok := o["id"].(string)
		if !ok || strings.HasPrefix(at, "listBotGuilds") { // listBotGuilds shows when a guild changed, getGuild does not
			return
		}
		if _, ok := o["health"]; ok { // an endpoint's health changes without changing updated_at
			o = maps.Clone(o)
			delete(o, "health")
		}
		for _, earlier := range byID[id] {
			_, oneHas := o["updated_at"]
			_, otherHas := earlier.o["updated_at"]
			if oneHas != otherHas {
				t.Errorf("%s names different things at %s and %s", id, at, earlier.at)
			} else if oneHas && o["updated_at"] != earlier.o["updated_at"] {
				for _, name := range []string{
					"created_at", "number", "user_id", "opener_id", "source", "prize", "host_id", "channel_id",
					"starts_at", "url",
				} {
					if o[name] != earlier.o[name] {
						t.Errorf("%s has another %s at %s than at %s", id, name, at, earlier.at)
					}
				}
			} else {
				wantAlike(t, id+" at "+at, "at "+earlier.at, o, earlier.o)
			}
		}
		byID[id] = append(byID[id], seen{at, o})
		for _, name := range []string{"message_id", "channel_message_id"} {
			if message, ok := o[name].(string); ok {
				if owner := ofMessage[message]; owner != "" && owner != id {
					t.Errorf("%s and %s have the same message %s", owner, id, message)
				}
				ofMessage[message] = id
			}
		}
	})
	if len(byID["demo-ticket-0063"]) < 5 {
		t.Errorf("the ticket of the story stands at %d places", len(byID["demo-ticket-0063"]))
	}
}

// If one thing must happen before another, its instant is earlier.
func TestExamplesKeepTheOrderOfTime(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	s.things(func(at string, o object) {
		for _, pair := range [][2]string{
			{"created_at", "updated_at"},
			{"created_at", "joined_at"},
			{"created_at", "last_used_at"},
			{"created_at", "completed_at"},
			{"created_at", "next_attempt_at"},
			{"created_at", "closed_at"},
			{"created_at", "last_message_at"},
			{"created_at", "expires_at"},
			{"created_at", "starts_at"},
			{"starts_at", "ends_at"},
			{"starts_at", "ended_at"},
			{"ended_at", "updated_at"},
			{"closed_at", "updated_at"},
			{"last_message_at", "updated_at"},
			{"last_message_at", "closed_at"},
			{"first_reported_at", "last_reported_at"},
		} {
			first, ok := instant(t, o, pair[0])
			second, both := instant(t, o, pair[1])
			if _, member := o["left_at"]; member && pair[1] == "joined_at" {
				continue // a member's data is stored some time after joining
			}
			if ok && both && second.Before(first) {
				t.Errorf("%s: %s %v lies before %s %v", at, pair[1], second, pair[0], first)
			}
		}
		for status, moment := range map[string]string{"closed": "closed_at", "ended": "ended_at", "delivered": "completed_at"} {
			is := o["status"] == status || status == "ended" && o["status"] == "cancelled"
			if value, has := o[moment]; has && is != (value != nil) {
				t.Errorf("%s: is %v, and its %s is %v", at, o["status"], moment, value)
			}
		}
	})

	pause, resume := s.data(t, "pauseGiveaway"), s.data(t, "resumeGiveaway")
	paused, _ := instant(t, pause, "updated_at")
	resumed, _ := instant(t, resume, "updated_at")
	before, _ := instant(t, pause, "ends_at")
	after, _ := instant(t, resume, "ends_at")
	if moved := after.Sub(before); moved <= 0 || moved != resumed.Sub(paused) {
		t.Errorf("a pause of %v moves the end by %v", resumed.Sub(paused), moved)
	}
}

// The example of an operation's response and that of its event show the same change, and the event
// has the change's instant.
func TestExamplesOfEventsTellWhatTheirOperationsAnswer(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	if len(s.emits) < 12 {
		t.Fatalf("only %v say what they emit", slices.Sorted(maps.Keys(s.emits)))
	}
	for operation, typ := range s.emits {
		answer, told := s.data(t, operation), s.event(t, typ)
		switch typ {
		case "xp.level_up": // the response's example shows no new level, so no event
			continue
		case "giveaway.rerolled":
			told = told["giveaway"].(object)
		case "economy.balance_changed":
			wantAlike(t, operation, typ, answer["ledger_entry"].(object), told)
			wantAlike(t, operation, typ, object{"ledger_entry_id": answer["ledger_entry"].(object)["id"]}, told)
		}
		wantAlike(t, operation, typ, answer, told)
		change := object{"timestamp": answer["updated_at"]}
		if answer["updated_at"] == nil {
			change["timestamp"] = answer["created_at"]
		}
		wantAlike(t, operation, typ, change, s.events[typ])
	}

	edited, before := s.event(t, "case.updated"), s.data(t, "getCase")
	for _, name := range []string{"reason", "expires_at", "status"} {
		if differs := edited[name] != before[name]; differs != slices.Contains(edited["changed"].([]any), any(name)) {
			t.Errorf("case.updated: that %s changed is %v, changed is %v", name, differs, edited["changed"])
		}
	}
	wantAlike(t, "the request of updateCase", "case.updated", s.requests["updateCase"][0], edited)
	for typ, e := range s.events {
		data := e["data"].(object)
		if of, ok := data["giveaway"].(object); ok {
			data = of
		}
		if at, ok := data["updated_at"]; ok && at != e["timestamp"] {
			t.Errorf("%s is stamped %v, what it tells of %v", typ, e["timestamp"], at)
		}
		wantAlike(t, typ, "getMe", object{"guild_id": e["guild_id"]}, s.answers["getMe"]["token"].(object))
		origin := e["origin"].(object)
		if (origin["type"] == "api") != (origin["token_id"] != nil) {
			t.Errorf("%s comes from %v", typ, origin)
		}
	}
}

// Numbers that can be counted or computed from other examples are correct.
func TestExamplesCount(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	for id, answer := range s.answers {
		rows, list := answer["data"].([]any)
		size, _ := answer["per_page"].(float64)
		if _, paged := answer["page"]; list && paged && (len(rows) > int(size) || answer["has_more"] == true && len(rows) != int(size)) {
			t.Errorf("%s: %d rows on a page of %v, and has_more is %v", id, len(rows), size, answer["has_more"])
		}
	}
	s.things(func(at string, o object) {
		winners, ok := o["winners"].([]any)
		if count, counted := o["winner_count"].(float64); ok && counted && len(winners) > int(count) {
			t.Errorf("%s: %d winners of %v", at, len(winners), count)
		}
		entrants, _ := o["entrant_count"].(float64)
		if entries, ok := o["entry_count"].(float64); ok && entries < entrants {
			t.Errorf("%s: %v entries of %v entrants", at, entries, entrants)
		}
		attempts, ok := o["attempts"].([]any)
		if count, _ := o["attempt_count"].(float64); ok && len(attempts) != int(count) {
			t.Errorf("%s: %d attempts of %v", at, len(attempts), count)
		}
	})
	messages := 0
	for _, row := range s.rows(t, "listTicketMessages") {
		if row["kind"] == "message" {
			messages++
		}
	}
	wantPart(t, "listTicketMessages", s.answers["listTicketMessages"], messages, s.data(t, "getTicket")["message_count"])
	wantPart(t, "listGiveawayEntries", s.answers["listGiveawayEntries"], len(s.rows(t, "listGiveawayEntries")),
		s.data(t, "getGiveaway")["entrant_count"])
	for board, rank := range map[string]string{"getEconomyLeaderboard": "getEconomyRank", "getLevellingLeaderboard": "getLevellingRank"} {
		wantPart(t, board, s.answers[board], len(s.rows(t, board)), s.data(t, rank)["of"])
		wantAlike(t, board, rank, s.rows(t, board)[0], s.data(t, rank))
	}
}

// wantPart compares the number of rows on a page with the total.
func wantPart(t *testing.T, list string, page object, shown int, total any) {
	t.Helper()
	all := page["page"] == 1.0 && page["has_more"] == false
	if n := int(total.(float64)); shown > n || all != (shown == n) {
		t.Errorf("%s shows %d of %d, and page is %v, has_more %v", list, shown, n, page["page"], page["has_more"])
	}
}

// A member's coins and XP are the same in all examples.
func TestExamplesOfMoneyAndXPAddUp(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	wallet, entry := s.data(t, "getWallet"), s.rows(t, "listLedgerEntries")[0]
	wantAlike(t, "adjustBalance", "getWallet", s.data(t, "adjustBalance"), wallet)
	wantAlike(t, "getEconomyRank", "getWallet", s.data(t, "getEconomyRank"), wallet)
	wantAlike(t, "listLedgerEntries", "getWallet", object{"balance": entry["balance_after"], "updated_at": entry["created_at"]}, wallet)
	wantAlike(t, "getLedgerEntry", "listLedgerEntries", s.data(t, "getLedgerEntry"), entry)
	wantAlike(t, "the payment of adjustBalance", "its ledger entry", s.requests["adjustBalance"][1], entry)
	if told := s.event(t, "economy.balance_changed"); told["previous_balance"].(float64)+told["delta"].(float64) != told["balance"].(float64) {
		t.Errorf("economy.balance_changed does not add up: %v", told)
	}

	asked := s.requests["adjustBalances"][0]["adjustments"].([]any)
	for i, row := range s.rows(t, "adjustBalances") {
		made := row["ledger_entry"].(object)
		wantAlike(t, "an adjustment of adjustBalances", "its ledger entry", asked[i].(object), made)
		wantAlike(t, "a wallet of adjustBalances", "its ledger entry", object{
			"balance_after": row["balance"], "created_at": row["updated_at"], "user_id": row["user_id"],
		}, made)
		if row["replayed"] != reflect.DeepEqual(made, entry) { // the payment of adjustBalance
			t.Errorf("adjustBalances: replayed is %v of %v", row["replayed"], made)
		}
	}

	record := s.data(t, "getLevelRecord")
	wantAlike(t, "adjustXpOfMembers", "getLevelRecord", s.rows(t, "adjustXpOfMembers")[0], record)
	wantAlike(t, "adjustXp", "getLevelRecord", s.data(t, "adjustXp"), record)
	wantAlike(t, "getLevellingRank", "getLevelRecord", s.data(t, "getLevellingRank"), record)
	curve := s.data(t, "getGuildSettings")["levelling"].(object)["curve"].(object)
	level, into, cost := levelOf(curve, record["total_xp"].(float64))
	want := object{"current_xp": into, "required_xp": cost, "percent": float64(int(100 * into / cost))}
	if record["level"] != level || !reflect.DeepEqual(record["progress"], any(want)) {
		t.Errorf("by its curve getLevelRecord has level %v and progress %v", level, want)
	}
	up := s.event(t, "xp.level_up")
	if level, _, _ := levelOf(curve, up["total_xp"].(float64)); up["level"] != level || up["previous_level"].(float64) >= level {
		t.Errorf("by its curve xp.level_up has level %v: %v", level, up)
	}
	relative := s.requests["adjustXp"][1]
	if up["total_xp"].(float64)+relative["delta"].(float64) != record["total_xp"] {
		t.Errorf("after %v XP and %v more there are %v", up["total_xp"], relative["delta"], record["total_xp"])
	}
}

func levelOf(curve object, total float64) (level, into, cost float64) {
	for {
		cost = curve["quadratic"].(float64)*level*level + curve["linear"].(float64)*level + curve["base"].(float64)
		if total < cost {
			return level, total, cost
		}
		total, level = total-cost, level+1
	}
}

// The draws are those of the giveaway in the events of its end and its reroll.
func TestExamplesOfDrawsAreTheGiveaways(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	draws, ended, rerolled := s.rows(t, "listGiveawayDraws"), s.event(t, "giveaway.ended"), s.event(t, "giveaway.rerolled")
	for i, told := range []object{ended, rerolled["giveaway"].(object)} {
		if draws[i]["round"] != float64(i+1) || draws[i]["drawn_at"] != told["updated_at"] ||
			draws[i]["entries_hash"] != draws[0]["entries_hash"] {
			t.Errorf("round %d of the draws is not the giveaway's: %v", i+1, draws[i])
		}
	}
	wantAlike(t, "giveaway.ended", "the first draw", object{"winners": ended["winners"], "entry_count": ended["entry_count"]}, draws[0])
	wantAlike(t, "giveaway.rerolled", "the second draw", object{"winners": rerolled["new_user_ids"], "reason": rerolled["reason"]}, draws[1])
	for i, typ := range []string{"giveaway.ended", "giveaway.rerolled"} {
		if !reflect.DeepEqual(draws[i]["origin"], s.events[typ]["origin"]) {
			t.Errorf("the draw comes from %v, %s from %v", draws[i]["origin"], typ, s.events[typ]["origin"])
		}
	}
	request := s.requests["rerollGiveaway"][0]
	wantAlike(t, "the request of rerollGiveaway", "the second draw", object{"excluded_user_ids": request["exclude_user_ids"]}, draws[1])
	wantAlike(t, "giveaway.rerolled", "the second draw", object{"replaced_user_ids": rerolled["replaced_user_ids"]}, draws[1])
	replaced, kept := rerolled["replaced_user_ids"].([]any), []any{}
	for _, user := range ended["winners"].([]any) {
		if !slices.Contains(replaced, user) {
			kept = append(kept, user)
		}
	}
	if now := rerolled["giveaway"].(object)["winners"]; len(replaced) != int(request["count"].(float64)) ||
		!reflect.DeepEqual(now, any(slices.Concat(rerolled["new_user_ids"].([]any), kept))) {
		t.Errorf("of %v the reroll replaced %v and made %v", ended["winners"], replaced, now)
	}
}

// The example of a delivery carries the example of an event, with headers that verify with the
// example secret, so a receiver can be tested with it.
func TestExamplesOfADeliveryVerify(t *testing.T) {
	t.Parallel()
	s := readStory(t)
	delivery := s.data(t, "getWebhookDelivery")
	typ := delivery["event_type"].(string)
	event, body := s.events[typ], delivery["request_body"].(string)
	var sent object
	if err := json.Unmarshal([]byte(body), &sent); err != nil || !reflect.DeepEqual(sent, event) {
		t.Errorf("the body is not the event %s (%v): %s", typ, err, body)
	}
	for _, operation := range []string{"getWebhookDelivery", "testWebhookEndpoint", "redeliverWebhookDelivery"} {
		d := s.data(t, operation)
		wantAlike(t, operation, "its event", object{"id": d["event_id"], "type": d["event_type"]}, s.events[d["event_type"].(string)])
	}
	attempt := delivery["attempts"].([]any)[0].(object)
	wantAlike(t, "the attempt", "its delivery", attempt, delivery)
	started, _ := instant(t, attempt, "started_at")
	completed, _ := instant(t, delivery, "completed_at")
	if took := time.Duration(attempt["duration_ms"].(float64)) * time.Millisecond; completed.Sub(started) != took {
		t.Errorf("an attempt of %v was over after %v", took, completed.Sub(started))
	}
	happened, _ := instant(t, event, "timestamp")

	secret := s.data(t, "createWebhookEndpoint")["secret"].(string)
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	id, seconds := event["id"].(string), strconv.FormatInt(started.Unix(), 10)
	for name, want := range map[string]any{
		"WebhookIdHeader":  id,
		"WebhookTimestamp": seconds,
		"WebhookSignature": "v1," + base64.StdEncoding.EncodeToString(keyed(key, id+"."+seconds+"."+body)),
		"ServiceSignature": "t=" + seconds + ",v1=" + hex.EncodeToString(keyed([]byte(secret), seconds+"."+body)),
		"ServiceEvent":     typ,
		"ServiceDelivery":  delivery["id"],
		"ServiceAttempt":   attempt["number"],
		"ServiceSequence":  float64(happened.UnixMicro()),
	} {
		if got := s.doc.Components.Parameters[name].Value.Example; jsonText(t, got) != jsonText(t, want) {
			t.Errorf("the header %s shows %v; want %v", name, got, want)
		}
	}
	for _, operation := range []string{"createWebhookEndpoint", "rotateWebhookSecret"} {
		d := s.data(t, operation)
		if secret := d["secret"].(string); d["secret_preview"] != "whsec_..."+secret[len(secret)-4:] {
			t.Errorf("%s: the preview of %s is %v", operation, secret, d["secret_preview"])
		}
	}
	if s.data(t, "rotateWebhookSecret")["secret"] == secret {
		t.Error("the new secret is the old one")
	}
}

func keyed(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
