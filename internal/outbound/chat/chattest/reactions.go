package chattest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// reaction identifies a message and an emoji, to find the users who have reacted.
type reaction struct {
	channel, message, emoji string
	super                   bool
}

// React adds reactions of users to a message.
func (s *Server) React(channel, message, emoji string, users ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range users {
		s.react(reaction{channel: channel, message: message, emoji: emoji}, u)
	}
}

// ReactSuper adds super reactions of users to a message.
func (s *Server) ReactSuper(channel, message, emoji string, users ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range users {
		s.react(reaction{channel: channel, message: message, emoji: emoji, super: true}, u)
	}
}

// Unreact removes a user's reaction.
func (s *Server) Unreact(channel, message, emoji, user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := reaction{channel: channel, message: message, emoji: emoji}
	s.reactions[at] = slices.DeleteFunc(s.reactions[at], func(u string) bool { return u == user })
}

// Bots marks users as bots. The bot itself is always one.
func (s *Server) Bots(users ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range users {
		s.bots[u] = true
	}
}

// Reacted returns the users who have reacted to a message, in the order of their ids.
func (s *Server) Reacted(channel, message, emoji string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reactions[reaction{channel: channel, message: message, emoji: emoji}])
}

// DeleteMessage deletes a message.
func (s *Server) DeleteMessage(channel, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.channels[channel] = slices.DeleteFunc(s.channels[channel], func(m Message) bool { return m.ID == message })
}

func (s *Server) react(at reaction, user string) {
	if s.reactions == nil {
		s.reactions = map[reaction][]string{}
	}
	list := s.reactions[at]
	if i, there := slices.BinarySearchFunc(list, user, compareIDs); !there {
		s.reactions[at] = slices.Insert(list, i, user)
	}
}

// compareIDs compares ids as numbers.
func compareIDs(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}

// actOnReaction responds, as the platform does, to requests below
// /channels/{id}/messages/{id}/reactions/{emoji}.
func (s *Server) actOnReaction(r *http.Request, path string) (int, any) {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(parts) < 6 || parts[2] != "messages" {
		return http.StatusNotFound, map[string]any{"code": 0, "message": "404: Not Found"}
	}
	at := reaction{channel: parts[1], message: parts[3], emoji: parts[5]}
	if !slices.ContainsFunc(s.channels[at.channel], func(m Message) bool { return m.ID == at.message }) {
		return http.StatusNotFound, map[string]any{"code": 10008, "message": "Unknown Message"}
	}
	switch {
	case r.Method == http.MethodPut && len(parts) == 7 && parts[6] == "@me":
		s.react(at, Self)
		return http.StatusNoContent, nil
	case r.Method == http.MethodGet && len(parts) == 6:
		limit, err := strconv.Atoi(r.URL.Query().Get("limit"))
		if err != nil || limit < 1 || limit > 100 {
			return http.StatusBadRequest, map[string]any{"code": 50035, "message": "Invalid Form Body"}
		}
		at.super = r.URL.Query().Get("type") == "1"
		page := []any{}
		for _, u := range s.reactions[at] {
			if len(page) < limit && compareIDs(u, r.URL.Query().Get("after")) > 0 {
				page = append(page, map[string]any{"id": u, "username": "user", "bot": s.bots[u] || u == Self})
			}
		}
		return http.StatusOK, page
	}
	return http.StatusMethodNotAllowed, map[string]any{"code": 0, "message": "405: Method Not Allowed"}
}
