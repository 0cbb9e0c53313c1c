package giveaways_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"guildhall/gen"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
	"guildhall/internal/service/guildfile"
)

func TestListGiveawayDraws(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("active", 2, 6)
	at := apitest.Path("id", id)
	s.Do(t, "listGiveawayDraws", "", at).Want(t, 200, `{"data":[],"page":1,"per_page":25,"has_more":false}`)
	s.Do(t, "endGiveaway", "", at).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
		t.Fatal(err)
	}
	s.WantEvent(t, "giveaway.ended", "")
	first := s.Do(t, "getGiveaway", "", at)
	won := s.winners(first)
	me := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaway_draws d JOIN api_tokens k ON k.id = d.token_id`)
	if me != 1 {
		t.Errorf("the first draw does not name the token that ended the giveaway")
	}
	s.Do(t, "listGiveawayDraws", "", at).Want(t, 200, `{"data":[{"round":1,"entry_count":21,"excluded_user_ids":[],"replaced_user_ids":[],
		"reason":null,"origin":{"type":"api"},"winners":`+quote(won)+`,"drawn_at":`+quote(first.Str(t, "data.updated_at"))+`}]}`)
	again := s.winners(s.Do(t, "rerollGiveaway", `{"reason":"They left","exclude_user_ids":["1001"]}`, at).Want(t, 200, ""))
	s.WantEvent(t, "giveaway.rerolled", "")
	s.Do(t, "listGiveawayDraws", "", at, apitest.Query("per_page", "1")).Want(t, 200, `{"data":[{"round":1}],"has_more":true}`)
	s.Do(t, "listGiveawayDraws", "", at, apitest.Query("per_page", "1"), apitest.Query("page", "2")).
		Want(t, 200, `{"data":[{"round":2,"reason":"They left","origin":{"type":"api"},"winners":`+quote(again[:1])+
			`,"excluded_user_ids":["1001"],"replaced_user_ids":`+quote(won[:1])+`}],"has_more":false}`)

	// A giveaway whose time was over was not ended by a call.
	other := s.giveaway("active", 1, 1)
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET ends_at = now() WHERE id = $1`, other)
	if err := giveaways.Transitions(context.Background(), s.DB()); err != nil {
		t.Fatal(err)
	}
	if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, other); err != nil {
		t.Fatal(err)
	}
	s.WantEvent(t, "giveaway.drawing", `{"origin":{"type":"system"}}`)
	s.WantEvent(t, "giveaway.ended", "")
	s.Do(t, "listGiveawayDraws", "", apitest.Path("id", other)).
		Want(t, 200, `{"data":[{"round":1,"entry_count":1,"origin":{"type":"system","token_id":null,"key_id":null}}]}`)

	left := 21
	for _, out := range slices.Compact(slices.Sorted(slices.Values(append(won, "1001")))) {
		n, _ := strconv.Atoi(out)
		left -= n - 1000
	}
	s.Do(t, "listGiveawayDraws", "", at).Want(t, 200, fmt.Sprintf(`{"data":[{"entry_count":21},{"entry_count":%d}]}`, left))

	s.Do(t, "listGiveawayDraws", "", apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
	s.Next(t).Do(t, "listGiveawayDraws", "", at).WantError(t, 404, "not_found")
	s.Do(t, "listGiveawayDraws", "", at, apitest.Query("round", "1")).WantError(t, 400, "invalid_request")
}

// script returns the Python script of the documentation.
func script(t *testing.T) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(gen.OpenAPI), "        ```python\n")
	text, _, end := strings.Cut(rest, "        ```\n")
	if !ok || !end {
		t.Fatal("the document shows no script")
	}
	text = strings.ReplaceAll("\n"+text, "\n        ", "\n")[1:]
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("the script has %d lines", n)
	}
	return text
}

