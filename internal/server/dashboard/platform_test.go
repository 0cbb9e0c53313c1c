package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/dashboard"
)

// platform is a fake Discord with many people and guilds. The code of a sign-in is the id of its
// person, who may manage every guild. platform records when the bot asks for data.
type platform struct {
	URL    string
	guilds []string
	gone   map[string]bool // guilds from which the bot was removed
	hang   atomic.Bool     // delays the responses to the bot

	mu      sync.Mutex // guards the fields below
	asked   []time.Time
	refused []time.Time
}

func newPlatform(t *testing.T, guilds, gone []string) *platform {
	t.Helper()
	p := &platform{guilds: guilds, gone: map[string]bool{}}
	for _, g := range gone {
		p.gone[g] = true
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /oauth2/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer"}`, r.PostFormValue("code"))
	})
	mux.HandleFunc("POST /oauth2/token/revoke", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
	mux.HandleFunc("GET /users/@me", func(w http.ResponseWriter, r *http.Request) {
		id := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		_, _ = fmt.Fprintf(w, `{"id":%q,"username":"somebody"}`, id)
	})
	mux.HandleFunc("GET /users/@me/guilds", func(w http.ResponseWriter, _ *http.Request) {
		var list []string
		for _, g := range guilds {
			list = append(list, `{"id":"`+g+`","permissions":"32"}`)
		}
		_, _ = w.Write([]byte("[" + strings.Join(list, ",") + "]"))
	})
	mux.HandleFunc("GET /guilds/{guild}", func(w http.ResponseWriter, r *http.Request) {
		if p.arrives(w, r) {
			_, _ = fmt.Fprintf(w, `{"id":%q,"owner_id":"1","roles":[{"id":"5","permissions":"32"}]}`, r.PathValue("guild"))
		}
	})
	mux.HandleFunc("GET /guilds/{guild}/members/{user}", func(w http.ResponseWriter, r *http.Request) {
		if p.arrives(w, r) {
			_, _ = w.Write([]byte(`{"roles":["5"]}`))
		}
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	p.URL = srv.URL
	return p
}

// arrives records a request of the bot, and refuses it for a guild without the bot.
func (p *platform) arrives(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, time.Now())
	if p.hang.Load() {
		p.mu.Unlock()
		<-r.Context().Done()
		p.mu.Lock()
		return false
	}
	if !p.gone[r.PathValue("guild")] {
		return true
	}
	p.refused = append(p.refused, time.Now())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write([]byte(`{"code":50001,"message":"Missing Access"}`))
	return false
}

// most returns the largest number of instants within one window.
func most(at []time.Time, window time.Duration) int {
	slices.SortFunc(at, time.Time.Compare)
	n, from := 0, 0
	for i := range at {
		for at[i].Sub(at[from]) >= window {
			from++
		}
		n = max(n, i-from+1)
	}
	return n
}

// enter signs a user in.
func (b *browser) enter(user string) {
	b.t.Helper()
	authorize, err := url.Parse(b.get("/dashboard/login").wants(303).to)
	must(b.t, err)
	b.get("/dashboard/login/callback?code=" + user + "&state=" + authorize.Query().Get("state")).wants(303)
}

func tenGuilds(t *testing.T, s *dbtest.Database) []string {
	t.Helper()
	var ids []string
	for i := range 10 {
		ids = append(ids, strconv.Itoa(700000000000000000+i))
	}
	dbtest.Exec(t, s.DB, `
		INSERT INTO guilds (id, name, owner_id)
		SELECT id, 'Guild ' || id, '1' FROM unnest($1::text[]) id`, "{"+strings.Join(ids, ",")+"}")
	return ids
}

// RELIABILITY.md, Overload.
func TestAThousandFormsAskThePlatformLittle(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	guilds := tenGuilds(t, database)
	p := newPlatform(t, guilds, guilds[5:])
	s := siteOn(t, database, http.NotFoundHandler(), func(c *dashboard.Config) { c.Discord = discordAt(t, p.URL) })
	var all sync.WaitGroup
	var changed atomic.Int64
	for i := range 10 {
		b := s.browser(t)
		b.enter(strconv.Itoa(800000000000000000 + i))
		all.Go(func() {
			for n := range 100 {
				guild := guilds[(i+n/50)%len(guilds)]
				form := url.Values{"name": {fmt.Sprint("token ", n)}, "scopes": {"cases:read"}, "expires_in_days": {"7"}}
				switch got := b.post(page(guild, "tokens"), form); got.status {
				case http.StatusCreated:
					changed.Add(1)
				case http.StatusNotFound, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusUnprocessableEntity:
				default:
					t.Errorf("a form is answered %d", got.status)
				}
			}
		})
	}
	all.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := most(p.asked, time.Second); n > 20 {
		t.Errorf("the platform was asked %d times within a second", n)
	}
	if n := most(p.refused, time.Minute); n > 60 {
		t.Errorf("the platform refused %d calls within a minute", n)
	}
	if changed.Load() == 0 || len(p.refused) == 0 {
		t.Errorf("%d forms changed something, %d calls were refused", changed.Load(), len(p.refused))
	}
}

func TestAFormThatIsWrongAsksNothing(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	p := newPlatform(t, []string{guildID}, nil)
	var ahead atomic.Int64
	s := siteOn(t, database, http.NotFoundHandler(), func(c *dashboard.Config) {
		c.Discord = discordAt(t, p.URL)
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	b := s.browser(t)
	b.enter("800000000000000001")
	b.get(page(guildID)).wants(200)
	asked := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.asked)
	}
	before := asked()
	for range 20 {
		ahead.Add(int64(2 * time.Second))
		b.post(page(guildID, "tokens"), url.Values{"name": {""}}).wants(422)
		b.post(page(guildID, "webhooks"), url.Values{"url": {""}}).wants(422)
	}
	if n := asked() - before; n != 0 {
		t.Errorf("wrong forms have asked the platform %d times", n)
	}
	b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"cases:read"}}).wants(201)
	if asked() == before {
		t.Error("a change has not asked the platform")
	}
}

