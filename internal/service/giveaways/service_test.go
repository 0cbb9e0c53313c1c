package giveaways_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

func TestMain(m *testing.M) { apitest.Main(m, "Giveaways") }

// giveawayAPI is an API client with functions that write giveaways as the bot would.
type giveawayAPI struct {
	*apitest.API
	t testing.TB
}

func newGiveawayAPI(t testing.TB) giveawayAPI {
	t.Helper()
	return giveawayAPI{apitest.New(t, apitest.Scopes("giveaways:read", "giveaways:write")), t}
}

// on returns the giveawayAPI for a subtest.
func (s giveawayAPI) on(t testing.TB) giveawayAPI {
	t.Helper()
	return giveawayAPI{s.API, t}
}

// giveaway stores a giveaway with the entrants "1001", "1002", …, of whom the nth has n entries,
// and returns its id.
func (s giveawayAPI) giveaway(status string, winnerCount, entrants int) string {
	s.t.Helper()
	id := db.NewID()
	dbtest.Exec(s.t, s.DB(), `
		INSERT INTO giveaways (guild_id, id, status, prize, winner_count, channel_id, message_id, starts_at, ends_at, paused_at)
		VALUES ($1, $2, $3, 'A prize', $4, '381886868708655104', '912347611830792242', now() - interval '1 day', now() + interval '1 day',
		        CASE WHEN $3 = 'paused' THEN now() END)`, s.Guild, id, status, winnerCount)
	dbtest.Exec(s.t, s.DB(), `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries, entered_at)
		SELECT $1, $2, (1000 + n)::text, n, now() - make_interval(secs => n)
		FROM generate_series(1, $3::integer) n`, s.Guild, id, entrants)
	dbtest.Exec(s.t, s.DB(), giveaways.Recount)
	return id
}

// ended stores a giveaway that has been drawn and returns its id and winners.
func (s giveawayAPI) ended(winnerCount, entrants int) (string, []string) {
	s.t.Helper()
	id := s.giveaway("drawing", winnerCount, entrants)
	if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
		s.t.Fatal(err)
	}
	s.WantEvent(s.t, "giveaway.ended", `{"origin":{"type":"system"}}`)
	return id, s.winners(s.Do(s.t, "getGiveaway", "", apitest.Path("id", id)))
}

func (s giveawayAPI) winners(a *apitest.Response) []string {
	s.t.Helper()
	var body struct {
		Data struct {
			Winners []string `json:"winners"`
		} `json:"data"`
	}
	a.Into(s.t, &body)
	return body.Data.Winners
}

