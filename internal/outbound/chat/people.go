package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/disgoorg/disgo/discord"
	"github.com/disgoorg/disgo/rest"
)

// Calls for people who use the dashboard get a part of the rate of all calls, so that the rest
// stays for the bot: peopleBurst calls at once, then peoplePerSecond a second. In any second at
// most the sum of both is made.
const (
	peopleBurst     = 5
	peoplePerSecond = 14
)

// managerPermissions are the permissions of which either makes a member a manager of a guild.
const managerPermissions = discord.PermissionAdministrator | discord.PermissionManageGuild

// Manages reports whether permissions, as the platform writes them, make a member a manager of a
// guild.
func Manages(permissions string) bool {
	bits, err := strconv.ParseInt(permissions, 10, 64)
	return err == nil && discord.Permissions(bits)&managerPermissions != 0
}

// Rights is what a user may do in a guild. Owners and administrators have every right.
type Rights struct{ Manage, Administer bool }

// RightsOf asks the platform what a user may do in a guild. A user who is no member may do
// nothing. It returns ErrNotInGuild if the bot is no member. It makes at most two calls and retries
// neither: the user waits for the page and can reload it.
func (d *Discord) RightsOf(ctx context.Context, guild, user string) (Rights, error) {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	var about guildAbout
	if f := d.ask(ctx, guild, rest.GetGuild.Compile(nil, guild), &about); f != nil {
		return Rights{}, absent(f)
	}
	if about.OwnerID == user {
		return Rights{true, true}, nil
	}
	var member memberAbout
	if f := d.ask(ctx, guild, rest.GetMember.Compile(nil, guild, user), &member); f != nil {
		if f.unsent == "" && f.Status == http.StatusNotFound {
			return Rights{}, nil
		}
		return Rights{}, absent(f)
	}
	has, err := about.permissions(guild, member)
	return Rights{has&managerPermissions != 0, has&discord.PermissionAdministrator != 0}, err
}

// ask makes one call for a user of the dashboard.
func (d *Discord) ask(ctx context.Context, guild string, at *rest.CompiledEndpoint, out any) *Failure {
	if !d.people.wait(ctx) {
		return &Failure{Message: errWaitTooLong.Error(), unsent: unsentLimit}
	}
	f := d.try(ctx, Channel{GuildID: guild}, at, nil, out)
	d.count(f)
	return f
}

// guildAbout is the platform's JSON of a guild, memberAbout of a member.
type guildAbout struct {
	OwnerID string `json:"owner_id"`
	Roles   []struct {
		ID          string `json:"id"`
		Permissions string `json:"permissions"`
	} `json:"roles"`
}

type memberAbout struct {
	Roles []string `json:"roles"`
}

// permissions returns the permissions of a member in the whole guild.
func (g guildAbout) permissions(guild string, member memberAbout) (has discord.Permissions, err error) {
	for _, r := range g.Roles {
		if r.ID != guild && !slices.Contains(member.Roles, r.ID) { // the role of everyone has the guild's id
			continue
		}
		bits, err := strconv.ParseInt(r.Permissions, 10, 64)
		if err != nil {
			return 0, &Failure{Message: "the answer is not what was asked for", Uncertain: true}
		}
		has |= discord.Permissions(bits)
	}
	return has, nil
}

// peopleShare limits the rate of calls for people.
type peopleShare struct {
	mu   sync.Mutex // guards the field below
	full time.Time  // when peopleBurst calls can be made at once again
}

// wait waits for a slot and reports whether there was one before ctx ended.
func (s *peopleShare) wait(ctx context.Context) bool {
	const gap = time.Second / peoplePerSecond
	s.mu.Lock()
	now := time.Now()
	if s.full.Before(now) {
		s.full = now
	}
	at := s.full.Add(-(peopleBurst - 1) * gap)
	if until, ok := ctx.Deadline(); ctx.Err() != nil || ok && at.After(until) {
		s.mu.Unlock()
		return false
	}
	s.full = s.full.Add(gap)
	s.mu.Unlock()
	return !at.After(now) || sleep(ctx, at.Sub(now)) == nil
}

// Beside returns a RoundTripper for calls of the platform with another authorization than the
// bot's. Such calls come from the same address, so they use the same budgets: the rate of all
// calls, the pause after a global 429, and the number of refused calls before the platform bans the
// address.
func (d *Discord) Beside() http.RoundTripper { return beside{d} }

type beside struct{ d *Discord }

// RoundTrip implements http.RoundTripper.
func (b beside) RoundTrip(r *http.Request) (*http.Response, error) {
	if f := b.d.refusals.spent(r.Context(), ""); f != nil {
		b.d.count(f)
		return nil, f
	}
	// The platform limits such calls by their authorization. Only a hash of the token is kept.
	who := sha256.Sum256([]byte(r.Header.Get("Authorization")))
	turn, err := b.d.limits.wait(r.Context(), &rest.CompiledEndpoint{
		Endpoint: &rest.Endpoint{Method: r.Method, Route: r.URL.Path}, MajorParams: hex.EncodeToString(who[:8]),
	})
	if err != nil {
		f := &Failure{Message: err.Error(), unsent: unsentLimit}
		b.d.count(f)
		return nil, f
	}
	defer turn.end()
	res, err := b.d.transport.RoundTrip(r)
	if err != nil {
		b.d.count(&Failure{Message: transportText(err)})
		return nil, err
	}
	sent := &roundTrip{begun: true, status: res.StatusCode, header: res.Header}
	var f *Failure
	if res.StatusCode >= 300 {
		f = &Failure{Status: res.StatusCode, RetryAfter: retryAfter(res.Header)}
	}
	turn.learn(sent, f)
	// A 401 is about this caller's token, but the platform counts it for our address.
	b.d.refusals.learn(r.Context(), "", sent)
	b.d.count(f)
	return res, nil
}

// absent returns ErrNotInGuild if the platform says that the bot is not in the guild.
func absent(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok && f.unsent == "" && (f.Status == http.StatusNotFound || f.Status == http.StatusForbidden) {
		return ErrNotInGuild
	}
	return err
}
