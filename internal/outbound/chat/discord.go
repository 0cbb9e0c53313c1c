package chat

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/disgo/rest"
	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/tracing"
)

const (
	// DefaultURL is the base of Discord's API.
	DefaultURL = "https://discord.com/api/v10"

	maxTries     = 3
	maxRateWait  = 2 * time.Second // a 429 that asks for more ends the call
	maxResponse  = 1 << 20
	searchPages  = 10
	searchPage   = 100
	discordEpoch = 1420070400000 // the first millisecond of a snowflake

	// searchWindow is how long after the instant from which on it may have been
	// posted a message can appear: an attempt under its nonce, the lease of that
	// attempt, and as long again for clocks that differ and a platform that is slow.
	searchWindow = 2 * (nonceWindow + Lease)
)

// Config is what the Discord client needs. Zero durations mean the defaults.
type Config struct {
	Token  string        // the bot token, without "Bot "
	URL    string        // ends in /api/v10; empty means DefaultURL
	Log    *slog.Logger  // nil: slog.Default()
	Budget time.Duration // for a whole call with its repetitions; 8 s
	Try    time.Duration // for one attempt with the platform; 6 s
	Pause  time.Duration // before a bot token that was refused is tried again; 1 min

	Metrics  prometheus.Registerer // nil: nothing is measured
	Tracer   *tracing.Tracer       // nil: nothing is traced
	Refusals Counter               // counted over RefusalWindow; nil: this process counts for itself

	Transport http.RoundTripper // nil: the network
}

// Discord is the platform behind a bot token.
type Discord struct {
	client rest.Client
	log    *slog.Logger
	// transport is the way to the platform, without anything that belongs to the bot.
	transport http.RoundTripper
	limits    *limits
	people    *peopleShare
	refusals  *refusals
	token     *tokenBreaker
	owners    *owners
	metrics   *metrics
	tracer    *tracing.Tracer
	budget    time.Duration

	mu   sync.Mutex // guards what follows
	self string     // the bot's own user id, once known
}

