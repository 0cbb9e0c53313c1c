// Package chattest is an HTTP server that behaves like the parts of Discord's API that Guildhall
// uses: authentication, messages with enforced nonces, channels, rate limits, and failures. For
// tests only.
package chattest

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Token is the bot token that the server accepts, and Self the bot's user id.
const (
	Token = "chattest-bot-token"
	Self  = "9000000000000000001"
)

// Message is one message in a channel.
type Message struct {
	ID       string
	Content  string
	AuthorID string
	Nonce    string
	Mentions json.RawMessage // allowed_mentions of the request
	Enforced bool            // enforce_nonce of the request
	ReplyTo  string
}

// Behaviour replaces the normal response to a request. It returns false if the server should
// respond normally afterwards. accept carries out the call.
type Behaviour func(w http.ResponseWriter, r *http.Request, accept func() any) bool

// Server is the simulated platform. Its methods are safe for concurrent use.
type Server struct {
	URL string // the API's base URL, ending in /api/v10

	mu       sync.Mutex // guards the fields below
	last     uint64
	ahead    time.Duration
	channels map[string][]Message
	state    map[string]string
	nonces   map[string]nonce
	window   time.Duration
	queue    []Behaviour
	always   map[string]Behaviour
	home     string
	owners   map[string]string
	texts    map[string][]Overwrite // channels that are not threads, with their overwrites
	lookup   map[string]Behaviour
	lookups  map[string]int
	calls    []string
	rights   map[string]uint64 // the bot's permissions, by guild that the bot is in
	abouts   map[string]About
	gone     chan struct{}

	reactions map[reaction][]string // users by message, in the order of their ids
	bots      map[string]bool
}

type nonce struct {
	at      time.Time
	message Message
}

// New starts a server. It stops when the test ends.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{
		channels: map[string][]Message{}, state: map[string]string{}, nonces: map[string]nonce{},
		always: map[string]Behaviour{}, owners: map[string]string{}, texts: map[string][]Overwrite{},
		lookup: map[string]Behaviour{}, lookups: map[string]int{}, rights: map[string]uint64{}, abouts: map[string]About{}, bots: map[string]bool{},
		window: 5 * time.Minute, gone: make(chan struct{}),
	}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	s.URL = h.URL + "/api/v10"
	tb.Cleanup(func() {
		close(s.gone)
		h.CloseClientConnections()
		h.Close()
	})
	return s
}

// Next sets the behaviours of the next requests, one each. It does not affect edits of messages.
func (s *Server) Next(b ...Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, b...)
}

// In sets the behaviour for every request to the channel; nil ends it.
func (s *Server) In(channel string, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always[channel] = b
}

// Home makes all channels belong to guild, except those given away by Give.
func (s *Server) Home(guild string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.home = guild
}

// Give makes a channel belong to guild. With an empty guild it belongs to none, as a direct message
// does.
func (s *Server) Give(channel, guild string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners[channel] = guild
}

// Overwrite is a channel's overwrite for a role (type 0) or a member (type 1), as bits.
type Overwrite struct {
	ID    string `json:"id"`
	Type  int    `json:"type"`
	Allow uint64 `json:"allow,string"`
	Deny  uint64 `json:"deny,string"`
}

// Text makes a channel a text channel with these overwrites. Other channels are threads.
func (s *Server) Text(channel string, overwrites ...Overwrite) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[channel] = overwrites
}

// Overwrites returns the present overwrites of a text channel by id.
func (s *Server) Overwrites(channel string) map[string]Overwrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := map[string]Overwrite{}
	for _, o := range s.texts[channel] {
		now[o.ID] = o
	}
	return now
}

// Admit makes the bot a member of a guild with these permissions, as bits.
func (s *Server) Admit(guild string, permissions uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rights[guild] = permissions
}

// About is a guild's description.
type About struct {
	Name     string `json:"name"`
	Icon     string `json:"icon,omitempty"`
	OwnerID  string `json:"owner_id"`
	Locale   string `json:"preferred_locale"`
	Members  int    `json:"approximate_member_count"`
	JoinedAt string `json:"-"` // when the bot joined
}

// Describe sets the description of a guild that the bot is in.
func (s *Server) Describe(guild string, about About) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abouts[guild] = about
}

// Lookup sets the behaviour for requests about the channel itself, which ask for its guild; nil
// ends it. In and Next do not affect these requests.
func (s *Server) Lookup(channel string, b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookup[channel] = b
}

// Lookups returns how often the channel itself was requested.
func (s *Server) Lookups(channel string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lookups[channel]
}

// Remove deletes a channel.
func (s *Server) Remove(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state[channel] = "deleted"
}

// Forget makes the server forget all nonces, as it would after minutes.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.nonces)
}

// Messages returns the messages of a channel, oldest first.
func (s *Server) Messages(channel string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.channels[channel])
}

