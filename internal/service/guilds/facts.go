package guilds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/schema"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/service/transfer"
)

// Facts keeps the stored description of guilds current by asking the chat platform, if this
// installation may call it: names, icons, owners, sizes, locales and the times at which the bot
// joined.
//
// guilds.facts_due_at says when a guild is asked about next. A worker claims a guild by setting
// that time ahead by factsLease, and stores the answer only if the time is unchanged. So two
// workers never ask about a guild at once, data that a bot has sent meanwhile is kept, and a node
// that dies loses only one answer.
type Facts struct {
	DB    *db.DB
	Chat  AboutGuilds
	Curve Curve
	Log   *slog.Logger

	asked *prometheus.CounterVec
	quiet time.Time // no call is made before this time, since none would succeed
}

// AboutGuilds describes guilds. *chat.Discord implements it.
type AboutGuilds interface {
	About(ctx context.Context, guild string, turn func(context.Context) error) (chat.About, error)
}

// Each pause is lengthened at random by up to an eighth, so that guilds that were due together
// spread out.
const (
	factsGap    = 500 * time.Millisecond // between two calls of all nodes together
	factsPause  = time.Hour              // until a guild is asked about again
	factsAgain  = 10 * time.Minute       // until a guild is asked about again after a failed call
	factsDay    = 24 * time.Hour         // after a refusal, and after a bot has sent the guild's data
	factsLease  = 2 * time.Minute        // how long one worker keeps its lease of a guild
	factsQuiet  = 30 * time.Second       // after a failure that all calls would have
	factsShift  = 20 * time.Second       // after which a sweep ends
	factsLook   = 20                     // guilds found by one query: as many as a sweep can ask about
	factsLeeway = 5 * time.Minute        // how much later than a day a bot's data may put the next call
)

// The outcomes of asking about a guild.
const (
	factsChanged   = "changed"
	factsUnchanged = "unchanged"
	factsDropped   = "dropped" // a bot has sent newer data meanwhile, or the guild was removed
	factsRefused   = "refused" // the platform has refused, or its response is not valid
	factsFailed    = "failed"
)

// NewFacts returns a Facts. metrics may be nil.
func NewFacts(d *db.DB, platform AboutGuilds, curve Curve, log *slog.Logger, metrics prometheus.Registerer) *Facts {
	f := &Facts{DB: d, Chat: platform, Curve: curve, Log: log, asked: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "guildhall_guild_facts_total",
		Help: "Guilds of which the platform was asked what they are, by outcome: changed, unchanged, dropped (a bot has written them meanwhile), refused, failed.",
	}, []string{"outcome"})}
	for _, outcome := range []string{factsChanged, factsUnchanged, factsDropped, factsRefused, factsFailed} {
		f.asked.WithLabelValues(outcome)
	}
	return f
}

// factsDue finds due guilds, the longest overdue first; guilds that were never asked about come
// first of all.
const factsDue = `
	SELECT id
	FROM guilds
	WHERE facts_due_at <= now()
	  AND removed_at IS NULL
	ORDER BY facts_due_at, id
	LIMIT $1`

// Sweep asks about due guilds one after the other, until none is due or factsShift is over. A node
// runs one sweep at a time; sweeps of other nodes may run at the same time.
func (f *Facts) Sweep(ctx context.Context) error {
	end := time.Now().Add(factsShift) //nolint:forbidigo // how long this process works or waits, no instant
	if time.Now().Before(f.quiet) {   //nolint:forbidigo // how long this process works or waits, no instant
		return nil
	}
	guilds, err := db.Select[string](ctx, f.DB.Reader(), factsDue, factsLook)
	if err != nil {
		return fault.Wrap(err, "look for guilds to ask of")
	}
	var errs []error
	for _, guild := range guilds {
		if ctx.Err() != nil || time.Now().After(end) { //nolint:forbidigo // how long this process works or waits, no instant
			break
		}
		outcome, err := f.ask(chat.Background(ctx), guild)
		if outcome != "" {
			f.asked.WithLabelValues(outcome).Inc()
		}
		if chat.ForAll(err) {
			f.quiet = time.Now().Add(factsQuiet) //nolint:forbidigo // how long this process works or waits, no instant
			break                                // the client has logged and counted the failure
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ask asks about one guild and stores the answer. An empty outcome means that another node is
// asking.
func (f *Facts) ask(ctx context.Context, guild string) (outcome string, err error) {
	lease, err := f.claim(ctx, guild)
	if err != nil || lease == nil {
		return "", err
	}
	about, failed := f.Chat.About(ctx, guild, f.turn)
	if ctx.Err() != nil {
		return "", nil // the lease ends by itself
	}
	err = f.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		outcome, err = f.finish(ctx, tx, guild, *lease, about, failed)
		return err
	})
	if err != nil {
		return factsFailed, err
	}
	if outcome == factsFailed {
		return outcome, failed
	}
	return outcome, nil
}

// claim claims a due guild and returns its lease, or nil if another node has claimed the guild or a
// bot has sent its data.
func (f *Facts) claim(ctx context.Context, guild string) (lease *time.Time, err error) {
	err = f.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		until := now.Add(factsLease)
		n, err := db.Exec(ctx, tx, `
			UPDATE guilds
			SET facts_due_at = $2
			WHERE id = $1
			  AND facts_due_at <= $3
			  AND removed_at IS NULL`, guild, until, now)
		if n == 1 {
			lease = &until
		}
		return err
	})
	return lease, fault.Wrap(err, "take the turn of guild", guild)
}

