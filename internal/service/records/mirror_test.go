package records_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"guildhall/internal/base/db"
	"guildhall/internal/server/api/apitest"
)

var testContext = context.Background()

// told is an event as a receiver gets it.
type told struct {
	Type      string         `json:"type"`
	Timestamp string         `json:"timestamp"`
	Data      map[string]any `json:"data"`
}

// events returns the guild's events in the order of their instants.
func (s *sides) events() ([]told, error) {
	rows, err := db.Select[[]byte](testContext, s.d.Reader(), `SELECT payload FROM webhook_events WHERE guild_id = $1`, s.guild)
	list := make([]told, len(rows))
	for i, text := range rows {
		err = errors.Join(err, json.Unmarshal(text, &list[i]))
	}
	slices.SortStableFunc(list, func(a, b told) int { return cmp.Compare(a.Timestamp, b.Timestamp) })
	return list, err
}

// compare builds a copy from the events and compares it with the lists.
func (s *sides) compare() error {
	events, err := s.events()
	if err != nil {
		return err
	}
	balances, levels, things := map[string]told{}, map[string]told{}, map[string]map[string]map[string]any{
		"case":     {},
		"ticket":   {},
		"giveaway": {},
		"message":  {},
	}
	for _, e := range events {
		family, _, _ := strings.Cut(e.Type, ".")
		switch {
		case e.Type == "economy.balance_changed":
			user := fmt.Sprint(e.Data["user_id"])
			if was, is := balances[user].Data["balance"], e.Data["previous_balance"]; was != nil && was != is || was == nil && is != 0.0 {
				err = errors.Join(err, fmt.Errorf("member %s is told to have had %v, and had %v before", user, is, was))
			}
			if balances[user].Timestamp == e.Timestamp {
				err = errors.Join(err, fmt.Errorf("two changes of the wallet of %s are told with one instant", user))
			}
			balances[user] = e
		case family == "xp":
			levels[fmt.Sprint(e.Data["user_id"])] = e
		case strings.HasPrefix(e.Type, "ticket.message"):
			things["message"][fmt.Sprint(e.Data["id"])] = e.Data
		case things[family] != nil:
			is := e.Data
			if inner, ok := is[family].(map[string]any); ok {
				is = inner
			}
			things[family][fmt.Sprint(is["id"])] = is
		}
	}
	return errors.Join(err, s.comparePoints("getWallet", "balance", balances), s.comparePoints("getLevelRecord", "level", levels),
		s.compareList("case", "listCases", things["case"], []string{"changed", "author_id"}),
		s.compareList("ticket", "listTickets", things["ticket"],
			[]string{"changed", "author_id", "updated_at", "message_count", "last_message_at"}),
		s.compareList("giveaway", "listGiveaways", things["giveaway"],
			[]string{"changed", "author_id", "updated_at", "entrant_count", "entry_count"}),
		s.compareTranscripts(things["message"]), s.compareBooks())
}

func (s *sides) comparePoints(op, member string, copied map[string]told) (err error) {
	for user, e := range copied {
		a, failed := s.call(op, "", apitest.Path("userId", user))
		var shown struct{ Data map[string]any }
		if failed = errors.Join(failed, json.Unmarshal(a.Body, &shown)); failed != nil {
			return failed
		}
		if e.Data[member] != shown.Data[member] || member == "balance" && e.Timestamp != shown.Data["updated_at"] {
			err = errors.Join(err, fmt.Errorf("of member %s the last event says %v at %s, and %s shows %s", user, e.Data, e.Timestamp, op, a.Body))
		}
	}
	return err
}

// rows returns all items of a list by id.
func (s *sides) rows(op string, args ...apitest.Arg) (map[string]map[string]any, error) {
	byID := make(map[string]map[string]any)
	for page := 1; ; page++ {
		a, err := s.call(op, "", append(args, apitest.Query("per_page", "100"), apitest.Query("page", fmt.Sprint(page)))...)
		if err != nil {
			return nil, err
		}
		var shown struct {
			Data    []map[string]any `json:"data"`
			HasMore bool             `json:"has_more"`
		}
		if err := json.Unmarshal(a.Body, &shown); err != nil {
			return nil, err
		}
		for _, r := range shown.Data {
			byID[fmt.Sprint(r["id"])] = r
		}
		if !shown.HasMore {
			return byID, nil
		}
	}
}

