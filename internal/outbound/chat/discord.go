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
	// DefaultURL is the base URL of Discord's API.
	DefaultURL = "https://discord.com/api/v10"

	maxTries     = 3
	maxRateWait  = 2 * time.Second // a longer Retry-After of a 429 response ends the call
	maxResponse  = 1 << 20
	searchPages  = 10
	searchPage   = 100
	discordEpoch = 1420070400000 // the Unix time in milliseconds at which snowflakes start

	// searchWindow is how long after since a message that may have been posted can appear: an
	// attempt under its nonce and the lease of that attempt, doubled for differing clocks and a
	// slow platform.
	searchWindow = 2 * (nonceWindow + Lease)
)

// Config is the configuration of the Discord client. Zero durations mean the defaults.
type Config struct {
	Token  string        // the bot token, without the prefix "Bot "
	URL    string        // ends with /api/v10; empty means DefaultURL
	Log    *slog.Logger  // nil: slog.Default()
	Budget time.Duration // timeout of a call with its retries; 8 s
	Try    time.Duration // timeout of one attempt; 6 s
	Pause  time.Duration // time before a refused bot token is tried again; 1 min

	Metrics  prometheus.Registerer // nil: no metrics
	Tracer   *tracing.Tracer       // nil: no traces
	Refusals Counter               // counts refused calls over RefusalWindow; nil: in this process only

	Transport http.RoundTripper // nil: the default transport
}

// Discord is the client of a bot. It implements Platform.
type Discord struct {
	client rest.Client
	log    *slog.Logger
	// transport sends requests without the bot's authorization.
	transport http.RoundTripper
	limits    *limits
	people    *peopleShare
	refusals  *refusals
	token     *tokenBreaker
	owners    *owners
	metrics   *metrics
	tracer    *tracing.Tracer
	budget    time.Duration

	mu   sync.Mutex // guards the field below
	self string     // the bot's own user id; empty until known
}

// NewDiscord returns a client for the bot with the given token. It makes no calls.
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
			// The library's rate limiter can unlock a bucket that another call has locked.
			rest.WithRateLimiter(rest.NewNoopRateLimiter()),
			// The library logs whole bodies, which contain people's messages.
			rest.WithLogger(slog.New(slog.DiscardHandler)),
			rest.WithHTTPClient(&http.Client{
				Timeout:   cfg.Try,
				Transport: capped{transport},
				// Following a redirect would send the bot token to another host.
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

// SendMessage posts m. Only the users in m.Mentions are notified.
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
		// The platform knows the nonce, but the message was deleted.
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return posted.ID, nil
}

// EditMessage replaces the content of a message.
func (d *Discord) EditMessage(ctx context.Context, c Channel, messageID, content string) error {
	body := message{Content: content}
	body.AllowedMentions.Parse = []string{}
	return d.in(ctx, c, rest.UpdateMessage.Compile(nil, c.ID, messageID), body, nil)
}

// message is the JSON to create a message. The library's own type sends null for missing lists of
// mentions, and its ids have fewer digits than ids may have.
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

// FindMessages reads the channel from just before since to the end of searchWindow. If the channel
// has so many messages that the search cannot finish, it returns an error, not an empty result.
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
			// The platform trims white space around a message.
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

// snowflake returns the lowest id of objects that the platform creates at an instant.
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

// me returns the bot's own user id, which it asks for at most once.
func (d *Discord) me(ctx context.Context) (string, error) {
	return d.askMe(func(out any) error { return d.do(ctx, Channel{}, rest.GetCurrentUser.Compile(nil), nil, out) })
}

// askMe returns the bot's own user id; ask makes the call if the id is not known yet.
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

// do makes one call for a guild. It makes up to three attempts after server errors, timeouts and
// short rate limits, all within the budget. Retrying is safe: messages carry a nonce, and the other
// calls set a state. A call that was refused earlier is made again, since an operator may have
// fixed the cause.
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

// pause returns how long to wait before the next attempt, and false if there is to be none.
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

// try makes one attempt, unless there is a reason not to.
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

// failureOf returns the Failure of an attempt that ended with err, or nil for success.
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

// limitOf returns how long a 429 response asks us to wait, and whether the limit is the bot's as a
// whole. The body is more precise than the headers, and may be the only part that says the latter.
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

// transportText returns an error's text without the address, and without what a parser may quote of
// the response.
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

// userOf returns the bot's user id from its token, whose first part encodes it. For a token of
// another form it returns "".
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

// roundTrip records the result of one HTTP request.
type roundTrip struct {
	begun  bool
	status int // 0: no response
	header http.Header
	global bool // a 429 that limits the bot as a whole
}

type roundTripKey struct{}

// capped limits how much of a response is read and records the result in the request's roundTrip.
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
