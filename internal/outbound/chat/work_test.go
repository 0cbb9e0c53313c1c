package chat

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// While the database is down and a caller waits for the bot's answer, failing polls are logged once
// in ten seconds, not each time.
func TestALookForAnswersThatFailsIsToldOfNowAndThen(t *testing.T) {
	t.Parallel()
	link := dbtest.NewLink(t, dbtest.New(t).URL)
	far := dbtest.Open(t, link.URL).DB
	link.Down()
	var log testutil.Log
	w := NewWork(far, slog.New(slog.NewTextHandler(&log, nil)), nil)
	w.waiting[&waiting{answer: make(chan piece, 1)}] = struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), 6*pollInterval)
	defer cancel()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("in six looks the log hears of the outage %d times, want 1:\n%s", n, log.String())
	}
}
