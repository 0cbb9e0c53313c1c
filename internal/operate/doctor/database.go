package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/lanes"
	"guildhall/internal/operate/secretkey"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/service/tickets"
)

// The differences between the clocks from which on doctor warns, and from which on receivers may
// refuse signatures.
const (
	clockWarn = 5 * time.Second
	clockFail = 30 * time.Second
)

// notificationTimeout is how long a notification may take to arrive.
const notificationTimeout = 5 * time.Second

// diskRows is a number of rows that take about 300 kB.
const diskRows = 8192

// database writes rows that need new disk space, and keeps none: a single row would fit into an
// existing page even on a full disk. It uses a temporary table, which is stored on the same disk as
// the other tables.
func (x *examination) database(ctx context.Context) Finding {
	type answer struct {
		Version   string `db:"version"`
		Temporary bool   `db:"temporary"`
	}
	var server answer
	undo := errors.New("rolled back")
	err := x.db.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		server, err = db.Get[answer](ctx, tx, `
			SELECT current_setting('server_version') AS version,
				has_database_privilege(current_database(), 'TEMPORARY') AS temporary`)
		if err != nil || !server.Temporary {
			return err
		}
		if _, err := db.Exec(ctx, tx, `SET LOCAL temp_tablespaces = ''`); err != nil {
			return err
		}
		if _, err := db.Exec(ctx, tx, fmt.Sprintf(`
			CREATE TEMPORARY TABLE guildhall_doctor ON COMMIT DROP AS SELECT generate_series(1, %d) AS n`, diskRows)); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		err = nil
	}
	switch {
	case db.ReadOnly(err):
		return fail("the database answers and takes no writes: it is a standby, or set to read only")
	case db.DiskFull(err):
		return fail("the database answers and takes no writes: its disk is full (%v)", err)
	case db.ConnectionsTaken(err):
		return fail("the database has no connection left for a node (%v): raise max_connections, or the limit of the role or the database, "+
			"or let nodes take fewer", err)
	case db.TakesNoWrites(err):
		return fail("the database answers and takes no writes: %v", err)
	case err != nil:
		return fail("the database does not answer: %v", err)
	}
	switch wrong, err := db.WrongSettings(ctx, x.db.Reader()); {
	case err != nil:
		return fail("the session's settings could not be read: %v", err)
	case len(wrong) > 0:
		return fail("the server, the database or the role has settings under which statements go wrong, and a pooler in between keeps the program from " +
			"setting them: take them back with ALTER DATABASE or ALTER ROLE ... RESET").about(wrong)
	case !server.Temporary:
		return ok("Postgres %s answers; its role may make no temporary table, so whether the disk has space was not tried", server.Version)
	}
	return ok("Postgres %s answers and takes writes", server.Version)
}

func (x *examination) schema(ctx context.Context) Finding {
	s, err := db.CheckSchema(ctx, x.DatabaseURL)
	switch {
	case err != nil:
		return fail("%v", err)
	case len(s.Invalid) > 0:
		return warn("indexes are invalid, because what made them was cut off: drop them, run `guildhall migrate`, and this again").about(s.Invalid)
	case s.Newer():
		return warn("the schema is at version %d, newer than this program's %d: a newer guildhall has migrated it", s.Version, db.SchemaVersion())
	case s.Unfinished() != "":
		return warn("%s", s.Unfinished())
	case s.Version < db.SchemaVersion():
		return warn("the schema is at version %d, this program's is %d: it runs, and `guildhall migrate` brings the rest", s.Version, db.SchemaVersion())
	}
	if f, missing := x.missing(ctx); missing {
		return f
	}
	return ok("the schema is at version %d, as this program's", s.Version)
}

