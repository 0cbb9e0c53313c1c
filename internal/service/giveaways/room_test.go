package giveaways

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/outbound/chat"
)

// strays are members who react and withdraw; bots among those who react never become entrants.
var (
	strays = []string{"7", "10005", "10995", "99999", "100000"}
	bots   = []string{"10003"}
)

// stand is a member's reaction in one way.
type stand struct {
	user string
	way  chat.Reaction
}

// posting is a message in a channel of the simulated platform.
type posting struct {
	id, nonce, channel string
	said, content      string // content when it was posted, and now
	at                 time.Time
	shown              time.Duration // how long the content has been shown
	deleted            bool
}

// instant matches an instant in a message.
var instant = regexp.MustCompile(`<t:(\d+):`)

// says returns the content of a message, with the instants in it as far in the past as time has
// passed since.
func (m posting) says() string {
	return instant.ReplaceAllStringFunc(m.content, func(text string) string {
		at, _ := strconv.ParseInt(instant.FindStringSubmatch(text)[1], 10, 64)
		return fmt.Sprintf("<t:%d:", at-int64(m.shown.Seconds()))
	})
}

// room simulates the platform: it works, is down (nothing is done and no response comes), refuses,
// or loses its responses. It remembers a nonce only as long as it has to. Members react to its
// first message, even before the client knows of it.
type room struct {
	chat.StandIn

	mu     sync.Mutex // guards the fields below
	mode   string
	posts  []*posting
	stands map[stand]bool
	churn  []int           // changes of reactions to make after each page that is read
	gone   int             // how often a message was posted and deleted
	edited time.Time       // when a message was edited last, with a response
	hasty  []time.Duration // the pauses between edits that were shorter than ten seconds
	asked  []string        // the calls, for the report of a failed test
	astray []string        // messages that were used with another channel than their own

	// Since drawing began or may have begun: whose reaction has existed all the time, and whose at
	// any time.
	always, ever map[stand]bool
}

func newRoom(rt *rapid.T) *room {
	r := &room{mode: "up", stands: make(map[stand]bool)}
	for i := range rapid.SampledFrom([]int{0, 1, 3, 99, 100, 101, 205}).Draw(rt, "members") {
		r.stands[stand{strconv.Itoa(10_000 + 10*i), chat.Reaction(i % 2)}] = true
	}
	for _, b := range bots {
		r.stands[stand{b, chat.Normal}] = true
	}
	r.churn = rapid.SliceOfN(rapid.IntRange(0, 2*len(strays)-1), 0, 6).Draw(rt, "churn")
	r.reset()
	return r
}

// reset clears both, since drawing has not begun.
func (r *room) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.always, r.ever = make(map[stand]bool), make(map[stand]bool)
	for s := range r.stands {
		r.always[s], r.ever[s] = true, true
	}
}

func (r *room) set(mode string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode = mode
}

// change adds the reactions of strays that are missing, and removes those that exist.
func (r *room) change(which ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes(which...)
}

func (r *room) changes(which ...int) {
	for _, i := range which {
		s := stand{strays[i/2], chat.Reaction(i % 2)}
		if r.stands[s] {
			delete(r.stands, s)
			delete(r.always, s)
		} else {
			r.stands[s], r.ever[s] = true, true
		}
	}
}

// delete deletes all messages.
func (r *room) delete() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.posts {
		m.deleted = true
	}
	r.always = make(map[stand]bool)
}

func (r *room) pass(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, d.String())
	for _, m := range r.posts {
		m.at = m.at.Add(-d)
		m.shown += d
	}
	r.edited = r.edited.Add(-d)
}

// hurried fails the test if a message was edited twice within ten seconds, but not after a round in
// which time passed beside other commands: a process that stands still for longer than its lease
// edits late.
func (r *room) hurried(rt *rapid.T, passed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hasty) > 0 && !passed {
		rt.Fatalf("a message was edited again after %v: %q", r.hasty, r.asked)
	}
	if r.hasty = nil; passed {
		r.edited = time.Time{}
	}
}

// compare compares entrants with the reactions that existed; if missed, some may be missing. Those
// who are known to be disqualified or told by records may have stood there without an entry, or have
// one without having stood there.
func (r *room) compare(rt *rapid.T, entrants []string, missed bool, known []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.always {
		if !missed && !slices.Contains(bots, s.user) && !slices.Contains(known, s.user) && !slices.Contains(entrants, s.user) {
			rt.Fatalf("%s has stood there and has no entry", s.user)
		}
	}
	for _, user := range entrants {
		if slices.Contains(bots, user) || !slices.Contains(known, user) && !r.ever[stand{user, chat.Normal}] && !r.ever[stand{user, chat.Super}] {
			rt.Fatalf("%s has an entry and never stood there", user)
		}
	}
}