// compareList compares a copy with a list. but names members that the events of other things
// change. Imported things have no events and are skipped.
func (s *sides) compareList(kind, op string, copied map[string]map[string]any, but []string) error {
	shown, err := s.rows(op)
	for id, is := range shown {
		if !strings.HasPrefix(id, "i") {
			err = errors.Join(err, agree(kind+" "+id, copied[id], is, but))
		}
	}
	for id := range copied {
		if shown[id] == nil {
			err = errors.Join(err, fmt.Errorf("%s %s was told of and is in no list", kind, id))
		}
	}
	return err
}

func agree(what string, copied, shown map[string]any, but []string) error {
	copied, shown = maps.Clone(copied), maps.Clone(shown)
	for _, name := range but {
		delete(copied, name)
		delete(shown, name)
	}
	a, err := json.Marshal(copied)
	b, err2 := json.Marshal(shown)
	if string(a) != string(b) {
		return fmt.Errorf("%s: the copy has\n%s and the list\n%s", what, a, b)
	}
	return errors.Join(err, err2)
}

// compareTranscripts compares messages and notes with the transcripts; system entries have no
// events. The counters and instants that a ticket shows of its transcript must be correct.
func (s *sides) compareTranscripts(copied map[string]map[string]any) error {
	tickets, err := s.rows("listTickets")
	n := 0
	for id, ticket := range tickets {
		entries, failed := s.rows("listTicketMessages", apitest.Path("id", id))
		err = errors.Join(err, failed)
		messages, last := 0, ""
		for _, e := range entries {
			if e["kind"] == "message" {
				messages++
				last = max(last, fmt.Sprint(e["created_at"]))
			}
			if e["kind"] == "message" || e["kind"] == "note" {
				n++
				err = errors.Join(err, agree("message "+fmt.Sprint(e["id"]), copied[fmt.Sprint(e["id"])], e, []string{"changed"}))
			}
		}
		if shown := fmt.Sprint(cmp.Or[any](ticket["last_message_at"], "")); ticket["message_count"] != float64(messages) || shown != last {
			err = errors.Join(err, fmt.Errorf("ticket %v has %d messages, the last of %s", ticket, messages, last))
		}
	}
	if err == nil && n != len(copied) {
		err = fmt.Errorf("%d messages were told of, %d are in transcripts", len(copied), n)
	}
	return err
}

// compareBooks compares wallets with their ledgers, and giveaways with their entries.
func (s *sides) compareBooks() (err error) {
	for what, query := range map[string]string{
		"wallets differ from their ledgers": `
			SELECT user_id FROM wallets w WHERE guild_id = $1 AND balance <> coalesce((
				SELECT sum(delta) FROM ledger_entries l WHERE l.guild_id = w.guild_id AND l.user_id = w.user_id), 0)`,
		"ledgers do not add up": `
			SELECT user_id FROM (
				SELECT user_id, balance_after - sum(delta) OVER (PARTITION BY user_id ORDER BY created_at, id) AS off
				FROM ledger_entries WHERE guild_id = $1) l WHERE off <> 0`,
		"giveaways count other entries": `
			SELECT id FROM giveaways g WHERE guild_id = $1 AND (entrant_count, entry_count) <> (
				SELECT count(*), coalesce(sum(entries), 0) FROM giveaway_entries e WHERE e.guild_id = g.guild_id AND e.giveaway_id = g.id)`,
	} {
		wrong, failed := db.Select[string](testContext, s.d.Reader(), query, s.guild)
		if failed != nil || len(wrong) > 0 {
			err = errors.Join(err, failed, fmt.Errorf("%s: %v", what, wrong))
		}
	}
	return err
}