// RELIABILITY.md, Overload.
func TestAHangingPlatformCostsAPageLittle(t *testing.T) {
	t.Parallel()
	database := dbtest.New(t)
	p := newPlatform(t, []string{guildID, neighbourID}, nil)
	var ahead atomic.Int64
	s := siteOn(t, database, http.NotFoundHandler(), func(c *dashboard.Config) {
		c.Discord = discordAt(t, p.URL)
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	b := s.browser(t)
	b.enter("800000000000000001")
	b.get(page(guildID)).wants(200)
	p.hang.Store(true)
	// The running calls end after some seconds. A page that waited for one of them would take much
	// longer than this timeout.
	b.client.Timeout = 3 * time.Second
	ahead.Add(int64(5 * time.Minute))
	b.get(page(guildID)).wants(200)     // with the platform's last answer
	b.get(page(neighbourID)).wants(200) // with the answer from the sign-in
	b.get(page(guildID, "tickets")).wants(200)
	b.get(page(neighbourID, "tickets")).wants(503, "Discord does not answer") // the sign-in does not say who administers
	b.post(page(guildID, "tokens"), url.Values{"name": {"x"}, "scopes": {"cases:read"}}).wants(503, "Discord does not answer")
	ahead.Add(int64(6 * time.Minute))
	b.get(page(guildID)).wants(503, "Discord does not answer")
	b.get("/dashboard/").wants(200, "2 more servers").lacks(guildID)
	p.hang.Store(false)
	testutil.Eventually(t, "the page comes back", func() bool {
		ahead.Add(int64(time.Second))
		return b.get(page(guildID)).status == 200
	})
}

// The list of servers shows what the platform says now, not what it said at the sign-in.
// RELIABILITY.md, Guilds.
func TestTheListOfServersForgetsALostRight(t *testing.T) {
	t.Parallel()
	var ahead, status atomic.Int64
	var roles atomic.Value
	roles.Store(`["5"]`)
	status.Store(200)
	s := newSite(t, func(c *dashboard.Config) {
		c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		c.Discord = fakeDiscord(t, &roles, &status)
	})
	b := s.browser(t)
	b.enter("77")
	b.get("/dashboard/").wants(200, guildID)
	roles.Store(`[]`)
	ahead.Store(int64(11 * time.Minute))
	b.get("/dashboard/").wants(200, "None of the servers").lacks(guildID)
	roles.Store(`["5"]`)
	ahead.Add(int64(11 * time.Minute))
	b.get("/dashboard/").wants(200, guildID)
	status.Store(http.StatusForbidden) // the bot has left the guild
	ahead.Add(int64(11 * time.Minute))
	b.get("/dashboard/").wants(200, "None of the servers").lacks(guildID)
}