// NewDiscord returns a client for the bot with the given token. It makes no
// call.
func NewDiscord(cfg Config) (*Discord, error) {
	if cfg.Token == "" {
		return nil, errors.New("chat: the bot token is missing")
	}
	cfg.URL = cmp.Or(cfg.URL, DefaultURL)
	if u, err := url.Parse(cfg.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("chat: the URL of the chat platform is no http address")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Budget = cmp.Or(cfg.Budget, 8*time.Second)
	cfg.Try = cmp.Or(cfg.Try, 6*time.Second)
	cfg.Pause = cmp.Or(cfg.Pause, time.Minute)
	transport := cfg.Transport
	if transport == nil {
		network := http.DefaultTransport.(*http.Transport).Clone()
		network.MaxIdleConnsPerHost = 64
		transport = network
	}
	d := &Discord{
		log:       cfg.Log,
		transport: transport,
		limits:    newLimits(),
		people:    &peopleShare{},
		token:     newTokenBreaker(cfg.Pause, cfg.Log),
		owners:    newOwners(),
		budget:    cfg.Budget,
		tracer:    cfg.Tracer,
		self:      userOf(cfg.Token),
		client: rest.NewClient(cfg.Token,
			rest.WithURL(strings.TrimRight(cfg.URL, "/")),
			rest.WithUserAgent("DiscordBot (guildhall, 1)"),
			// The library's own limiter can unlock what another call holds.
			rest.WithRateLimiter(rest.NewNoopRateLimiter()),
			// The library logs whole bodies, and those are people's messages.
			rest.WithLogger(slog.New(slog.DiscardHandler)),
			rest.WithHTTPClient(&http.Client{
				Timeout:   cfg.Try,
				Transport: capped{transport},
				// A redirect would carry the bot token to another place.
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			})),
	}
	var err error
	if d.refusals, err = newRefusals(cfg); err != nil {
		return nil, err
	}
	d.metrics = newMetrics(cfg.Metrics)
	return d, nil
}

// SendMessage posts m with all mentions off but those of the users it names.
func (d *Discord) SendMessage(ctx context.Context, m Message) (string, error) {
	body := message{Content: m.Content, Nonce: m.Nonce, EnforceNonce: m.Nonce != ""}
	body.AllowedMentions.Parse = []string{}
	body.AllowedMentions.Users = m.Mentions
	if m.ReplyTo != "" {
		body.ReplyTo = &reference{MessageID: m.ReplyTo}
	}
	var posted struct {
		ID string `json:"id"`
	}
	err := d.in(ctx, m.Channel, rest.CreateMessage.Compile(nil, m.Channel.ID), body, &posted)
	if f, ok := errors.AsType[*Failure](err); ok && f.Code == CodeUnknownMessage {
		// The nonce is known and its message is no longer there.
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return posted.ID, nil
}

// EditMessage replaces the content.
func (d *Discord) EditMessage(ctx context.Context, c Channel, messageID, content string) error {
	body := message{Content: content}
	body.AllowedMentions.Parse = []string{}
	return d.in(ctx, c, rest.UpdateMessage.Compile(nil, c.ID, messageID), body, nil)
}

// message is a message to be created. The library's own type sends null where
// there are no lists of mentions, and holds ids in fewer digits than they may
// have.
type message struct {
	Content         string `json:"content"`
	Nonce           string `json:"nonce,omitempty"`
	EnforceNonce    bool   `json:"enforce_nonce,omitempty"`
	AllowedMentions struct {
		Parse []string `json:"parse"`
		Users []string `json:"users,omitempty"`
	} `json:"allowed_mentions"`
	ReplyTo *reference `json:"message_reference,omitempty"`
}

type reference struct {
	MessageID       string `json:"message_id"`
	FailIfNotExists bool   `json:"fail_if_not_exists"`
}

// FindMessages reads the channel from just before since, and no further than the
// message can stand. A channel so busy that the search would not end before is a
// failure, not an empty result.
func (d *Discord) FindMessages(ctx context.Context, m Message, since time.Time) ([]string, error) {
	c, content := m.Channel, m.Content
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	if err := d.CheckChannel(ctx, c); err != nil {
		return nil, err
	}
	self, err := d.me(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	after, until := snowflake(since), snowflake(since.Add(searchWindow))
	for range searchPages {
		var page []struct {
			ID      string `json:"id"`
			Content string `json:"content"`
			Author  struct {
				ID string `json:"id"`
			} `json:"author"`
		}
		query := discord.QueryValues{"after": after, "limit": searchPage}
		if err := d.do(ctx, c, rest.GetMessages.Compile(query, c.ID), nil, &page); err != nil {
			return nil, err
		}
		for _, m := range page {
			// The platform drops white space around a message.
			if m.Author.ID == self && strings.TrimSpace(m.Content) == strings.TrimSpace(content) {
				found = append(found, m.ID)
			}
			if Later(m.ID, after) {
				after = m.ID
			}
		}
		if len(page) < searchPage || Later(after, until) {
			slices.SortFunc(found, func(a, b string) int {
				if Later(a, b) {
					return 1
				}
				return -1
			})
			return found, nil
		}
	}
	return nil, &Failure{Message: "too many messages in the channel to search it", Uncertain: true}
}

// snowflake is the lowest id of what the platform makes at an instant.
func snowflake(at time.Time) string {
	return strconv.FormatInt(max(at.UnixMilli()-discordEpoch, 0)<<22, 10)
}

// DeleteChannel deletes the channel or thread.
func (d *Discord) DeleteChannel(ctx context.Context, c Channel) error {
	err := d.in(ctx, c, rest.DeleteChannel.Compile(nil, c.ID), nil, nil)
	if f, ok := errors.AsType[*Failure](err); ok && f.Code == CodeUnknownChannel {
		return nil
	}
	return err
}

// me is the bot's own user id, asked for at most once.
func (d *Discord) me(ctx context.Context) (string, error) {
	return d.askMe(func(out any) error { return d.do(ctx, Channel{}, rest.GetCurrentUser.Compile(nil), nil, out) })
}

// askMe is the bot's own user id; ask makes the call, unless it is known.
func (d *Discord) askMe(ask func(out any) error) (string, error) {
	d.mu.Lock()
	known := d.self
	d.mu.Unlock()
	if known != "" {
		return known, nil
	}
	var user struct {
		ID string `json:"id"`
	}
	if err := ask(&user); err != nil {
		return "", err
	}
	if user.ID == "" {
		return "", &Failure{Message: "the platform did not say who the bot is", Uncertain: true}
	}
	d.mu.Lock()
	d.self = user.ID
	d.mu.Unlock()
	return user.ID, nil
}

// do makes one call for a guild: up to three tries on server errors, silence and
// short rate limits, all within the budget. Repeating is safe: messages carry a
// nonce, and the other calls say how something shall be. A call that was refused before
// is made again, since an operator may have mended the cause.
func (d *Discord) do(ctx context.Context, c Channel, at *rest.CompiledEndpoint, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	uncertain := false
	for try := 1; ; try++ {
		f := d.try(ctx, c, at, body, out)
		d.report(ctx, c, at, f)
		if f == nil {
			return nil
		}
		uncertain = uncertain || f.Uncertain
		f.Uncertain = uncertain
		wait, again := pause(f, try)
		if until, _ := ctx.Deadline(); !again || time.Now().Add(wait).After(until) {
			return f
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return f
		}
	}
}

// pause is how long to wait before the next try, if there is to be one.
func pause(f *Failure, try int) (time.Duration, bool) {
	switch {
	case try >= maxTries, f.unsent != "" && f.unsent != unsentTransport:
		return 0, false
	case f.Status == http.StatusTooManyRequests:
		return f.RetryAfter, f.RetryAfter > 0 && f.RetryAfter <= maxRateWait
	case f.Status >= 500 || f.Status < 300:
		return time.Duration(try*try) * 150 * time.Millisecond, true
	default:
		return 0, false
	}
}

// try is one attempt, unless there are reasons not to begin it.
func (d *Discord) try(ctx context.Context, c Channel, at *rest.CompiledEndpoint, body, out any) *Failure {
	if f := d.token.refuses(); f != nil {
		return f
	}
	if f := d.refusals.spent(ctx, c.GuildID); f != nil {
		return f
	}
	turn, err := d.limits.wait(ctx, at)
	if err != nil {
		return &Failure{Message: err.Error(), unsent: unsentLimit}
	}
	defer turn.end()
	sent := &roundTrip{}
	ctx, span := d.tracer.Call(ctx, at.Endpoint.Method, at.Endpoint.Route)
	defer span.End()
	err = d.client.Do(at, body, out, func(r *rest.RequestConfig) {
		r.Request = r.Request.WithContext(context.WithValue(ctx, roundTripKey{}, sent))
		span.Inject(r.Request.Header)
	})
	f := failureOf(err, sent)
	span.Set("guildhall.guild_id", c.GuildID)
	span.Status(sent.status)
	if f != nil && sent.status == 0 {
		span.Fail("transport")
	}
	turn.learn(sent, f)
	d.token.learn(ctx, sent.status)
	d.refusals.learn(ctx, c.GuildID, sent)
	return f
}

// failureOf is what an attempt that ended with err has come to; nil is success.
func failureOf(err error, sent *roundTrip) *Failure {
	var response rest.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &response) && response.Response != nil:
		f := &Failure{
			Status:    response.Response.StatusCode,
			Code:      int(response.Code),
			Message:   response.Message,
			Uncertain: response.Response.StatusCode >= 500,
		}
		if f.Message == "" {
			f.Message = "no reason given"
		}
		if f.Status == http.StatusTooManyRequests {
			f.RetryAfter, sent.global = limitOf(response)
		}
		return f
	}
	if dial, ok := errors.AsType[*net.OpError](err); !sent.begun || ok && dial.Op == "dial" {
		return &Failure{Message: transportText(err), unsent: unsentTransport}
	}
	return &Failure{Message: transportText(err), Uncertain: true}
}

// limitOf reads what a 429 asks for, and whether of the bot as a whole. The body
// is more exact than the headers, and may be alone in saying the latter.
func limitOf(response rest.Error) (wait time.Duration, global bool) {
	var body struct {
		RetryAfter float64 `json:"retry_after"`
		Global     bool    `json:"global"`
	}
	wait = retryAfter(response.Response.Header)
	if json.Unmarshal(response.RsBody, &body) == nil && body.RetryAfter > 0 && body.RetryAfter < 1e6 {
		wait = time.Duration(body.RetryAfter * float64(time.Second))
	}
	return wait, body.Global
}

// transportText says what went wrong without the address, and without what a
// parser may quote of the response.
func transportText(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "gave up waiting"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection ended before the answer"
	case strings.Contains(err.Error(), "unmarshalling"):
		return "the answer is not what was asked for"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + " failed: " + op.Err.Error()
	}
	return "the call failed"
}

// userOf reads the bot's user id from its token, whose first part is that id.
// Other shapes give an empty string.
func userOf(token string) string {
	first, _, ok := strings.Cut(token, ".")
	id, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(first, "="))
	if !ok || err != nil || len(id) == 0 {
		return ""
	}
	for _, c := range id {
		if c < '0' || c > '9' {
			return ""
		}
	}
	return string(id)
}

// roundTrip is what became of one request on the wire.
type roundTrip struct {
	begun  bool
	status int // 0: no response
	header http.Header
	global bool // a 429 that limits the bot as a whole
}

type roundTripKey struct{}

// capped bounds how much of a response is read, and takes note of it in the
// request's roundTrip.
type capped struct{ next http.RoundTripper }

func (c capped) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, ok := r.Context().Value(roundTripKey{}).(*roundTrip)
	if !ok {
		return nil, errors.New("chat: a request outside a call")
	}
	sent.begun = true
	rs, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	sent.status, sent.header = rs.StatusCode, rs.Header
	rs.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(rs.Body, maxResponse), rs.Body}
	return rs, nil
}