func quote(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestListGiveaways(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	var all, paused []string
	for i := range 30 {
		status := []string{"scheduled", "active", "paused", "drawing", "ended"}[i%5]
		id := s.giveaway(status, 1, 0)
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET created_at = now() - make_interval(mins => $2) WHERE id = $1`, id, i/2)
		all = append(all, id)
		if status == "paused" {
			paused = append(paused, id)
		}
	}
	// Two are created in each minute; of the two, the later id comes first.
	for i := 0; i < len(all); i += 2 {
		all[i], all[i+1] = all[i+1], all[i]
	}
	first := s.Do(t, "listGiveaways", "").Want(t, 200, `{"page":1,"per_page":25,"has_more":true}`)
	second := s.Do(t, "listGiveaways", "", apitest.Query("page", "2")).Want(t, 200, `{"page":2,"has_more":false}`)
	if got := append(first.All(t, "id"), second.All(t, "id")...); !slices.Equal(got, all) {
		t.Errorf("the list is\n%v, want\n%v", got, all)
	}
	s.Do(t, "listGiveaways", "", apitest.Query("page", "3")).Want(t, 200, `{"data":[],"has_more":false}`)
	only := s.Do(t, "listGiveaways", "", apitest.Query("status", "paused")).Want(t, 200, `{"has_more":false}`)
	if got := only.All(t, "id"); !slices.Equal(got, paused) {
		t.Errorf("the paused ones are %v, want %v", got, paused)
	}
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET metadata = '{"shop":"a:b"}' WHERE id = $1 OR id = $2`, paused[0], paused[1])
	for _, args := range [][]apitest.Arg{nil, {apitest.Query("status", "paused")}, {apitest.Query("updated_since", "2020-01-01T00:00:00Z")}} {
		found := s.Do(t, "listGiveaways", "", append(args, apitest.Query("metadata", "shop:a:b"))...).
			Want(t, 200, `{"has_more":false}`).All(t, "id")
		if slices.Sort(found); !slices.Equal(found, slices.Sorted(slices.Values(paused[:2]))) {
			t.Errorf("by metadata and %v: %v, want %v", args, found, paused[:2])
		}
	}
	s.Do(t, "listGiveaways", "", apitest.Query("metadata", "shop:a:b"), apitest.Query("status", "ended")).Want(t, 200, `{"data":[]}`)
	for name, value := range map[string]string{"status": "over", "page": "0", "per_page": "101", "state": "ended"} {
		s.Do(t, "listGiveaways", "", apitest.Query(name, value)).WantError(t, 400, "invalid_request")
	}
	s.Next(t).Do(t, "listGiveaways", "").Want(t, 200, `{"data":[]}`)
}

func TestGetGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("active", 2, 4)
	s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{
		"id":`+quote(id)+`,"status":"active","prize":"A prize","description":null,"winner_count":2,"entrant_count":4,"entry_count":10,
		"winners":[],"host_id":null,"channel_id":"381886868708655104","message_id":"912347611830792242","ended_at":null}}`)
	for _, other := range []string{"nowhere", id + "0", strings.Repeat("9", 64), "%00", "ü", "' OR 1=1"} {
		s.Do(t, "getGiveaway", "", apitest.Path("id", other)).WantError(t, 404, "not_found")
	}
	s.Next(t).Do(t, "getGiveaway", "", apitest.Path("id", id)).WantError(t, 404, "not_found")
	s.Do(t, "getGiveaway", "", apitest.Path("id", id), apitest.Query("expand", "entries")).WantError(t, 400, "invalid_request")
}

func TestListGiveawayEntries(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("ended", 1, 30)
	// The last entrant entered first; with equal instants the numerically smaller id comes first.
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaway_entries SET entered_at = '2026-01-01T00:00:00Z' WHERE user_id IN ('1001', '1002')`)
	dbtest.Exec(s.t, s.DB(), `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries, entered_at)
		VALUES ($1, $2, '999', 7, '2026-01-01T00:00:00Z')`, s.Guild, id)
	dbtest.Exec(s.t, s.DB(), giveaways.Recount)
	want := []string{"999", "1001", "1002"}
	for n := 30; n > 2; n-- {
		want = append(want, strconv.Itoa(1000+n))
	}
	at := apitest.Path("id", id)
	first := s.Do(t, "listGiveawayEntries", "", at).Want(t, 200, `{"page":1,"per_page":25,"has_more":true}`)
	second := s.Do(t, "listGiveawayEntries", "", at, apitest.Query("page", "2")).Want(t, 200, `{"has_more":false}`)
	if got := append(first.All(t, "user_id"), second.All(t, "user_id")...); !slices.Equal(got, want) {
		t.Errorf("the entrants are\n%v, want\n%v", got, want)
	}
	s.Do(t, "listGiveawayEntries", "", at, apitest.Query("page", "100000"), apitest.Query("per_page", "100")).
		Want(t, 200, `{"data":[],"has_more":false}`)
	s.Do(t, "listGiveawayEntries", "", at, apitest.Query("user_id", "999")).
		Want(t, 200, `{"data":[{"user_id":"999","entries":7,"entered_at":"2026-01-01T00:00:00.000Z"}],"has_more":false}`)
	s.Do(t, "listGiveawayEntries", "", apitest.Path("id", s.giveaway("active", 1, 1)), apitest.Query("user_id", "999")).
		Want(t, 200, `{"data":[],"has_more":false}`)
	s.Do(t, "listGiveawayEntries", "", at, apitest.Query("user_id", "998")).Want(t, 200, `{"data":[],"has_more":false}`)
	s.Do(t, "listGiveawayEntries", "", at, apitest.Query("user_id", "0998")).WantError(t, 400, "invalid_request")
	s.Do(t, "listGiveawayEntries", "", apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
	s.Next(t).Do(t, "listGiveawayEntries", "", at).WantError(t, 404, "not_found")
}

