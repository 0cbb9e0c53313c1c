// Package economy stores the members' balances and the ledger: each change of a balance writes one
// ledger entry, in the same statement.
package economy

import (
	"context"
	"slices"
	"strings"
	"time"

	"guildhall/gen"
	"guildhall/internal/access/auth"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/page"
	"guildhall/internal/base/wire"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
	"guildhall/internal/service/leaderboard"
	"guildhall/internal/service/pending"
)

// Service implements the operations of the tag Economy.
type Service struct {
	adjustments *batch.Writes[*change]
	transfers   *batch.Writes[*payment]
	wallets     *batch.Reads[*lookup]
	pages       *batch.Reads[*leaderboard.Query]
}

// New returns the service.
func New(h batch.Host) *Service {
	return &Service{
		adjustments: batch.NewWrites(h, "adjustBalance", adjustEach, adjustAll),
		transfers:   batch.NewWrites(h, "transferBalance", transferEach, transferAll),
		wallets:     batch.NewReads(h, "getWallet", answer, answerEach),
		pages:       batch.NewPages(h, "getEconomyLeaderboard", leaderboard.Wallets.Answer),
	}
}

// GetWallet returns a member's balance; the balance of a member without a wallet is zero.
func (s *Service) GetWallet(ctx context.Context, r gen.GetWalletRequestObject) (gen.GetWalletResponseObject, error) {
	by := auth.Acting(ctx)
	q := &lookup{guild: by.GuildID, wallet: row{UserID: r.UserID}}
	if err := s.wallets.Do(ctx, by, q); err != nil {
		return nil, err
	}
	return gen.GetWallet200JSONResponse{Data: showWallet(q.wallet)}, nil
}

func showWallet(w row) gen.Wallet {
	return gen.Wallet{UserID: w.UserID, Balance: w.Balance, UpdatedAt: wire.AtPtr(w.UpdatedAt)}
}

// GetEconomyLeaderboard lists the wallets, the richest first. Members with equal balances are
// sorted by user id.
func (s *Service) GetEconomyLeaderboard(ctx context.Context, r gen.GetEconomyLeaderboardRequestObject) (gen.GetEconomyLeaderboardResponseObject, error) {
	by := auth.Acting(ctx)
	q := &leaderboard.Query{Guild: by.GuildID, P: page.Of(r.Params.Page, r.Params.PerPage), Present: r.Params.Present}
	if err := s.pages.Do(ctx, by, q); err != nil {
		return nil, err
	}
	list, more := leaderboard.Entries(q, func(rank int, w leaderboard.Row) gen.WalletLeaderboardEntry {
		return gen.WalletLeaderboardEntry{Rank: rank, UserID: w.UserID, Balance: w.Points}
	})
	return gen.GetEconomyLeaderboard200JSONResponse{Data: list, Page: q.Page, PerPage: q.PerPage, HasMore: more}, nil
}

// GetEconomyRank returns a member's place on the leaderboard. It returns NotFound for a member
// without a wallet.
func (*Service) GetEconomyRank(ctx context.Context, r gen.GetEconomyRankRequestObject) (gen.GetEconomyRankResponseObject, error) {
	p, err := leaderboard.Wallets.Rank(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.UserID, r.Params.Present)
	if err != nil {
		return nil, err
	}
	return gen.GetEconomyRank200JSONResponse{Data: gen.WalletRank{Rank: p.Rank, UserID: r.UserID, Balance: p.Points, Of: p.Of}}, nil
}

// ListWallets returns the wallets of several members, in the order of the request, each member
// once.
func (*Service) ListWallets(ctx context.Context, r gen.ListWalletsRequestObject) (gen.ListWalletsResponseObject, error) {
	guild := auth.Acting(ctx).GuildID
	var list []*lookup
	for _, user := range r.Params.UserIds {
		if !slices.ContainsFunc(list, func(l *lookup) bool { return l.wallet.UserID == user }) {
			list = append(list, &lookup{guild: guild, wallet: row{UserID: user}})
		}
	}
	if err := answerEach(ctx, db.Read(ctx), list); err != nil {
		return nil, err
	}
	data := batch.Each(list, func(l *lookup) gen.Wallet { return showWallet(l.wallet) })
	return gen.ListWallets200JSONResponse{Data: data, Page: 1, PerPage: maxListed}, nil
}

// maxListed is how many members user_ids may name, and the size of the page.
const maxListed = 100

