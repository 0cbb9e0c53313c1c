package chat_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"testing"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
)

const guild = "77"

// intentDB is a database with a guild, and a platform.
type intentDB struct {
	*dbtest.Database
	platform *chattest.Server
	client   *chat.Discord
}

func newIntentDB(t *testing.T) intentDB {
	t.Helper()
	s := intentDB{Database: dbtest.New(t), platform: chattest.New(t)}
	s.client = connect(t, s.platform)
	dbtest.AddGuilds(t, s.DB, guild)
	return s
}

func (s intentDB) prepare(t *testing.T, content string) chat.Intent {
	t.Helper()
	var in chat.Intent
	dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) (err error) {
		in, err = chat.Prepare(ctx, tx, chat.Intent{
			GuildID: guild, Kind: chat.KindGiveawayEnded, SubjectID: "g", ChannelID: channel, Content: content,
		})
		return err
	})
	return in
}

func (s intentDB) take(t *testing.T, id string) (chat.Intent, error) {
	t.Helper()
	var in chat.Intent
	err := s.DB.Do(context.Background(), func(ctx context.Context, tx *db.Tx) (err error) {
		in, err = chat.Take(ctx, tx, guild, id)
		return err
	})
	return in, err
}

// announce posts the message of an intent as a lane does. However often it is called, the message
// is posted once.
func (s intentDB) announce(t *testing.T, in chat.Intent) error {
	t.Helper()
	taken, err := s.take(t, in.ID)
	if err != nil || taken.State == chat.Sent {
		return err
	}
	return chat.Post(context.Background(), s.DB, s.client, taken, nil)
}

