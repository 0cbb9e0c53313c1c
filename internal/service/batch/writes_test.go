package batch

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
	"time"

	"guildhall/internal/access/idempotency"
	"guildhall/internal/base/batcher"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/event"
)

// payment is the type of change in these tests.
type payment struct {
	Change
	to string
}

func (p *payment) Member() string { return p.to }

func host(d *db.DB) Host {
	return Host{DB: d, Wake: func(string) {}, Started: func(string) func(int, time.Duration) { return func(int, time.Duration) {} }}
}

// A change of a batch is applied if the batch says so, and falls back otherwise, whatever has
// happened. Only an unknown commit leaves the change unknown.
func TestAChangeThatIsNotAppliedFallsBack(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		makes bool
		err   error
		want  error
	}{
		"made":                {true, nil, nil},
		"not made":            {false, nil, batcher.ErrFallback},
		"failed":              {false, broken, batcher.ErrFallback},
		"failed in the midst": {true, broken, batcher.ErrFallback},
	} {
		woken := 0
		w := NewWrites(host(d), "pay", func(_ context.Context, _ db.Querier, list []*payment) error {
			list[0].Applied = c.makes
			return c.err
		}, nil)
		w.Wake = func(string) { woken++ }
		for range 2 { // the subject has been released
			err := w.Do(t.Context(), &payment{to: "one"})
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
			if fallback, ok := errors.AsType[*batcher.Fallback](err); ok {
				fallback.Release()
			}
		}
		if done := c.want == nil; woken != map[bool]int{true: 2}[done] {
			t.Errorf("%s: the deliverer is woken %d times", name, woken)
		}
	}
}

// A change whose statement was interrupted does not fall back, since it may be committed. A change
// in a transaction that ended before its COMMIT does fall back.
func TestAChangeThatMayBeCommittedDoesNotFallBack(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	w := NewWrites(host(d), "pay", func(ctx context.Context, q db.Querier, _ []*payment) error {
		_, err := db.Get[bool](ctx, q, `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	}, nil)
	err := w.Do(t.Context(), &payment{to: "one"})
	if err == nil || db.Uncertain(err) == d.Distributed() || errors.Is(err, batcher.ErrFallback) != d.Distributed() {
		t.Errorf("distributed %t: %v", d.Distributed(), err)
	}
}

// Changes of one member have a subject in common, so that they run one after the other, and so do
// changes that concern another member besides.
func TestTheSubjectsOfAChangeAreItsMembers(t *testing.T) {
	t.Parallel()
	common := func(guild, user, other, ofGuild, ofUser, ofOther string) bool {
		one := subjects(&payment{Change: Change{By: event.System(guild), Other: other}, to: user})
		return slices.ContainsFunc(subjects(&payment{Change: Change{By: event.System(ofGuild), Other: ofOther}, to: ofUser}),
			func(subject string) bool { return slices.Contains(one, subject) })
	}
	if !common("1", "23", "", "1", "23", "") || !common("1", "23", "24", "1", "25", "23") || !common("1", "23", "24", "1", "24", "") {
		t.Error("changes of one member have no subject in common")
	}
	if common("1", "23", "", "1", "24", "") || common("1", "23", "24", "2", "23", "24") || common("1", "23", "", "12", "3", "") ||
		common("1", "23", "", "1", "24", "25") {
		t.Error("changes of different members have a subject in common")
	}
}

// A batch is one statement that is its own transaction; on Citus it runs in a transaction that may
// be retried.
func TestABatchIsOneTransaction(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	w := NewWrites(host(d), "pay", func(ctx context.Context, _ db.Querier, list []*payment) error {
		if unit := db.Unit(ctx) != nil; unit != d.Distributed() {
			t.Errorf("in a unit %t", unit)
		}
		list[0].Applied = true
		return nil
	}, nil)
	if err := w.Do(t.Context(), &payment{to: "one"}); err != nil {
		t.Error(err)
	}
}

// A change has the key of its request, and none where the request has none.
func TestAChangeHasTheKeyOfItsRequest(t *testing.T) {
	t.Parallel()
	if c := ChangeOf(t.Context(), event.System("1")); c.Key != nil {
		t.Errorf("without a key: %+v", c.Key)
	}
	r := idempotency.Request{GuildID: "1", TokenID: "token", Key: "k"}
	if c := ChangeOf(idempotency.With(t.Context(), r), event.System("1")); c.Key == nil || c.Key.Key != "k" {
		t.Errorf("under a key: %+v", c.Key)
	}
}

// A batch waits no longer for a lock on a coordinator's worker than on one server, and the
// worker's own lock timeout is back after the batch.
func TestAWorkerHasTheLockTimeoutOfABatch(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	if !dbtest.Coordinator(t) {
		testutil.Without(t, "citus", "only a coordinator has workers")
	}
	dbtest.Exec(t, d, `INSERT INTO guilds (id, name, owner_id) VALUES ('7', 'g', '1')`)
	// A worker runs a statement that names a guild, including its functions.
	const limit = `SELECT current_setting('lock_timeout') FROM guilds WHERE id = $1`
	w := NewWrites(host(d), "pay", func(ctx context.Context, q db.Querier, list []*payment) error {
		if of, err := db.Get[string](ctx, q, limit, "7"); err != nil || of != "10ms" {
			t.Errorf("a worker waits %s: %v", of, err)
		}
		list[0].Applied = true
		return nil
	}, nil)
	if err := w.Do(t.Context(), &payment{to: "one"}); err != nil {
		t.Error(err)
	}
	err := d.Do(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		of, err := db.Get[string](ctx, tx, limit, "7")
		if of == "10ms" {
			t.Error("a worker goes on waiting so short")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Columns holds the keys of changes, with nulls, or empty bytes, for changes without a key.
func TestKeysAreColumnsOfTheirChanges(t *testing.T) {
	t.Parallel()
	columns := Columns([]*payment{
		{Change: Change{By: event.System("1")}, to: "one"},
		{Change: Change{By: event.System("2"), Key: &idempotency.Request{TokenID: "token", Key: "k", Fingerprint: []byte{0xfe}}}, to: "other"},
	})
	origin, _ := db.Array([]string{event.System("1").JSON(), event.System("2").JSON()}).Value()
	for i, want := range []driver.Value{`{"1","2"}`, `{"one","other"}`, origin, `{NULL,"token"}`, `{NULL,"k"}`, `{"\\x","\\xfe"}`} {
		column, ok := columns[i].(driver.Valuer)
		if !ok {
			t.Fatalf("column %d is a %T", i, columns[i])
		}
		if got, err := column.Value(); got != want || err != nil {
			t.Errorf("column %d is %v, %v, want %s", i, got, err, want)
		}
	}
}

// In a unit Do makes the change by itself and returns its refusal unchanged.
func TestInAUnitAChangeIsMadeAlone(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t).DB
	refusal := errors.New("refused")
	w := NewWrites(host(d), "pay", func(context.Context, db.Querier, []*payment) error {
		t.Error("the change is made in a batch")
		return nil
	}, func(_ context.Context, tx *db.Tx, list []*payment, refused func(int, error) error) error {
		if tx == nil || len(list) != 1 || list[0].to != "one" {
			t.Errorf("%d changes are made, in unit %v", len(list), tx)
		}
		return refused(0, refusal)
	})
	err := d.Do(t.Context(), func(ctx context.Context, _ *db.Tx) error { return w.Do(ctx, &payment{to: "one"}) })
	if !errors.Is(err, refusal) {
		t.Errorf("the refusal is %v", err)
	}
}
