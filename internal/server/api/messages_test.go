package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/schema"
	"guildhall/internal/server/api/apitest"
)

// Each error message alone says what is wrong with the call and how to correct it. RELIABILITY.md,
// Input.
func TestMessagesLetTheCallBeMended(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	for _, c := range []struct {
		call, body string
		status     int
		message    string
	}{
		// Unknown members, with a suggestion.
		{
			"POST /api/v1/economy/adjust", `{"userId":"1","amount":5}`, 400,
			"body /amount: is not a member of this object; its members are author_id, delta",
		},
		{"POST /api/v1/economy/adjust", `{"userId":"1","amount":5}`, 400, "body /userId: is not a member of this object; did you mean user_id?"},
		{"POST /api/v1/economy/adjust", `{"userId":"1","amount":5}`, 400, "body /user_id: is required"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","dleta":5}`, 400, "body /dleta: is not a member of this object; did you mean delta?"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":5,"Reason":"x"}`, 400, "did you mean reason?"},
		{
			"PATCH /api/v1/cases/x", `{"status":"revoked"}`, 400,
			"body /status: is not a member of this object; its members are author_id, expires_at, metadata, reason",
		},
		{"PATCH /api/v1/cases/x", `{}`, 400, "body: must change something, by one of the members expires_at, metadata, reason"},
		{"PATCH /api/v1/cases/x", `{"author_id":"7"}`, 400, "body: must change something, by one of the members expires_at, metadata, reason"},
		{
			"PATCH /api/v1/tickets/x", `{"author_id":"7"}`, 400,
			"body: must change something, by one of the members category, metadata, priority, subject",
		},
		{"PATCH /api/v1/cases/x", `{"expiresAt":null}`, 400, "did you mean expires_at?"},
		{"POST /api/v1/webhooks", `{"url":"https://example.com","event":["case.created"]}`, 400, "did you mean events?"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":5,"\u001b[2J":1}`, 400, "body /?[2J: is not a member"},

		// At least one of several members.
		{"POST /api/v1/webhooks/x/events/ack", `{}`, 400, "body: must have at least one of the members event_ids, return_ids"},
		{"POST /api/v1/webhooks/x/events/ack", `{"event_ids":null}`, 400, "body: must have at least one of the members event_ids, return_ids"},
		{
			"PATCH /api/v1/webhooks/x", `{}`, 400,
			"body: must have at least one of the members delivery, description, enabled, events, url",
		},

		// Exactly one of two members.
		{"POST /api/v1/levelling/adjust", `{"user_id":"1","delta":5,"total_xp":5}`, 400, "body: must have exactly one of delta and total_xp"},
		{"POST /api/v1/levelling/adjust", `{"user_id":"1"}`, 400, "body: must have exactly one of delta and total_xp"},
		{
			"POST /api/v1/levelling/adjustments", `{"adjustments":[{"user_id":"1","delta":5},{"user_id":"1","delta":5,"total_xp":5}]}`, 400,
			"body /adjustments/1: must have exactly one of delta and total_xp",
		},
		{
			"POST /api/v1/levelling/adjustments", `{"adjustments":[{"user_id":"1","delta":null,"total_xp":null}]}`, 400,
			"body /adjustments/0: must have exactly one of delta and total_xp",
		},
		{
			"POST /api/v1/levelling/adjust", `{"user_id":"1","delta":null,"total_xp":null}`, 400,
			"body: must have exactly one of delta and total_xp",
		},

		// Numbers.
		{
			"POST /api/v1/economy/adjust", `{"user_id":"1","delta":100000000000000000000}`, 400,
			"body /delta: must be an integer, at least -9007199254740991, at most 9007199254740991",
		},
		{
			"POST /api/v1/economy/adjust", `{"user_id":"1","delta":` + strings.Repeat("1", 60_000) + `}`, 400,
			"body /delta: must be an integer, at least -9007199254740991, at most 9007199254740991",
		},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":9007199254740992}`, 400, "at most 9007199254740991"},
		{
			"POST /api/v1/economy/adjust", `{"user_id":"1","delta":1202.0}`, 400,
			"body /delta: must be an integer, written without fraction or exponent, such as 1202 and not 1202.0",
		},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":1e3}`, 400, "without fraction or exponent"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":"5"}`, 400, "body /delta: must be an integer"},
		{"GET /api/v1/cases?page=0", ``, 400, "query page: must be an integer, at least 1"},
		{"GET /api/v1/cases?per_page=1000", ``, 400, "query per_page: must be an integer, at least 1, at most 100"},
		{"GET /api/v1/cases?per_page=ten", ``, 400, "query per_page: must be an integer in decimal digits, at least 1, at most 100"},

		// Metadata to look up.
		{"GET /api/v1/cases?metadata=shop.order", ``, 400, "query metadata: must be a name, a colon and a value, such as shop.order:4711"},
		{"GET /api/v1/tickets?metadata=:4711", ``, 400, "query metadata: must be a name, a colon and a value, such as shop.order:4711"},
		{"GET /api/v1/giveaways?metadata=Order:1", ``, 400, "the name has 1 to 40 lower-case letters, digits, _, . and -"},
		{"GET /api/v1/members?metadata=a:" + strings.Repeat("x", 501), ``, 400, "the value at most 500 characters"},
		{"GET /api/v1/cases?metadata=a:" + strings.Repeat("x", 600), ``, 400, "the value at most 500 characters"},
		{"GET /api/v1/cases?metadata=a:1&metadata=b:2", ``, 400, "query metadata: must be given once"},

		// Lists, dates and names.
		{"GET /api/v1/members?user_ids=1&user_ids=2", ``, 400, "query user_ids: must be given once, with commas between its values"},
		{"GET /api/v1/levelling/leaderboard?period=week&at=23.11.2026", ``, 400, "query at: must be a date, such as 2026-11-23"},
		{"GET /api/v1/levelling/leaderboard?period=week&at=2026-11-23T00:00:00Z", ``, 400, "query at: must be a date, such as 2026-11-23"},

		// Ids and strings.
		{"POST /api/v1/economy/adjust", `{"user_id":1,"delta":5}`, 400, "body /user_id: must be a string"},
		{"POST /api/v1/economy/adjust", `{"user_id":"alice","delta":5}`, 400, "body /user_id: must be a snowflake: a string of 1 to 20 digits"},
		{
			"POST /api/v1/economy/adjust", `{"user_id":"<@190320984123768832>","delta":5}`, 400,
			"of a mention, <@190320984123768832>, the digits alone",
		},
		{"POST /api/v1/economy/adjust", `{"user_id":190320984123768832,"delta":5}`, 400, "as a number an id loses its last digits"},
		{"POST /api/v1/economy/adjust", `{"user_id":"012","delta":5}`, 400, "does not begin with 0"},
		{"POST /api/v1/economy/adjust", `{"user_id":null,"delta":5}`, 400, "body /user_id: must be a string"},
		{
			"POST /api/v1/economy/adjust", `{"user_id":"1","delta":5,"reason":"  "}`, 400,
			"body /reason: must contain a character that is not blank",
		},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":5,"reason":"a\u0000b"}`, 400, "body /reason: must not contain U+0000"},
		{"POST /api/v1/tickets/x/message", `{"content":""}`, 400, "body /content: must have at least 1 character"},
		{"POST /api/v1/webhooks", `{"url":"ftp://example.com","events":["case.created"]}`, 400, "body /url: must start with https://"},
		{"POST /api/v1/webhooks", `{"url":"https://u:p@example.com","events":["case.created"]}`, 400, "must not contain credentials"},
		{
			"POST /api/v1/webhooks", `{"url":"https://example.com","events":["case.created"],"description":"two\nlines"}`, 400,
			"body /description: must be one line",
		},
		{"POST /api/v1/webhooks", `{"url":"https://example.com","events":[]}`, 400, "body /events: must have at least 1 item"},
		{"POST /api/v1/webhooks", `{"url":"https://example.com","events":"case.created"}`, 400, "body /events: must be an array"},
		{"POST /api/v1/cases", `{"user_id":"1","moderator_id":"2","type":"ban","reason":"x"}`, 400, "body /type: must be one of "},

		// Instants.
		{
			"GET /api/v1/cases?since=2026-01-01T00:00:00+02:00", ``, 400,
			"query since: must be an existing RFC 3339 date and time with offset, such as 2026-01-31T00:00:00Z; in a query, write + as %2B",
		},
		{
			"GET /api/v1/cases?since=2026-01-01%2000:00:00Z", ``, 400,
			"query since: must be an existing RFC 3339 date and time with offset, such as 2026-01-31T00:00:00Z",
		},
		{
			"GET /api/v1/cases?since=2026-01-01T00:00:00", ``, 400,
			"query since: must be an existing RFC 3339 date and time with offset, such as 2026-01-31T00:00:00Z",
		},
		{
			"GET /api/v1/cases?since=yesterday", ``, 400,
			"query since: must be an existing RFC 3339 date and time with offset, such as 2026-01-31T00:00:00Z",
		},
		{
			"GET /api/v1/cases?since=2026-01-01", ``, 400,
			"with offset, such as 2026-01-31T00:00:00Z, and neither a date alone nor a number of seconds",
		},
		{"GET /api/v1/cases?since=1767225600", ``, 400, "neither a date alone nor a number of seconds"},
		{"PATCH /api/v1/cases/x", `{"expires_at":1767225600}`, 400, `must be a string or null, such as "2026-01-31T00:00:00Z"`},
		{"PATCH /api/v1/cases/x", `{"reason":""}`, 400, "body /reason: must have at least 1 character"},
		{"GET /api/v1/cases?since=2026-02-30T00:00:00Z", ``, 400, "must be an existing RFC 3339 date"},
		{"GET /api/v1/cases?since=0001-01-01T00:30:00%2B01:00", ``, 400, "query since: must lie in the years 1 to 9999, in UTC"},

		// Paths.
		{"GET /api/v1/tickets//message", ``, 404, "a segment of the path is empty"},
		{"POST /api/v1/tickets//message", `{}`, 404, "a segment of the path is empty"},
		{"GET /api/v1/tickets//messages", ``, 404, "a segment of the path is empty"},
		{"GET /api/v1/tickets/x/message", ``, 405, "GET /tickets/{id}/messages"},
		{"POST /api/v1/tickets/x/messages", `{}`, 405, "POST /tickets/{id}/message"},

		// Query parameters.
		{"GET /api/v1/cases?user=1", ``, 400, "query user: is not a parameter of this operation; "},
		{"GET /api/v1/cases?userid=1", ``, 400, "did you mean user_id?"},
		{"GET /api/v1/cases?page=1&page=2", ``, 400, "query page: must be given once"},
		{"GET /api/v1/cases?status=%zz", ``, 400, "query: must be properly percent-encoded"},
		{"GET /api/v1/cases?type=bann", ``, 400, "query type: must be one of "},
		{"GET /api/v1/me?x=1", ``, 400, "query x: is not a parameter of this operation; it has none"},
		{"GET /api/v1/cases?" + strings.Repeat("page=1&", 99) + "page=1", ``, 400, "query page: must be given once"},
		{"GET /api/v1/cases?" + strings.Repeat("page=1&", 100) + "page=1", ``, 400, "query: must have at most 100 parameters"},
		{
			"POST /api/v1/economy/adjustments", `{"adjustments":[` + strings.Repeat("1,", 100) + `1]}`, 400,
			"body /adjustments: must have at most 100 items",
		},
		{"POST /api/v1/economy/adjust?dry_run=1", `{"user_id":"1","delta":5}`, 400, "query"},

		// JSON.
		{"POST /api/v1/economy/adjust", `{"user_id":"1",}`, 400, "body: must be well-formed JSON; it is not at line 1, column 16"},
		{"POST /api/v1/economy/adjust", "{\n  \"user_id\": \"1\"\n  \"delta\": 5\n}", 400, "it is not at line 3, column 3"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1"`, 400, "it ends too early at line 1, column 15"},
		{"POST /api/v1/economy/adjust", `user_id=1&delta=5`, 400, "it is not at line 1, column 1"},
		{"POST /api/v1/economy/adjust", `{'user_id':1}`, 400, "it is not at line 1, column 2"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":5} {}`, 400, "body: must be one JSON value and nothing after it"},
		{"POST /api/v1/economy/adjust", `[]`, 400, "body: must be an object"},
		{"POST /api/v1/economy/adjust", `null`, 400, "body: must be an object"},
		{
			"POST /api/v1/economy/adjust", "\xef\xbb\xbf{}", 400,
			"body: must be well-formed JSON; it begins with a byte order mark (U+FEFF): save or send it without one",
		},
		{"POST /api/v1/tickets/x/close", ` null `, 404, "No such ticket."},
		{"POST /api/v1/giveaways/x/reroll", `null`, 404, "No such giveaway."},
		{"POST /api/v1/economy/adjust", ``, 400, "body: is required"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","user_id":"2","delta":5}`, 400, "body /user_id: must be given once"},
		{"POST /api/v1/economy/adjust", `{"user_id":"\ud800","delta":5}`, 400, "lone surrogates"},
		{"POST /api/v1/economy/adjust", "{\"user_id\":\"\xff\",\"delta\":5}", 400, "body: must be valid UTF-8"},

		// More of each kind.
		{
			"POST /api/v1/cases", `{"user_id":"1","moderatorId":"2","type":"warn","reason":"x"}`, 400,
			"body /moderatorId: is not a member of this object; did you mean moderator_id?",
		},
		{
			"POST /api/v1/cases", `{"user_id":"1","moderator_id":"2","type":"warn","reason":""}`, 400,
			"body /reason: must have at least 1 character",
		},
		{"POST /api/v1/cases", `{"user_id":"1","moderator_id":"2","reason":"x"}`, 400, "body /type: is required"},
		{"PATCH /api/v1/cases/x", `{"expires_at":"tomorrow"}`, 400, "body /expires_at: must be an existing RFC 3339 date and time with offset"},
		{"PATCH /api/v1/cases/x", `{"expires_at":"2026-01-01T00:00:00"}`, 400, "with offset"},
		{"PATCH /api/v1/cases/x", `{"expires_at":1767225600}`, 400, "body /expires_at: must be a string or null"},
		{"POST /api/v1/tickets/x/assign", `{}`, 400, "body /user_id: is required"},
		{"POST /api/v1/tickets/x/close", `{"authorId":"1"}`, 400, "did you mean author_id?"},
		{"POST /api/v1/tickets/x/claim", `{"user":"1"}`, 400, "did you mean user_id?"},
		{"POST /api/v1/tickets/x/message", `{"content":"x","internal":"yes"}`, 400, "body /internal: must be a boolean"},
		{"POST /api/v1/tickets/x/message", `{"text":"x"}`, 400, "body /text: is not a member of this object"},
		{"GET /api/v1/tickets?claimed_by_id=null", ``, 400, "query claimed_by_id: must be none or a snowflake"},
		{"GET /api/v1/tickets?order=newest", ``, 400, "query order: must be one of "},
		{"GET /api/v1/tickets?number=abc", ``, 400, "query number: must be an integer in decimal digits"},
		{"GET /api/v1/tickets?status=pending", ``, 400, "query status: must be one of "},
		{"GET /api/v1/tickets?channel=7", ``, 400, "did you mean channel_id?"},
		{"GET /api/v1/economy/ledger?reason=x", ``, 400, "query reason: is not a parameter of this operation"},
		{"POST /api/v1/economy/adjust", `{"user_id":"1","delta":5,"reference":"ö"}`, 400, "body /reference: must be printable ASCII"},
		{
			"GET /api/v1/levelling/leaderboard?user_id=1", ``, 400,
			"query user_id: is not a parameter of this operation; its parameters are at, page, per_page, period, present",
		},
		{
			"POST /api/v1/giveaways", `{"channel_id":"1","prize":"x","winner_count":0,"ends_at":"2099-01-01T00:00:00Z"}`, 400,
			"body /winner_count: must be an integer, at least 1, at most 100",
		},
		{"POST /api/v1/giveaways", `{"channel_id":"1","prize":"x","winner_count":1,"ends_at":"2020-01-01T00:00:00Z"}`, 400, "/ends_at"},
		{"POST /api/v1/giveaways/x/reroll", `{"exclude_user_ids":["alice"]}`, 400, "body /exclude_user_ids/0: must be a snowflake"},
		{"POST /api/v1/webhooks", `{"url":"https://example.com","events":["case.made"]}`, 400, "body /events/0: must be one of "},
		{"GET /api/v1/network/lookup/me", ``, 400, "path userId: must be a snowflake"},

		// Routes and methods.
		{"GET /me", ``, 404, "the paths of the API begin with /api/v1"},
		{"GET /v1/me", ``, 404, "the paths of the API begin with /api/v1"},
		{"GET /api/v1/cases/", ``, 404, "a path has no slash at its end"},
		{"GET /api/v1/Cases", ``, 404, "in lower case"},
		{"GET /api/v1/economy/wallet/5/", ``, 404, "a path has no slash at its end"},
		{"GET /api/v1/economy/wallet/5/6", ``, 404, "There is no such route"},
		{"PATCH /api/v1/cases/x/", `{}`, 404, "a path has no slash at its end"},
		{"DELETE /api/v1/cases/x/y", ``, 404, "There is no such route"},
		{"OPTIONS /api/v1/cases/x/y", ``, 404, "There is no such route"},
		{"DELETE /api/v1/cases/", ``, 404, "a path has no slash at its end"},
		{"GET /api/v1/cases//", ``, 404, "a segment of the path is empty"},
		{"DELETE /api/v1/cases", ``, 405, "This path takes OPTIONS, GET, HEAD, POST"},
		{"PUT /api/v1/economy/adjust", `{}`, 405, "POST"},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		req, err := http.NewRequestWithContext(t.Context(), method,
			strings.TrimSuffix(server.URL, "/api/v1")+strings.ReplaceAll(path, " ", "%20"), strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+server.Token)
		if c.body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
		res, err := server.Server.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var response struct{ Error struct{ Message string } }
		if err := json.Unmarshal(text, &response); err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != c.status || !strings.Contains(response.Error.Message, c.message) {
			t.Errorf("%s %s\n is told %d %s\n want    %d %s", c.call, c.body, res.StatusCode, response.Error.Message, c.status, c.message)
		}
	}
}

// A refusal caused by the guild's state names that state.
func TestRefusalsNameTheState(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	told := func(id, body string, want string, args ...apitest.Arg) {
		t.Helper()
		if got := a.Do(t, id, body, args...); !strings.Contains(string(got.Body), want) {
			t.Errorf("%s %s\n is told %d %s\n want %s", id, body, got.Status, got.Body, want)
		}
	}
	told("adjustBalance", `{"user_id":"5","delta":-3}`, "The balance is 0 and does not cover a change by -3.")
	a.Do(t, "adjustBalance", `{"user_id":"5","delta":20,"reference":"order 7"}`).Want(t, 200, "")
	told("adjustBalance", `{"user_id":"5","delta":-30}`, "The balance is 20 and does not cover a change by -30.")
	told("adjustBalance", `{"user_id":"5","delta":1,"reference":"order 7"}`, "The reference is that of the ledger entry ")
	told("adjustBalance", `{"user_id":"5","delta":9007199254740991}`, "would exceed 9007199254740991")
	told("adjustXp", `{"user_id":"5","delta":-3}`, "The member has 0 XP, which does not cover a change by -3.")

	dbtest.Do(t, a.DB(), func(ctx context.Context, tx *db.Tx) error {
		for _, statement := range []string{
			`INSERT INTO tickets (guild_id, id, number, opener_id, claimed_by_id) VALUES ($1, 'open', 1, '4', '55')`,
			`INSERT INTO tickets (guild_id, id, number, opener_id, status, closed_at) VALUES ($1, 'closed', 2, '4', 'closed', now())`,
			`
				INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, reason, status, source)
				VALUES ($1, 'gone', 1, '4', '5', 'warn', 'x', 'deleted', 'bot')`,
			`
				INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, starts_at, ends_at)
				VALUES ($1, 'on', 'active', 'x', 1, '6', now(), now() + interval '1 day')`,
			`UPDATE guild_settings SET require_close_reason = true WHERE guild_id = $1`,
		} {
			if _, err := tx.ExecContext(ctx, statement, a.Guild); err != nil {
				return err
			}
		}
		return nil
	})
	open, closed, on := apitest.Path("id", "open"), apitest.Path("id", "closed"), apitest.Path("id", "on")
	told("claimTicket", `{"user_id":"56"}`, "Ticket 1 is claimed by 55", open)
	told("closeTicket", ``, "requires a reason to close a ticket: send", open)
	told("createTicketMessage", `{"content":"x"}`, "Ticket 1 has no channel to post to; only internal notes", open)
	told("closeTicket", `{"reason":"x"}`, "Ticket 2 is closed already: there is nothing left to do.", closed)
	told("reopenTicket", ``, "Ticket 1 is open.", open)
	told("updateCase", `{"reason":"x"}`, "Case 1 is deleted and can no longer be edited", apitest.Path("id", "gone"))
	told("rerollGiveaway", ``, "The giveaway is active; only one that has ended", on)
	told("resumeGiveaway", ``, "The giveaway is active; only a paused one can be resumed.", on)
	a.Do(t, "pauseGiveaway", ``, on).Want(t, 200, "")
	told("pauseGiveaway", ``, "The giveaway is paused; only an active one can be paused.", on)
	a.Do(t, "endGiveaway", ``, on).Want(t, 202, "")
	told("endGiveaway", ``, "The giveaway is drawing; only one that is active, paused or scheduled can be ended.", on)
}

// A token of the other environment is recognised by its prefix.
func TestATokenOfTheOtherEnvironmentIsNamed(t *testing.T) {
	t.Parallel()
	a := apitest.New(t)
	for token, want := range map[string]string{
		"svc_live_" + strings.Repeat("a", 43): "This is a live token on a test server",
		"svc_test_" + strings.Repeat("a", 43): "The token is unknown, revoked or expired.",
		"svc_live_" + strings.Repeat("a", 42): "The token is unknown, revoked or expired.",
		"sk_live_x":                           "The token is unknown, revoked or expired.",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL+"/me", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := a.Server.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 401 || !strings.Contains(string(text), want) || !strings.Contains(string(text), "invalid_token") ||
			strings.Contains(string(text), token) {
			t.Errorf("%s: %d %s %v, want %s", token[:9], res.StatusCode, text, err, want)
		}
	}
}

// Clients that write every member send null for members without a value.
func TestNullIsAbsentWhereNothingElseCanBeMeant(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	server.Do(t, "adjustBalance", `{"user_id":"1","delta":5,"reason":null}`).Want(t, 200, `{"data":{"balance":5}}`)
	server.Do(t, "adjustXp", `{"user_id":"1","delta":5,"total_xp":null}`).Want(t, 200, "")
	server.Do(t, "adjustXp", `{"user_id":"1","delta":null,"total_xp":7}`).Want(t, 200, "")
	server.Do(t, "createWebhookEndpoint", `{"url":"https://127.0.0.1:9/x","events":["case.created"],"description":null,"enabled":null}`).
		Want(t, 201, `{"data":{"enabled":true}}`)

	hook := server.Do(t, "createWebhookEndpoint", `{"delivery":"pull","url":null,"events":["case.created"]}`).
		Want(t, 201, "").Str(t, "data.id")
	of := apitest.Path("id", hook)
	server.Do(t, "pullWebhookEvents", `{"limit":null,"wait":null,"lease":null}`, of).Want(t, 200, "")
	server.Do(t, "ackWebhookEvents", `{"event_ids":[],"return_ids":null}`, of).Want(t, 200, "")
	server.Do(t, "ackWebhookEvents", `{"event_ids":null,"return_ids":null}`, of).WantError(t, 400, "invalid_request")
	bot := server.Bot(t).In(server.Guild)
	bot.Do(t, "updateGuildSettings",
		`{"timezone":null,"modules":{"economy":null},"tickets":{"close_action":null,"require_close_reason":true}}`).
		Want(t, 200, `{"data":{"modules":{"economy":true},"tickets":{"require_close_reason":true}}}`)
	bot.Do(t, "putBotStream", `{"events":["case.created"],"echo":null}`, apitest.Path("name", "mirror")).
		Want(t, 200, `{"data":{"echo":false}}`)
	bot.Do(t, "pullBotEvents", `{"stream":"mirror","shard":null,"shards":null,"limit":null,"wait":null,"lease":null}`).Want(t, 200, "")
	bot.Do(t, "ackBotEvents", `{"stream":"mirror","event_ids":null,"return_ids":[]}`).Want(t, 200, "")
	bot.Do(t, "writeRecords", `{"records":[{"record":"reference","reference":"a"}],"tell":null,"on_refusal":null}`).Want(t, 200, "")
	bot.Do(t, "forgetMember", `{"cases":null}`, apitest.Path("userId", "9")).Want(t, 202, "")
	bot.Do(t, "removeGuild", `{"after_days":null}`).Want(t, 202, "")
}

// No message shows a regular expression, whichever pattern of a request a value breaks.
func TestMessagesDescribePatternsInWords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, op apitest.Operation) {
		for _, ref := range op.Spec.Parameters {
			if ref.Value.In != openapi3.ParameterInHeader { // headers have messages of their own
				patternsInWords(t, ref.Value.Name, ref.Value.Schema)
			}
		}
		if op.Spec.RequestBody != nil {
			patternsInWords(t, "body", op.Spec.RequestBody.Value.Content.Get("application/json").Schema)
		}
	})
}

func patternsInWords(t *testing.T, at string, ref *openapi3.SchemaRef) {
	t.Helper()
	if s := ref.Value; s.Pattern != "" {
		for _, wrong := range []string{"é", " ", "A b", "\x01", "1:", strings.Repeat("x", int(s.MinLength)+1)} {
			for _, p := range schema.Visit(s, wrong) {
				if strings.Contains(p.Message(), s.Pattern) {
					t.Errorf("%s: %q %s", at, wrong, p.Message())
				}
			}
		}
	}
	for member, is := range ref.Value.Properties {
		patternsInWords(t, at+"."+member, is)
	}
	if ref.Value.Items != nil {
		patternsInWords(t, at+"[]", ref.Value.Items)
	}
	if more := ref.Value.AdditionalProperties.Schema; more != nil {
		patternsInWords(t, at+".*", more)
	}
}
