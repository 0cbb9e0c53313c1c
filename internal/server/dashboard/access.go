package dashboard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"guildhall/internal/access/audit"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/server/failure"
)

// need says how old the platform's answer may be for a purpose, how long a caller waits for a newer
// answer, and how old the answer may be if no newer one comes in that time.
type need struct{ age, wait, grace time.Duration }

var (
	// A slow platform delays a page by at most pageWait.
	toList   = need{10 * time.Minute, pageWait, 0}
	toSee    = need{time.Minute, pageWait, 10 * time.Minute}
	toChange = need{0, changeWait, 0}
)

const (
	pageWait   = 300 * time.Millisecond
	changeWait = 2 * time.Second
	// oneQuestion is the time in which at most one question about a person and a guild is sent to
	// the platform, whatever the answer. So a change may rely on an answer of that age.
	oneQuestion = time.Second
	// absentAge is how long a guild counts as one without the bot. Each question about such a guild
	// is a refused call, and too many refused calls make the platform ban the bot's address.
	absentAge = 10 * time.Second
	// maxPermissions is the maximum number of stored answers.
	maxPermissions = 20_000
)

var errPlatformAway = fault.New(fault.Unavailable, "discord_unavailable",
	"Discord does not answer, so nobody can tell whether you may still manage this server. Nothing was changed. Try again in a moment.").After(10 * time.Second)

// guild is a guild as the pages show it.
type guild struct {
	ID   string `db:"id"`
	Name string `db:"name"`
}

// limited refuses a request if its address has no sign-ins left, and takes one from its bucket.
func limited(next handler) handler {
	return func(c *call) (reply, error) {
		if r := c.cfg.Limits.Spend(c.ctx, auth.LoginKey(c.from), c.cfg.Login); !r.Allowed {
			return reply{}, fault.New(fault.Limited, "rate_limited", "Too many sign-ins from your address. Try again in %d seconds.", failure.Seconds(r.RetryAfter)).
				After(max(r.RetryAfter, time.Second))
		}
		return next(c)
	}
}

// byDiscord is limited, on servers where people sign in with Discord.
func byDiscord(next handler) handler {
	return func(c *call) (reply, error) {
		if c.cfg.Discord == nil {
			return reply{}, errNoSignIn
		}
		return limited(next)(c)
	}
}

// signedIn refuses a request without a session.
func signedIn(next handler) handler {
	return func(c *call) (reply, error) {
		if c.who.ID == "" {
			return reply{}, errSignedIn
		}
		return next(c)
	}
}

// managing refuses a request unless the person may manage the guild in the path. For other people,
// the response is the same as for a guild that does not exist.
func managing(next handler) handler {
	return func(c *call) (reply, error) {
		g, err := c.enter(c.r.PathValue("guild"))
		if err != nil {
			return reply{}, err
		}
		c.guild = g
		return next(c)
	}
}

// enter returns the guild if the caller may manage it.
func (c *call) enter(id string) (guild, error) {
	if !slices.Contains(c.who.Guilds, id) {
		return guild{}, errNotHere
	}
	g, err := db.Get[guild](c.ctx, c.cfg.DB.Reader(), `SELECT id, name FROM guilds WHERE id = $1 AND removed_at IS NULL`, id)
	if db.Missing(err) {
		return guild{}, errNotHere
	}
	if err != nil {
		return guild{}, fault.Wrap(err, "read guild", id)
	}
	ok, err := c.access.may(c.ctx, c.who, id, toSee)
	if err != nil {
		return guild{}, err
	}
	if !ok {
		return guild{}, errNotHere
	}
	return g, nil
}

// stillTheirs returns the guilds that the caller may still manage, and for how many others the
// platform has not answered in time.
func (c *call) stillTheirs(guilds []guild) (theirs []guild, unsure int) {
	type answer struct {
		may bool
		err error
	}
	answers := make([]answer, len(guilds))
	var all sync.WaitGroup
	for i, g := range guilds {
		all.Go(func() { answers[i].may, answers[i].err = c.access.may(c.ctx, c.who, g.ID, toList) })
	}
	all.Wait()
	for i, a := range answers {
		switch {
		case a.err != nil:
			unsure++
		case a.may:
			theirs = append(theirs, guilds[i])
		}
	}
	return theirs, unsure
}

