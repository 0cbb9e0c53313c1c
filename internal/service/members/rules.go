package members

import (
	"net/url"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/cases"

	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
)

const (
	// maxName is how many characters of a name are kept, and maxURL how long the URL of an
	// avatar may be.
	maxName = 100
	maxURL  = 512

	// maxNames is how many names the metadata of a member may have.
	maxNames = 50
)

// keptName returns the first maxName characters of a name; nil for a blank name.
func keptName(name *string) *string {
	if name == nil {
		return nil
	}
	kept := []rune(strings.TrimSpace(*name))
	if len(kept) > maxName {
		kept = kept[:maxName]
	}
	text := strings.TrimSpace(string(kept))
	if text == "" {
		return nil
	}
	return &text
}

// keptURL returns the URL of an avatar; nil if it is no https URL of at most maxURL bytes.
func keptURL(avatar *string) *string {
	if avatar == nil || len(*avatar) > maxURL || strings.ContainsFunc(*avatar, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return nil
	}
	if u, err := url.Parse(*avatar); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil
	}
	return avatar
}

// fold returns a name as Unicode folds its case, which the search by prefix compares.
func fold(name *string) *string {
	if name == nil {
		return nil
	}
	text := cases.Fold().String(*name)
	return &text
}

// left reports whether the member has left: after the last joining that is known.
func (m *row) left() bool { return hasLeft(m.JoinedAt, m.LeftAt) }

// hasLeft is the rule of left. The statements of this package have it as leftSQL.
func hasLeft(joined, left *wire.Time) bool {
	return left != nil && (joined == nil || joined.Time.Before(left.Time))
}

// risen returns the later of two instants; a null does not change was. An instant in the future
// counts as now if it changes whether the member is present, and otherwise is ignored: a bot with a
// fast clock would change the member with each record.
func risen(was, is *wire.Time, now time.Time, changesState bool) *wire.Time {
	if is == nil {
		return was
	}
	next := *is
	if next.Time.After(now) {
		if !changesState {
			return was
		}
		next = wire.At(now)
	}
	if was != nil && !next.Time.After(was.Time) {
		return was
	}
	return &next
}

// eventOf returns the type of the event to emit for a change. was is zero for a new member.
func eventOf(was, is *row) string {
	known := was.UserID != ""
	switch {
	case !is.left() && is.JoinedAt != nil && (!known || was.left()):
		return event.MemberJoined
	case known && is.left() && !was.left():
		return event.MemberLeft
	}
	return event.MemberUpdated
}

// prefixEnd returns the text behind every text that begins with prefix, in the order of the
// collation "C".
func prefixEnd(prefix string) string { return prefix + "\U0010FFFF" }
