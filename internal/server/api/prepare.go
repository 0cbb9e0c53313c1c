package api

import (
	"context"

	"github.com/oapi-codegen/runtime"

	"guildhall/internal/base/fault"
	"guildhall/internal/service/records"
)

// A preparation asks others (a name server, the chat platform) what an
// operation has to know, before its unit of work opens: no connection and no
// lock is held meanwhile. It puts what it has learned into the context that it returns,
// so that the operation can refuse in the contract's order of checks. An error ends the
// request as if the operation had returned it. It is not run for a request that
// validation has refused.
type preparation func(ctx context.Context, body any) (context.Context, error)

// preparations are the operations that need one.
func preparations(s Services) map[string]preparation {
	return map[string]preparation{
		"createGiveaway":        preparing(s.Giveaways.PrepareCreate),
		"createWebhookEndpoint": preparing(s.Webhooks.PrepareCreate),
		"updateWebhookEndpoint": preparing(s.Webhooks.PrepareUpdate),
		"writeRecords":          records.Check,
	}
}

// preparing is a preparation that takes the operation's own type of body.
func preparing[Body any](prepare func(context.Context, *Body) (context.Context, error)) preparation {
	return func(ctx context.Context, value any) (context.Context, error) {
		body := new(Body)
		if err := runtime.BindJSONValue(value, body); err != nil {
			return nil, fault.Wrap(err, "fill a request from a body that passed validation")
		}
		return prepare(ctx, body)
	}
}

// prepare runs the operation's preparation, if it has one. Its refusal is kept for the
// unit, as a finding of validation is.
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
