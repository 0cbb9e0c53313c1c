package economy

import (
	"context"

	"guildhall/gen"
	"guildhall/internal/base/db"
	"guildhall/internal/base/page"
	"guildhall/internal/service/leaderboard"
)

// The functions of this file read wallets and the ledger for people, in the dashboard, each
// bound to a guild.

type (
	// Wallet is a wallet as the API shows it.
	Wallet = gen.Wallet
	// LedgerEntry is a ledger entry as the API shows it.
	LedgerEntry = gen.LedgerEntry
)

// WalletOf returns a member's wallet, with a balance of zero where the member has none.
func WalletOf(ctx context.Context, q db.Querier, guild, user string) (Wallet, error) {
	w, err := wallet(ctx, q, guild, user)
	return showWallet(w), err
}

// RankOf returns a member's place on the leaderboard. It is NotFound for a member without a
// wallet.
func RankOf(ctx context.Context, q db.Querier, guild, user string) (leaderboard.Place, error) {
	return leaderboard.Wallets.Rank(ctx, q, guild, user, false)
}

// Newest returns the newest limit ledger entries of a member.
func Newest(ctx context.Context, q db.Querier, guild, user string, limit int) ([]LedgerEntry, error) {
	p := page.Of(1, limit)
	rows, err := entries(ctx, q, guild, filter{UserID: &user}, p)
	rows, _ = page.Cut(rows, p)
	return page.Each(rows, show), err
}

// FindEntry returns a ledger entry. It is NotFound when the guild has no such entry.
func FindEntry(ctx context.Context, q db.Querier, guild, id string) (LedgerEntry, error) {
	e, err := getEntry(ctx, q, guild, id)
	return show(e), err
}

// EntryOfReference returns the id of the ledger entry that has a reference; empty when there
// is no such entry.
func EntryOfReference(ctx context.Context, q db.Querier, guild, reference string) (string, error) {
	uses, err := usesOf(ctx, q, guild, []string{reference})
	return uses[reference].ID, err
}
