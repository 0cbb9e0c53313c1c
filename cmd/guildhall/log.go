package main

import (
	"errors"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// newLogger makes a log from a setting such as "info,json".
func newLogger(w io.Writer, setting string) (*slog.Logger, error) {
	level, format, found := strings.Cut(setting, ",")
	var opts slog.HandlerOptions
	var l slog.Level
	if !found || l.UnmarshalText([]byte(strings.TrimSpace(level))) != nil {
		return nil, errors.New("write a level and a format, as in info,json: levels are debug, info, warn and error, formats json and text")
	}
	opts.Level, opts.ReplaceAttr = l, scrub
	switch strings.TrimSpace(format) {
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	}
	return nil, errors.New("the format of the log is json or text, as in info,json")
}

// scrub is the last line of defence: no code logs a secret on purpose, and what
// looks like one inside an error or a path does not get through either.
func scrub(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if s := a.Value.String(); suspicious(s) {
			a.Value = slog.StringValue(redact(s))
		}
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(redact(err.Error()))
		}
	default: // numbers, times and the like hold no secret
	}
	return a
}

func suspicious(s string) bool {
	return strings.Contains(s, "svc_") || strings.Contains(s, "whsec_") || strings.Contains(s, "://") || strings.Contains(s, "Bot ")
}

var secrets = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`svc_(live|test)_[A-Za-z0-9_-]{20,}`), "svc_${1}_[redacted]"},
	{regexp.MustCompile(`whsec_[A-Za-z0-9+/=_-]{8,}`), "whsec_[redacted]"},
	{regexp.MustCompile(`(://[^:/@\s]*):[^@/\s]+@`), "$1:[redacted]@"},
	{regexp.MustCompile(`\bBot [A-Za-z0-9._-]{20,}`), "Bot [redacted]"},
}

// redact removes tokens, signing secrets and passwords in URLs from a text.
func redact(text string) string {
	for _, s := range secrets {
		text = s.pattern.ReplaceAllString(text, s.instead)
	}
	return text
}
