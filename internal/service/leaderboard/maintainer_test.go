package leaderboard_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/service/leaderboard"
)

// While the database is down, the log gets one line in ten seconds, not one in each round.
func TestRoundsThatFailAreToldOfNowAndThen(t *testing.T) {
	t.Parallel()
	link := dbtest.NewLink(t, dbtest.New(t).URL)
	far := dbtest.Open(t, link.URL).DB
	link.Down()
	var log testutil.Log
	k := &leaderboard.Maintainer{DB: far, Log: slog.New(slog.NewTextHandler(&log, nil)), Interval: 50 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := k.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "keep the leaderboards"); n != 1 {
		t.Errorf("in a second of rounds the log hears of the outage %d times, want 1:\n%s", n, log.String())
	}
}