// AdjustBalance adds a delta to a member's balance and writes a ledger entry. If the balance would
// leave its limits, or if the guild has used the reference for another change, the error is
// Refused; a repeat of the same change gets the response of the first request. Outside a unit of
// work, the change joins a batch of concurrent changes, or falls back.
func (s *Service) AdjustBalance(ctx context.Context, r gen.AdjustBalanceRequestObject) (gen.AdjustBalanceResponseObject, error) {
	by := auth.Acting(ctx)
	c := asChange(batch.ChangeOf(ctx, event.From(by)), by.Note(), *r.Body)
	if err := s.adjustments.Do(ctx, c); err != nil {
		return nil, err
	}
	return showAdjusted(c.entry, c.replayed), nil
}

// change is a change of one balance. The id, balance and instant of its ledger entry are set when
// the change is applied.
type change struct {
	batch.Change
	entry    entry
	replayed bool // an earlier request has made the change
}

// Member returns the member whose wallet is changed.
func (c *change) Member() string { return c.entry.UserID }

func asChange(of batch.Change, note string, asked gen.AdjustBalanceRequest) *change {
	return &change{Change: of, entry: entry{
		UserID: asked.UserID, Delta: asked.Delta, Reason: asked.Reason, Reference: asked.Reference, Note: note, AuthorID: asked.AuthorID,
	}}
}

// Answer returns the response to the adjustment or transfer that has written a ledger entry, the
// paying member's of a transfer. If an entry is gone because its member was forgotten, the error is
// Refused: the change was made, but its response cannot be repeated.
func Answer(ctx context.Context, q db.Querier, guild, id string, at time.Time) (pending.Render, error) {
	gone := fault.New(fault.Refused, "member_forgotten",
		"Under this Idempotency-Key a balance was changed, once. The answer named the ledger entry %s and is gone, since a member was forgotten.", id)
	e, err := entryOf(ctx, q, guild, id, at)
	switch {
	case db.Missing(err):
		return nil, gone
	case err != nil:
		return nil, err
	case e.Counterparty == nil:
		return showAdjusted(e, false).VisitAdjustBalanceResponse, nil
	}
	credit, err := creditOf(ctx, q, guild, e)
	if db.Missing(err) {
		return nil, gone
	}
	return showTransferred(e, credit, false).VisitTransferBalanceResponse, err
}

func showAdjusted(e entry, replayed bool) gen.AdjustBalanceResponseObject {
	response := gen.AdjustBalance200JSONResponse{Body: gen.BalanceAdjustmentEnvelope{Data: adjusted(e)}}
	if replayed {
		yes := "true"
		response.Headers.IdempotentReplay = &yes
	}
	return response
}

func adjusted(e entry) gen.BalanceAdjustment {
	return gen.BalanceAdjustment{UserID: e.UserID, Balance: e.BalanceAfter, UpdatedAt: wire.At(e.CreatedAt), LedgerEntry: show(e)}
}

// GetLedgerEntry returns one ledger entry.
func (*Service) GetLedgerEntry(ctx context.Context, r gen.GetLedgerEntryRequestObject) (gen.GetLedgerEntryResponseObject, error) {
	e, err := getEntry(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, r.ID)
	if err != nil {
		return nil, err
	}
	return gen.GetLedgerEntry200JSONResponse{Data: show(e)}, nil
}

// ListLedgerEntries lists ledger entries, newest first.
func (*Service) ListLedgerEntries(ctx context.Context, r gen.ListLedgerEntriesRequestObject) (gen.ListLedgerEntriesResponseObject, error) {
	p := page.Of(r.Params.Page, r.Params.PerPage)
	f := filter{UserID: r.Params.UserID, Reference: r.Params.Reference}
	if r.Params.Since != nil {
		f.Since = r.Params.Since.Time
	}
	rows, err := entries(ctx, db.Read(ctx), auth.Acting(ctx).GuildID, f, p)
	if err != nil {
		return nil, err
	}
	rows, more := page.Cut(rows, p)
	list := make([]gen.LedgerEntry, len(rows))
	for i, e := range rows {
		list[i] = show(e)
	}
	return gen.ListLedgerEntries200JSONResponse{Data: list, Page: p.Page, PerPage: p.PerPage, HasMore: more}, nil
}

func show(e entry) gen.LedgerEntry {
	return gen.LedgerEntry{
		ID: e.ID, UserID: e.UserID, Delta: e.Delta, BalanceAfter: e.BalanceAfter,
		Reason: e.Reason, Reference: e.Reference, Note: e.Note, CreatedAt: wire.At(e.CreatedAt),
		Origin: originOf(e.Note), AuthorID: e.AuthorID, CounterpartyID: e.Counterparty,
	}
}

// originOf returns who made a ledger entry, as its note says.
func originOf(note string) gen.EventOrigin {
	by := auth.By{}
	for _, prefix := range []string{"api:token=", "bot:key="} {
		if id, found := strings.CutPrefix(note, prefix); found {
			by.ID = id
		}
	}
	return gen.EventOrigin{Type: by.Type(), TokenID: by.TokenID(), KeyID: by.KeyID()}
}
