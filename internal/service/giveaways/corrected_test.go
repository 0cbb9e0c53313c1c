package giveaways_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// A giveaway of 60 entrants is corrected while it runs: its prize and end change, it is paused and
// resumed, and one entrant is thrown out. It is drawn from the other 59, one winner is replaced by
// name, and the script of the documentation repeats both draws. The message of a second giveaway is
// deleted, which the API and an event say before its end.
func TestAGiveawayIsCorrectedWhileItRuns(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	verify := s.verifier(t)
	defer s.work(discord(t, server.URL))()
	id, lost := s.create("A hat", 3), s.create("A scarf", 1)
	message, gone := s.message(server, id), s.message(server, lost)
	entrants := members(2000, 60)
	server.React(channel, message, party, entrants...)
	server.React(channel, gone, party, entrants...)
	at := apitest.Path("id", id)
	for _, c := range []struct{ operation, body, says, event string }{
		{"updateGiveaway", `{"prize":"A cap","ends_at":"2040-01-02T00:00:00Z"}`, "<t:2209075200:R> (<t:2209075200:f>).", "giveaway.updated"},
		{"pauseGiveaway", "", "Paused. Reactions count; 3 winners are drawn once it runs on.", "giveaway.paused"},
		{"resumeGiveaway", "", ":f>).", "giveaway.resumed"},
	} {
		s.Do(t, c.operation, c.body, at).Want(t, 200, `{"data":{"prize":"A cap","post_problem":null}}`)
		s.WantEvent(t, c.event, `{"data":{"id":`+quote(id)+`,"prize":"A cap"}}`)
		s.says(server, message, c.says)
		testutil.Eventually(t, "the edit to be over", func() bool { return !s.editing(id) })
		s.rested(id)
	}
	thrown := entrants[7]
	s.Do(t, "disqualifyFromGiveaway", `{"user_ids":[`+quote(thrown)+`]}`, at).Want(t, 200, "")
	s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["disqualified"]}}`)

	server.DeleteMessage(channel, gone)
	s.Do(t, "updateGiveaway", `{"prize":"A glove"}`, apitest.Path("id", lost)).Want(t, 200, "")
	s.WantEvent(t, "giveaway.updated", `{"data":{"changed":["prize"],"post_problem":null}}`)
	testutil.Eventually(t, "the edit of the message that is gone", func() bool { return !s.editing(lost) })
	s.WantEvent(t, "giveaway.updated", `
		{"origin":{"type":"system"},"data":{"id":`+quote(lost)+`,"changed":["post_problem"],"post_problem":"deleted"}}`)
	s.Do(t, "getGiveaway", "", apitest.Path("id", lost)).Want(t, 200, `{"data":{"status":"active","post_problem":"deleted"}}`)

	s.Do(t, "endGiveaway", "", at).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", `{"data":{"entrant_count":59,"post_problem":null}}`)
	first := s.winners(s.Do(t, "getGiveaway", "", at))
	now := s.winners(s.Do(t, "rerollGiveaway", `{"replace_user_ids":[`+quote(first[1])+`]}`, at).Want(t, 200, ""))
	s.WantEvent(t, "giveaway.rerolled", `{"data":{"replaced_user_ids":[`+quote(first[1])+`]}}`)
	if slices.Contains(append(first, now...), thrown) || now[0] != first[0] || now[2] != first[2] || slices.Contains(first, now[1]) {
		t.Errorf("%s was thrown out; the winners %v became %v", thrown, first, now)
	}
	want := fmt.Sprintf("round 1 repeated: %s\nround 2 repeated: %s", strings.Join(first, " "), now[1])
	if out, err := verify(id); err != nil || strings.TrimSpace(out) != want {
		t.Errorf("the script: %v\n%s\nwant\n%s", err, out, want)
	}
	s.rested(id)
	s.says(server, message, "The winners: <@"+strings.Join(now, ">, <@")+">.")
}
