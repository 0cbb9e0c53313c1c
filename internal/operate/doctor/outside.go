package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"guildhall/gen"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/delivery"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/service/webhooks"
)

const (
	redisTimeout = 2 * time.Second
	probeTimeout = 5 * time.Second
	// maxGuilds bounds the guilds that the chat platform is asked about: the platform allows a bot
	// 50 calls a second, and the bot needs some of them.
	maxGuilds = 100
	// maxEndpoints bounds the endpoints whose hosts are looked up.
	maxEndpoints = 5000
	// maxLookups is the number of concurrent DNS lookups.
	maxLookups = 16
)

func (x *examination) redis(ctx context.Context) Finding {
	if x.RedisURL == "" {
		// An error is ignored: the check of the database reports it.
		nodes, _ := db.Get[int](ctx, x.db.Reader(), `SELECT count(*) FROM auth_nodes WHERE seen_at > now() - interval '10 seconds'`)
		if nodes > 1 {
			return warn("GUILDHALL_REDIS_URL is not set, and each of %d nodes admits the whole of every rate limit", nodes)
		}
		return ok("GUILDHALL_REDIS_URL is not set: each node counts rate limits for itself")
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	took, err := ratelimit.Try(ctx, x.RedisURL, redisTimeout)
	switch {
	case err != nil:
		return fail("Redis makes no decision, and each node counts rate limits for itself: %v", err)
	case took > ratelimit.DefaultBudget:
		return warn("a decision of Redis took %.1f ms, more than the %.0f that a request waits for one", ms(took), ms(ratelimit.DefaultBudget))
	}
	return ok("Redis decides within %.1f ms", ms(took))
}

// traces probes the collector of traces. No other check depends on it.
func (x *examination) traces(ctx context.Context) Finding {
	if x.Traces == nil {
		return ok("OTEL_EXPORTER_OTLP_ENDPOINT is not set: nothing is traced")
	}
	if err := x.Traces(ctx); err != nil {
		return warn("the collector does not take traces, and they are lost: %v", err)
	}
	return ok("the collector takes traces")
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// platform asks the chat platform for the bot and for its permissions in each guild.
func (x *examination) platform(ctx context.Context) Finding {
	if x.ChatByBot {
		return x.work(ctx)
	}
	if x.ChatOff {
		return ok("GUILDHALL_DISCORD_URL is off: the chat platform is not asked")
	}
	if x.Chat == nil {
		return warn("GUILDHALL_DISCORD_TOKEN is not set: the chat platform is a stand-in that accepts every call and does nothing")
	}
	bot, err := x.Chat.Bot(ctx)
	if f, ok := errors.AsType[*chat.Failure](err); ok && f.Status == 401 {
		return fail("the chat platform refuses GUILDHALL_DISCORD_TOKEN")
	}
	if err != nil {
		return fail("the chat platform could not be asked: %v", err)
	}
	var asked, left int
	var lacking []string
	stop := errors.New("that is enough")
	err = x.eachGuild(ctx, func(guild string) error {
		if asked == maxGuilds {
			left++
			return stop
		}
		asked++
		closing, err := db.Get[string](ctx, x.db.Reader(), `SELECT close_action FROM guild_settings WHERE guild_id = $1`, guild)
		if db.Missing(err) {
			closing, err = "archive", nil
		}
		if err != nil {
			return fault.Wrap(err, "read the settings of guild", guild)
		}
		lacks, err := x.Chat.Lacks(ctx, guild, bot, closing)
		switch {
		case errors.Is(err, chat.ErrNotInGuild):
			lacking = append(lacking, guild+" (the bot is not in it)")
		case err != nil:
			return fault.Wrap(err, "guild", guild)
		case len(lacks) > 0:
			lacking = append(lacking, guild+" ("+strings.Join(lacks, ", ")+")")
		}
		return nil
	})
	if err != nil && !errors.Is(err, stop) {
		return fail("the chat platform knows the bot, but could not be asked what it may do: %v", err)
	}
	of := output.Count(int64(asked), "guild")
	if left > 0 {
		of = fmt.Sprintf("the first %d guilds (--guild asks about others)", asked)
	}
	if len(lacking) > 0 {
		return warn("the chat platform accepts the bot %s, but it lacks rights in %d of %s", bot, len(lacking), of).about(lacking)
	}
	return ok("the chat platform accepts the bot %s, and it has its rights in %s", bot, of)
}

func (x *examination) certificate(context.Context) Finding {
	if x.Certificate.Cert == "" {
		return ok("GUILDHALL_TLS_CERT is not set: a proxy has the certificate")
	}
	pair, err := x.Certificate.Read()
	if err != nil {
		return fail("the certificate cannot be used: %v", err)
	}
	leaf, now := pair.Leaf, x.Now()
	until := leaf.NotAfter.UTC().Format(time.RFC3339)
	if now.Before(leaf.NotBefore) {
		return fail("the certificate is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if now.After(leaf.NotAfter) {
		return fail("the certificate has expired, on %s", until)
	}
	for _, host := range x.Hosts {
		if leaf.VerifyHostname(host) != nil {
			return fail("the certificate is not good for %s", host)
		}
	}
	if leaf.NotAfter.Sub(now) < certificate.RenewBefore {
		return warn("the certificate expires on %s: renew it", until)
	}
	return ok("the certificate is valid until %s", until)
}

// publicURL calls the API without a token, as a caller from outside would. The API refuses the call
// for its missing token, unless a proxy in between hides that the call came over HTTPS.
func (x *examination) publicURL(ctx context.Context) Finding {
	if x.Probe == "" {
		return ok("GUILDHALL_PUBLIC_URL is not set: the way from outside is not tried")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.Probe, http.NoBody)
	if err != nil {
		return fail("GUILDHALL_PUBLIC_URL cannot be called: %v", err)
	}
	client := cmp.Or(x.Client, &http.Client{Timeout: probeTimeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}})
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		return warn("the API could not be called as callers do, if this machine may: %v", err)
	}
	defer res.Body.Close()
	var refused gen.Failure
	_ = json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&refused) // another program's response has no code
	switch refused.Error.Code {
	case "missing_token":
		return ok("the API is reached over HTTPS at %s", req.URL.Host)
	case "https_required":
		return fail("%s refuses calls over HTTPS as well. GUILDHALL_TRUSTED_PROXIES has to name the proxy, and the proxy has to set X-Forwarded-Proto. The API says: %s",
			req.URL.Host, refused.Error.Message)
	}
	return warn("another program than this API answers at %s, or the API is not served now: %s", req.URL.Host, res.Status)
}

