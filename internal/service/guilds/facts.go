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

// Facts keeps what guilds are on the platform true, where the platform is ours to ask:
// their names, icons, owners, sizes, locales and the instants at which the bot joined.
//
// guilds.facts_due_at says when a guild's turn comes. The worker that asks sets it
// ahead by factsLease, and stores the answer only if that still stands there: so two
// never ask of a guild at a time, what a bot tells meanwhile counts, and a node that
// dies loses one answer.
type Facts struct {
	DB    *db.DB
	Chat  AboutGuilds
	Curve Curve
	Log   *slog.Logger

	asked *prometheus.CounterVec
	quiet time.Time // before it nobody is asked, since no call would succeed
}

// AboutGuilds is the platform, as it is asked what guilds are. chat.Discord is one.
type AboutGuilds interface {
	About(ctx context.Context, guild string, turn func(context.Context) error) (chat.About, error)
}

// Each pause of a guild is up to an eighth longer, so that guilds that were due together
// do not stay together.
const (
	factsGap    = 500 * time.Millisecond // between two calls of all nodes
	factsPause  = time.Hour              // until a guild's next turn
	factsAgain  = 10 * time.Minute       // after a call that failed
	factsDay    = 24 * time.Hour         // after a refusal, and after a bot has told
	factsLease  = 2 * time.Minute        // of who asks
	factsQuiet  = 30 * time.Second       // after a failure that would meet all calls
	factsShift  = 20 * time.Second       // after which one sweep ends
	factsLook   = 20                     // guilds that one look finds: as many as a shift asks of
	factsLeeway = 5 * time.Minute        // by which a bot's word counts longer than a day
)

// A guild's turn ends as one of these.
const (
	factsChanged   = "changed"
	factsUnchanged = "unchanged"
	factsDropped   = "dropped" // a bot told meanwhile, or the guild was removed
	factsRefused   = "refused" // by the platform, or its answer is not one
	factsFailed    = "failed"
)

// NewFacts returns one that counts what becomes of guilds' turns; metrics nil: it does not.
func NewFacts(d *db.DB, platform AboutGuilds, curve Curve, log *slog.Logger, metrics prometheus.Registerer) *Facts {
	f := &Facts{DB: d, Chat: platform, Curve: curve, Log: log, asked: promauto.With(metrics).NewCounterVec(prometheus.CounterOpts{
		Name: "guildhall_guild_facts_total",
		Help: "Guilds of which the platform was asked what they are, by outcome: changed, unchanged, dropped (a bot told meanwhile), refused, failed.",
	}, []string{"outcome"})}
	for _, outcome := range []string{factsChanged, factsUnchanged, factsDropped, factsRefused, factsFailed} {
		f.asked.WithLabelValues(outcome)
	}
	return f
}

// factsDue finds guilds whose turn has come, the longest due first: those first that
// nobody has asked of.
const factsDue = `
	SELECT id
	FROM guilds
	WHERE facts_due_at <= now()
	  AND removed_at IS NULL
	ORDER BY facts_due_at, id
	LIMIT $1`

// Sweep asks of the guilds whose turn has come, one after the other, until none is left
// or the shift is over. One sweep runs at a time; other nodes may sweep beside.
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
			break                                // the client's own metrics and log have it
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ask asks of one guild, and stores the answer. An empty outcome: another node does.
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
		outcome, err = f.settle(ctx, tx, guild, *lease, about, failed)
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

// claim takes a guild's turn; nil: it has gone to another node, or a bot has told.
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

// turn waits until the platform may be asked once more, whichever nodes ask.
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

// settle stores what became of a turn, if the lease is still there.
func (f *Facts) settle(ctx context.Context, tx *db.Tx, guild string, lease time.Time, about chat.About, failed error) (outcome string, err error) {
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

// store makes of an answer the record of the guild that a bot would have sent.
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
	c, rec := &transfer.Call{By: auth.System(guild), Now: now, Tell: true}, transfer.Record{Text: text}
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
	return factsChanged, b.Tell(ctx, tx, c)
}

// oneLine is a name with spaces in the place of control characters and line breaks.
func oneLine(name string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, name))
}

// heardOf has a day go by before the platform is asked what a bot has told. It is noted
// of what stays as it is too, once in factsLeeway.
func heardOf(ctx context.Context, tx *db.Tx, c *transfer.Call, rows []*transfer.Row[row]) error {
	if !c.By.IsKey() {
		return nil
	}
	if !rows[0].Gives("name", "icon_url", "owner_id", "member_count", "locale", "joined_at") {
		return nil
	}
	_, err := db.Exec(ctx, tx, `UPDATE guilds SET facts_due_at = $2 WHERE id = $1 AND facts_due_at < $3`,
		c.By.GuildID, c.Now.Add(factsDay+factsLeeway), c.Now.Add(factsDay))
	return fault.Wrap(err, "note that a bot has told of guild", c.By.GuildID)
}
