// Package logging makes the program's log: with a level and a format, with secrets redacted, and
// written in batches by a goroutine of its own.
package logging

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// New returns a log that writes to w as a setting such as "info,json" says.
func New(w io.Writer, setting string) (*slog.Logger, error) {
	level, format, found := strings.Cut(setting, ",")
	var opts slog.HandlerOptions
	var l slog.Level
	if !found || l.UnmarshalText([]byte(strings.TrimSpace(level))) != nil {
		return nil, errors.New("write a level and a format, as in info,json: levels are debug, info, warn and error, formats json and text")
	}
	opts.Level, w = l, scrubber{w}
	switch strings.TrimSpace(format) {
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	}
	return nil, errors.New("the format of the log is json or text, as in info,json")
}

// scrubber redacts secrets from log lines, as the last line of defence: no code logs a secret on
// purpose, but an error or a path may contain one. It expects a whole line per Write, which is how
// slog's handlers write.
type scrubber struct{ w io.Writer }

// Write redacts secrets from a line and passes the line on.
func (s scrubber) Write(line []byte) (int, error) {
	clean := line
	if suspicious(line) {
		clean = []byte(Redact(string(line)))
	}
	if _, err := s.w.Write(clean); err != nil {
		return 0, err
	}
	return len(line), nil
}

var marks = [][]byte{[]byte("svc_"), []byte("bot_"), []byte("whsec_"), []byte("://"), []byte("Bot ")}

func suspicious(line []byte) bool {
	for _, mark := range marks {
		if bytes.Contains(line, mark) {
			return true
		}
	}
	return false
}

var secrets = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(svc|bot)_(live|test)_[A-Za-z0-9_-]{20,}`), "${1}_${2}_[redacted]"},
	{regexp.MustCompile(`whsec_[A-Za-z0-9+/=_-]{8,}`), "whsec_[redacted]"},
	{regexp.MustCompile(`(://[^:/@\s]*):[^@/\s]+@(?:[^@/\s"]*@)*`), "$1:[redacted]@"},
	{regexp.MustCompile(`\bBot [A-Za-z0-9._-]{20,}`), "Bot [redacted]"},
}

// Redact replaces tokens, bot keys, signing secrets and passwords in URLs.
func Redact(text string) string {
	for _, s := range secrets {
		text = s.pattern.ReplaceAllString(text, s.instead)
	}
	return text
}
