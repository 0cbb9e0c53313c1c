package economy

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/gen"
	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
	"guildhall/internal/service/batch"
)

// of names a member or a reference of a guild.
type of struct{ guild, name string }

// batched is a transfer of a random batch, and what the model says of it.
type batched struct {
	*payment
	asked   gen.TransferBalanceRequest
	claimed bool // its key has a row already
	made    bool
}

// A batch makes those of its transfers that are allowed and whose members have wallets, whole, and
// nothing of the others. The others are then made alone, or refused, as if no batch had been.
// RELIABILITY.md, Writes.
func TestABatchOfTransfersFollowsTheModel(t *testing.T) {
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
		if rapid.Bool().Draw(rt, "a is used") {
			used[of{guilds[0], "a"}] = true
			dbtest.Exec(t, d, `INSERT INTO ledger_references (guild_id, reference) VALUES ($1, 'a')`, guilds[0])
		}
		var list []*batched
		for _, guild := range guilds {
			for _, user := range []string{"1", "2", "3", "4", "5", "6"} {
				balance := rapid.SampledFrom([]int64{-1, 0, 1, 2, 3, 9, maxBalance - 1}).Draw(rt, "balance")
				if balance < 0 { // no wallet
					continue
				}
				have[of{guild, user}] = balance
				dbtest.Exec(t, d, `INSERT INTO wallets (guild_id, user_id, balance, updated_at) VALUES ($1, $2, $3, now() + $4)`,
					guild, user, balance, rapid.SampledFrom([]string{"0", "2 days", "-2 days"}).Draw(rt, "clock"))
			}
			members := rapid.Permutation([]string{"1", "2", "3", "4", "5", "6"}).Draw(rt, "members")
			for i := range rapid.IntRange(0, 3).Draw(rt, "transfers") {
				list = append(list, drawn(t, rt, d, guild, members[2*i], members[2*i+1]))
			}
		}
		if len(list) == 0 {
			return
		}
		expect(list, have, used)
		dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
			return transferEach(ctx, tx, batch.Each(list, func(b *batched) *payment { return b.payment }))
		})
		for _, b := range list {
			if b.debit.Applied != b.made || b.credit.Applied != b.made {
				rt.Fatalf("transfer %+v is made: %t and %t, want %t", b.asked, b.debit.Applied, b.credit.Applied, b.made)
			}
			wantAnswer(t, rt, d, b)
		}
		wantBalances(t, rt, d, guilds, have)
		for _, b := range list {
			if b.made || b.claimed {
				continue
			}
			from, to, reference := b.members()
			want := !used[reference] && have[from] >= b.asked.Amount && have[to]+b.asked.Amount <= maxBalance
			b.debit.Key = nil // a unit's key is claimed before
			err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return transferAll(ctx, tx, []*payment{b.payment}, func(_ int, err error) error { return err })
			})
			if (err == nil) != want {
				rt.Fatalf("transfer %+v alone: %v, want it made: %t", b.asked, err, want)
			}
			if want {
				b.apply(have, used)
			}
		}
		wantBalances(t, rt, d, guilds, have)
	})
}

// drawn returns a random transfer, with or without a reference and a key.
func drawn(t *testing.T, rt *rapid.T, d *db.DB, guild, from, to string) *batched {
	t.Helper()
	b := &batched{asked: gen.TransferBalanceRequest{FromUserID: from, ToUserID: to, Amount: rapid.Int64Range(1, 3).Draw(rt, "amount")}}
	if reference := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "reference"); reference != "" {
		b.asked.Reference = &reference
	}
	common := batch.Change{By: event.System(guild)}
	if rapid.Bool().Draw(rt, "keyed") {
		common.Key = &idempotency.Request{GuildID: guild, TokenID: "t", Key: "of " + from, Fingerprint: []byte{1}}
		if b.claimed = rapid.IntRange(0, 3).Draw(rt, "claimed") == 0; b.claimed {
			dbtest.Exec(t, d, `INSERT INTO idempotency_keys (guild_id, token_id, key, fingerprint) VALUES ($1, 't', $2, '')`, guild, common.Key.Key)
		}
	}
	b.payment = asPayment(common, "test", b.asked)
	return b
}

func (b *batched) members() (from, to, reference of) {
	guild := b.debit.By.GuildID
	if b.asked.Reference != nil {
		reference = of{guild, *b.asked.Reference}
	}
	return of{guild, b.asked.FromUserID}, of{guild, b.asked.ToUserID}, reference
}

// apply makes the transfer in the model.
func (b *batched) apply(have map[of]int64, used map[of]bool) {
	from, to, reference := b.members()
	have[from] -= b.asked.Amount
	have[to] += b.asked.Amount
	used[reference] = reference.name != ""
}