// turn waits until the next call may be made, counting the calls of all nodes.
func (f *Facts) turn(ctx context.Context) error {
	var wait float64
	err := f.DB.Do(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		wait, err = db.Get[float64](ctx, tx, `
			WITH held AS MATERIALIZED (
				SELECT next_at FROM facts_turn FOR NO KEY UPDATE
			), turn AS MATERIALIZED (
				SELECT greatest(next_at, clock_timestamp()) AS at FROM held
			), following AS MATERIALIZED (
				SELECT at + make_interval(secs => $1) AS at FROM turn
			)
			UPDATE facts_turn
			SET next_at = following.at
			FROM following, turn
			RETURNING extract(epoch FROM turn.at - clock_timestamp())::float8`, factsGap.Seconds())
		return err
	})
	if err != nil {
		return fault.Wrap(err, "wait for a turn with the platform")
	}
	select {
	case <-time.After(time.Duration(wait * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish stores the outcome of asking, if the lease is still held.
func (f *Facts) finish(ctx context.Context, tx *db.Tx, guild string, lease time.Time, about chat.About, failed error) (outcome string, err error) {
	mine, err := db.Select[string](ctx, tx, `
		SELECT id FROM guilds WHERE id = $1 AND facts_due_at = $2 AND removed_at IS NULL FOR NO KEY UPDATE`, guild, lease)
	if err != nil || len(mine) == 0 {
		return factsDropped, fault.Wrap(err, "look for the turn of guild", guild)
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return "", err
	}
	failure, refused := errors.AsType[*chat.Failure](failed)
	refused = refused && failure.Lasting() || errors.Is(failed, chat.ErrNotInGuild)
	switch {
	case failed == nil:
		outcome, err = f.store(ctx, tx, guild, now, about)
	case refused:
		outcome = factsRefused
	default:
		outcome = factsFailed
	}
	if err != nil {
		return "", err
	}
	pause := map[string]time.Duration{factsRefused: factsDay, factsFailed: factsAgain}[outcome]
	pause = cmp.Or(pause, factsPause-factsPause/16)
	pause += rand.N(pause / 8) //nolint:gosec // no secret
	_, err = db.Exec(ctx, tx, `UPDATE guilds SET facts_due_at = $2 WHERE id = $1`, guild, now.Add(pause))
	return outcome, fault.Wrap(err, "set the next turn of guild", guild)
}

// store turns the platform's answer into a guild record, as a bot would have sent, and stores it.
func (f *Facts) store(ctx context.Context, tx *db.Tx, guild string, now time.Time, about chat.About) (outcome string, err error) {
	members := map[string]any{"record": "guild", "icon_url": nil, "owner_id": about.OwnerID}
	if about.IconURL != "" {
		members["icon_url"] = about.IconURL
	}
	if name := oneLine(about.Name); name != "" {
		members["name"] = name
	}
	if about.Locale != "" {
		members["locale"] = about.Locale
	}
	if about.Members > 0 {
		members["member_count"] = about.Members
	}
	if !about.JoinedAt.IsZero() {
		members["joined_at"] = about.JoinedAt
	}
	text, err := json.Marshal(members)
	if err != nil {
		return "", err
	}
	b := transfer.NewBatch(Records(f.Curve))
	value, found, ok := schema.Read(text, len(members)+1, "")
	if ok {
		found = append(found, b.Check(value)...)
	}
	if len(found) > 0 {
		f.Log.WarnContext(ctx, "what the chat platform says of a guild cannot be kept", "guild_id", guild, "error", schema.Describe(found))
		return factsRefused, nil
	}
	c, rec := &transfer.Call{By: auth.System(guild), Now: now, Emit: true}, transfer.Record{Text: text}
	if _, err := b.Add(c, &rec); err != nil {
		return "", err
	}
	if err := b.Write(ctx, tx, c); err != nil {
		return "", err
	}
	if rec.Err != nil {
		return "", rec.Err
	}
	if rec.Result == transfer.Unchanged {
		return factsUnchanged, nil
	}
	return factsChanged, b.Emit(ctx, tx, c)
}

// oneLine returns a name with its control characters and line breaks replaced by spaces.
func oneLine(name string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, name))
}

// heardOf postpones asking the platform about guilds that a bot has just described, by a day. It
// also does so for records that change nothing, but then at most once in factsLeeway.
func heardOf(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	if !c.By.IsKey() {
		return nil
	}
	if !rows[0].Gives("name", "icon_url", "owner_id", "member_count", "locale", "joined_at") {
		return nil
	}
	_, err := db.Exec(ctx, tx, `UPDATE guilds SET facts_due_at = $2 WHERE id = $1 AND facts_due_at < $3`,
		c.By.GuildID, c.Now.Add(factsDay+factsLeeway), c.Now.Add(factsDay))
	return fault.Wrap(err, "note that a bot has written guild", c.By.GuildID)
}
