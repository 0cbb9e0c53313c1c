package economy

import (
	"context"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
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
	p := &payment{Change: batch.ChangeOf(ctx, event.From(by)), asked: *r.Body, note: by.Note()}
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

// payment is a transfer: what was asked, and the changes of both members.
type payment struct {
	batch.Change
	asked         gen.TransferBalanceRequest
	note          string
	debit, credit *change
}

// Member returns "": a batch makes several transfers of one member in their order.
func (*payment) Member() string { return "" }

// changes returns both changes, of which none is made yet. The request's key belongs to the debit.
func (p *payment) changes() []*change {
	b := p.asked
	p.debit = &change{Change: p.Change, entry: entry{
		UserID: b.FromUserID, Delta: -b.Amount, Reason: b.Reason, Reference: b.Reference, Note: p.note, AuthorID: b.AuthorID, Counterparty: &b.ToUserID,
	}}
	p.credit = &change{Change: batch.Change{By: p.By}, entry: entry{
		UserID: b.ToUserID, Delta: b.Amount, Reason: b.Reason, Note: p.note, AuthorID: b.AuthorID, Counterparty: &b.FromUserID,
	}}
	return []*change{p.debit, p.credit}
}

// transferTogether makes those transfers of a batch that are neither refused nor repeats.
func transferTogether(ctx context.Context, tx *db.Tx, list []*payment, refused func(i int, err error) error) error {
	list, err := batch.Unclaimed(ctx, tx, list)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := transferAll(ctx, tx, list, refused); err != nil {
		return err
	}
	for _, p := range list {
		p.Applied = p.debit.made
	}
	return nil
}

// transferAlone makes transfers, or finds the entries of those that an earlier request has made
// under the same reference.
func transferAlone(ctx context.Context, tx *db.Tx, list []*payment, refused func(i int, err error) error) error {
	if err := transferAll(ctx, tx, list, refused); err != nil {
		return err
	}
	for _, p := range list {
		if !p.debit.replayed {
			continue
		}
		var err error
		if p.credit.entry, err = creditOf(ctx, tx, p.By.GuildID, p.debit.entry); db.Missing(err) {
			return fault.New(fault.Refused, "reference_already_used",
				"The reference is that of the ledger entry %s, whose other member is forgotten.", p.debit.entry.ID)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// transferAll makes transfers in their order. A refusal is passed to refused together
// with the index of the refused transfer.
func transferAll(ctx context.Context, tx *db.Tx, list []*payment, refused func(i int, err error) error) error {
	var changes []*change
	for _, p := range list {
		changes = append(changes, p.changes()...)
	}
	m, err := hold(ctx, tx, changes)
	if err != nil {
		return err
	}
	for i, p := range list {
		if err := m.judgeBoth(p.debit, p.credit); err != nil {
			if err := refused(i, err); err != nil {
				return err
			}
		}
	}
	return write(ctx, tx, m)
}

// judgeBoth decides the two changes of a transfer after the earlier changes. It makes both at the
// same instant, or returns a refusal that names the member.
func (m *many) judgeBoth(debit, credit *change) error {
	if repeated, err := m.repeated(debit); repeated || err != nil {
		return err
	}
	at := time.Time{}
	for _, c := range []*change{debit, credit} {
		if err := m.covered(c); err != nil {
			f, _ := fault.As(err)
			return f.With("Member %s: %s", c.entry.UserID, f.Message)
		}
		if next := m.wallet(c).next(); next.After(at) {
			at = next
		}
	}
	m.make(at, debit)
	m.make(at, credit)
	return nil
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
