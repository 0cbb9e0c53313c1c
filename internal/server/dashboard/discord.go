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
	// callTimeout bounds one call of the platform.
	callTimeout = 4 * time.Second
	// maxResponse bounds what is read of a response: a guild with all its roles.
	maxResponse = 1 << 20
)

// DiscordConfig says how people sign in with Discord and who is asked for
// their rights.
type DiscordConfig struct {
	ClientID, ClientSecret string
	AuthorizeURL           string // of the page on which people consent
	URL                    string // base of the API, ends in /api/v10
	// Bot knows who may manage what, and the limits of the platform, which every
	// call of the dashboard keeps.
	Bot    *chat.Discord
	Tracer *tracing.Tracer // nil: nothing is traced
}

// Discord is the platform as the dashboard uses it: to find out who somebody
// is, and what they may manage.
type Discord struct {
	cfg     DiscordConfig
	client  *http.Client
	standIn http.Handler // answers in the platform's place; nil: the platform itself
}

// NewDiscord returns a client. It makes no call.
func NewDiscord(cfg DiscordConfig) (*Discord, error) {
	if cfg.ClientID == "" || cfg.ClientSecret == "" || cfg.Bot == nil {
		return nil, errors.New("signing in with Discord needs GUILDHALL_DISCORD_CLIENT_ID, GUILDHALL_DISCORD_CLIENT_SECRET and GUILDHALL_DISCORD_TOKEN")
	}
	cfg.URL = strings.TrimRight(cfg.URL, "/")
	return &Discord{cfg: cfg, client: &http.Client{
		Timeout:   callTimeout,
		Transport: cfg.Tracer.Transport(cfg.Bot.Beside(), "sign-in"),
		// A redirect would carry a token to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// awayError says that the platform did not answer, or not so that its response
// means anything. Its text holds no secret.
type awayError struct{ why string }

func (e *awayError) Error() string { return "the chat platform is away: " + e.why }

// errCode says that the platform did not accept the code.
var errCode = errors.New("the chat platform refused the code")

// identify finds out who has consented. The access token is used for that and
// revoked; it is kept nowhere.
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

// revoke ends an access token. A token that it cannot end expires by itself.
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

// get reads what the platform says of the person whose access token it is.
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
