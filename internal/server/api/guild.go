package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/getkin/kin-openapi/openapi3"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/fault"
)

// guildHeader is the header that names the guild of a request with a bot key.
const guildHeader = "Guild-Id"

// guildScheme is the header's security scheme in the document. Operations without it belong to no
// guild.
const guildScheme = "guildId"

// errNotServed does not say whether the guild exists: that is not the key's to know.
var errNotServed = fault.New(fault.NotFound, "not_found", "There is no such guild, or this key does not serve it: see the header Guild-Id.")

// mayCome is the refusal of a guild that does not exist or is leaving, and that the key may serve.
// A guild record may create or restore the guild.
type mayCome struct{ error }

func (e mayCome) Unwrap() error { return e.error }

// actIn sets the request's principal.
func (rs *reqState) actIn(by *auth.Principal) {
	rs.by = by
	rs.onAccount(auth.With(rs.ctx, by))
}

// chooseGuild returns the principal in the guild in which the caller acts. A token has its own
// guild. A bot key acts in the guild that the header names, as a principal of this request only. If
// there is no such guild, it returns the reason as an error, with the bot key itself.
func chooseGuild(ctx context.Context, tokens Authenticator, by *auth.Principal, named []string) (*auth.Principal, error) {
	switch {
	case len(named) == 0 && !by.IsKey():
		return by, nil
	case len(named) == 0:
		return by, invalid("header " + guildHeader + ": is required with a bot key: send the id of the guild")
	case len(named) > 1:
		return by, invalid("header " + guildHeader + ": must be sent once")
	case !auth.IsGuildID(named[0]):
		return by, invalid("header " + guildHeader + ": must be the id of a guild, 1 to 20 digits without a 0 before them")
	case !by.IsKey() && !by.Serves(named[0]):
		return by, invalid("header "+guildHeader+": this token is bound to guild %s", by.GuildID)
	case !by.IsKey():
		return by, nil
	case !by.Serves(named[0]):
		return by, errNotServed
	}
	presence, err := tokens.Guild(ctx, named[0])
	switch {
	case err != nil:
		return by, err
	case presence != auth.Present:
		return by, mayCome{presence.Gone(named[0])}
	}
	return by.In(named[0]), nil
}

// requireGuild refuses a request that has to name a guild and does not, or names another guild than
// its token's. An operation that creates guilds may name a guild that does not exist.
func requireGuild(next handler) handler {
	return func(rs *reqState) error {
		if rs.op.MakesGuild && errors.As(rs.noGuild, new(mayCome)) {
			rs.actIn(rs.by.In(rs.Request().Header.Get(guildHeader)))
			rs.noGuild, rs.making = nil, true
		}
		if rs.noGuild != nil {
			return rs.noGuild
		}
		return next(rs)
	}
}

// repeat sends the stored response of a key. If the request was to create or restore a guild that
// has been removed since, it sends the refusal instead.
func (u *units) repeat(rs *reqState, response idempotency.Response) error {
	if rs.making && response.Status < http.StatusBadRequest {
		_, err := chooseGuild(rs.ctx, u.login, rs.by, []string{rs.by.GuildID})
		if f, ok := fault.As(err); ok && f.Kind == fault.NotFound {
			return f.With("%s The answer under this Idempotency-Key is from before that: send another key.", f.Message)
		}
		if err != nil {
			return err
		}
	}
	return send(rs, response)
}

// ofGuild reports whether an operation belongs to a guild, by its security in the document.
func ofGuild(doc *openapi3.T, o *openapi3.Operation) bool {
	security := doc.Security
	if o.Security != nil {
		security = *o.Security
	}
	for _, requirement := range security {
		if _, named := requirement[guildScheme]; named {
			return true
		}
	}
	return false
}