// verifier returns a function that runs the script of the documentation against the API.
func (s giveawayAPI) verifier(t *testing.T) func(id string) (string, error) {
	t.Helper()
	python := testutil.Program(t, "python3")
	dir := t.TempDir()
	file, certificate := filepath.Join(dir, "verify.py"), filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, []byte(script(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	res, err := s.Server.Client.Get(s.URL + "/health")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	block := pem.Block{Type: "CERTIFICATE", Bytes: res.TLS.PeerCertificates[0].Raw}
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&block), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(id string) (string, error) {
		cmd := exec.CommandContext(t.Context(), python, file, s.URL, id)
		cmd.Env = append(os.Environ(), "GUILDHALL_TOKEN="+s.Token, "SSL_CERT_FILE="+certificate)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// With the script of the documentation, a program that may read a giveaway repeats its draws, and
// detects data that was changed afterwards. RELIABILITY.md, Giveaways.
func TestTheScriptRepeatsDraws(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	verify := s.verifier(t)
	// Having no draw to repeat is an error.
	if out, err := verify(s.giveaway("active", 1, 0)); err == nil || !strings.Contains(out, "no record of a draw") {
		t.Errorf("a giveaway that was not drawn: %v\n%s", err, out)
	}
	for _, c := range []struct{ winners, entrants int }{{3, 250}, {5, 3}, {1, 0}} {
		id, won := s.ended(c.winners, c.entrants)
		want := "round 1 repeated: " + strings.Join(won, " ")
		if c.entrants == 0 {
			want = "round 1 repeated: nobody"
		}
		if c.entrants > 100 {
			after := s.winners(s.Do(t, "rerollGiveaway", `{"count":2,"exclude_user_ids":["1250","1249"]}`, apitest.Path("id", id)).Want(t, 200, ""))
			s.WantEvent(t, "giveaway.rerolled", "")
			want += "\nround 2 repeated: " + strings.Join(after[:2], " ")
			s.Do(t, "rerollGiveaway", `{"replace_user_ids":[`+quote(after[2])+`]}`, apitest.Path("id", id)).Want(t, 200, "")
			s.WantEvent(t, "giveaway.rerolled", "")
			named := s.winners(s.Do(t, "rerollGiveaway", `{"replace_user_ids":[`+quote(after[1])+`]}`, apitest.Path("id", id)).Want(t, 200, ""))
			s.WantEvent(t, "giveaway.rerolled", "")
			want += "\nround 3 repeated: " + named[2] + "\nround 4 repeated: " + named[1]
		}
		out, err := verify(id)
		if err != nil || strings.TrimSpace(out) != want {
			t.Fatalf("%d of %d: %v\n%s\nwant\n%s", c.winners, c.entrants, err, out, want)
		}
		if c.entrants != 250 {
			continue
		}
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaway_entries SET entries = entries + 1 WHERE giveaway_id = $1 AND user_id = '1100'`, id)
		if out, err := verify(id); err == nil || !strings.Contains(out, "round 1 cannot be repeated") {
			t.Errorf("changed entries: %v\n%s", err, out)
		}
	}
}

// The giveaway in the documentation of the script is one that dev draws.
func TestTheScriptIsShownWithAGiveawayThatDevDraws(t *testing.T) {
	t.Parallel()
	_, id, _ := strings.Cut(string(gen.OpenAPI), "verify.py https://guildhall.example/api/v1 ")
	id, _, _ = strings.Cut(id, "`")
	var file bytes.Buffer
	if err := guildfile.Demo(&file); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(file.String()) {
		var r struct{ Record, ID, Status string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Record == "giveaway" && r.ID == id && r.Status == "drawing" {
			return
		}
	}
	t.Errorf("the demo guild has no giveaway %q that is to be drawn", id)
}

// A reader that pages by updated_since as documented misses no giveaway, however giveaways change
// meanwhile.
func TestGiveawaysByChange(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	var all []string
	for i := range 7 {
		id := s.giveaway([]string{"active", "paused"}[i%2], 1, 0)
		dbtest.Exec(s.t, s.DB(), `
			UPDATE giveaways
			SET updated_at = '2026-01-01T00:00:00Z'::timestamptz + make_interval(secs => $2)
			WHERE id = $1`, id, i)
		all = append(all, id)
	}
	since := func(at string, args ...apitest.Arg) *apitest.Response {
		t.Helper()
		return s.Do(t, "listGiveaways", "", append(args, apitest.Query("updated_since", at))...)
	}
	if got := since("2026-01-01T00:00:00Z").Want(t, 200, `{"has_more":false}`).All(t, "id"); !slices.Equal(got, all) {
		t.Errorf("in the order of changes: %v, want %v", got, all)
	}
	two := since("2026-01-01T01:00:03+01:00", apitest.Query("per_page", "2")).Want(t, 200, `{"has_more":true}`)
	if got := two.All(t, "id"); !slices.Equal(got, all[3:5]) {
		t.Errorf("from the fourth on: %v, want %v", got, all[3:5])
	}
	if got := since("2026-01-01T00:00:02Z", apitest.Query("status", "paused")).All(t, "id"); !slices.Equal(got, []string{all[3], all[5]}) {
		t.Errorf("the paused ones: %v", got)
	}
	// A changed giveaway moves to the end of the list, and its instant only increases.
	before := s.Do(t, "getGiveaway", "", apitest.Path("id", all[0])).Str(t, "data.updated_at")
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET updated_at = now() + interval '1 hour' WHERE id = $1`, all[0])
	ahead := s.Do(t, "getGiveaway", "", apitest.Path("id", all[0])).Str(t, "data.updated_at")
	last := s.Do(t, "pauseGiveaway", "", apitest.Path("id", all[0])).Str(t, "data.updated_at")
	s.WantEvent(t, "giveaway.paused", `{"timestamp":`+quote(last)+`}`)
	if before >= ahead || ahead >= last {
		t.Errorf("updated_at went from %s over %s to %s", before, ahead, last)
	}
	if got := since(last).All(t, "id"); !slices.Equal(got, all[:1]) {
		t.Errorf("since its own change: %v", got)
	}
	s.Next(t).Do(t, "listGiveaways", "", apitest.Query("updated_since", "2026-01-01T00:00:00Z")).Want(t, 200, `{"data":[]}`)
	s.Do(t, "listGiveaways", "", apitest.Query("updated_since", "yesterday")).WantError(t, 400, "invalid_request")
	if _, err := time.Parse(time.RFC3339, last); err != nil {
		t.Error(err)
	}
}