// said returns how often each text was posted and not deleted.
func (r *room) said() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := make(map[string]int)
	for _, m := range r.posts {
		if !m.deleted {
			n[m.said]++
		}
	}
	return n
}

func (r *room) message(id string) posting {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.posts {
		if m.id == id {
			return *m
		}
	}
	return posting{}
}

// answer returns how the present call fails, if it does; done says whether the call is carried out
// first.
func (r *room) answer() (done bool, err error) {
	switch r.mode {
	case "away":
		return false, &chat.Failure{Message: "no response came", Uncertain: true}
	case "refuses":
		return false, &chat.Failure{Status: 403, Code: 50001, Message: "Missing Access"}
	case "loses":
		return true, &chat.Failure{Message: "the response was lost", Uncertain: true}
	}
	return true, nil
}

// SendMessage posts a message once while it remembers the nonce: for two minutes.
func (r *room) SendMessage(_ context.Context, m chat.Message) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, r.mode+": post "+m.Nonce)
	done, failed := r.answer()
	if !done {
		return "", failed
	}
	i := slices.IndexFunc(r.posts, func(was *posting) bool {
		return was.nonce == m.Nonce && time.Since(was.at) <= 2*time.Minute+10*time.Second
	})
	if i < 0 {
		i = len(r.posts)
		r.posts = append(r.posts, &posting{
			id: strconv.Itoa(900_000 + i), nonce: m.Nonce, channel: m.Channel.ID, said: m.Content, content: m.Content, at: time.Now(),
		})
	}
	switch {
	case failed != nil:
		return "", failed
	case r.posts[i].deleted:
		r.gone++
		return "", nil
	}
	return r.posts[i].id, nil
}

// lookedFor records in which channel a message is used.
func (r *room) lookedFor(c chat.Channel, id string) {
	for _, m := range r.posts {
		if m.id == id && m.channel != c.ID {
			r.astray = append(r.astray, id+" of "+m.channel+" in "+c.ID)
		}
	}
}

// EditMessage replaces the content of a message.
func (r *room) EditMessage(_ context.Context, c chat.Channel, id, content string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookedFor(c, id)
	done, err := r.answer()
	for _, m := range r.posts {
		switch {
		case m.id != id:
		case r.mode == "refuses" || !done:
		case m.deleted:
			return &chat.Failure{Status: 404, Code: chat.CodeUnknownMessage}
		default:
			m.content, m.shown = content, 0
			if pause := time.Since(r.edited); err == nil && pause < 10*time.Second {
				r.hasty = append(r.hasty, pause)
			}
			if err == nil {
				r.edited = time.Now()
			}
		}
	}
	return err
}

// FindMessages returns the messages that exist.
func (r *room) FindMessages(_ context.Context, wanted chat.Message, _ time.Time) (ids []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, r.mode+": find "+wanted.Content)
	if _, err := r.answer(); err != nil {
		return nil, err
	}
	for _, m := range r.posts {
		if m.content == wanted.Content && m.channel == wanted.Channel.ID && !m.deleted {
			ids = append(ids, m.id)
		}
	}
	return ids, nil
}

// AddReaction adds the bot's reaction.
func (r *room) AddReaction(_ context.Context, c chat.Channel, id, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookedFor(c, id)
	_, err := r.answer()
	return err
}

// Reactors returns a page, after which some members react or withdraw.
func (r *room) Reactors(_ context.Context, c chat.Channel, id, _ string, way chat.Reaction, after string) (page []chat.Reactor, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookedFor(c, id)
	if _, err := r.answer(); err != nil {
		return nil, err
	}
	for _, m := range r.posts {
		if m.id == id && m.deleted {
			return nil, &chat.Failure{Status: 404, Code: chat.CodeUnknownMessage}
		}
	}
	for s := range r.stands {
		if s.way == way && chat.Later(s.user, after) {
			page = append(page, chat.Reactor{UserID: s.user, Bot: slices.Contains(bots, s.user)})
		}
	}
	slices.SortFunc(page, func(a, b chat.Reactor) int {
		if chat.Later(a.UserID, b.UserID) {
			return 1
		}
		return -1
	})
	if len(r.churn) > 0 {
		r.changes(r.churn[0])
		r.churn = r.churn[1:]
	}
	return page[:min(len(page), chat.ReactorsPage)], nil
}
