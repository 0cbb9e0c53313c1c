package records_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/transfer"
)

// Records, API calls and imports, from one client or from several concurrently. The API shows what
// a record says, a refused record changes nothing, and at the end the lists, the ledger, the
// transcripts and a copy built from events alone agree. RELIABILITY.md, Writes.
func TestRecordsProperty(t *testing.T) {
	t.Parallel()
	server, guild := apitest.New(t), 1000
	rapid.Check(t, func(rt *rapid.T) {
		guild++
		s := newSides(t, server, strconv.Itoa(guild))
		var all sync.WaitGroup
		errs := make([]error, rapid.IntRange(1, 3).Draw(rt, "sides"))
		for i := range errs {
			acts := rapid.SliceOfN(anAct, 8, 30).Draw(rt, "acts")
			all.Go(func() {
				for len(acts) > 0 && errs[i] == nil {
					n := min(1+acts[0].C, len(acts))
					errs[i] = s.do(acts[:n], len(errs) == 1)
					acts = acts[n:]
				}
			})
		}
		all.Wait()
		if err := errors.Join(append(errs, s.compare())...); err != nil {
			rt.Fatal(err)
		}
	})
}

// act is one operation of a simulated client, with random numbers that choose its arguments.
type act struct{ What, A, B, C int }

const manyActs = 19

var anAct = rapid.Custom(func(t *rapid.T) act {
	n := func(most int) int { return rapid.IntRange(0, most).Draw(t, "n") }
	return act{n(manyActs - 1), n(2), n(4), n(2)}
})

// sides are the clients that act in one guild.
type sides struct {
	api   *apitest.API
	d     *db.DB
	guild string
	ops   map[string]apitest.Operation
}

// newSides creates a guild on the test's server, with clients for it.
func newSides(t *testing.T, server *apitest.API, guild string) *sides {
	s := &sides{api: server.Bot(t).In(guild), d: server.DB(), guild: guild, ops: map[string]apitest.Operation{}}
	for _, op := range apitest.Operations() {
		s.ops[op.ID] = op
	}
	s.api.Do(t, "writeRecords", records(`{"record":"guild"}`)).Want(t, 200, "")
	dbtest.Listen(t, s.d, guild, event.Types)
	return s
}

// call makes a call and accepts every documented response except server errors.
func (s *sides) call(op, body string, args ...apitest.Arg) (*apitest.Response, error) {
	a, err := s.api.Retry(s.ops[op], body, args...)
	if err == nil && a.Status >= http.StatusInternalServerError {
		err = fmt.Errorf("%s %s is answered %d %s", op, body, a.Status, a.Body)
	}
	return a, err
}

// do carries out one call: a single act, or several records.
func (s *sides) do(acts []act, alone bool) error {
	switch a := acts[0]; {
	case a.What < 10:
		return s.write(acts, alone)
	case a.What == manyActs-1:
		return s.importFile(a)
	default:
		return s.act(a)
	}
}

func (s *sides) act(a act) error {
	thing := apitest.Path("id", s.id("t", a.A))
	if a.What == 13 {
		thing = apitest.Path("id", s.id("c", a.A))
	}
	user := strconv.Itoa(a.A + 1)
	var err error
	switch a.What {
	case 10:
		_, err = s.call("adjustBalance", fmt.Sprintf(`{"user_id":"%s","delta":%d}`, user, []int{-3, 5, 8, -1, 40}[a.B]))
	case 11:
		_, err = s.call("adjustXp", fmt.Sprintf(`{"user_id":"%s","delta":%d}`, user, []int{-300, 50, 80, 700, 400}[a.B]))
	case 12:
		_, err = s.call("createCase", `{"user_id":"`+user+`","moderator_id":"8","type":"warn","reason":"x"}`)
	case 13:
		_, err = s.call("updateCase", fmt.Sprintf(`{"reason":"by the API %d"}`, a.B), thing)
	case 14:
		_, err = s.call("claimTicket", `{"user_id":"`+user+`"}`, thing)
	case 15:
		_, err = s.call("closeTicket", `{"reason":"done"}`, thing)
	case 16:
		_, err = s.call("reopenTicket", ``, thing)
	case 17:
		_, err = s.call("createTicketMessage", fmt.Sprintf(`{"author_id":"%s","content":"by the API %d"}`, user, a.C), thing)
	}
	return err
}

