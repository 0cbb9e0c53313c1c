package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/chat"
)

// standInPath is the path of the stand-in's page of consent.
const standInPath = Prefix + "/stand-in/"

// The people of the stand-in. Their rights apply to every guild of the database.
var standInPeople = []standInPerson{
	{"100000000000000001", "Olga Owner", "owns every server here", "owner"},
	{"100000000000000002", "Mara Manager", "has the permission to manage every server here", "manager"},
	{"100000000000000003", "Otto Outsider", "is a member, and manages nothing", "outsider"},
}

type standInPerson struct{ ID, Name, Says, Key string }

// standIn replaces Discord on a machine without a Discord application. The stand-in has the same
// protocol, so the client code is the same.
type standIn struct {
	guilds func(context.Context) ([]string, error)
	mux    *http.ServeMux
	page   *template.Template

	mu     sync.Mutex // guards the fields below
	codes  map[string]authCode
	tokens map[string]string // the person's id, by token
}

type authCode struct {
	user, challenge, redirect string
	until                     time.Time
}

// NewStandIn returns a Discord client for the local stand-in, with three people and the guilds of
// the database.
func NewStandIn(d *db.DB) (*Discord, error) {
	s := &standIn{codes: map[string]authCode{}, tokens: map[string]string{}, mux: http.NewServeMux()}
	s.guilds = func(ctx context.Context) ([]string, error) {
		return db.Select[string](ctx, d.Reader(), `SELECT id FROM guilds WHERE removed_at IS NULL ORDER BY id LIMIT 200`)
	}
	var err error
	if s.page, err = template.ParseFS(files, "templates/stand-in.html"); err != nil {
		return nil, fault.Wrap(err, "dashboard")
	}
	const api = "/api/v10"
	s.mux.HandleFunc("GET "+standInPath+"authorize", s.consent)
	s.mux.HandleFunc("POST "+standInPath+"authorize", s.grant)
	s.mux.HandleFunc("POST "+api+"/oauth2/token", s.exchangeCode)
	s.mux.HandleFunc("POST "+api+"/oauth2/token/revoke", s.revoke)
	s.mux.HandleFunc("GET "+api+"/users/@me", s.me)
	s.mux.HandleFunc("GET "+api+"/users/@me/guilds", s.myGuilds)
	s.mux.HandleFunc("GET "+api+"/guilds/{guild}", s.guild)
	s.mux.HandleFunc("GET "+api+"/guilds/{guild}/members/{user}", s.member)
	const address = "https://stand-in.invalid" + api
	bot, err := chat.NewDiscord(chat.Config{Token: "stand-in", URL: address, Log: slog.New(slog.DiscardHandler), Transport: inProcess{s.mux}})
	if err != nil {
		return nil, fault.Wrap(err, "dashboard")
	}
	dd, err := NewDiscord(DiscordConfig{
		ClientID: "stand-in", ClientSecret: "stand-in", Bot: bot, AuthorizeURL: standInPath + "authorize", URL: address,
	})
	if err != nil {
		return nil, err
	}
	dd.standIn = s.mux
	return dd, nil
}

// inProcess is a transport that calls a handler without a network.
type inProcess struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := &buffered{header: http.Header{}}
	t.handler.ServeHTTP(rec, r)
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	return &http.Response{
		StatusCode: rec.status, Status: http.StatusText(rec.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: rec.header, Body: io.NopCloser(&rec.body), ContentLength: int64(rec.body.Len()), Request: r,
	}, nil
}

func (s *standIn) consent(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = s.page.Execute(w, map[string]any{ // writes into memory
		"People": standInPeople, "Query": "?" + r.URL.RawQuery, "Style": Prefix + "/assets/" + styleName,
	})
}