func (s intentDB) wantState(t *testing.T, id, state string, messages int) {
	t.Helper()
	var got struct {
		State     string  `db:"state"`
		MessageID *string `db:"message_id"`
	}
	if err := s.DB.Reader().GetContext(context.Background(), &got,
		`SELECT state, message_id FROM chat_intents WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	posted := s.platform.Messages(channel)
	if got.State != state || len(posted) != messages {
		t.Fatalf("the intent is %s and the channel holds %d messages, want %s and %d", got.State, len(posted), state, messages)
	}
	if state == chat.Sent && (got.MessageID == nil || *got.MessageID != posted[len(posted)-1].ID) {
		t.Errorf("the intent names message %v, want %s", got.MessageID, posted[len(posted)-1].ID)
	}
}

func TestAnnounce(t *testing.T) {
	t.Parallel()

	t.Run("posts once however often it is called", func(t *testing.T) {
		t.Parallel()
		s := newIntentDB(t)
		in := s.prepare(t, "The winners")
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if err := s.announce(t, in); err != nil && !errors.Is(err, chat.ErrTaken) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if err := s.announce(t, in); err != nil {
			t.Fatal(err)
		}
		s.wantState(t, in.ID, chat.Sent, 1)
		if calls := s.platform.Calls(); len(calls) != 1 {
			t.Errorf("calls: %v", calls)
		}
	})

	t.Run("resumes after the sender has died, by the nonce", func(t *testing.T) {
		t.Parallel()
		s := newIntentDB(t)
		in := s.prepare(t, "The winners")
		taken, err := s.take(t, in.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chat.Deliver(context.Background(), s.DB, s.client, &taken, channel); err != nil {
			t.Fatal(err)
		}
		// The sender dies here. While its lease lasts, no other sender may post.
		if err := s.announce(t, in); !errors.Is(err, chat.ErrTaken) {
			t.Fatalf("got %v, want %v", err, chat.ErrTaken)
		}
		chattest.Elapse(t, s.DB, 16)
		if err := s.announce(t, in); err != nil {
			t.Fatal(err)
		}
		s.wantState(t, in.ID, chat.Sent, 1)
	})

	t.Run("fences a sender that wakes up late", func(t *testing.T) {
		t.Parallel()
		s := newIntentDB(t)
		in := s.prepare(t, "The winners")
		frozen, err := s.take(t, in.ID)
		if err != nil {
			t.Fatal(err)
		}
		chattest.Elapse(t, s.DB, 16)
		if err := s.announce(t, in); err != nil {
			t.Fatal(err)
		}
		dbtest.Do(t, s.DB, func(ctx context.Context, tx *db.Tx) error {
			if ours, err := chat.RecordResult(ctx, tx, frozen, chat.Refused, ""); ours || err != nil {
				return fmt.Errorf("the late sender settled: %v, %w", ours, err)
			}
			return nil
		})
		s.wantState(t, in.ID, chat.Sent, 1)
	})

	t.Run("reads the channel once the nonce is forgotten", func(t *testing.T) {
		t.Parallel()
		for _, posted := range []bool{true, false} {
			s := newIntentDB(t)
			other := s.prepare(t, "The winners")
			if err := s.announce(t, other); err != nil { // another intent with the same text
				t.Fatal(err)
			}
			in := s.prepare(t, "The winners")
			taken, err := s.take(t, in.ID)
			if err != nil {
				t.Fatal(err)
			}
			if posted {
				if _, err := chat.Deliver(context.Background(), s.DB, s.client, &taken, channel); err != nil {
					t.Fatal(err)
				}
			}
			s.platform.Forget()
			chattest.Elapse(t, s.DB, 600)
			if err := s.announce(t, in); err != nil {
				t.Fatal(err)
			}
			s.wantState(t, in.ID, chat.Sent, 2)
		}
	})

	t.Run("never posts blindly where the channel cannot be read", func(t *testing.T) {
		t.Parallel()
		s := newIntentDB(t)
		in := s.prepare(t, "The winners")
		taken, err := s.take(t, in.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := chat.Deliver(context.Background(), s.DB, s.client, &taken, channel); err != nil {
			t.Fatal(err)
		}
		s.platform.Forget()
		chattest.Elapse(t, s.DB, 600)
		s.platform.In(channel, chattest.Refuse(403, 50001, "Missing Access"))
		if f := failure(t, s.announce(t, in)); !f.Uncertain {
			t.Errorf("got %+v", f)
		}
		s.wantState(t, in.ID, chat.Unknown, 1)
		s.platform.In(channel, nil)
		if err := s.announce(t, in); err != nil {
			t.Fatal(err)
		}
		s.wantState(t, in.ID, chat.Sent, 1)
	})

	t.Run("says so when it is refused for good, and starts anew when asked again", func(t *testing.T) {
		t.Parallel()
		s := newIntentDB(t)
		in := s.prepare(t, "The winners")
		s.platform.In(channel, chattest.Refuse(403, 50013, "Missing Permissions"))
		if f := failure(t, s.announce(t, in)); !f.Lasting() {
			t.Errorf("got %+v", f)
		}
		s.wantState(t, in.ID, chat.Refused, 0)
		s.platform.In(channel, nil)
		chattest.Elapse(t, s.DB, 600)
		if err := s.announce(t, in); err != nil {
			t.Fatal(err)
		}
		s.wantState(t, in.ID, chat.Sent, 1)
		if calls := s.platform.Calls(); len(calls) != 2 {
			t.Errorf("calls: %v; the channel need not be read after a refusal", calls)
		}
	})
}

// TestARefusalDoesNotUndoWhatMayHaveBeenPosted: the response to the first attempt is lost, and
// later attempts are certainly refused. Only reading the channel shows whether the message was
// posted. RELIABILITY.md, Messages.
func TestARefusalDoesNotUndoWhatMayHaveBeenPosted(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]chattest.Behaviour{
		"429":  chattest.Limited(time.Minute, "shared"),
		"403":  chattest.Refuse(403, chat.CodeMissingPermission, "no"),
		"none": nil, // no call is made, since the bot's token was refused earlier
	} {
		for _, posted := range []bool{true, false} {
			s := newIntentDB(t)
			s.client = connectAs(t, s.platform, chat.Config{Log: slog.New(slog.DiscardHandler), Budget: 2 * time.Second})
			in := s.prepare(t, "The winners")
			lost := chattest.Lose()
			if !posted {
				lost = chattest.Refuse(500, 0, "oops")
			}
			s.platform.Next(lost, lost, lost)
			if err := s.announce(t, in); err == nil {
				t.Fatal("no answer was lost")
			}
			for range 3 {
				chattest.Elapse(t, s.DB, 30)
				if refuse != nil {
					s.platform.In(channel, refuse)
				} else {
					s.platform.In(channel, chattest.Refuse(401, 0, "401: Unauthorized"))
				}
				if err := s.announce(t, in); err == nil {
					t.Fatal("no refusal")
				}
				s.wantState(t, in.ID, chat.Unknown, map[bool]int{true: 1}[posted])
			}
			s.platform.In(channel, nil)
			s.platform.Forget()
			chattest.Elapse(t, s.DB, 31)
			s.client = connect(t, s.platform)
			if err := s.announce(t, in); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.wantState(t, in.ID, chat.Sent, 1)
		}
	}
}

func TestAbandonedAndPrune(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newIntentDB(t)
	in := s.prepare(t, "x")
	abandoned := func() int {
		t.Helper()
		list, err := chat.Abandoned(ctx, s.DB, chat.KindGiveawayEnded, 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := abandoned(); n != 0 {
		t.Errorf("%d abandoned at once", n)
	}
	chattest.Elapse(t, s.DB, 61)
	if n := abandoned(); n != 1 {
		t.Errorf("%d abandoned after a minute without a sender, want 1", n)
	}
	if _, err := s.take(t, in.ID); err != nil {
		t.Fatal(err)
	}
	if n := abandoned(); n != 0 {
		t.Errorf("%d abandoned under a lease", n)
	}
	chattest.Elapse(t, s.DB, 16)
	if n := abandoned(); n != 1 {
		t.Errorf("%d abandoned after the lease, want 1", n)
	}
	chattest.Elapse(t, s.DB, 50*3600)
	if n := dbtest.Prune(t, s.DB, chat.Expired()); n != 0 {
		t.Errorf("pruned %d unsettled", n)
	}
	if err := s.announce(t, in); err != nil {
		t.Fatal(err)
	}
	if n := dbtest.Prune(t, s.DB, chat.Expired()); n != 1 {
		t.Errorf("pruned %d, want 1", n)
	}
}

func TestNonce(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[0-9A-Za-z]{22}$`)
	for i := range 2000 {
		if n := chat.Nonce(fmt.Sprint(i)); !form.MatchString(n) {
			t.Fatalf("nonce %q", n)
		}
	}
	if a := chat.Nonce("a"); a != chat.Nonce("a") || a == chat.Nonce("b") {
		t.Error("a nonce is made from the intent's id and nothing else")
	}
}