// access stores the platform's answers about who may manage which guild, and asks the platform.
type access struct {
	discord *Discord
	now     func() time.Time

	mu        sync.Mutex         // guards the fields below
	words     map[[2]string]word // by guild and user
	questions map[[2]string]*question
	absent    map[string]time.Time // guilds without the bot, and since when
}

// word is an answer of the platform.
type word struct {
	rights chat.Rights
	at     time.Time
	// presumed says that the word is that of the sign-in, which tells who may manage a
	// guild and not who administers it.
	presumed bool
}

// question is the newest question about a person and a guild.
type question struct {
	begun time.Time
	done  chan struct{} // closed when the fields below are set
	word  word
	err   error
}

func (q *question) over() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

func newAccess(d *Discord, now func() time.Time) *access {
	return &access{discord: d, now: now, words: map[[2]string]word{}, questions: map[[2]string]*question{}, absent: map[string]time.Time{}}
}

// may reports whether p may manage the guild. An operator's link gives that right for its one
// guild. Every other person's right comes from the platform.
func (a *access) may(ctx context.Context, p person, guild string, n need) (bool, error) {
	w, err := a.word(ctx, p, guild, n)
	return w.rights.Manage, err
}

// administers reports whether p owns or administers the guild.
func (a *access) administers(ctx context.Context, p person, guild string, n need) (bool, error) {
	w, err := a.word(ctx, p, guild, n)
	if err == nil && w.presumed {
		err = errPlatformAway
	}
	return w.rights.Administer, err
}

// word returns what is known of the rights of p in the guild.
func (a *access) word(ctx context.Context, p person, guild string, n need) (word, error) {
	if p.Kind == audit.Operator {
		return word{rights: chat.Rights{Manage: true, Administer: true}}, nil
	}
	if a.discord == nil {
		return word{}, nil // the person signed in before Discord was taken out of the settings
	}
	last, q := a.look(ctx, p, guild, n)
	if q == nil {
		return last, nil
	}
	wait, cancel := context.WithTimeout(ctx, n.wait)
	defer cancel()
	why := context.DeadlineExceeded
	select {
	case <-q.done:
		if q.err == nil {
			return q.word, nil
		}
		why = q.err
	case <-wait.Done():
	}
	if a.now().Sub(last.at) < n.grace {
		return last, nil
	}
	return word{}, errPlatformAway.Because(why)
}

// look returns the platform's last answer, together with the question to wait for if that answer is
// too old.
func (a *access) look(ctx context.Context, p person, guild string, n need) (word, *question) {
	key := [2]string{guild, p.ID}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if at, ok := a.absent[guild]; ok && now.Sub(at) < absentAge {
		return word{}, nil
	}
	last, known := a.words[key]
	if known && now.Sub(last.at) < n.age {
		return last, nil
	}
	if last.at.Before(p.Since) { // the sign-in was an answer of the platform too, except for whether the bot is in the guild
		last = word{chat.Rights{Manage: true}, p.Since, true}
		if n == toList && now.Sub(last.at) < n.age {
			return last, nil
		}
	}
	q := a.questions[key]
	if q == nil || q.over() && now.Sub(q.begun) >= oneQuestion {
		a.tidy()
		q = &question{begun: now, done: make(chan struct{})}
		a.questions[key] = q
		// The next request can use the answer, even if this request has ended.
		go a.ask(context.WithoutCancel(ctx), key, q)
	}
	return last, q
}

// ask sends the question to the platform.
func (a *access) ask(ctx context.Context, key [2]string, q *question) {
	rights, err := a.discord.rightsOf(ctx, key[0], key[1])
	a.mu.Lock()
	defer a.mu.Unlock()
	defer close(q.done)
	absent := errors.Is(err, chat.ErrNotInGuild)
	if q.word, q.err = (word{rights: rights, at: a.now()}), err; absent {
		q.err = nil
		a.absent[key[0]] = a.now()
	} else if err == nil {
		delete(a.absent, key[0])
	}
	if q.err == nil {
		a.words[key] = q.word
	}
}

// tidy deletes old answers so that their number stays below the maximum. A deleted answer only
// means another question.
func (a *access) tidy() {
	if len(a.words) >= maxPermissions {
		clear(a.words)
	}
	if len(a.absent) >= maxPermissions {
		clear(a.absent)
	}
	if len(a.questions) >= maxPermissions {
		for key, q := range a.questions {
			if q.over() {
				delete(a.questions, key)
			}
		}
	}
}