// Say posts a message by another author than the bot.
func (s *Server) Say(channel, author, content string) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.post(channel, Message{Content: content, AuthorID: author})
}

// Wait moves the server's clock forward, so that later messages are newer by d.
func (s *Server) Wait(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// State returns the state of a channel: "", "archived" or "deleted".
func (s *Server) State(channel string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state[channel]
}

// Calls returns the requests so far, as "POST /channels/1/messages", without those that Lookups
// counts.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := strings.TrimPrefix(r.URL.Path, "/api/v10")
	s.mu.Lock()
	behave := s.behaviour(r, path)
	s.mu.Unlock()

	if r.Header.Get("Authorization") != "Bot "+Token {
		writeJSON(w, http.StatusUnauthorized, map[string]any{"code": 0, "message": "401: Unauthorized"})
		return
	}
	act := func() (int, any) { return s.act(r, path, body) }
	if behave != nil && behave(w, r, func() any { _, b := act(); return b }) {
		return
	}
	status, response := act()
	writeJSON(w, status, response)
}

// behaviour records the request and returns the behaviour for it, or nil for the normal response.
func (s *Server) behaviour(r *http.Request, path string) Behaviour {
	channel := channelOf(r)
	if isLookup(r, path) {
		s.lookups[channel]++
		return s.lookup[channel]
	}
	s.calls = append(s.calls, r.Method+" "+path)
	if b := s.always[channel]; b != nil || len(s.queue) == 0 {
		return b
	}
	if isEdit(r, path) {
		return nil
	}
	b := s.queue[0]
	s.queue = s.queue[1:]
	return b
}

// isEdit reports whether a request edits a message. Edits happen in the background at any time.
func isEdit(r *http.Request, path string) bool {
	return r.Method == http.MethodPatch && strings.Contains(path, "/messages/")
}

func isLookup(r *http.Request, path string) bool {
	return r.Method == http.MethodGet && path == "/channels/"+channelOf(r)
}

// act responds as Discord does.
func (s *Server) act(r *http.Request, path string, body []byte) (int, any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	channel := channelOf(r)
	unknown := map[string]any{"code": 10003, "message": "Unknown Channel"}
	switch {
	case path == "/users/@me":
		return http.StatusOK, map[string]any{"id": Self, "bot": true}
	case strings.HasPrefix(path, "/guilds/"):
		return s.guild(r, strings.TrimPrefix(path, "/guilds/"))
	case channel == "" || s.state[channel] == "deleted":
		return http.StatusNotFound, unknown
	case isLookup(r, path):
		about := map[string]any{"id": channel, "type": 11}
		if overwrites, text := s.texts[channel]; text {
			about["type"], about["permission_overwrites"] = 0, overwrites
		}
		if guild := s.owner(channel); guild != "" {
			about["guild_id"] = guild
		}
		return http.StatusOK, about
	case strings.Contains(path, "/reactions/"):
		return s.actOnReaction(r, path)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/messages"):
		return s.create(channel, body)
	case r.Method == http.MethodGet && strings.HasSuffix(path, "/messages"):
		return http.StatusOK, s.read(channel, r)
	case isEdit(r, path):
		return s.edit(channel, path[strings.LastIndex(path, "/")+1:], body)
	case strings.Contains(path, "/permissions/"):
		return s.permit(r.Method, channel, path[strings.LastIndex(path, "/")+1:], body)
	case r.Method == http.MethodPatch:
		var change struct {
			Archived *bool `json:"archived"`
		}
		if json.Unmarshal(body, &change) != nil {
			return http.StatusBadRequest, map[string]any{"code": 50035, "message": "Invalid Form Body"}
		}
		if _, text := s.texts[channel]; change.Archived != nil && !text { // an unknown field otherwise
			s.state[channel] = map[bool]string{true: "archived"}[*change.Archived]
		}
		return http.StatusOK, map[string]any{"id": channel}
	case r.Method == http.MethodDelete:
		s.state[channel] = "deleted"
		return http.StatusOK, map[string]any{"id": channel}
	}
	return http.StatusMethodNotAllowed, map[string]any{"code": 0, "message": "405: Method Not Allowed"}
}

// owner returns the guild of a channel.
func (s *Server) owner(channel string) string {
	if guild, ok := s.owners[channel]; ok {
		return guild
	}
	return s.home
}

