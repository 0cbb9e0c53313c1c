package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// someone is the user whom all data of the neighbouring guild is about.
const someone = "190320984123768832"

// neighbours are two guilds on one server: ours, and the owner of the data.
type neighbours struct {
	ours, owner *apitest.API
}

func newNeighbours(t *testing.T) neighbours {
	t.Helper()
	server := apitest.New(t)
	n := neighbours{ours: server, owner: server.Next(t)}
	for _, view := range []*apitest.API{n.ours, n.owner} {
		dbtest.Unlisten(t, server.DB(), view.Guild) // before the guild's state is first read
	}
	return n
}

// exec runs a statement in which $1 is the owner's guild.
func (n neighbours) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	dbtest.Exec(t, n.owner.DB(), query, append([]any{n.owner.Guild}, args...)...)
}

// own creates, in the owner's guild, what the operation needs to succeed, and returns the values of
// its path parameters.
func (n neighbours) own(t *testing.T, op apitest.Operation) map[string]string {
	t.Helper()
	id := db.NewID()
	switch strings.Split(op.Path, "/")[1] {
	case "cases":
		id = n.owner.Do(t, "createCase", example(t, "createCase")).Want(t, 201, "").Str(t, "data.id")
	case "economy":
		id = n.owner.Do(t, "adjustBalance", `{"user_id":"`+someone+`","delta":1}`).Want(t, 200, "").Str(t, "data.ledger_entry.id")
	case "tickets":
		status := "open"
		if op.ID == "reopenTicket" {
			status = "closed"
		}
		n.exec(t, `
			INSERT INTO tickets (guild_id, id, number, status, opener_id, channel_id, closed_at)
			SELECT $1, $2, 1 + count(*), $3, $4, (381886868708655104 + count(*))::text, CASE WHEN $3 = 'closed' THEN now() END
			FROM tickets WHERE guild_id = $1`, id, status, someone)
	case "giveaways":
		status := map[string]string{"resumeGiveaway": "paused", "rerollGiveaway": "ended"}[op.ID]
		if status == "" {
			status = "active"
		}
		n.exec(t, `
			INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at, entrant_count, entry_count)
			VALUES ($1, $2, $3, 'A prize', 1, '381886868708655104', now(), now() + interval '1 day', 20, 20)`, id, status)
		n.exec(t, `
			INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
			SELECT $1, $2, (1000 + i)::text FROM generate_series(1, 20) i`, id)
	case "webhooks":
		wanted := `{"url":"https://127.0.0.1:9/hook","events":["case.created"]}`
		if strings.Contains(op.Path, "/events/") {
			wanted = `{"delivery":"pull","events":["case.created"]}`
		}
		hook := n.owner.Do(t, "createWebhookEndpoint", wanted).Want(t, 201, "")
		id = hook.Str(t, "data.id")
		delivery := n.owner.Do(t, "testWebhookEndpoint", "", apitest.Path("id", id)).Want(t, 202, "").Str(t, "data.id")
		return map[string]string{"id": id, "deliveryId": delivery}
	default:
		t.Fatalf("this test does not know what %s needs", op.Path)
	}
	return map[string]string{"id": id}
}

