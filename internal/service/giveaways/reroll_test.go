package giveaways_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

func TestRerollGiveaway(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	t.Run("replaces the first winner unless told otherwise", func(t *testing.T) {
		s := s.on(t)
		for _, body := range []string{"", "{}", `{"count":1}`} {
			id, before := s.ended(3, 10)
			a := s.Do(t, "rerollGiveaway", body, apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"ended"}}`)
			after := s.winners(a)
			if len(after) != 3 || slices.Contains(before, after[0]) || !slices.Equal(after[1:], before[1:]) {
				t.Errorf("the winners %v became %v", before, after)
			}
			s.WantEvent(t, "giveaway.rerolled", fmt.Sprintf(
				`{"origin":{"type":"api"},"data":{"giveaway":%s,"replaced_user_ids":%s,"new_user_ids":%s,"reason":null}}`,
				quote(data(t, a)), quote(before[:1]), quote(after[:1])))
		}
	})
	t.Run("replaces as many as asked for, and says why", func(t *testing.T) {
		s := s.on(t)
		id, before := s.ended(4, 9)
		after := s.winners(s.Do(t, "rerollGiveaway", `{"count":2,"reason":"They left"}`, apitest.Path("id", id)).Want(t, 200, ""))
		if len(after) != 4 || !slices.Equal(after[2:], before[2:]) || slices.Contains(before, after[0]) || slices.Contains(before, after[1]) {
			t.Errorf("the winners %v became %v", before, after)
		}
		s.WantEvent(t, "giveaway.rerolled", fmt.Sprintf(`{"data":{"replaced_user_ids":%s,"new_user_ids":%s,"reason":"They left"}}`,
			quote(before[:2]), quote(after[:2])))
		text := dbtest.Value[string](t, s.DB(), `
			SELECT i.content FROM chat_intents i
			WHERE i.try_at <= now() AND i.subject_id = $1 AND i.kind = 'giveaway_rerolled' AND i.reply_to = '912347611830792242'`, id)
		if !strings.Contains(text, "<@"+after[0]+">, <@"+after[1]+">") || !strings.Contains(text, "They left") {
			t.Errorf("the bot is to say %q", text)
		}
	})
	t.Run("replaces all when more are asked for than there are", func(t *testing.T) {
		s := s.on(t)
		id, before := s.ended(2, 4)
		after := s.winners(s.Do(t, "rerollGiveaway", `{"count":100}`, apitest.Path("id", id)).Want(t, 200, ""))
		if len(after) != 2 || slices.Contains(before, after[0]) || slices.Contains(before, after[1]) {
			t.Errorf("the winners %v became %v", before, after)
		}
		s.WantEvent(t, "giveaway.rerolled", "")
	})
	t.Run("replaces the winners that are named, where they stand", func(t *testing.T) {
		s := s.on(t)
		id, before := s.ended(4, 9)
		at := apitest.Path("id", id)
		body := `{"replace_user_ids":` + quote([]string{before[3], before[1]}) + `,"author_id":"55"}`
		after := s.winners(s.Do(t, "rerollGiveaway", body, at).Want(t, 200, ""))
		kept := len(after) == 4 && after[0] == before[0] && after[2] == before[2]
		if !kept || slices.Contains(before, after[1]) || slices.Contains(before, after[3]) {
			t.Errorf("the winners %v became %v", before, after)
		}
		s.WantEvent(t, "giveaway.rerolled", fmt.Sprintf(`{"data":{"replaced_user_ids":%s,"new_user_ids":%s,"author_id":"55"}}`,
			quote([]string{before[1], before[3]}), quote([]string{after[1], after[3]})))
		s.Do(t, "rerollGiveaway", body, at).WantError(t, 422, "not_a_winner")
		s.Do(t, "rerollGiveaway", `{"replace_user_ids":`+quote(after)+`}`, at).WantError(t, 422, "not_enough_entries")
		for _, both := range []string{`{"replace_user_ids":["1"],"count":1}`, `{"replace_user_ids":[]}`, `{"replace_user_ids":["1","1"]}`} {
			s.Do(t, "rerollGiveaway", both, at).WantError(t, 400, "invalid_request")
		}
		s.Do(t, "rerollGiveaway", `{"replace_user_ids":null,"count":1}`, at).Want(t, 200, "")
		s.WantEvent(t, "giveaway.rerolled", "")
		s.WantNoEvent(t)
	})
	t.Run("refuses one that was drawn a thousand times", func(t *testing.T) {
		s := s.on(t)
		id, _ := s.ended(1, 9)
		dbtest.Exec(t, s.DB(), `UPDATE giveaways SET rounds = 999 WHERE id = $1`, id)
		s.Do(t, "rerollGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
		s.WantEvent(t, "giveaway.rerolled", "")
		s.Do(t, "rerollGiveaway", "", apitest.Path("id", id)).WantError(t, 422, "too_many_rerolls")
		s.WantNoEvent(t)
	})
	t.Run("never draws who won before or is excluded", func(t *testing.T) {
		s := s.on(t)
		id, before := s.ended(1, 4)
		left := []string{}
		for _, u := range []string{"1001", "1002", "1003", "1004"} {
			if u != before[0] {
				left = append(left, u)
			}
		}
		body := `{"exclude_user_ids":` + quote([]string{left[0], left[0], left[2], "77"}) + `}`
		s.Do(t, "rerollGiveaway", body, apitest.Path("id", id)).Want(t, 200, `{"data":{"winners":`+quote(left[1:2])+`}}`)
		s.WantEvent(t, "giveaway.rerolled", "")
		s.Do(t, "rerollGiveaway", body, apitest.Path("id", id)).WantError(t, 422, "not_enough_entries")
		s.WantNoEvent(t)
		// An exclusion applies to one reroll only.
		s.Do(t, "rerollGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
		s.WantEvent(t, "giveaway.rerolled", "")
	})
	t.Run("changes nothing when too few remain", func(t *testing.T) {
		s := s.on(t)
		id, before := s.ended(3, 5)
		for _, body := range []string{`{"count":3}`, `{"count":2,"exclude_user_ids":["1001","1002","1003","1004","1005"]}`} {
			s.Do(t, "rerollGiveaway", body, apitest.Path("id", id)).WantError(t, 422, "not_enough_entries")
		}
		s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"winners":`+quote(before)+`}}`)
		if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaway_draws WHERE giveaway_id = $1`, id); n != 1 {
			t.Errorf("there are %d records, want 1", n)
		}
		s.WantNoEvent(t)
	})
	t.Run("gives winners to one that ended without", func(t *testing.T) {
		s := s.on(t)
		id, none := s.ended(2, 0)
		if len(none) != 0 {
			t.Fatalf("nobody entered, and %v won", none)
		}
		s.Do(t, "rerollGiveaway", "", apitest.Path("id", id)).WantError(t, 422, "not_enough_entries")
		// As if they had entered in time.
		dbtest.Exec(s.t, s.DB(), `
			INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id)
			VALUES ($1, $2, '41'), ($1, $2, '42'), ($1, $2, '43')`, s.Guild, id)
		dbtest.Exec(s.t, s.DB(), giveaways.Recount)
		after := s.winners(s.Do(t, "rerollGiveaway", `{"count":100}`, apitest.Path("id", id)).Want(t, 200, ""))
		if len(after) != 2 {
			t.Errorf("the winners are %v, want two", after)
		}
		s.WantEvent(t, "giveaway.rerolled", `{"data":{"replaced_user_ids":[],"new_user_ids":`+quote(after)+`}}`)
	})
	t.Run("refuses one that has not ended", func(t *testing.T) {
		s := s.on(t)
		for _, status := range []string{"scheduled", "active", "paused", "drawing"} {
			s.Do(t, "rerollGiveaway", "", apitest.Path("id", s.giveaway(status, 1, 3))).WantError(t, 422, "giveaway_not_ended")
		}
		s.WantNoEvent(t)
	})
	t.Run("refuses what the contract does not know", func(t *testing.T) {
		s := s.on(t)
		id, _ := s.ended(1, 3)
		many := make([]string, 101)
		for i := range many {
			many[i] = "1"
		}
		for _, body := range []string{
			`{"count":0}`, `{"count":101}`, `{"count":1.0}`, `{"count":"1"}`, `{"reason":""}`, `{"reason":" "}`,
			`{"reason":` + quote(strings.Repeat("ü", 1001)) + `}`, `{"exclude_user_ids":["01"]}`, `{"exclude_user_ids":` + quote(many) + `}`,
			`{"seed":"1"}`, `[]`,
		} {
			s.Do(t, "rerollGiveaway", body, apitest.Path("id", id)).WantError(t, 400, "invalid_request")
		}
		s.WantNoEvent(t)
	})
	t.Run("finds only the guild's own", func(t *testing.T) {
		s := s.on(t)
		id, _ := s.ended(1, 3)
		s.Do(t, "rerollGiveaway", "", apitest.Path("id", "nowhere")).WantError(t, 404, "not_found")
		s.Next(t).Do(t, "rerollGiveaway", "", apitest.Path("id", id)).WantError(t, 404, "not_found")
		s.WantNoEvent(t)
	})
}

// Twenty concurrent rerolls, half of them with two idempotency keys: each reroll that runs draws
// new winners, each key runs one reroll, and every draw has its record. RELIABILITY.md, Giveaways.
func TestRerollsRace(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id, first := s.ended(5, 60)
	reroll := apitest.Find(t, "rerollGiveaway")
	responses := make([]*apitest.Response, 20)
	var group sync.WaitGroup
	for i := range responses {
		group.Go(func() {
			view := s.API
			if i%2 == 0 {
				view = s.Key(fmt.Sprintf("key-%d", i%4))
			}
			a, err := view.Retry(reroll, `{"count":2,"exclude_user_ids":["1030","1031"]}`, apitest.Path("id", id))
			if err != nil {
				t.Error(err)
				return
			}
			responses[i] = a
		})
	}
	group.Wait()
	ran, byKey := 0, map[int]string{}
	for i, a := range responses {
		switch {
		case a == nil:
		case a.Status == http.StatusConflict && i%2 == 0:
		case a.Status != http.StatusOK:
			t.Errorf("reroll %d was answered %d: %s", i, a.Status, a.Body)
		case i%2 == 0:
			if byKey[i%4] == "" {
				byKey[i%4] = string(a.Body)
				ran++
			} else if byKey[i%4] != string(a.Body) {
				t.Errorf("one key was answered\n%s and\n%s", byKey[i%4], a.Body)
			}
		default:
			ran++
		}
	}
	if ran != 12 {
		t.Errorf("%d rerolls ran, want 10 without a key and 2 with", ran)
	}
	var draws []struct {
		Round int        `db:"round"`
		Drawn db.Strings `db:"drawn"`
	}
	if err := s.DB().Reader().SelectContext(context.Background(), &draws, `
		SELECT round, drawn
		FROM giveaway_draws
		WHERE giveaway_id = $1 ORDER BY round`, id); err != nil {
		t.Fatal(err)
	}
	if len(draws) != ran+1 {
		t.Errorf("%d rerolls left %d records, want one more for the draw", ran, len(draws))
	}
	won := map[string]bool{"1030": true, "1031": true}
	for i, d := range draws {
		if i == 0 && !slices.Equal(d.Drawn, first) {
			t.Errorf("the first record says %v, the winners were %v", d.Drawn, first)
		}
		for _, u := range d.Drawn {
			if i > 0 && won[u] {
				t.Errorf("round %d drew %s, who had won before or was excluded", d.Round, u)
			}
			won[u] = true
		}
	}
	now := s.winners(s.Do(t, "getGiveaway", "", apitest.Path("id", id)))
	if unique := slices.Compact(slices.Sorted(slices.Values(now))); len(unique) != 5 {
		t.Errorf("the winners are %v", now)
	}
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM webhook_events WHERE type = 'giveaway.rerolled'`); n != ran {
		t.Errorf("%d rerolls recorded %d events", ran, n)
	}
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM chat_intents WHERE kind = 'giveaway_rerolled'`); n != ran {
		t.Errorf("%d rerolls are announced %d times", ran, n)
	}
}

// Ten callers end one giveaway while the sweep finds that its time is over: its status changes to
// drawing once. RELIABILITY.md, Giveaways.
func TestEndsRace(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	end := apitest.Find(t, "endGiveaway")
	for range 5 {
		id := s.giveaway("active", 1, 2)
		dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET ends_at = now() WHERE id = $1`, id)
		statuses := make(chan int, 10)
		var group sync.WaitGroup
		for range cap(statuses) {
			group.Go(func() {
				a, err := s.Retry(end, "", apitest.Path("id", id))
				if err != nil {
					t.Error(err)
					return
				}
				statuses <- a.Status
			})
		}
		group.Go(func() {
			if err := giveaways.Transitions(context.Background(), s.DB()); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
		close(statuses)
		accepted := 0
		for status := range statuses {
			switch status {
			case http.StatusAccepted:
				accepted++
			case http.StatusUnprocessableEntity:
			default:
				t.Errorf("an end was answered %d", status)
			}
		}
		if accepted > 1 {
			t.Errorf("%d ends were accepted", accepted)
		}
		s.Do(t, "getGiveaway", "", apitest.Path("id", id)).Want(t, 200, `{"data":{"status":"drawing"}}`)
		if n := dbtest.Value[int](s.t, s.DB(), `
			SELECT count(*)
			FROM giveaways
			WHERE id = $1 AND (ended_by_token_id IS NOT NULL) = ($2 = 1)`, id, accepted); n != 1 {
			t.Errorf("%d ends were accepted, and the giveaway does not say so", accepted)
		}
	}
}

// Several workers find the giveaway and draw it once: the giveaway's own row is all that a draw
// needs. RELIABILITY.md, Giveaways.
func TestADrawNeedsNoJob(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("active", 2, 8)
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	p := chat.NewStandIn(slog.New(slog.DiscardHandler))
	for range 4 {
		defer s.work(p)()
	}
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", "")
	s.WantNoEvent(t)
	if n := dbtest.Value[int](s.t, s.DB(), `SELECT count(*) FROM giveaway_draws`); n != 1 {
		t.Errorf("there are %d records, want 1", n)
	}
}