// guild returns the JSON of a guild, or of the bot as its member: the role of everyone has half of
// the bot's permissions, and a role of the bot has the other half.
func (s *Server) guild(r *http.Request, path string) (int, any) {
	id, member, _ := strings.Cut(path, "/")
	has, in := s.rights[id]
	if !in {
		return http.StatusNotFound, map[string]any{"code": 10004, "message": "Unknown Guild"}
	}
	if member == "members/"+Self {
		return http.StatusOK, map[string]any{"roles": []string{"77"}, "joined_at": cmp.Or(s.abouts[id].JoinedAt, "2020-01-01T00:00:00.000000+00:00")}
	}
	const half = 0x5555_5555_5555_5555
	role := func(id string, bits uint64) map[string]any {
		return map[string]any{"id": id, "permissions": strconv.FormatUint(bits, 10)}
	}
	about := struct {
		About
		ID    string `json:"id"`
		Roles []any  `json:"roles"`
	}{s.abouts[id], id, []any{role(id, has&half), role("77", has&^half), role("78", 8)}}
	if r.URL.Query().Get("with_counts") != "true" {
		about.Members = 0
	}
	return http.StatusOK, about
}

// permit sets or deletes an overwrite.
func (s *Server) permit(method, channel, id string, body []byte) (int, any) {
	var set Overwrite
	if method == http.MethodPut && json.Unmarshal(body, &set) != nil {
		return http.StatusBadRequest, map[string]any{"code": 50035, "message": "Invalid Form Body"}
	}
	set.ID = id
	rest := slices.DeleteFunc(slices.Clone(s.texts[channel]), func(o Overwrite) bool { return o.ID == id })
	if method == http.MethodPut {
		rest = append(rest, set)
	}
	s.texts[channel] = rest
	return http.StatusNoContent, nil
}

func (s *Server) create(channel string, body []byte) (int, any) {
	var in struct {
		Content  string          `json:"content"`
		Nonce    string          `json:"nonce"`
		Enforce  bool            `json:"enforce_nonce"`
		Mentions json.RawMessage `json:"allowed_mentions"`
		Reply    struct {
			MessageID string `json:"message_id"`
		} `json:"message_reference"`
	}
	if json.Unmarshal(body, &in) != nil || strings.TrimSpace(in.Content) == "" || len([]rune(in.Content)) > 2000 || len(in.Nonce) > 25 {
		return http.StatusBadRequest, map[string]any{"code": 50035, "message": "Invalid Form Body"}
	}
	if known, ok := s.nonces[in.Nonce]; ok && in.Enforce && time.Since(known.at) < s.window {
		return http.StatusOK, shown(known.message)
	}
	m := s.post(channel, Message{
		Content: strings.TrimSpace(in.Content), AuthorID: Self, Nonce: in.Nonce,
		Mentions: in.Mentions, Enforced: in.Enforce, ReplyTo: in.Reply.MessageID,
	})
	if in.Nonce != "" {
		s.nonces[in.Nonce] = nonce{at: time.Now(), message: m}
	}
	return http.StatusOK, shown(m)
}

// edit replaces the content of a message of the bot.
func (s *Server) edit(channel, id string, body []byte) (int, any) {
	var in struct {
		Content  string          `json:"content"`
		Mentions json.RawMessage `json:"allowed_mentions"`
	}
	if json.Unmarshal(body, &in) != nil || strings.TrimSpace(in.Content) == "" || len([]rune(in.Content)) > 2000 {
		return http.StatusBadRequest, map[string]any{"code": 50035, "message": "Invalid Form Body"}
	}
	for i, m := range s.channels[channel] {
		switch {
		case m.ID != id:
		case m.AuthorID != Self:
			return http.StatusForbidden, map[string]any{"code": 50005, "message": "Cannot edit a message authored by another user"}
		default:
			m.Content, m.Mentions = strings.TrimSpace(in.Content), in.Mentions
			s.channels[channel][i] = m
			return http.StatusOK, shown(m)
		}
	}
	return http.StatusNotFound, map[string]any{"code": 10008, "message": "Unknown Message"}
}

func (s *Server) post(channel string, m Message) Message {
	id := uint64(time.Now().Add(s.ahead).UnixMilli()-1420070400000) << 22
	s.last = max(id, s.last+1)
	m.ID = strconv.FormatUint(s.last, 10)
	s.channels[channel] = append(s.channels[channel], m)
	return m
}

// read returns a page as the platform does: the `limit` messages after `after`, newest first.
func (s *Server) read(channel string, r *http.Request) []any {
	after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	page := []any{}
	for _, m := range s.channels[channel] {
		if id, _ := strconv.ParseUint(m.ID, 10, 64); id > after && len(page) < limit {
			page = append(page, shown(m))
		}
	}
	slices.Reverse(page)
	return page
}

func shown(m Message) map[string]any {
	return map[string]any{"id": m.ID, "content": m.Content, "author": map[string]any{"id": m.AuthorID}}
}

func channelOf(r *http.Request) string {
	_, rest, ok := strings.Cut(r.URL.Path, "/channels/")
	if !ok {
		return ""
	}
	channel, _, _ := strings.Cut(rest, "/")
	return channel
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if status != http.StatusNoContent {
		_ = json.NewEncoder(w).Encode(body)
	}
}
