package auth

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// lifeToken is the model of a token. It works from its creation on. A use that begins after its
// revocation has returned, or after its expiry, must be refused. While a revocation runs, and after
// a revocation that failed with an unknown outcome, both results are right.
type lifeToken struct {
	Token
	revoked bool // the revocation has returned
	perhaps bool // a revocation has begun, and its outcome is open
	gone    bool // a backup from before the token's creation was restored
}

// may returns the codes that a use which begins now may get.
func (k *lifeToken) may(s *tokenDB, t *rapid.T) []string {
	switch {
	case k.revoked || k.gone:
		return []string{"invalid_token"}
	case k.perhaps:
		return []string{"", "invalid_token"}
	case k.ExpiresAt == nil:
		return []string{""}
	}
	left := dbtest.Value[float64](t, s.DB, `SELECT extract(epoch FROM $1::timestamptz - clock_timestamp())`, *k.ExpiresAt)
	switch { // a node knows the database's time only to within half a round trip
	case left > 0.5:
		return []string{""}
	case left < -0.5:
		return []string{"invalid_token"}
	}
	return []string{"", "invalid_token"}
}

// lifeNode is a node whose lookups pass a gate and whose listener's connection can be frozen or
// cut.
type lifeNode struct {
	*Tokens
	gate *dbtest.Gate
	line *dbtest.Link
	deaf bool // the listener's connection is frozen
}

// lifeUse is a use whose lookup is held back.
type lifeUse struct {
	node  *lifeNode
	token *lifeToken
	code  chan string
}

// tokenLife runs random operations on tokens, with two nodes and a command line.
type tokenLife struct {
	*tokenDB
	rt     *rapid.T
	nodes  []*lifeNode
	shell  *dbtest.Gate // the gate between the command line and Postgres
	admin  *db.DB
	tokens []*lifeToken
	saved  []lifeToken // the tokens in the backup
	backed bool
}

func (l *tokenLife) some() *lifeToken {
	if len(l.tokens) == 0 {
		return nil
	}
	return rapid.SampledFrom(l.tokens).Draw(l.rt, "token")
}

func (l *tokenLife) create() {
	n := New{GuildID: guild, Env: "test", Name: "a token", Scopes: []string{"cases:read"}}
	if rapid.IntRange(0, 9).Draw(l.rt, "expires") == 0 {
		n.ExpiresIn = time.Second
	}
	tok, err := Create(l.rt.Context(), l.DB, n)
	if err != nil {
		l.rt.Fatal(err)
	}
	l.tokens = append(l.tokens, &lifeToken{Token: tok})
}

// judge authenticates a token at a node and compares the result with the model.
func (l *tokenLife) judge(n *lifeNode, k *lifeToken) {
	before := k.may(l.tokenDB, l.rt)
	code := authCode(n.Tokens, k.Secret)
	if after := k.may(l.tokenDB, l.rt); !slices.Contains(before, code) && !slices.Contains(after, code) {
		l.rt.Fatalf("token %s, revoked %v, perhaps %v, gone %v: %q, want one of %q", k.ID, k.revoked, k.perhaps, k.gone, code, before)
	}
}

// begin starts a lookup at a node that is held back just before or just after Postgres has read the
// token's row.
func (l *tokenLife) begin(n *lifeNode, k *lifeToken) *lifeUse {
	hash, _ := recognise(k.Secret, n.env)
	n.forget(hash)
	n.gate.Arm(0, rapid.SampledFrom([]dbtest.Fate{dbtest.Pass, dbtest.Stall, dbtest.Stall}).Draw(l.rt, "held"))
	u := &lifeUse{node: n, token: k, code: make(chan string, 1)}
	go func() { u.code <- authCode(n.Tokens, k.Secret) }()
	testutil.Eventually(l.rt, "the look-up is held back, or has ended", func() bool { return n.gate.Reached() || len(u.code) == 1 })
	return u
}

// revoke revokes a token, possibly while another node has just read its row. The command line's
// connection may break meanwhile.
func (l *tokenLife) revoke() {
	k := l.some()
	if k == nil {
		return
	}
	var u *lifeUse
	if rapid.Bool().Draw(l.rt, "while it is looked up") {
		u = l.begin(rapid.SampledFrom(l.nodes).Draw(l.rt, "node"), k)
	}
	fate := rapid.SampledFrom([]dbtest.Fate{dbtest.Pass, dbtest.Break, dbtest.Lose}).Draw(l.rt, "fate")
	l.shell.Arm(rapid.IntRange(0, 12).Draw(l.rt, "dies after"), fate)
	k.perhaps = true
	ended := make(chan error, 1)
	go func() { ended <- Revoke(context.Background(), l.admin, guild, k.ID) }()
	var err error
	testutil.Eventually(l.rt, "the revocation halts", func() bool {
		select {
		case err = <-ended:
			ended <- err
			return true
		default:
			return l.shell.Reached()
		}
	})
	for _, n := range l.nodes { // during the revocation both results are right
		if u == nil || n != u.node {
			l.judge(n, k)
		}
	}
	l.shell.Open()
	if err = <-ended; err == nil {
		k.revoked = true
	} else if k.gone = k.gone || errors.Is(err, errNoToken); !k.gone && !db.Unavailable(err) && !db.Uncertain(err) {
		l.rt.Fatalf("Revoke: %v", err)
	}
	for _, n := range l.nodes {
		if u == nil || n != u.node {
			l.judge(n, k)
		}
	}
	if u != nil {
		u.node.gate.Open()
		<-u.code // the use began before the revocation returned: both results are right
		l.judge(u.node, k)
	}
}

