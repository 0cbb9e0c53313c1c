package giveaways_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/server/api/apitest"
	"guildhall/internal/service/giveaways"
)

// says waits until the giveaway's message ends with text.
func (s giveawayAPI) says(server *chattest.Server, message, text string) {
	s.t.Helper()
	testutil.Eventually(s.t, "the message to say "+text, func() bool {
		for _, m := range server.Messages(channel) {
			if m.ID == message {
				return strings.HasSuffix(m.Content, text) && string(m.Mentions) == `{"parse":[]}`
			}
		}
		return false
	})
}

// The message says that the giveaway is over before any reactions are read, then who has won, and
// after a reroll who has won then.
func TestTheMessageOfAGiveawaySaysThatItIsOver(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	platform := discord(t, server.URL)
	stop := s.work(platform)
	id := s.create("A hat", 1)
	message := s.message(server, id)
	stop()
	server.React(channel, message, party, "3000")
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", `{"origin":{"type":"api"},"data":{"id":`+quote(id)+`,"status":"drawing"}}`)
	before := len(server.Calls())
	if err := giveaways.Gather(context.Background(), s.DB(), platform, s.Guild, id); err != nil {
		t.Fatal(err)
	}
	if calls := server.Calls()[before:]; len(calls) != 3 || !strings.HasPrefix(calls[0], "PATCH ") || !strings.HasPrefix(calls[1], "GET ") {
		t.Errorf("the calls are %s", calls)
	}
	s.says(server, message, "**A hat**\n\nEnded. The winners are being drawn.")
	s.rested(id)
	defer s.work(platform)()
	s.says(server, message, "Ended. The winner: <@3000>.")
	testutil.Eventually(t, "the edit to be over", func() bool { return !s.editing(id) })
	s.rested(id)
	dbtest.Exec(t, s.DB(), `INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries) VALUES ($1, $2, '3001', 1)`, s.Guild, id)
	s.Do(t, "rerollGiveaway", "", apitest.Path("id", id)).Want(t, 200, "")
	s.says(server, message, "Ended. The winner: <@3001>.")
	testutil.Eventually(t, "nothing to be left to do", func() bool { return !s.editing(id) })
}

// rested lets the ten seconds between two edits of a giveaway's message pass.
func (s giveawayAPI) rested(id string) {
	s.t.Helper()
	dbtest.Exec(s.t, s.DB(), `UPDATE giveaways SET `+dbtest.Earlier(`interval '10 seconds'`, "edit_at", "edited_at")+` WHERE id = $1`, id)
}

func (s giveawayAPI) editing(id string) bool {
	return dbtest.Value[bool](s.t, s.DB(), `SELECT edit_at IS NOT NULL FROM giveaways WHERE id = $1`, id)
}

// A failing edit does not keep the giveaway from being drawn and is retried, unless the platform
// will never accept it.
func TestAnEditThatFailsIsMadeAgainWhileThatCanHelp(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	platform := discord(t, server.URL)
	stop := s.work(platform)
	id := s.create("A hat", 1)
	message := s.message(server, id)
	stop()
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	edit := func() error { return giveaways.Edit(context.Background(), s.DB(), platform, s.Guild, id) }
	due := func() { dbtest.Exec(t, s.DB(), `UPDATE giveaways SET edit_at = now(), shown = NULL WHERE id = $1`, id) }

	server.In(channel, chattest.Refuse(http.StatusServiceUnavailable, 0, "no"))
	if err := edit(); err == nil || !s.editing(id) {
		t.Errorf("the failure is %v, and it is to be made again: %v", err, s.editing(id))
	}
	if err := edit(); err != nil {
		t.Errorf("under somebody's lease: %v", err)
	}
	server.In(channel, nil)
	due()
	if err := edit(); err != nil || s.editing(id) {
		t.Errorf("the failure is %v, and it is to be made again: %v", err, s.editing(id))
	}
	s.says(server, message, "drawn.")
	for _, lasting := range []chattest.Behaviour{
		chattest.Refuse(http.StatusForbidden, 50005, "Cannot edit a message authored by another user"),
		chattest.Refuse(http.StatusNotFound, 10008, "Unknown Message"),
	} {
		due()
		server.In(channel, lasting)
		if err := edit(); err == nil || s.editing(id) {
			t.Errorf("the failure is %v, and it is to be made again: %v", err, s.editing(id))
		}
		server.In(channel, nil)
	}
}