// endpoint is a webhook endpoint of a guild.
type endpoint struct {
	Guild string `db:"guild_id"`
	ID    string `db:"id"`
	URL   string `db:"url"`
}

// endpoints looks up the hosts of webhook endpoints, each host once, with the rules that apply when
// an endpoint is registered.
func (x *examination) endpoints(ctx context.Context) Finding {
	rows, disabled, err := x.registered(ctx)
	if err != nil {
		return fail("%v", err)
	}
	at := map[string][]endpoint{} // keyed by what is looked up: scheme, host and port
	for _, e := range rows {
		key := e.URL
		if u, err := url.Parse(e.URL); err == nil {
			key = u.Scheme + "://" + u.Host
		}
		at[key] = append(at[key], e)
	}
	var mu sync.Mutex
	var bad []string
	var unasked int
	g := errgroup.Group{}
	g.SetLimit(maxLookups)
	for place, there := range at {
		g.Go(func() error {
			why := x.lookUp(ctx, place)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case why != nil && ctx.Err() != nil:
				unasked += len(there)
			case why != nil:
				for _, e := range there {
					bad = append(bad, fmt.Sprintf("%s of guild %s (%v)", e.ID, e.Guild, why))
				}
			}
			return nil
		})
	}
	_ = g.Wait() // none of the functions returns an error
	slices.Sort(bad)
	of := fmt.Sprint(len(rows))
	if len(rows) == maxEndpoints {
		of = fmt.Sprintf("the first %d", maxEndpoints)
	}
	failing, err := x.failing(ctx)
	if err != nil {
		return fail("how the endpoints fare could not be read: %v", err)
	}
	switch {
	case len(bad) > 0:
		return warn("%d of %s endpoints cannot be sent to, %d are disabled by the service", len(bad), of, disabled).about(append(bad, failing...))
	case len(failing) > 0:
		return warn("%s failing or disabled by the service; `guildhall webhook list` says the same of each guild", output.Count(int64(len(failing)), "webhook endpoint")).about(failing)
	case unasked > 0:
		return warn("%d of %s endpoints could not be looked up in time, %d are disabled by the service", unasked, of, disabled)
	case disabled > 0:
		return warn("the names of %s endpoints resolve, %d are disabled by the service: `guildhall webhook list` says why", of, disabled)
	}
	return ok("the names of %s endpoints resolve", of)
}

// failing returns a line for each endpoint that fails or that Guildhall has disabled: its state,
// since when, and the problem.
func (x *examination) failing(ctx context.Context) ([]string, error) {
	guilds, err := webhooks.FailingGuilds(ctx, x.db.Reader(), x.Guilds, maxFailing)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, guild := range guilds {
		all, err := webhooks.Standings(ctx, x.db.Reader(), guild)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			h, since := e.Health, ""
			if h.State != webhooks.HealthFailing && (h.State != webhooks.HealthDisabled || e.DisabledReason == nil || *e.DisabledReason == delivery.ReasonRemoved) {
				continue
			}
			if h.FailingSince != nil {
				since = " since " + wire.At(*h.FailingSince).String()
			}
			lines = append(lines, fmt.Sprintf("%s of guild %s: %s%s. %s", e.ID, guild, h.State, since, h.Problem))
		}
	}
	return lines, nil
}

// maxFailing bounds the guilds whose failing endpoints are listed.
const maxFailing = 100

func (x *examination) lookUp(ctx context.Context, place string) error {
	u, err := egress.ParseURL(place)
	if err != nil {
		return err
	}
	return x.Guard.Check(ctx, u)
}

// registered returns the enabled push endpoints of the guilds to check, and the number of those
// that Guildhall has disabled.
func (x *examination) registered(ctx context.Context) (rows []endpoint, disabled int, err error) {
	q := x.db.Reader()
	guilds := db.Array(x.Guilds)
	rows, err = db.Select[endpoint](ctx, q, `
		SELECT guild_id, id, url FROM webhook_endpoints
		WHERE enabled AND delivery = 'push' AND (cardinality($1::text[]) = 0 OR guild_id = ANY ($1))
		ORDER BY guild_id, id LIMIT $2`, guilds, maxEndpoints)
	if err != nil {
		return nil, 0, fault.Wrap(err, "list the endpoints")
	}
	disabled, err = db.Get[int](ctx, q, `
		SELECT count(*) FROM webhook_endpoints
		WHERE `+delivery.SwitchedOff+` AND (cardinality($1::text[]) = 0 OR guild_id = ANY ($1))`, guilds)
	return rows, disabled, fault.Wrap(err, "count the disabled endpoints")
}