// grant redirects the browser with a code for the chosen person.
func (s *standIn) grant(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || !strings.EqualFold(back.Host, r.Host) || q.Get("code_challenge_method") != "S256" || q.Get("client_id") != "stand-in" {
		http.Error(w, "invalid request", http.StatusBadRequest)
		return
	}
	v := url.Values{"state": {q.Get("state")}}
	i := slices.IndexFunc(standInPeople, func(p standInPerson) bool { return p.Key == r.PostFormValue("person") })
	if i < 0 {
		v.Set("error", "access_denied")
	} else {
		code := rand.Text()
		s.mu.Lock()
		if len(s.codes) > 1000 {
			clear(s.codes)
		}
		s.codes[code] = authCode{standInPeople[i].ID, q.Get("code_challenge"), q.Get("redirect_uri"), time.Now().Add(time.Minute)}
		s.mu.Unlock()
		v.Set("code", code)
	}
	back.RawQuery = v.Encode()
	w.Header().Set("Location", back.String())
	w.WriteHeader(http.StatusSeeOther)
}

func (s *standIn) exchangeCode(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	g, ok := s.codes[r.PostFormValue("code")]
	delete(s.codes, r.PostFormValue("code"))
	s.mu.Unlock()
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	challenge := base64.RawURLEncoding.EncodeToString(sum[:])
	if !ok || time.Now().After(g.until) || r.PostFormValue("redirect_uri") != g.redirect ||
		subtle.ConstantTimeCompare([]byte(challenge), []byte(g.challenge)) != 1 {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	token := rand.Text()
	s.mu.Lock()
	s.tokens[token] = g.user
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 604800, "scope": "identify guilds"})
}

func (s *standIn) revoke(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	delete(s.tokens, r.PostFormValue("token"))
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{})
}

func (s *standIn) me(w http.ResponseWriter, r *http.Request) {
	p, ok := s.caller(r)
	if !ok {
		writeJSON(w, http.StatusUnauthorized, map[string]string{"message": "401: Unauthorized"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"id": p.ID, "username": p.Key, "global_name": p.Name})
}

// caller returns the person to whom the request's access token belongs.
func (s *standIn) caller(r *http.Request) (standInPerson, bool) {
	s.mu.Lock()
	id := s.tokens[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	s.mu.Unlock()
	i := slices.IndexFunc(standInPeople, func(p standInPerson) bool { return p.ID == id })
	if i < 0 {
		return standInPerson{}, false
	}
	return standInPeople[i], true
}

func (s *standIn) myGuilds(w http.ResponseWriter, r *http.Request) {
	p, ok := s.caller(r)
	if !ok {
		writeJSON(w, http.StatusUnauthorized, map[string]string{"message": "401: Unauthorized"})
		return
	}
	ids, err := s.guilds(r.Context())
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"message": "the database is away"})
		return
	}
	list := []map[string]any{}
	for _, id := range ids {
		list = append(list, map[string]any{"id": id, "owner": p.Key == "owner", "permissions": permissionsOf(p.Key)})
	}
	writeJSON(w, http.StatusOK, list)
}

func permissionsOf(key string) string {
	if key == "manager" {
		return "32" // permission to manage the server
	}
	return "1024"
}

func (s *standIn) guild(w http.ResponseWriter, r *http.Request) {
	guild := r.PathValue("guild")
	ids, err := s.guilds(r.Context())
	if err != nil {
		writeJSON(w, http.StatusInternalServerError, map[string]string{"message": "the database is away"})
		return
	}
	if !slices.Contains(ids, guild) {
		writeJSON(w, http.StatusNotFound, map[string]any{"message": "Unknown Guild", "code": 10004})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": guild, "owner_id": standInPeople[0].ID, "roles": []map[string]string{
		{"id": guild, "permissions": "1024"}, {"id": "200000000000000001", "permissions": permissionsOf("manager")},
	}})
}

func (s *standIn) member(w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(standInPeople, func(p standInPerson) bool { return p.ID == r.PathValue("user") })
	if i < 0 {
		writeJSON(w, http.StatusNotFound, map[string]any{"message": "Unknown Member", "code": 10007})
		return
	}
	roles := []string{}
	if standInPeople[i].Key == "manager" {
		roles = append(roles, "200000000000000001")
	}
	writeJSON(w, http.StatusOK, map[string]any{"roles": roles})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // writes into memory
}
