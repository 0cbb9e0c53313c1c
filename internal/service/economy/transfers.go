package economy

import (
	"context"
	_ "embed" // the statement

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
)

// TransferBalance moves coins from one member to another, in both wallets or in neither. Both
// ledger entries have the same instant, and the reference belongs to the entry of the paying
// member. A repeat with the same reference gets the response of the first request. Outside a unit of
// work, the transfer joins a batch of concurrent transfers, or falls back.
func (s *Service) TransferBalance(ctx context.Context, r gen.TransferBalanceRequestObject) (gen.TransferBalanceResponseObject, error) {
	by := auth.Acting(ctx)
	if r.Body.FromUserID == r.Body.ToUserID {
		return nil, fault.New(fault.Invalid, "invalid_request", "body /to_user_id: must be another member than from_user_id")
	}
	p := asPayment(batch.ChangeOf(ctx, event.From(by)), by.Note(), *r.Body)
	if err := s.transfers.Do(ctx, p); err != nil {
		return nil, err
	}
	return showTransferred(p.debit.entry, p.credit.entry, p.debit.replayed), nil
}

func showTransferred(debit, credit entry, replayed bool) gen.TransferBalanceResponseObject {
	response := gen.TransferBalance200JSONResponse{Body: gen.BalanceTransferEnvelope{Data: gen.BalanceTransfer{From: adjusted(debit), To: adjusted(credit)}}}
	if replayed {
		yes := "true"
		response.Headers.IdempotentReplay = &yes
	}
	return response
}

// payment is a transfer: the changes of both members. The reference and the request's key belong to
// the debit.
type payment struct{ debit, credit *change }

// Common returns the common part of the debit.
func (p *payment) Common() *batch.Change { return p.debit.Common() }

// Member returns the paying member; the paid member is the Other of the change.
func (p *payment) Member() string { return p.debit.entry.UserID }

func asPayment(of batch.Change, note string, asked gen.TransferBalanceRequest) *payment {
	of.Other = asked.ToUserID
	return &payment{
		debit: &change{Change: of, entry: entry{
			UserID: asked.FromUserID, Delta: -asked.Amount, Reason: asked.Reason, Reference: asked.Reference,
			Note: note, AuthorID: asked.AuthorID, Counterparty: &asked.ToUserID,
		}},
		credit: &change{Change: batch.Change{By: of.By}, entry: entry{
			UserID: asked.ToUserID, Delta: asked.Amount, Reason: asked.Reason,
			Note: note, AuthorID: asked.AuthorID, Counterparty: &asked.FromUserID,
		}},
	}
}

// transferBatch applies a batch of transfers that have no member in common. Each side of a transfer
// is a row of the parameters. Step held locks the wallets, in the order of the rows, and reads them
// as they are then. Step decided counts the sides of each transfer that are allowed and have a
// wallet, and moved leaves out a transfer that lacks one. What forbids a side is what makes
// adjustBatch leave out a change.
//
// moved takes the balance from held and not from the row: if another transaction changed the wallet
// while held waited for its lock, Postgres first computes the new row from the old balance, and
// checks its constraints.
var (
	//go:embed transfer_batch.sql
	transferBatchSQL string

	transferBatch = leaderboard.Wallets.Noted("moved", batch.Guild, transferBatchSQL+storeBatchSQL, "emit", emitting(batch.Guild))
)

// transferEach makes transfers that have no member in common in one statement.
func transferEach(ctx context.Context, q db.Querier, list []*payment) error {
	changes := make([]*change, 0, 2*len(list))
	for _, p := range list {
		changes = append(changes, p.debit, p.credit)
	}
	return batch.Make(ctx, q, transferBatch.For, changes, sideColumns, (*change).entered)
}

// sideColumns returns the parameters of transferBatch that follow batch.Columns.
func sideColumns(sides []*change) []any {
	return append(ownColumns(sides), db.Texts(batch.Each(sides, func(c *change) *string { return c.entry.Counterparty })))
}

// transferAll makes transfers of one guild in their order, or finds the entries of those that an
// earlier request has made under the same reference. A refusal is passed to refused together with
// the index of the refused transfer.
func transferAll(ctx context.Context, tx *db.Tx, list []*payment, refused func(i int, err error) error) error {
	for i, p := range list {
		if err := transferBoth(ctx, tx, p.debit, p.credit); err != nil {
			return refused(i, err)
		}
	}
	return nil
}

// transferBoth makes the two changes of a transfer, or finds those of an earlier request with the
// same reference.
func transferBoth(ctx context.Context, tx *db.Tx, debit, credit *change) error {
	m, err := hold(ctx, tx, []*change{debit, credit})
	if err != nil {
		return err
	}
	from, to := m.wallets[debit.entry.UserID], m.wallets[credit.entry.UserID]
	if to.At.After(from.At) {
		from.At = to.At
	}
	to.At = from.At
	if err := m.judge(debit); err != nil {
		return ofMember(debit, err)
	}
	if debit.replayed {
		if credit.entry, err = creditOf(ctx, tx, debit.By.GuildID, debit.entry); db.Missing(err) {
			return fault.New(fault.Refused, "reference_already_used",
				"The reference is that of the ledger entry %s, whose other member is forgotten.", debit.entry.ID)
		}
		return err
	}
	if err := m.judge(credit); err != nil {
		return ofMember(credit, err)
	}
	return write(ctx, tx, m)
}

// ofMember adds the member to a refusal.
func ofMember(c *change, err error) error {
	f, ok := fault.As(err)
	if !ok || f.Code == "reference_already_used" {
		return err
	}
	return f.With("Member %s: %s", c.entry.UserID, f.Message)
}

// creditOf returns the entry of the paid member of an earlier transfer. The error is Missing if that
// member was forgotten.
func creditOf(ctx context.Context, q db.Querier, guild string, debit entry) (entry, error) {
	e, err := db.Get[entry](ctx, q, paidBy, guild, debit.CreatedAt, *debit.Counterparty, debit.UserID)
	return e, fault.Wrap(err, "read the other entry of the transfer", debit.ID, "of guild", guild)
}

const paidBy = `
		SELECT ` + entryColumns + `
		FROM ledger_entries
		WHERE guild_id = $1 AND created_at = $2 AND user_id = $3 AND counterparty_id = $4`