func (s *sides) id(kind string, n int) string { return kind + strconv.Itoa(n) + "-" + s.guild }

// importFile imports data that nobody else writes. It records no events.
func (s *sides) importFile(a act) error {
	g := `"guild_id":"` + s.guild + `"`
	text := strings.Join([]string{
		fmt.Sprintf(`{"record":"wallet",%s,"user_id":"%d","balance":%d}`, g, a.A+60, a.B),
		fmt.Sprintf(`{"record":"level",%s,"user_id":"%d","total_xp":%d}`, g, a.A+60, a.B),
		fmt.Sprintf(
			`{"record":"case",%s,"id":"%s","user_id":"60","moderator_id":"8","type":"note","reason":"import %d"}`,
			g,
			s.id("i", a.A),
			a.B,
		),
	}, "\n")
	for begun := time.Now(); ; {
		_, err := guildfile.Update{Balances: transfer.Add}.Run(testContext, s.d, strings.NewReader(text), nil)
		if err == nil || !strings.Contains(err.Error(), "run the import again") || time.Since(begun) > 30*time.Second {
			return err
		}
	}
}

// write sends records of different things; they may be refused.
func (s *sides) write(acts []act, alone bool) error {
	var list []map[string]any
	for _, a := range acts {
		if a.What < 10 {
			r, err := s.record(a)
			if err != nil {
				return err
			}
			name := func(r map[string]any) string {
				return fmt.Sprint(r["record"], r["id"], r["user_id"], r["giveaway_id"], r["channel_message_id"], r["ticket_id"], r["reference"])
			}
			if !slices.ContainsFunc(list, func(other map[string]any) bool { return name(other) == name(r) && r["new"] == nil }) {
				list = append(list, r)
			}
		}
	}
	sent := make([]map[string]any, len(list))
	for i, r := range list {
		sent[i] = maps.Clone(r)
		delete(sent[i], "new")
	}
	body, err := json.Marshal(map[string]any{"records": sent, "on_refusal": "skip"})
	if err != nil {
		return err
	}
	a, err := s.call("writeRecords", string(body))
	if err != nil {
		return err
	}
	if a.Status != http.StatusOK {
		return fmt.Errorf("%s is answered %d %s", body, a.Status, a.Body)
	}
	if !alone {
		return nil
	}
	var answer struct {
		Data []struct {
			Record, Result, ID string
			UpdatedAt          *string `json:"updated_at"`
		}
	}
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		return err
	}
	for i, is := range answer.Data {
		if is.Result == "refused" || list[i]["entries"] == 0 {
			continue
		}
		if err := s.shows(list[i], is.ID, is.UpdatedAt); err != nil {
			return fmt.Errorf("%s is answered %s, but %w", body, a.Body, err)
		}
	}
	return nil
}

// at returns the last change of a wallet or level, for if_updated_at.
func (s *sides) at(op, user string) (any, error) {
	a, err := s.call(op, "", apitest.Path("userId", user))
	if err != nil {
		return nil, err
	}
	var shown struct {
		Data struct {
			UpdatedAt *string `json:"updated_at"`
		}
	}
	return shown.Data.UpdatedAt, json.Unmarshal(a.Body, &shown)
}