// A change during an edit is shown by the next edit, and not overwritten by the first.
// RELIABILITY.md, Giveaways.
func TestWhatHappensDuringAnEditIsShownByTheNext(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	platform := discord(t, server.URL)
	stop := s.work(platform)
	id := s.create("A hat", 1)
	message := s.message(server, id)
	stop()
	server.React(channel, message, party, "3000")
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	release := make(chan struct{})
	server.In(channel, chattest.Until(release))
	first := make(chan error, 1)
	go func() { first <- giveaways.Edit(context.Background(), s.DB(), platform, s.Guild, id) }()
	testutil.Eventually(t, "the edit to be under way", func() bool {
		calls := server.Calls()
		return strings.HasPrefix(calls[len(calls)-1], "PATCH ")
	})
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET pot = 'frozen' WHERE id = $1`, id)
	if err := giveaways.Draw(context.Background(), s.DB(), s.Guild, id); err != nil {
		t.Fatal(err)
	}
	server.In(channel, nil)
	if err := giveaways.Edit(context.Background(), s.DB(), platform, s.Guild, id); err != nil || !s.editing(id) {
		t.Errorf("beside the first edit: %v", err)
	}
	close(release)
	if err := <-first; err != nil || !s.editing(id) {
		t.Fatalf("the first edit: %v", err)
	}
	s.rested(id)
	if err := giveaways.Edit(context.Background(), s.DB(), platform, s.Guild, id); err != nil || s.editing(id) {
		t.Fatalf("the next edit: %v", err)
	}
	s.says(server, message, "Ended. Nobody has won.")
}

// Without a message there is no edit, and a message that is not the bot's own is never edited.
func TestOnlyMessagesOfOurOwnAreEdited(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	theirs, unposted := s.giveaway("active", 1, 3), s.create("A hat", 1)
	for _, id := range []string{theirs, unposted} {
		s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
		s.WantEvent(t, "giveaway.drawing", `{"data":{"id":`+quote(id)+`}}`)
	}
	wantNoneDue := func() {
		t.Helper()
		if n := dbtest.Value[int](t, s.DB(), `SELECT count(*) FROM giveaways WHERE edit_at IS NOT NULL`); n != 0 {
			t.Errorf("of %d giveaways a message is to be edited", n)
		}
	}
	wantNoneDue()
	defer s.work(discord(t, server.URL))()
	s.untilEnded(theirs)
	s.untilEnded(unposted)
	wantNoneDue()
	for _, call := range server.Calls() {
		if strings.HasPrefix(call, "PATCH ") {
			t.Errorf("the bot calls %s", call)
		}
	}
}

// The message names as many winners as fit and counts the others.
func TestAMessageNamesTheWinnersThatItHasRoomFor(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	id := s.create(strings.Repeat("[", 200), 100)
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET description = $2 WHERE id = $1`, id, strings.Repeat("*", 1000))
	dbtest.Exec(t, s.DB(), `
		INSERT INTO giveaway_entries (guild_id, giveaway_id, user_id, entries)
		SELECT $1, $2, (18446744073709551000 + n)::text, 1 FROM generate_series(1, 100) n`, s.Guild, id)
	defer s.work(discord(t, server.URL))()
	message := s.message(server, id)
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.says(server, message, " others.")
	for _, m := range server.Messages(channel) {
		if m.ID == message {
			named, others := strings.Count(m.Content, "<@"), 0
			if _, err := fmt.Sscanf(m.Content[strings.LastIndex(m.Content, " and ")+5:], "%d others", &others); err != nil || named+others != 100 {
				t.Errorf("%d are named and %d others counted: %v", named, others, err)
			}
			if free := 2000 - len([]rune(m.Content)); free > 60 {
				t.Errorf("%d characters are free", free)
			}
		}
	}
}

// Members count if their reaction exists when it is read, in either way of reacting, and each
// member counts once.
func TestSuperReactionsCountAndAMemberCountsOnce(t *testing.T) {
	t.Parallel()
	s, server := opened(t)
	defer s.work(discord(t, server.URL))()
	id := s.create("A hat", 1)
	message := s.message(server, id)
	server.React(channel, message, party, members(2000, 120)...)
	server.React(channel, message, party, "5000")
	server.ReactSuper(channel, message, party, members(2100, 130)...)
	server.ReactSuper(channel, message, party, "90")
	server.Bots("90")
	server.Unreact(channel, message, party, "5000")
	s.Do(t, "endGiveaway", "", apitest.Path("id", id)).Want(t, 202, "")
	s.WantEvent(t, "giveaway.drawing", "")
	s.untilEnded(id)
	s.WantEvent(t, "giveaway.ended", `{"data":{"entrant_count":230,"entry_count":230}}`)
	testutil.Eventually(t, "the announcement", func() bool { return len(server.Messages(channel)) == 2 })
	if told := server.Messages(channel)[1]; !strings.Contains(told.Content, "Entered by reaction: 230.") {
		t.Errorf("the bot says %q", told.Content)
	}
}

// An event is also recorded when a giveaway's time is over.
func TestDrawingIsTold(t *testing.T) {
	t.Parallel()
	s := newGiveawayAPI(t)
	id := s.giveaway("active", 1, 3)
	dbtest.Exec(t, s.DB(), `UPDATE giveaways SET ends_at = now() - interval '1 second'`)
	if err := giveaways.Transitions(context.Background(), s.DB()); err != nil {
		t.Fatal(err)
	}
	s.WantEvent(t, "giveaway.drawing", `{"origin":{"type":"system"},"data":{"id":`+quote(id)+`,"status":"drawing","winners":[]}}`)
	if at := dbtest.Value[time.Time](t, s.DB(), `SELECT redraw_at FROM giveaways`); time.Since(at) < 0 {
		t.Errorf("it is drawn at %s", at)
	}
}
