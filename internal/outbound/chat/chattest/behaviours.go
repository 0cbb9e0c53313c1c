package chattest

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Refuse responds with a platform error.
func Refuse(status, code int, message string) Behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ func() any) bool {
		writeJSON(w, status, map[string]any{"code": code, "message": message})
		return true
	}
}

// HTML responds with an HTML page, as the platform's proxy does during an outage.
func HTML(status int) Behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ func() any) bool {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>Something is wrong</body></html>")
		return true
	}
}

// Limited responds with a 429. The scope is "user" (the route's own), "shared" or "global".
func Limited(after time.Duration, scope string) Behaviour {
	return func(w http.ResponseWriter, r *http.Request, _ func() any) bool {
		h := w.Header()
		h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
		h.Set("X-RateLimit-Scope", scope)
		h.Set("Via", "1.1 google")
		if scope == "global" {
			h.Set("X-RateLimit-Global", "true")
		} else {
			h.Set("X-RateLimit-Bucket", "b-"+channelOf(r))
			h.Set("X-RateLimit-Limit", "5")
			h.Set("X-RateLimit-Remaining", "0")
			h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", after.Seconds()))
		}
		writeJSON(w, http.StatusTooManyRequests, map[string]any{
			"message": "You are being rate limited.", "retry_after": after.Seconds(), "global": scope == "global",
		})
		return true
	}
}

// Lose carries out the call and then closes the connection without a response.
func Lose() Behaviour {
	return func(_ http.ResponseWriter, _ *http.Request, accept func() any) bool {
		accept()
		panic(http.ErrAbortHandler)
	}
}

// Slow waits before the normal response.
func Slow(d time.Duration) Behaviour {
	return func(_ http.ResponseWriter, r *http.Request, _ func() any) bool {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
		return false
	}
}

// Until carries out the call at once and responds when the channel is closed.
func Until(release <-chan struct{}) Behaviour {
	return func(w http.ResponseWriter, r *http.Request, accept func() any) bool {
		body := accept()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		writeJSON(w, http.StatusOK, body)
		return true
	}
}

// Silent neither carries out the call nor responds.
func (s *Server) Silent() Behaviour {
	return func(_ http.ResponseWriter, r *http.Request, _ func() any) bool {
		select {
		case <-r.Context().Done():
		case <-s.gone:
		}
		panic(http.ErrAbortHandler)
	}
}
