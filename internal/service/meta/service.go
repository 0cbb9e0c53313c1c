// Package meta answers what a caller may ask of its own token and of the API
// itself.
package meta

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/wire"
)

// Version is the version of the API, as in its path.
const Version = "v1"

// Service implements the operations of the tag Meta.
type Service struct {
	Env string // live or test
}

// GetMe shows the token the request came with.
func (s *Service) GetMe(ctx context.Context, _ gen.GetMeRequestObject) (gen.GetMeResponseObject, error) {
	by := auth.From(ctx)
	return gen.GetMe200JSONResponse{
		Token: gen.TokenMetadata{
			ID: by.ID, Name: by.Name, Preview: by.Preview, GuildID: by.GuildID, Scopes: by.Scopes, IPAllowlist: append([]string{}, by.Allow...),
			ExpiresAt: wire.AtPtr(by.ExpiresAt), CreatedAt: wire.At(by.CreatedAt), LastUsedAt: wire.At(by.LastUsedAt),
		},
		API: gen.APIMetadata{Version: Version, Env: s.Env},
	}, nil
}

// GetHealth says that the service answers. Like every operation it needs a
// token; probes without one have /livez and /readyz.
func (*Service) GetHealth(context.Context, gen.GetHealthRequestObject) (gen.GetHealthResponseObject, error) {
	return gen.GetHealth200JSONResponse{Status: "ok"}, nil
}