func (x *examination) clock(ctx context.Context) Finding {
	// In a transaction, so that opening a connection, which may take a second, is not part of the
	// measured time.
	var ahead time.Duration
	err := x.db.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		ahead, err = db.ClockOffset(ctx, tx, x.Now)
		return err
	})
	if err != nil {
		return fail("the clocks could not be compared: %v", err)
	}
	const text = "this machine's clock is %v ahead of the database's"
	shown := ahead.Round(100 * time.Millisecond)
	switch off := ahead.Abs(); {
	case off > clockFail:
		return fail(text+": receivers may refuse what is signed here", shown)
	case off > clockWarn:
		return warn(text+": are both synchronised?", shown)
	}
	return ok(text, shown)
}

func (x *examination) secretKey(ctx context.Context) Finding {
	state, err := secretkey.Inspect(ctx, x.db.Reader(), x.Box)
	switch {
	case errors.Is(err, secretkey.ErrOther):
		return fail("GUILDHALL_SECRET_KEY opens nothing of what is sealed in this database")
	case err != nil:
		return fail("what is sealed could not be read: %v", err)
	case state == secretkey.Older:
		return warn("GUILDHALL_SECRET_KEY opens what is sealed, but with a key that is not the first: run `guildhall reseal`, then leave the older one out")
	case state == secretkey.Unused:
		return ok("nothing is sealed yet")
	}
	return ok("GUILDHALL_SECRET_KEY opens what is sealed")
}

// listener sends a notification through the database URL and waits for it on the listener's
// connection. A pooler accepts LISTEN without an error, but no notification arrives.
func (x *examination) listener(ctx context.Context) Finding {
	ctx, cancel := context.WithTimeout(ctx, notificationTimeout)
	defer cancel()
	channel := "guildhall_doctor_" + db.NewID()
	line, err := db.Listen(ctx, x.ListenURL, "guildhall-doctor", channel)
	if err != nil {
		return fail("no connection for notifications: %v", err)
	}
	heard := make(chan bool, 1)
	go func() {
		_, err := line.Next()
		heard <- err == nil
	}()
	defer line.Close()
	err = x.db.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := db.Exec(ctx, tx, `SELECT pg_notify($1, '')`, channel)
		return err
	})
	if err != nil {
		return fail("no notification could be sent: %v", err)
	}
	select {
	case came := <-heard:
		if came {
			return ok("notifications come through")
		}
	case <-ctx.Done():
	}
	return warn("notifications do not come through, so each request reads its token's row: a pooler stands between, or the line leads to another database; " +
		"GUILDHALL_LISTEN_URL names a direct connection")
}

// The ages of waiting work from which on doctor warns. Deliveries are sent within a second of being
// due; failing work of lanes is retried for a day.
const (
	dueWarn  = time.Minute
	dueFail  = 15 * time.Minute
	jobsWarn = 15 * time.Minute
)

func (x *examination) pending(ctx context.Context) Finding {
	due, err := delivery.OldestDue(ctx, x.db)
	if err != nil {
		return fail("what waits could not be read: %v", err)
	}
	jobs, job := 0, time.Duration(0)
	for _, q := range []lanes.Queue{chat.Announcements, tickets.Channels} {
		n, oldest, err := q.Waiting(ctx, x.db.Reader())
		if err != nil {
			return fail("what waits could not be read: %v", err)
		}
		jobs, job = jobs+n, max(job, oldest)
	}
	stranded, err := delivery.FindStranded(ctx, x.db.Reader(), maxEndpoints)
	if err != nil {
		return fail("what waits could not be read: %v", err)
	}
	if len(stranded) > 0 {
		about := make([]string, len(stranded))
		for i, e := range stranded {
			about[i] = e.EndpointID + " of guild " + e.GuildID
		}
		return fail("the deliveries of %d webhook endpoints wait, and no worker finds them: disable each endpoint and enable it again, and please report it",
			len(stranded)).about(about)
	}
	due, job = due.Round(time.Second), job.Round(time.Second)
	const text = "the oldest due delivery has waited %v, the oldest of %d unfinished jobs %v"
	switch {
	case due > dueFail:
		return fail(text+": does a `guildhall serve` with the role worker run?", due, jobs, job)
	case due > dueWarn, job > jobsWarn:
		return warn(text+": does a worker run, and does the chat platform answer?", due, jobs, job)
	case due == 0 && jobs == 0:
		return ok("no delivery is due and no job is unfinished")
	}
	return ok(text, due, jobs, job)
}