func (s giveawayAPI) untilEnded(id string) {
	s.t.Helper()
	testutil.Eventually(s.t, "the draw", func() bool {
		return dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaways WHERE id = $1 AND status = 'ended'`, id) == 1
	})
}

func in(d time.Duration) string { return time.Now().UTC().Add(d).Format(time.RFC3339Nano) }

func TestCreateGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	create := func(t *testing.T, change map[string]any) *apitest.Response {
		t.Helper()
		body := map[string]any{"channel_id": "381886868708655104", "prize": "Nitro", "winner_count": 2, "ends_at": in(time.Hour)}
		for name, value := range change {
			body[name] = value
		}
		return s.Do(t, "createGiveaway", quote(body))
	}
	t.Run("starts at once", func(t *testing.T) {
		s := s.on(t)
		a := create(t, nil).Want(t, 201, `{"data":{"status":"active","prize":"Nitro","description":null,"winner_count":2,"entrant_count":0,
			"entry_count":0,"winners":[],"host_id":null,"message_id":null,"ended_at":null}}`)
		if a.Str(t, "data.starts_at") != a.Str(t, "data.created_at") {
			t.Errorf("it starts at %s and was created at %s", a.Str(t, "data.starts_at"), a.Str(t, "data.created_at"))
		}
		if want := "/api/v1/giveaways/" + a.Str(t, "data.id"); a.Header.Get("Location") != want {
			t.Errorf("the Location is %s, want %s", a.Header.Get("Location"), want)
		}
		s.WantEvent(t, "giveaway.created", `{"origin":{"type":"api"},"data":{"id":`+quote(a.Str(t, "data.id"))+`}}`)
		s.Do(t, "getGiveaway", "", apitest.Path("id", a.Str(t, "data.id"))).Want(t, 200, string(a.Body))
	})
	t.Run("waits for its start", func(t *testing.T) {
		s := s.on(t)
		a := create(t, map[string]any{"starts_at": in(30 * time.Minute), "description": "Text", "host_id": "80351110224678912"})
		a.Want(t, 201, `{"data":{"status":"scheduled","description":"Text","host_id":"80351110224678912"}}`)
		s.WantEvent(t, "giveaway.created", `{"data":{"status":"scheduled"}}`)
	})
	t.Run("may have started already, and takes null for what is left out", func(t *testing.T) {
		s := s.on(t)
		create(t, map[string]any{"starts_at": "2026-01-01T12:00:00+02:00", "host_id": nil, "description": nil}).
			Want(t, 201, `{"data":{"status":"active","starts_at":"2026-01-01T10:00:00.000Z","host_id":null,"description":null}}`)
		s.WantEvent(t, "giveaway.created", "")
	})
	t.Run("keeps what the caller wants to know of it", func(t *testing.T) {
		s := s.on(t)
		a := create(t, map[string]any{"metadata": map[string]any{"app.id": "7", "empty": "", "none": nil}}).
			Want(t, 201, `{"data":{"metadata":{"app.id":"7","empty":""}}}`)
		s.WantEvent(t, "giveaway.created", `{"data":{"metadata":{"app.id":"7","empty":""}}}`)
		s.Do(t, "getGiveaway", "", apitest.Path("id", a.Str(t, "data.id"))).Want(t, 200, string(a.Body))
		long := make(map[string]any)
		for n := range 20 {
			long["n"+strconv.Itoa(n)] = strings.Repeat("x", 500)
		}
		create(t, map[string]any{"metadata": long}).WantError(t, 422, "too_much_metadata")
	})
	for name, change := range map[string]map[string]any{
		"metadata by another name":  {"metadata": map[string]any{"A": ""}},
		"an end in the past":        {"ends_at": in(-time.Second), "starts_at": in(-time.Hour)},
		"an end before the start":   {"starts_at": in(2 * time.Hour)},
		"an end at the start":       {"starts_at": "2126-01-01T00:00:00Z", "ends_at": "2126-01-01T01:00:00+01:00"},
		"no winners":                {"winner_count": 0},
		"too many winners":          {"winner_count": 101},
		"no prize":                  {"prize": ""},
		"a blank prize":             {"prize": " \u200b"},
		"a long prize":              {"prize": strings.Repeat("ü", 201)},
		"a long description":        {"description": strings.Repeat("ü", 1001)},
		"a channel that is no id":   {"channel_id": "general"},
		"an impossible end":         {"ends_at": "2126-02-30T00:00:00Z"},
		"a member nobody knows":     {"colour": "red"},
		"an end that is no instant": {"ends_at": "tomorrow"},
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			s := s.on(t)
			create(t, change).WantError(t, 400, "invalid_request")
			s.WantNoEvent(t)
		})
	}
	t.Run("takes what is just long enough", func(t *testing.T) {
		s := s.on(t)
		create(t, map[string]any{"prize": strings.Repeat("ü", 200), "description": strings.Repeat("ü", 1000), "winner_count": 100}).
			Want(t, 201, "")
		s.WantEvent(t, "giveaway.created", "")
	})
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaways`); n != 5 {
		t.Errorf("there are %d giveaways, want 5", n)
	}
}

func TestEndGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	for _, status := range []string{"scheduled", "active", "paused"} {
		t.Run("ends one that is "+status, func(t *testing.T) {
			s := s.on(t)
			id := s.giveaway(status, 2, 5)
			a := s.Key("end-"+status).Do(t, "endGiveaway", "", apitest.Path("id", id)).
				Want(t, 202, `{"data":{"id":`+quote(id)+`,"status":"drawing","winners":[],"ended_at":null}}`)
			if a.Header.Get("Location") != "/api/v1/giveaways/"+id || a.Header.Get("Retry-After") != "2" {
				t.Errorf("Location %q, Retry-After %q", a.Header.Get("Location"), a.Header.Get("Retry-After"))
			}
			s.WantEvent(t, "giveaway.drawing", `{"origin":{"type":"api"},"data":`+quote(data(t, a))+`}`)
			s.Do(t, "endGiveaway", "", apitest.Path("id", id)).WantError(t, 422, "giveaway_not_running")
			s.WantNoEvent(t)
			if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
				t.Fatal(err)
			}
			done := s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"ended"}}`)
			if n := len(s.winners(done)); n != 2 {
				t.Errorf("there are %d winners, want 2", n)
			}
			s.WantEvent(t, "giveaway.ended", `{"origin":{"type":"system"},"data":`+quote(data(t, done))+`}`)
			s.Key("end-"+status).Do(t, "endGiveaway", "", apitest.Path("id", id)).WantReplayOf(t, a)
			s.WantNoEvent(t)
		})
	}
	for _, status := range []string{"drawing", "ended"} {
		t.Run("refuses one that is "+status, func(t *testing.T) {
			s := s.on(t)
			s.Do(t, "endGiveaway", "", apitest.Path("id", s.giveaway(status, 1, 1))).WantError(t, 422, "giveaway_not_running")
			s.WantNoEvent(t)
		})
	}
	s.Do(t, "endGiveaway", "", apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
	id := s.giveaway("active", 1, 1)
	s.Do(t, "endGiveaway", "", apitest.Path("id", id), apitest.Query("now", "true")).WantError(t, 400, "invalid_request")
	s.Next(t).Do(t, "endGiveaway", "", apitest.Path("id", id)).WantError(t, 404, "not_found")
	s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"active"}}`)
}

