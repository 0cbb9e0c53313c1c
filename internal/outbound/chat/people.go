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

// People who look at pages share a part of the rate of all calls, so that they
// leave the rest to the bot: peopleBurst calls at once, and then peoplePerSecond.
// In no second more than the sum of both leave.
const (
	peopleBurst     = 5
	peoplePerSecond = 14
)

// managerPermissions makes a member a manager of a guild.
const managerPermissions = discord.PermissionAdministrator | discord.PermissionManageGuild

// Manages reports whether permissions, as the platform writes them, make
// somebody a manager of a guild.
func Manages(permissions string) bool {
	bits, err := strconv.ParseInt(permissions, 10, 64)
	return err == nil && discord.Permissions(bits)&managerPermissions != 0
}

// MayManage asks the platform whether a user owns a guild or may manage it. A
// user who is no member may not. It is ErrNotInGuild where the bot is no member.
// It makes two calls at most and repeats none: somebody waits for the answer, and
// asks again.
func (d *Discord) MayManage(ctx context.Context, guild, user string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, d.budget)
	defer cancel()
	var about guildAbout
	if f := d.ask(ctx, guild, rest.GetGuild.Compile(nil, guild), &about); f != nil {
		return false, absent(f)
	}
	if about.OwnerID == user {
		return true, nil
	}
	var member memberAbout
	if f := d.ask(ctx, guild, rest.GetMember.Compile(nil, guild, user), &member); f != nil {
		if f.unsent == "" && f.Status == http.StatusNotFound {
			return false, nil
		}
		return false, absent(f)
	}
	has, err := about.permissions(guild, member)
	return has&managerPermissions != 0, err
}

// ask makes one call for somebody who looks at a page.
func (d *Discord) ask(ctx context.Context, guild string, at *rest.CompiledEndpoint, out any) *Failure {
	if !d.people.wait(ctx) {
		return &Failure{Message: errWaitTooLong.Error(), unsent: unsentLimit}
	}
	f := d.try(ctx, Channel{GuildID: guild}, at, nil, out)
	d.count(f)
	return f
}

// guildAbout is what the platform says of a guild, and memberAbout of a member.
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

// permissions are those that a member has in the whole guild.
func (g guildAbout) permissions(guild string, member memberAbout) (has discord.Permissions, err error) {
	for _, r := range g.Roles {
		if r.ID != guild && !slices.Contains(member.Roles, r.ID) { // the role of everybody has the guild's id
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

// peopleShare hands out the share of people's calls.
type peopleShare struct {
	mu   sync.Mutex // guards what follows
	full time.Time  // when peopleBurst calls may leave at once again
}

// wait waits for a place and reports whether there was one in time.
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

// Beside is the way to the platform for calls with somebody else's authorization
// than the bot's. They come from the same address, so they spend the same
// budgets: the rate of all calls, the pause after a 429 that limits everything,
// and the calls that may be refused before the platform bans the address.
func (d *Discord) Beside() http.RoundTripper { return beside{d} }

type beside struct{ d *Discord }

// RoundTrip implements http.RoundTripper.
func (b beside) RoundTrip(r *http.Request) (*http.Response, error) {
	if f := b.d.refusals.spent(r.Context(), ""); f != nil {
		b.d.count(f)
		return nil, f
	}
	// The platform counts such calls by who makes them. The token itself does not stay.
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
	// A 401 here is about that caller's token, but the platform counts it all the same.
	b.d.refusals.learn(r.Context(), "", sent)
	b.d.count(f)
	return res, nil
}

// absent is ErrNotInGuild where the platform says that the guild is none of the
// bot's.
func absent(err error) error {
	if f, ok := errors.AsType[*Failure](err); ok && f.unsent == "" && (f.Status == http.StatusNotFound || f.Status == http.StatusForbidden) {
		return ErrNotInGuild
	}
	return err
}