// expiresSoon is how long before its expiry a bot key is reported.
const expiresSoon = 14 * 24 * time.Hour

// botKeys checks the active bot keys: each gives access to every guild that it lists, and the bot
// stops working when its key expires.
func (x *examination) botKeys(ctx context.Context) Finding {
	keys, err := auth.ListKeys(ctx, x.db)
	if err != nil {
		return fail("the bot's keys could not be read: %v", err)
	}
	now, working := x.Now(), 0
	var soon, open []string
	for _, k := range keys {
		if k.RevokedAt != nil || k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) {
			continue
		}
		working++
		if k.ExpiresAt != nil && k.ExpiresAt.Sub(now) <= expiresSoon {
			soon = append(soon, k.ID)
		}
		if len(k.IPAllowlist) == 0 {
			open = append(open, k.ID)
		}
	}
	about := slices.Compact(slices.Sorted(slices.Values(slices.Concat(soon, open))))
	switch {
	case len(soon) > 0 && len(open) > 0:
		return warn("%d of %d bot keys end within 14 days, and %d may be used from any address; `guildhall bot-key create` takes --expires-in and --allow-ip",
			len(soon), working, len(open)).about(about)
	case len(soon) > 0:
		return warn("%d of %d bot keys end within 14 days; make the bot another with `guildhall bot-key create`", len(soon), working).about(about)
	case len(open) > 0:
		return warn("%d of %d bot keys may be used from any address; `guildhall bot-key create` takes --allow-ip", len(open), working).about(about)
	case working == 0:
		return ok("no bot key is in use")
	}
	return ok("bot keys in use: %d, each with an allowlist", working)
}

// fetches reports pull endpoints and streams that nobody has fetched from for days and that will
// soon be ended.
func (x *examination) fetches(ctx context.Context) Finding {
	late, err := db.Select[string](ctx, x.db.Reader(), unfetched, delivery.UnfetchedWarning.Seconds(), db.Array(x.Guilds), maxEndpoints)
	if err != nil {
		return fail("the endpoints that are fetched from could not be read: %v", err)
	}
	streams, err := db.Select[string](ctx, x.db.Reader(), unfetchedStreams, delivery.UnfetchedWarning.Seconds())
	switch {
	case err != nil:
		return fail("the streams could not be read: %v", err)
	case len(late) > 0 || len(streams) > 0:
		return warn("from %d pull endpoints and %d streams nobody has fetched for 3 days or longer; after 7 days each is disabled or ends",
			len(late), len(streams)).about(append(late, streams...))
	}
	return ok("no pull endpoint and no stream is left unread")
}

// unfetchedStreams selects the names of streams that nobody has fetched from for $1 seconds. The
// stream of work always exists and is never ended.
const unfetchedStreams = `
	SELECT 'stream ' || name
	FROM bot_streams
	WHERE ended_at IS NULL AND id <> '` + delivery.StreamWork + `' AND coalesce(fetched_at, created_at) < now() - $1 * interval '1 second'
	ORDER BY name`

// unfetched selects the pull endpoints that nobody has fetched from for $1 seconds.
const unfetched = `
	SELECT endpoint_id || ' of guild ' || guild_id
	FROM webhook_schedule
	WHERE disposition = 'pull' AND fetched_at < now() - $1 * interval '1 second' AND (cardinality($2::text[]) = 0 OR guild_id = ANY ($2))
	ORDER BY fetched_at
	LIMIT $3`
