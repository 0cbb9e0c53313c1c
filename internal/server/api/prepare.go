package api

import (
	"context"

	"github.com/oapi-codegen/runtime"

	"guildhall/internal/base/fault"
	"guildhall/internal/service/records"
)

// A preparation makes the calls that an operation needs, such as a DNS lookup or a call of the chat
// platform, before the operation's transaction starts, so that no connection and no lock is held
// meanwhile. It returns a context with the results, so that the operation can refuse in the order
// of checks that the contract lists. An error ends the request as if the operation had returned it.
// It does not run for a request that validation has refused.
type preparation func(ctx context.Context, body any) (context.Context, error)

// preparations lists the operations that have a preparation.
func preparations(s Services) map[string]preparation {
	return map[string]preparation{
		"createGiveaway":        preparing(s.Giveaways.PrepareCreate),
		"createWebhookEndpoint": preparing(s.Webhooks.PrepareCreate),
		"updateWebhookEndpoint": preparing(s.Webhooks.PrepareUpdate),
		"writeRecords":          records.Check,
	}
}

// preparing adapts a function that takes the operation's own body type.
func preparing[Body any](prepare func(context.Context, *Body) (context.Context, error)) preparation {
	return func(ctx context.Context, value any) (context.Context, error) {
		body := new(Body)
		if err := runtime.BindJSONValue(value, body); err != nil {
			return nil, fault.Wrap(err, "fill a request from a body that passed validation")
		}
		return prepare(ctx, body)
	}
}

// prepare runs the operation's preparation, if it has one. A refusal is returned later, from within
// the transaction, as validation's problems are.
func (u *units) prepare(rs *reqState) {
	p, ok := u.preparations[rs.op.ID]
	if !ok || rs.broken != nil {
		return
	}
	ctx, err := p(rs.ctx, rs.value)
	if err != nil {
		rs.broken = err
		return
	}
	rs.ctx = ctx
}
