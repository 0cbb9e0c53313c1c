package economy

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/gen"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// batched is a transfer of a random batch, and what the model says of it.
type batched struct {
	payment
	claimed bool // its key has a row already
	made    bool
}

// A batch of transfers is made in its order. It leaves out transfers that are refused, and those
// whose reference or key is used; it makes the others as if each were alone.
// RELIABILITY.md, Writes.
func TestABatchOfTransfersIsMadeInItsOrder(t *testing.T) {
	t.Parallel()
	d, round := dbtest.New(t).DB, 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		guilds := []string{strconv.Itoa(1000 + round), strconv.Itoa(2000 + round)}
		if d.Distributed() { // a batch holds one guild's transfers
			guilds = guilds[:1]
		}
		dbtest.AddGuilds(t, d, guilds...)
		have, used := map[of]int64{}, map[of]bool{}
		for _, guild := range guilds {
			for _, user := range []string{"1", "2", "3"} {
				if balance := rapid.Int64Range(-1, 9).Draw(rt, "balance"); balance >= 0 { // member 4 has no wallet before
					have[of{guild, user}] = balance
					dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance, updated_at) VALUES ($1, $2, $3, now() + $4)`,
						guild, user, balance, rapid.SampledFrom([]string{"0", "2 days", "-2 days"}).Draw(rt, "clock"))
				}
			}
		}
		if rapid.Bool().Draw(rt, "a is used") {
			used[of{guilds[0], "a"}] = true
			dbtest.Exec(t, d, `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'a')`, guilds[0])
		}
		var list []*batched
		var asked []*payment
		for i := range rapid.IntRange(1, 12).Draw(rt, "transfers") {
			guild := rapid.SampledFrom(guilds).Draw(rt, "guild")
			b := drawn(rt, guild, i)
			if b.claimed {
				dbtest.Exec(t, d, `INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint) VALUES ($1, 't', $2, '')`, guild, b.Key.Key)
			}
			from, reference := of{guild, b.asked.FromUserID}, of{guild, ""}
			if b.asked.Reference != nil {
				reference.name = *b.asked.Reference
			}
			if b.made = !b.claimed && !used[reference] && have[from] >= b.asked.Amount; b.made {
				have[from] -= b.asked.Amount
				have[of{guild, b.asked.ToUserID}] += b.asked.Amount
				used[reference] = reference.name != ""
			}
			list, asked = append(list, b), append(asked, &b.payment)
		}
		if err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return transferTogether(ctx, tx, asked, func(int, error) error { return nil })
		}); err != nil {
			rt.Fatal(err)
		}
		for i, b := range list {
			if b.Applied != b.made {
				rt.Fatalf("transfer %d of %+v is made: %t, want %t", i, b.asked, b.Applied, b.made)
			}
			wantAnswer(t, rt, d, b)
		}
		for _, guild := range guilds {
			wantBalances(t, rt, d, guild, have)
		}
	})
}

// drawn returns a random transfer, with or without a reference and a key.
func drawn(rt *rapid.T, guild string, i int) *batched {
	from, on := rapid.IntRange(0, 3).Draw(rt, "from"), rapid.IntRange(1, 3).Draw(rt, "to")
	b := &batched{payment: payment{
		Change: batch.Change{By: event.System(guild)}, note: "test",
		asked: gen.TransferBalanceRequest{
			FromUserID: strconv.Itoa(1 + from), ToUserID: strconv.Itoa(1 + (from+on)%4), Amount: rapid.Int64Range(1, 3).Draw(rt, "amount"),
		},
	}}
	if reference := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "reference"); reference != "" {
		b.asked.Reference = &reference
	}
	if rapid.Bool().Draw(rt, "keyed") {
		b.Key = &idempotency.Request{GuildID: guild, TokenID: "t", Key: fmt.Sprint("key ", i), Fingerprint: []byte{1}}
		b.claimed = rapid.IntRange(0, 3).Draw(rt, "claimed") == 0
	}
	return b
}

// wantAnswer checks that the key of a transfer that was made names its answer.
func wantAnswer(t *testing.T, rt *rapid.T, d *db.DB, b *batched) {
	t.Helper()
	if !b.made || b.Key == nil {
		return
	}
	keys := idempotency.Keys{Answer: func(ctx context.Context, q db.Querier, guild string, m idempotency.Made) ([]byte, error) {
		_, err := Answer(ctx, q, guild, *m.EntryID, *m.At)
		return []byte(*m.EntryID), err
	}}
	response, err := keys.Replay(t.Context(), d.Reader(), *b.Key)
	if err != nil || response == nil || string(response.Body) != b.debit.entry.ID {
		rt.Fatalf("the key of %+v is answered %+v, %v", b.asked, response, err)
	}
}

// wantBalances checks the wallets, and that the ledger of each wallet leads to its balance: entry by
// entry, at instants that rise, and at the same instant as the other member's entry.
func wantBalances(t *testing.T, rt *rapid.T, d *db.DB, guild string, have map[of]int64) {
	t.Helper()
	wallets, err := db.Select[row](t.Context(), d.Reader(), `SELECT `+columns+` FROM wallets WHERE guild_id = $1`, guild)
	if err != nil {
		rt.Fatal(err)
	}
	rows, err := db.Select[entry](t.Context(), d.Reader(),
		`SELECT `+entryColumns+` FROM ledger_entries WHERE guild_id = $1 ORDER BY created_at, id`, guild)
	if err != nil {
		rt.Fatal(err)
	}
	pairs := map[string]int{}
	after, at := map[string]int64{}, map[string]time.Time{}
	for _, e := range rows {
		was, known := after[e.UserID]
		if !e.CreatedAt.After(at[e.UserID]) || known && was+e.Delta != e.BalanceAfter {
			rt.Fatalf("entry %+v follows the balance %d at %s", e, was, at[e.UserID])
		}
		after[e.UserID], at[e.UserID] = e.BalanceAfter, e.CreatedAt
		pairs[fmt.Sprint(e.CreatedAt, min(e.UserID, *e.Counterparty), max(e.UserID, *e.Counterparty))]++
	}
	for pair, n := range pairs {
		if n != 2 {
			rt.Fatalf("%d entries at %s, want 2", n, pair)
		}
	}
	for _, w := range wallets {
		last, changed := after[w.UserID]
		if w.Balance != have[of{guild, w.UserID}] || changed && (last != w.Balance || !at[w.UserID].Equal(*w.UpdatedAt)) {
			rt.Fatalf("member %s has %d since %s, want %d; the ledger ends with %d at %s",
				w.UserID, w.Balance, w.UpdatedAt, have[of{guild, w.UserID}], last, at[w.UserID])
		}
	}
}
