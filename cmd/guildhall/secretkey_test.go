package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/operate/secretkey"
)

func someKey(t *testing.T) string {
	t.Helper()
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// pay sends the same keyed write and returns the response.
func (s *serving) pay(t *testing.T, token string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.https+"/api/v1/economy/adjust",
		strings.NewReader(`{"user_id":"1","delta":5}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "once")
	return respond(t, s.client(t), req)
}

func (s *serving) end(t *testing.T) {
	t.Helper()
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.exits(t, time.Minute); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A database error must not name the setting of the key, which would send the operator to the wrong
// place.
func TestAFaultOfTheDatabaseIsNoFaultOfTheKey(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	dbtest.Exec(t, d.DB, `ALTER TABLE secret_key_check RENAME COLUMN sealed TO other`)
	for _, line := range []string{"reseal", "webhook add --guild 1 --url https://x.example --all-events"} {
		r := call(t, "", append(strings.Fields(line), "--database-url", d.URL, "--secret-key", someKey(t))...)
		r.refused(t, 1, "read which secret key there is")
		if strings.Contains(r.err, "GUILDHALL_SECRET_KEY") {
			t.Errorf("%s blames the key: %s", line, r.err)
		}
	}
}

// When a key is replaced, everything sealed with the old key stays readable. RELIABILITY.md,
// Operation.
func TestSecretKeyRotates(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	older, newer := someKey(t), someKey(t)
	hook := func(key string, args ...string) result {
		return call(t, "", append(append([]string{"webhook"}, args...), "--json", "--database-url", url, "--secret-key", key)...)
	}
	var endpoint struct{ ID, Secret string }
	out := hook(older, "add", "--guild", guild, "--url", "https://192.0.2.1/x", "--all-events", "--webhook-allow", "192.0.2.0/24").ok(t)
	if err := json.Unmarshal([]byte(out), &endpoint); err != nil {
		t.Fatal(err)
	}
	hook(older, "rotate-secret", endpoint.ID).ok(t) // the replaced secret still signs, and is sealed too
	s := serve(t, url, "GUILDHALL_SECRET_KEY="+older)
	payer := s.token
	_, first := s.pay(t, payer)
	s.end(t)

	// A foreign key is refused, by commands too.
	call(t, "", "serve", "--database-url", url, "--secret-key", newer, "--discord-url", "off", "--trusted-proxies", "127.0.0.1").
		refused(t, 1, "GUILDHALL_SECRET_KEY: this key opens nothing")
	hook(newer, "rotate-secret", endpoint.ID).refused(t, 1, "this key opens nothing")
	call(t, "", "reseal", "--database-url", url, "--secret-key", newer).refused(t, 1, "this key opens nothing")

	// With both keys everything is readable, and is re-encrypted while the node serves.
	s = serve(t, url, "GUILDHALL_SECRET_KEY="+newer+", "+older)
	for range 2 {
		if res, again := s.pay(t, payer); res.Header.Get("Idempotent-Replay") != "true" || again != first {
			t.Errorf("with both keys the replay is %d %s", res.StatusCode, again)
		}
		call(t, "", "reseal", "--json", "--database-url", url, "--secret-key", newer+","+older).ok(t)
	}
	var done secretkey.Resealed
	resealed := call(t, "", "reseal", "--json", "--database-url", url, "--secret-key", newer+","+older).ok(t)
	if err := json.Unmarshal([]byte(resealed), &done); err != nil {
		t.Fatal(err)
	}
	if want := (seal.Count{Current: 1}); done.Endpoints != want || done.Answers != want {
		t.Errorf("resealed again: %+v", done)
	}
	s.end(t)

	// With only the new key; the old key cannot open what the new one has sealed.
	s = serve(t, url, "GUILDHALL_SECRET_KEY="+newer)
	if res, again := s.pay(t, payer); res.Header.Get("Idempotent-Replay") != "true" || again != first {
		t.Errorf("with the new key alone the replay is %d %s", res.StatusCode, again)
	}
	hook(newer, "rotate-secret", endpoint.ID).ok(t)
	call(t, "", "serve", "--database-url", url, "--secret-key", older, "--discord-url", "off", "--trusted-proxies", "127.0.0.1").
		refused(t, 1, "this key opens nothing")

	// If no key opens a stored response, the write is not done again, and the error is no internal
	// one.
	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.ExecContext(t.Context(), `UPDATE idempotency_keys SET body = '\x01ff'`); err != nil {
		t.Fatal(err)
	}
	res, body := s.pay(t, payer)
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "60" || !strings.Contains(body, "was carried out") {
		t.Errorf("an answer that cannot be read: %d %s", res.StatusCode, body)
	}
	call(t, "", "reseal", "--database-url", url, "--secret-key", newer).refused(t, 1, "1 are sealed with a key that was not given")
	var balance int64
	if err := pool.QueryRowContext(t.Context(), `SELECT balance FROM wallets`).Scan(&balance); err != nil || balance != 5 {
		t.Errorf("the balance is %d (%v): the write was done again", balance, err)
	}
}

// An installation from before the check value is recognised by its stored secrets.
func TestSecretKeyOfAnOlderInstallation(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	older := someKey(t)
	call(t, "", "webhook", "add", "--guild", guild, "--url", "https://192.0.2.1/x", "--all-events", "--webhook-allow", "192.0.2.0/24",
		"--database-url", url, "--secret-key", older).ok(t)
	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	right, err := box(older, "live")
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := box(someKey(t), "live")
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{`DELETE FROM secret_key_check`, `DROP TABLE secret_key_check`} {
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
		err := checkKey(t.Context(), url, wrong)
		if old := strings.HasPrefix(statement, "DROP"); old != (err == nil) || !old && !errors.Is(err, secretkey.ErrOther) {
			t.Errorf("after %s another key: %v", statement, err)
		}
		if err := checkKey(t.Context(), url, right); err != nil {
			t.Errorf("after %s: %v", statement, err)
		}
	}
}

func TestATestInstallationWithoutAKeyReadsWhatItWrote(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	start := func(key string) {
		s := Settings{Env: "test", SecretKey: key}
		s.withoutKey()
		b, err := box(s.SecretKey, s.Env)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkKey(t.Context(), url, b); err != nil {
			t.Errorf("with the key %q: %v", key, err)
		}
	}
	start("")
	start("")
	start(someKey(t)) // with a key, what was written without one stays readable
	live := Settings{Env: "live"}
	if live.withoutKey() {
		t.Error("live gets the key that everybody knows")
	}
	if _, err := box("", "live"); err == nil {
		t.Error("live takes no key")
	}
	for _, wrong := range []string{someKey(t) + ",", ",", "x," + someKey(t), someKey(t) + "," + someKey(t)[:40]} {
		if _, err := box(wrong, "live"); err == nil || len(wrong) > 1 && strings.Contains(err.Error(), wrong) {
			t.Errorf("keys %q: %v", wrong, err)
		}
	}
}

// A test installation that is started without the key of its database says which setting is
// missing.
func TestATestInstallationThatHasLostItsKeySaysSo(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	b, err := box(someKey(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkKey(t.Context(), url, b); err != nil {
		t.Fatal(err)
	}
	node := begin(t, t.TempDir(), []string{
		"GUILDHALL_DATABASE_URL=" + url, "GUILDHALL_ENV=test", "GUILDHALL_ROLES=worker", "GUILDHALL_OPS_LISTEN=127.0.0.1:0",
	}, "serve")
	node.says(t, "it was sealed with a GUILDHALL_SECRET_KEY, which is not set now")
}

// An unreachable database is not reported as a wrong key.
func TestTheKeyIsNotBlamedForTheDatabase(t *testing.T) {
	t.Parallel()
	key, err := box(someKey(t), "live")
	if err != nil {
		t.Fatal(err)
	}
	err = checkKey(t.Context(), "postgres://guildhall@127.0.0.1:1/guildhall", key)
	if err == nil || strings.Contains(err.Error(), "GUILDHALL_SECRET_KEY") {
		t.Errorf("it is told as %v", err)
	}
}