// data returns the member data of a response.
func data(t testing.TB, a *apitest.Response) any {
	t.Helper()
	var body struct {
		Data any `json:"data"`
	}
	a.Into(t, &body)
	return body.Data
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("active", 1, 1)
	at := apitest.Path("id", id)
	ends := func(a *apitest.Response) time.Time {
		t.Helper()
		e, err := time.Parse(time.RFC3339, a.Str(t, "data.ends_at"))
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := s.Do(t, "pauseGiveaway", "", at).Want(t, 200, `{"data":{"status":"paused"}}`)
	s.WantEvent(t, "giveaway.paused",
		`{"origin":{"type":"api"},"timestamp":`+quote(before.Str(t, "data.updated_at"))+`,"data":`+quote(data(t, before))+`}`)
	s.Do(t, "pauseGiveaway", "", at).WantError(t, 422, "giveaway_not_active")
	dbtest.Exec(s.t, s.DB(), `
		UPDATE giveaways
		SET `+dbtest.Earlier(`interval '3 hours'`, "paused_at")+`, `+dbtest.Earlier(`interval '2 days'`, "ends_at")+`
		WHERE id = $1`, id)
	if err := giveaways.Transitions(context.Background(), s.DB()); err != nil {
		t.Fatal(err)
	}
	after := s.Do(t, "resumeGiveaway", "", at).Want(t, 200, `{"data":{"status":"active"}}`)
	s.WantEvent(t, "giveaway.resumed",
		`{"origin":{"type":"api"},"timestamp":`+quote(after.Str(t, "data.updated_at"))+`,"data":`+quote(data(t, after))+`}`)
	if moved := ends(after).Sub(ends(before)) + 48*time.Hour; moved < 3*time.Hour || moved > 3*time.Hour+time.Minute {
		t.Errorf("a pause of three hours moved the end by %v", moved)
	}
	s.Do(t, "resumeGiveaway", "", at).WantError(t, 422, "giveaway_not_paused")
	// No pause moves the end beyond the last instant that can be written.
	dbtest.Exec(s.t, s.DB(), `
		UPDATE giveaways
		SET status = 'paused', ends_at = '9999-12-31T23:59:00Z', paused_at = now() - interval '1 day', updated_at = '9999-12-31T23:59:59.999Z'
		WHERE id = $1`, id)
	s.Do(t, "resumeGiveaway", "", at).Want(t, 200, `{"data":{"status":"active","ends_at":"9999-12-31T23:59:59.999Z"}}`)
	s.WantEvent(t, "giveaway.resumed", `{"timestamp":"9999-12-31T23:59:59.999Z"}`)
	if late := dbtest.Value[bool](s.t, s.DB(), `SELECT max(updated_at) > '9999-12-31T23:59:59.999Z' FROM giveaways`); late {
		t.Error("updated_at is in the year 10000")
	}
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET ends_at = now() - interval '1 second' WHERE id = $1`, id)
	if err := giveaways.Transitions(context.Background(), s.DB()); err != nil {
		t.Fatal(err)
	}
	s.Do(t, "getGiveaway", "", at).Want(t, 200, `{"data":{"status":"drawing"}}`)
	s.WantEvent(t, "giveaway.drawing", `{"origin":{"type":"system"}}`)
	for _, status := range []string{"scheduled", "drawing", "ended"} {
		other := apitest.Path("id", s.giveaway(status, 1, 1))
		s.Do(t, "pauseGiveaway", "", other).WantError(t, 422, "giveaway_not_active")
		s.Do(t, "resumeGiveaway", "", other).WantError(t, 422, "giveaway_not_paused")
	}
	for _, op := range []string{"pauseGiveaway", "resumeGiveaway"} {
		s.Do(t, op, "", apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
		s.Next(t).Do(t, op, "", at).WantError(t, 404, "not_found")
		s.Do(t, op, "", at, apitest.Query("now", "true")).WantError(t, 400, "invalid_request")
	}
	s.WantNoEvent(t)
}
