package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/tracing"
	"guildhall/internal/outbound/chat"
)

const (
	// callTimeout bounds one call to the platform.
	callTimeout = 4 * time.Second
	// maxResponse bounds the size of a response: a guild with all its roles.
	maxResponse = 1 << 20
)

// DiscordConfig configures how people sign in with Discord, and which bot reads their rights.
type DiscordConfig struct {
	ClientID, ClientSecret string
	AuthorizeURL           string // address of the page of consent
	URL                    string // base address of the API, ends in /api/v10
	// Bot reads who may manage which guild, and keeps the platform's rate limits, which apply to
	// every call of the dashboard.
	Bot    *chat.Discord
	Tracer *tracing.Tracer // nil means no traces
}

// Discord is a client for the two questions of the dashboard: who a person is, and which guilds the
// person may manage.
type Discord struct {
	cfg     DiscordConfig
	client  *http.Client
	standIn http.Handler // handler in place of the platform; nil means the platform itself
}

// NewDiscord returns a client. NewDiscord makes no network calls.
func NewDiscord(cfg DiscordConfig) (*Discord, error) {
	if cfg.ClientID == "" || cfg.ClientSecret == "" || cfg.Bot == nil {
		return nil, errors.New("signing in with Discord needs GUILDHALL_DISCORD_CLIENT_ID, GUILDHALL_DISCORD_CLIENT_SECRET and GUILDHALL_DISCORD_TOKEN")
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	return &Discord{cfg: cfg, client: &http.Client{
		Timeout:   callTimeout,
		Transport: cfg.Tracer.Transport(cfg.Bot.Beside(), "sign-in"),
		// A redirect would send a token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// awayError means that the platform did not respond, or not with a usable response. The error's
// text contains no secret.
type awayError struct{ why string }

func (e *awayError) Error() string { return "the chat platform is away: " + e.why }

// errCode means that the platform did not accept the code.
var errCode = errors.New("the chat platform refused the code")

// identify returns the person who has consented. The access token is used only for that, is revoked
// afterwards, and is not stored.
func (d *Discord) identify(ctx context.Context, base, code, verifier string) (person, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, d.client)
	conf := d.oauth(base)
	token, err := conf.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode < 500 && refused.Response.StatusCode != http.StatusTooManyRequests:
		return person{}, errCode
	case err != nil:
		return person{}, &awayError{"the code could not be exchanged"}
	}
	defer d.revoke(context.WithoutCancel(ctx), token.AccessToken)
	var user struct {
		ID         string `json:"id"`
		Username   string `json:"username"`
		GlobalName string `json:"global_name"`
	}
	bearer := "Bearer " + token.AccessToken
	if err := d.get(ctx, bearer, "/users/@me", &user); err != nil {
		return person{}, err
	}
	var guilds []struct {
		ID          string `json:"id"`
		Owner       bool   `json:"owner"`
		Permissions string `json:"permissions"`
	}
	if err := d.get(ctx, bearer, "/users/@me/guilds", &guilds); err != nil {
		return person{}, err
	}
	p := person{Kind: "user", ID: user.ID, Name: cmp.Or(plainText(user.GlobalName, 100), plainText(user.Username, 100))}
	if !snowflake(p.ID) {
		return person{}, &awayError{"it did not say who has signed in"}
	}
	for _, g := range guilds {
		if (g.Owner || chat.Manages(g.Permissions)) && snowflake(g.ID) {
			p.Guilds = append(p.Guilds, g.ID)
		}
	}
	return p, nil
}

func (d *Discord) oauth(base string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: d.cfg.ClientID, ClientSecret: d.cfg.ClientSecret,
		Endpoint: oauth2.Endpoint{
			AuthURL: d.cfg.AuthorizeURL, TokenURL: d.cfg.URL + "/oauth2/token", AuthStyle: oauth2.AuthStyleInParams,
		},
		RedirectURL: base + Prefix + "/login/callback",
		Scopes:      []string{"identify", "guilds"},
	}
}

// revoke revokes an access token. If revoking fails, the token expires later.
func (d *Discord) revoke(ctx context.Context, token string) {
	form := url.Values{"token": {token}, "token_type_hint": {"access_token"}, "client_id": {d.cfg.ClientID}, "client_secret": {d.cfg.ClientSecret}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.cfg.URL+"/oauth2/token/revoke", strings.NewReader(form.Encode()))
	if err != nil {
		return
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if res, err := d.client.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxResponse)) // so that the connection can be used again
		res.Body.Close()
	}
}

// rightsOf asks the platform, as the bot, what a user may do in a guild. It is
// chat.ErrNotInGuild where the bot is no member.
func (d *Discord) rightsOf(ctx context.Context, guild, user string) (chat.Rights, error) {
	if !snowflake(guild) || !snowflake(user) {
		return chat.Rights{}, nil
	}
	return d.cfg.Bot.RightsOf(ctx, guild, user)
}

// get requests data about the person to whom the access token belongs.
func (d *Discord) get(ctx context.Context, authorization, path string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.cfg.URL+path, http.NoBody)
	if err != nil {
		return fault.Wrap(err, "ask the chat platform")
	}
	req.Header.Set("Authorization", authorization)
	req.Header.Set("User-Agent", "DiscordBot (guildhall, 1)")
	res, err := d.client.Do(req)
	if err != nil {
		return &awayError{"no answer"}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxResponse))
	switch {
	case err != nil:
		return &awayError{"the answer broke off"}
	case res.StatusCode != http.StatusOK:
		return &awayError{"it answered " + strconv.Itoa(res.StatusCode)}
	}
	if json.Unmarshal(body, out) != nil {
		return &awayError{"its answer is not what was asked for"}
	}
	return nil
}

func snowflake(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == ""
}
