// Package meta answers questions about the caller's own token and about the API itself.
package meta

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/access/ratelimit"
	"guildhall/internal/base/wire"
)

// Version is the API's version, as in its paths.
const Version = "v1"

// Service implements the operations of the tag Meta.
type Service struct {
	Env    string // live or test
	Quotas Quotas
}

// Quotas are the sizes of the rate-limit buckets.
type Quotas struct{ Read, Write, Bot, Login ratelimit.Quota }

// Of returns the quotas of a caller: those for bot keys, a token's own, or the installation's
// default.
func (q *Quotas) Of(by *auth.Principal) (read, write ratelimit.Quota) {
	if by.IsKey() {
		return q.Bot, q.Bot
	}
	read, write = q.Read, q.Write
	if by.Read != nil {
		read = *by.Read
	}
	if by.Write != nil {
		write = *by.Write
	}
	return read, write
}

// show returns a quota as getMe shows it; nil: there is no limit.
func show(q ratelimit.Quota) *string {
	if q.Off() {
		return nil
	}
	text := q.String()
	return &text
}

// GetMe shows the token of the request.
func (s *Service) GetMe(ctx context.Context, _ gen.GetMeRequestObject) (gen.GetMeResponseObject, error) {
	by := auth.From(ctx)
	read, write := s.Quotas.Of(by)
	return gen.GetMe200JSONResponse{
		Token: gen.TokenMetadata{
			ID: by.ID, Name: by.Name, Preview: by.Preview, GuildID: by.GuildID, Scopes: by.Scopes, IPAllowlist: append([]string{}, by.Allow...),
			ExpiresAt: wire.AtPtr(by.ExpiresAt), CreatedAt: wire.At(by.CreatedAt), LastUsedAt: wire.At(by.LastUsedAt),
			Limits: gen.TokenLimits{Read: show(read), Write: show(write)},
		},
		API: gen.APIMetadata{Version: Version, Env: s.Env},
	}, nil
}

// GetHealth responds if the API works. As every operation it needs a token; probes without a token
// use /livez and /readyz.
func (*Service) GetHealth(context.Context, gen.GetHealthRequestObject) (gen.GetHealthResponseObject, error) {
	return gen.GetHealth200JSONResponse{Status: "ok"}, nil
}
