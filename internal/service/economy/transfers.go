package economy

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// TransferBalance moves coins from one member to another, in both wallets or in neither. Both
// ledger entries have the same instant, and the reference belongs to the entry of the paying
// member. A repeat with the same reference gets the response of the first request.
func (*Service) TransferBalance(ctx context.Context, r gen.TransferBalanceRequestObject) (gen.TransferBalanceResponseObject, error) {
	tx, by, b := db.Write(ctx), auth.Acting(ctx), r.Body
	if b.FromUserID == b.ToUserID {
		return nil, fault.New(fault.Invalid, "invalid_request", "body /to_user_id: must be another member than from_user_id")
	}
	of, note := batch.ChangeOf(ctx, event.From(by)), by.Note()
	debit := &change{Change: of, entry: entry{
		UserID: b.FromUserID, Delta: -b.Amount, Reason: b.Reason, Reference: b.Reference, Note: note, AuthorID: b.AuthorID, Counterparty: &b.ToUserID,
	}}
	credit := &change{Change: of, entry: entry{
		UserID: b.ToUserID, Delta: b.Amount, Reason: b.Reason, Note: note, AuthorID: b.AuthorID, Counterparty: &b.FromUserID,
	}}
	if err := transferBoth(ctx, tx, debit, credit); err != nil {
		return nil, err
	}
	response := gen.TransferBalance200JSONResponse{Body: gen.BalanceTransferEnvelope{Data: gen.BalanceTransfer{From: adjusted(debit.entry), To: adjusted(credit.entry)}}}
	if debit.replayed {
		yes := "true"
		response.Headers.IdempotentReplay = &yes
	}
	return response, nil
}

// transferBoth makes the two changes of a transfer, or finds those of an earlier request with
// the same reference.
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
		credit.entry, err = creditOf(ctx, tx, debit.By.GuildID, debit.entry)
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

// creditOf returns the entry of the paid member of an earlier transfer. The entry is missing if
// that member was forgotten.
func creditOf(ctx context.Context, q db.Querier, guild string, debit entry) (entry, error) {
	e, err := db.Get[entry](ctx, q, paidBy, guild, debit.CreatedAt, *debit.Counterparty, debit.UserID)
	if db.Missing(err) {
		return e, fault.New(fault.Refused, "reference_already_used",
			"The reference is that of the ledger entry %s, whose other member is forgotten.", debit.ID)
	}
	return e, fault.Wrap(err, "read the other entry of the transfer", debit.ID, "of guild", guild)
}

const paidBy = `
		SELECT ` + entryColumns + `
		FROM ledger_entries
		WHERE guild_id = $1 AND created_at = $2 AND user_id = $3 AND counterparty_id = $4`