// record returns the record of an act.
func (s *sides) record(a act) (r map[string]any, err error) {
	user := strconv.Itoa(a.A + 1)
	switch a.What {
	case 0:
		r = map[string]any{"record": "wallet", "user_id": user, "balance": a.B * 7}
	case 1:
		r = map[string]any{"record": "level", "user_id": user, "total_xp": a.B * 200}
	case 2:
		r = map[string]any{
			"record": "case", "id": s.id("c", a.A), "user_id": user, "moderator_id": "8", "reason": fmt.Sprint("r", a.B),
			"type": []string{"warn", "ban", "mute"}[a.C], "status": []string{"active", "expired", "revoked", "active", "active"}[a.B],
			"metadata": map[string]any{"a": []any{"x", nil, "y"}[a.C]},
		}
	case 3:
		r = map[string]any{"record": "case", "user_id": user, "moderator_id": "8", "type": "kick", "reason": "new", "new": true}
	case 4:
		r = map[string]any{
			"record": "ticket", "id": s.id("t", a.A), "opener_id": user, "channel_id": "77",
			"claimed_by_id": []any{nil, "8", "9"}[a.C], "status": []string{"open", "closed", "open", "open", "closed"}[a.B],
		}
		if a.B%2 == 0 {
			r["subject"] = fmt.Sprint("s", a.C)
		}
	case 5:
		r = map[string]any{
			"record": "ticket_message", "ticket_id": s.id("t", a.A), "channel_message_id": strconv.Itoa(90 + a.B),
			"author_id": user, "content": fmt.Sprint("m", a.C), "kind": []string{"message", "note", "message"}[a.C],
		}
	case 6:
		r = map[string]any{
			"record": "giveaway", "id": s.id("g", a.A), "prize": fmt.Sprint("p", a.C), "channel_id": "7",
			"status": []string{"active", "paused", "scheduled", "ended", "active"}[a.B], "starts_at": "2026-01-01T00:00:00Z",
			"ends_at": "2990-01-01T00:00:00Z",
		}
		if a.B == 3 {
			r["winners"] = []string{"1"}
		}
	case 7:
		r = map[string]any{"record": "giveaway_entry", "giveaway_id": s.id("g", a.A), "user_id": strconv.Itoa(a.B + 1), "entries": a.C}
	case 8:
		r = map[string]any{"record": "reference", "reference": fmt.Sprint("r", a.B)}
	case 9:
		r = map[string]any{
			"record":   "settings",
			"timezone": []string{"UTC", "Europe/Paris", "Asia/Tokyo"}[a.C],
			"modules":  map[string]any{"economy": a.A > 0},
		}
	}
	if a.What < 2 && a.C > 0 {
		r["if_updated_at"], err = s.at([]string{"getWallet", "getLevelRecord"}[a.What], user)
	}
	return r, err
}

// shows reads what a record has created or kept and compares the two.
func (s *sides) shows(r map[string]any, id string, at *string) error {
	op, arg := "", apitest.Path("id", id)
	switch r["record"] {
	case "wallet":
		op, arg = "getWallet", apitest.Path("userId", id)
	case "level":
		op, arg = "getLevelRecord", apitest.Path("userId", id)
	case "case":
		op = "getCase"
	case "ticket":
		op = "getTicket"
	case "giveaway":
		op = "getGiveaway"
	case "settings":
		op = "getGuildSettings"
	default:
		return nil // no operation shows a single one; the comparison at the end covers them
	}
	a, err := s.call(op, "", arg)
	if err != nil {
		return err
	}
	var shown struct{ Data map[string]any }
	if err := json.Unmarshal(a.Body, &shown); err != nil {
		return err
	}
	for name, want := range r {
		switch name {
		case "record", "new", "metadata", "modules", "if_updated_at", "starts_at", "ends_at":
			continue
		}
		if fmt.Sprint(shown.Data[name]) != fmt.Sprint(want) {
			return fmt.Errorf("%s shows %v as %s: %s", op, shown.Data[name], name, a.Body)
		}
	}
	if at == nil || shown.Data["updated_at"] != *at {
		return fmt.Errorf("%s shows another updated_at: %s", op, a.Body)
	}
	return nil
}