// expect decides the transfers of a batch in the model. Of several transfers with one reference
// only that of the member with the lowest id may be made.
func expect(list []*batched, have map[of]int64, used map[of]bool) {
	lowest := map[of]string{}
	for _, b := range list {
		if from, _, reference := b.members(); lowest[reference] == "" || from.name < lowest[reference] {
			lowest[reference] = from.name
		}
	}
	for _, b := range list {
		from, to, reference := b.members()
		_, pays := have[from]
		_, paid := have[to]
		b.made = pays && paid && have[from] >= b.asked.Amount && have[to]+b.asked.Amount <= maxBalance && !b.claimed && !used[reference] &&
			(reference.name == "" || lowest[reference] == from.name)
	}
	for _, b := range list {
		if b.made {
			b.apply(have, used)
		}
	}
}

// wantAnswer checks that the key of a transfer that was made names its answer.
func wantAnswer(t *testing.T, rt *rapid.T, d *db.DB, b *batched) {
	t.Helper()
	if !b.made || b.debit.Key == nil {
		return
	}
	keys := idempotency.Keys{Answer: func(ctx context.Context, q db.Querier, guild string, m idempotency.Made) ([]byte, error) {
		_, err := Answer(ctx, q, guild, *m.EntryID, *m.At)
		return []byte(*m.EntryID), err
	}}
	response, err := keys.Replay(t.Context(), d.Reader(), *b.debit.Key)
	if err != nil || response == nil || string(response.Body) != b.debit.entry.ID {
		rt.Fatalf("the key of %+v is answered %+v, %v", b.asked, response, err)
	}
}

// wantBalances checks the wallets, and that the ledger of each wallet leads to its balance: entry by
// entry, at instants that rise, and at the same instant as the other member's entry.
func wantBalances(t *testing.T, rt *rapid.T, d *db.DB, guilds []string, have map[of]int64) {
	t.Helper()
	for _, guild := range guilds {
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
}

// A batch that waits for a wallet decides by what the wallet holds afterwards: it makes neither side
// of a transfer that is not covered any more, and both sides of a transfer that is covered only now,
// at an instant after the last change of either wallet.
// RELIABILITY.md, Writes.
func TestABatchOfTransfersDecidesByLockedWallets(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	dbtest.AddGuilds(t, d, "1")
	dbtest.Exec(t, d, `
		INSERT INTO wallets (guild_id, user_id, balance)
		VALUES ('1', '1', 5), ('1', '2', 5), ('1', '3', 0), ('1', '4', 5), ('1', '5', $1), ('1', '6', 5)`, int64(maxBalance))
	var sides []*change
	for from, to := range map[string]string{"1": "2", "3": "4", "6": "5"} {
		p := asPayment(system, "test", gen.TransferBalanceRequest{FromUserID: from, ToUserID: to, Amount: 3})
		sides = append(sides, p.debit, p.credit)
	}
	slices.SortFunc(sides, func(a, b *change) int { return strings.Compare(a.entry.UserID, b.entry.UserID) })
	patient := strings.Replace(transferBatch.For(0), "'10ms'", "'1min'", 1)
	made := make(chan []adjustedRow)
	dbtest.Do(t, d, func(ctx context.Context, tx *db.Tx) error {
		for user, balance := range map[string]int64{"1": 2, "3": 3, "5": 5} {
			if _, err := tx.ExecContext(ctx, `UPDATE wallets SET balance = $1, updated_at = $2 WHERE guild_id = '1' AND user_id = $3`,
				balance, time.Now().Add(24*time.Hour), user); err != nil {
				return err
			}
		}
		go func() {
			defer close(made)
			rows, err := db.Select[adjustedRow](context.Background(), d.Single(), patient, append(batch.Columns(sides), sideColumns(sides)...)...)
			if err != nil {
				t.Error(err)
			}
			made <- rows
		}()
		testutil.Eventually(t, "the batch waits for the wallet", func() bool { return dbtest.Waiting(t, d) > 0 })
		return nil
	})
	if rows := <-made; len(rows) != 4 {
		t.Errorf("sides made: %+v, want those of the transfers by members 3 and 6", rows)
	}
	got := dbtest.Value[string](t, d, `
		SELECT string_agg(balance || CASE WHEN updated_at > now() + interval '23 hours' THEN ' tomorrow' ELSE '' END, ', ' ORDER BY user_id)
		FROM wallets`)
	if got != "2 tomorrow, 5, 0 tomorrow, 8 tomorrow, 8 tomorrow, 2 tomorrow" {
		t.Errorf("the wallets hold %s", got)
	}
}