// example returns the contract's first request body for an operation, or another one if that would
// need a DNS lookup.
func example(t *testing.T, id string) string {
	t.Helper()
	switch id {
	case "createWebhookEndpoint":
		return `{"url":"https://127.0.0.1:9/other","events":["case.created"]}`
	case "transferBalance": // an amount that the other examples leave in the wallet
		return `{"from_user_id":"` + someone + `","to_user_id":"42","amount":1}`
	case "updateWebhookEndpoint":
		return `{"enabled":false}`
	case "createGiveaway":
		return `{"channel_id":"381886868708655104","prize":"A prize","winner_count":1,"ends_at":"2126-01-01T00:00:00Z"}`
	}
	op := apitest.Find(t, id)
	if op.Spec.RequestBody == nil {
		return ""
	}
	media := op.Spec.RequestBody.Value.Content.Get("application/json")
	value := media.Example
	if value == nil {
		name := slices.Min(slices.Collect(maps.Keys(media.Examples)))
		value = media.Examples[name].Value.Value
	}
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func at(values map[string]string) []apitest.Arg {
	args := []apitest.Arg{}
	for name, value := range values {
		args = append(args, apitest.Path(name, value))
	}
	return args
}

// state returns everything that a guild contains, by table. It leaves out tokens, whose last use is
// written later, and stored responses, since refusals are stored too.
func (n neighbours) state(t *testing.T, guild string) map[string]string {
	t.Helper()
	ctx, q := context.Background(), n.owner.DB().Reader()
	var tables []string
	if err := q.SelectContext(ctx, &tables, `
		SELECT table_name::text FROM information_schema.columns
		WHERE column_name = 'guild_id' AND table_schema = 'public' AND table_name NOT LIKE '%token%'
		  AND table_name <> 'idempotency_keys'`); err != nil {
		t.Fatal(err)
	}
	if len(tables) < 15 {
		t.Fatalf("only %v belong to a guild", tables)
	}
	all := map[string]string{}
	for _, table := range tables {
		var rows string
		if err := q.GetContext(ctx, &rows,
			`SELECT coalesce(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM `+table+` r WHERE guild_id = $1`, guild); err != nil {
			t.Fatal(err)
		}
		all[table] = rows
	}
	return all
}

func wantSame(t *testing.T, before, after map[string]string) {
	t.Helper()
	for table, rows := range before {
		if after[table] != rows {
			t.Errorf("%s changed from\n%s\nto\n%s", table, rows, after[table])
		}
	}
}

func placeholders(op apitest.Operation) []string {
	var names []string
	for part := range strings.SplitSeq(op.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}

// A request for a thing of another guild gets the same response, byte for byte, as for one that
// does not exist, and changes nothing. The same call succeeds for the owner, which proves that only
// the guild made the difference. RELIABILITY.md, Guilds.
func TestAnotherGuildsThingsDoNotExist(t *testing.T) {
	t.Parallel()
	n, tried := newNeighbours(t), 0
	each(t, func(t *testing.T, op apitest.Operation) {
		names := placeholders(op)
		if !slices.Contains(names, "id") || overAll(op) {
			return
		}
		tried++
		body, owned := example(t, op.ID), n.own(t, op)
		before := n.state(t, n.owner.Guild)
		mixes := []map[string]string{owned}
		if slices.Contains(names, "deliveryId") {
			// A delivery of another guild under one of our endpoints, and the other way round.
			mine := neighbours{ours: n.owner, owner: n.ours}.own(t, op)
			mixes = append(mixes,
				map[string]string{"id": mine["id"], "deliveryId": owned["deliveryId"]},
				map[string]string{"id": owned["id"], "deliveryId": mine["deliveryId"]})
		}
		mine := n.state(t, n.ours.Guild)
		for i, mix := range mixes {
			nobodys := maps.Clone(mix)
			for name, value := range mix {
				if value == owned[name] {
					nobodys[name] = db.NewID()
				}
			}
			want := n.ours.Do(t, op.ID, body, at(nobodys)...).WantError(t, 404, "not_found")
			for _, view := range []*apitest.API{n.ours, n.ours.Key(fmt.Sprintf("%s-%d", op.ID, i))} {
				got := view.Do(t, op.ID, body, at(mix)...).WantError(t, 404, "not_found")
				if string(got.Body) != string(want.Body) {
					t.Errorf("what is another guild's is answered\n%s, what is nobody's\n%s", got.Body, want.Body)
				}
				if len(got.Header) != len(want.Header) {
					t.Errorf("the headers differ: %v, %v", got.Header, want.Header)
				}
			}
		}
		wantSame(t, before, n.state(t, n.owner.Guild))
		wantSame(t, mine, n.state(t, n.ours.Guild))
		if a := n.owner.Do(t, op.ID, body, at(owned)...); a.Status >= 300 {
			t.Errorf("the owner is answered %d: %s", a.Status, a.Body)
		}
	})
	if tried < 20 {
		t.Errorf("only %d operations take an id", tried)
	}
}

// After an export and an import two guilds may contain things with the same ids. Each guild reads
// and changes its own. RELIABILITY.md, Guilds.
func TestEqualIDsInTwoGuilds(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	both := func(query string) {
		n.exec(t, query)
		neighbours{owner: n.ours}.exec(t, query)
	}
	both(`
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, source)
		VALUES ($1, 'same', 1, '1', '1', 'note', 'of ' || $1, 'bot')`)
	both(`INSERT INTO tickets (guild_id, id, number, subject, opener_id) VALUES ($1, 'same', 1, 'of ' || $1, '1')`)
	both(`
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at)
		VALUES ($1, 'same', 'active', 'of ' || $1, 1, '1', now(), now() + interval '1 day')`)
	same := apitest.Path("id", "same")
	for _, view := range []*apitest.API{n.ours, n.owner} {
		view.Do(t, "getCase", "", same).Want(t, 200, `{"data":{"reason":"of `+view.Guild+`"}}`)
		view.Do(t, "getTicket", "", same).Want(t, 200, `{"data":{"subject":"of `+view.Guild+`"}}`)
		view.Do(t, "getGiveaway", "", same).Want(t, 200, `{"data":{"prize":"of `+view.Guild+`"}}`)
	}
	before := n.state(t, n.owner.Guild)
	n.ours.Do(t, "updateCase", `{"reason":"ours now"}`, same).Want(t, 200, "")
	n.ours.Do(t, "claimTicket", `{"user_id":"42"}`, same).Want(t, 200, "")
	n.ours.Do(t, "closeTicket", `{"reason":"done"}`, same).Want(t, 200, "")
	n.ours.Do(t, "pauseGiveaway", "", same).Want(t, 200, "")
	n.ours.Do(t, "endGiveaway", "", same).Want(t, 202, "")
	after := n.state(t, n.owner.Guild)
	wantSame(t, before, after)
}

// fill puts something into every list of the owner's guild.
func (n neighbours) fill(t *testing.T) {
	t.Helper()
	n.owner.Do(t, "adjustBalance", `{"user_id":"`+someone+`","delta":30}`).Want(t, 200, "")
	n.owner.Do(t, "adjustXp", `{"user_id":"`+someone+`","delta":300}`).Want(t, 200, "")
	n.owner.Do(t, "updateMember", `{"metadata":{"a":"b"}}`, apitest.Path("userId", someone)).Want(t, 200, "")
	n.owner.Do(t, "createCase", `{"user_id":"`+someone+`","moderator_id":"`+someone+`","type":"note","reason":"A note"}`).Want(t, 201, "")
	ticket := n.own(t, apitest.Find(t, "getTicket"))
	n.owner.Do(t, "claimTicket", `{"user_id":"`+someone+`"}`, at(ticket)...).Want(t, 200, "")
	n.exec(t, `UPDATE tickets SET channel_id = '`+someone+`' WHERE guild_id = $1`)
	n.own(t, apitest.Find(t, "getGiveaway"))
	n.own(t, apitest.Find(t, "getWebhookEndpoint"))
}

// Every list of an empty guild is empty, however full the other guild's is, with and without
// filters. RELIABILITY.md, Guilds.
func TestListsStayInTheirGuild(t *testing.T) {
	t.Parallel()
	n, tried := newNeighbours(t), 0
	n.fill(t)
	n.exec(t, `INSERT INTO network_listings (user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at)
		SELECT '1', 0, 1, 'spam', 'low', now(), now() WHERE $1 <> ''`)
	each(t, func(t *testing.T, op apitest.Operation) {
		if op.Spec.Parameters.GetByInAndName("query", "page") == nil || len(placeholders(op)) > 0 || op.ID == "listBotGuilds" ||
			op.ID == "listBotStreams" { // belongs to no guild
			return
		}
		tried++
		var list struct {
			Data []json.RawMessage `json:"data"`
		}
		n.owner.Do(t, op.ID, "").Want(t, 200, "").Into(t, &list)
		if len(list.Data) == 0 {
			t.Fatal("the owner's own list is empty, so this proves nothing")
		}
		n.ours.Do(t, op.ID, "").Want(t, 200, `{"data":[],"has_more":false}`)
		for _, p := range op.Spec.Parameters {
			if p.Value.In == "query" && strings.HasSuffix(p.Value.Name, "_id") {
				filter := apitest.Query(p.Value.Name, someone)
				n.owner.Do(t, op.ID, "", filter).Want(t, 200, "").Into(t, &list)
				if len(list.Data) == 0 {
					t.Errorf("the owner finds nothing by %s, so this proves nothing", p.Value.Name)
				}
				n.ours.Do(t, op.ID, "", filter).Want(t, 200, `{"data":[],"has_more":false}`)
			}
		}
	})
	if tried < 7 {
		t.Errorf("only %d operations list things of the guild", tried)
	}
}

// A guild sees of a user only its own data: a user who is rich in another guild gets the same
// responses as an unknown user. The network's lookup is the one response that all guilds share, and
// it names no guild. RELIABILITY.md, Guilds.
func TestUsersAreStrangersInAnotherGuild(t *testing.T) {
	t.Parallel()
	n := newNeighbours(t)
	n.fill(t)
	n.exec(t, `INSERT INTO network_listings (user_id, trust_score, report_count, category, severity, first_reported_at, last_reported_at)
		SELECT $2, 0, 1, 'spam', 'low', now(), now() WHERE $1 <> ''`, someone)
	const nobody = "190320984123768833"
	each(t, func(t *testing.T, op apitest.Operation) {
		if op.Method != http.MethodGet || !slices.Contains(placeholders(op), "userId") {
			return
		}
		theirs := n.owner.Do(t, op.ID, "", apitest.Path("userId", someone)).Want(t, 200, "")
		known := n.ours.Do(t, op.ID, "", apitest.Path("userId", someone))
		unknown := n.ours.Do(t, op.ID, "", apitest.Path("userId", nobody))
		if known.Status != unknown.Status || known.Status != http.StatusOK && known.Status != http.StatusNotFound {
			t.Errorf("a user of the other guild is answered %d, a stranger %d", known.Status, unknown.Status)
		}
		if op.ID == "lookupNetworkUser" {
			if string(known.Body) != string(theirs.Body) || strings.Contains(string(known.Body), n.owner.Guild) {
				t.Errorf("the lookup is answered\n%s to us and\n%s to the other guild", known.Body, theirs.Body)
			}
			return
		}
		if got := strings.ReplaceAll(string(known.Body), someone, nobody); got != string(unknown.Body) {
			t.Errorf("a user of the other guild is answered\n%s, a stranger\n%s", got, unknown.Body)
		}
		if string(known.Body) == string(theirs.Body) {
			t.Error("the owner sees the same, so this proves nothing")
		}
	})
}

// A write without an id in its path affects the caller's own guild, also with an idempotency key
// that the other guild has used for the same request. RELIABILITY.md, Guilds.
func TestWritesStayInTheirGuild(t *testing.T) {
	t.Parallel()
	n, tried := newNeighbours(t), 0
	each(t, func(t *testing.T, op apitest.Operation) {
		if op.Method == http.MethodGet || len(placeholders(op)) > 0 || overAll(op) {
			return
		}
		tried++
		n := n
		if op.ID == "removeGuild" { // the other operations need the guild
			n = newNeighbours(t)
		}
		body := example(t, op.ID)
		theirs := n.owner.May(t, op).Key(op.ID).Do(t, op.ID, body)
		if theirs.Status >= 300 {
			t.Fatalf("the owner is answered %d: %s", theirs.Status, theirs.Body)
		}
		before := n.state(t, n.owner.Guild)
		ours := n.ours.May(t, op).Key(op.ID).Do(t, op.ID, body)
		if ours.Status != theirs.Status || ours.Header.Get("Idempotent-Replay") != "" {
			t.Errorf("under the other guild's key we are answered %d, replay %q: %s", ours.Status, ours.Header.Get("Idempotent-Replay"), ours.Body)
		}
		for _, id := range regexp.MustCompile(`"id":"[^"]+"`).FindAllString(string(theirs.Body), -1) {
			if named := strings.Contains(body, strings.TrimPrefix(id, `"id":`)); !named && strings.Contains(string(ours.Body), id) {
				t.Errorf("we are shown the other guild's %s", id)
			}
		}
		after := n.state(t, n.owner.Guild)
		wantSame(t, before, after)
	})
	if tried < 4 {
		t.Errorf("only %d operations write without an id", tried)
	}
}