// deafen freezes a node's listener connection, so the node receives nothing and does not notice.
// hear ends that.
func (l *tokenLife) deafen() {
	if rapid.Bool().Draw(l.rt, "deaf") {
		n := rapid.SampledFrom(l.nodes).Draw(l.rt, "node")
		n.deaf = true
		n.line.Freeze()
	}
}

func (l *tokenLife) hear() {
	for _, n := range l.nodes {
		if n.deaf {
			n.deaf = false
			n.line.Thaw()
		}
	}
}

// cut breaks a node's listener connection.
func (l *tokenLife) cut() { rapid.SampledFrom(l.nodes).Draw(l.rt, "node").line.Cut() }

// backup saves the present state, and restore brings it back. A real restore stops the server, so
// restore also breaks all listener connections.
func (l *tokenLife) backup() {
	for _, table := range []string{"api_tokens", "auth_epoch", "auth_nodes"} {
		dbtest.Exec(l.rt, l.DB, `DROP TABLE IF EXISTS saved_`+table)
		dbtest.Exec(l.rt, l.DB, `CREATE TABLE saved_`+table+` AS SELECT * FROM `+table)
	}
	l.backed, l.saved = true, nil
	for _, k := range l.tokens {
		l.saved = append(l.saved, *k)
	}
}

func (l *tokenLife) restore() {
	if !l.backed {
		return
	}
	l.hear()
	for _, n := range l.nodes {
		n.line.Down()
	}
	for _, n := range l.nodes {
		testutil.Eventually(l.rt, "the node does without its cache", func() bool { return !n.trusted(n.clock()) })
	}
	dbtest.Do(l.rt, l.DB, func(ctx context.Context, tx *db.Tx) error {
		// Without triggers, so nothing is announced.
		if _, err := tx.ExecContext(ctx, `SET LOCAL session_replication_role = replica`); err != nil {
			return err
		}
		for _, table := range []string{"api_tokens", "auth_epoch", "auth_nodes"} {
			if _, err := tx.ExecContext(ctx, `DELETE FROM `+table); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, `INSERT INTO `+table+` SELECT * FROM saved_`+table); err != nil {
				return err
			}
		}
		return nil
	})
	was := make(map[string]lifeToken)
	for _, k := range l.saved {
		was[k.ID] = k
	}
	for _, k := range l.tokens {
		old, there := was[k.ID]
		k.gone, k.revoked, k.perhaps = !there || old.gone, old.revoked, old.perhaps
	}
	for _, n := range l.nodes {
		n.line.Up()
	}
	if !rapid.Bool().Draw(l.rt, "they come back to their caches") {
		return
	}
	for _, n := range l.nodes {
		testutil.Eventually(l.rt, "the node trusts its cache", func() bool { return n.trusted(n.clock()) })
		for _, k := range l.tokens {
			l.judge(n, k)
		}
	}
	l.deafen()
}

// Tokens are created, used and revoked and expire in any order. Revocations begin during lookups,
// lose their connection or cannot be announced; backups are restored. No use that begins after a
// revocation has returned is accepted, and no other use is refused. RELIABILITY.md, Tokens.
func TestTheLifeOfTokensFollowsTheModel(t *testing.T) {
	t.Parallel()
	s := newTokenDB(t)
	l := &tokenLife{tokenDB: s, shell: dbtest.NewGate(t, s.URL)}
	l.admin = open(t, l.shell.URL)
	var all []*Tokens
	for range 2 {
		n := &lifeNode{gate: dbtest.NewGate(t, s.URL), line: dbtest.NewLink(t, s.URL)}
		n.Tokens = s.tokens(t, func(c *Config) { c.URL, c.DB = n.line.URL, open(t, n.gate.URL) })
		l.nodes, all = append(l.nodes, n), append(all, n.Tokens)
	}
	run(t, all...)
	rapid.Check(t, func(rt *rapid.T) {
		dbtest.Exec(t, s.DB, `DELETE FROM api_tokens`)
		l.rt, l.tokens, l.saved, l.backed = rt, nil, nil, false
		l.create()
		steps := map[string]func(){
			"create": l.create, "revoke": l.revoke, "deafen": l.deafen, "hear": l.hear, "cut": l.cut,
			"backup": l.backup, "restore": l.restore,
		}
		names := []string{"create", "create", "revoke", "revoke", "revoke", "deafen", "hear", "cut", "backup", "backup", "restore", "restore"}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")]()
			for _, n := range l.nodes {
				for _, k := range l.tokens {
					l.judge(n, k)
				}
			}
		}
		l.hear()
	})
}
