package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/testutil"
)

// serving is a running `guildhall serve` with its own certificate.
type serving struct {
	*process
	https, http, ops string
	files            certificate.LocalFiles
	roots            *x509.CertPool
	token            string
}

var readyLine = regexp.MustCompile(`"msg":"ready","https":"([^"]*)","http":"([^"]*)","ops":"([^"]*)"`)

// serve starts the server on a database with the guild, and creates a token.
func serve(t *testing.T, url string, env ...string) *serving {
	t.Helper()
	s := startNode(t, url, env...)
	s.token = token(t, url)
	return s
}

// startNode starts the server on a database.
func startNode(t *testing.T, url string, env ...string) *serving {
	t.Helper()
	dir := t.TempDir()
	files, err := certificate.Local(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{files: files, roots: x509.NewCertPool()}
	s.trust(t)
	s.process = begin(t, dir, append([]string{
		"GUILDHALL_DATABASE_URL=" + url, "GUILDHALL_SECRET_KEY=" + keyOf(url),
		"GUILDHALL_TLS_CERT=" + files.Cert, "GUILDHALL_TLS_KEY=" + files.Key,
		"GUILDHALL_HTTPS_LISTEN=127.0.0.1:0", "GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_OPS_LISTEN=127.0.0.1:0",
		"GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off", "GUILDHALL_DISCORD_URL=off",
	}, env...), "serve")
	s.says(t, `"msg":"ready"`)
	_, log := s.text()
	at := readyLine.FindStringSubmatch(log)
	if at == nil {
		t.Fatalf("no addresses in %s", log)
	}
	s.https, s.http, s.ops = "https://"+at[1], "http://"+at[2], "http://"+at[3]
	return s
}

// keyOf returns the secret key of the database's nodes: all of them need the same.
func keyOf(url string) string {
	sum := sha256.Sum256([]byte(url))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func (s *serving) trust(t *testing.T) {
	t.Helper()
	pem, err := os.ReadFile(s.files.CA)
	if err != nil || !s.roots.AppendCertsFromPEM(pem) {
		t.Fatalf("read the CA: %v", err)
	}
}

func token(t *testing.T, url string) string {
	t.Helper()
	d, err := db.Open(db.Config{URL: url, Writers: 1, Readers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	made, err := auth.Create(t.Context(), d, auth.New{GuildID: guild, Env: "live", Name: "test", Scopes: auth.Scopes})
	if err != nil {
		t.Fatal(err)
	}
	return made.Secret
}

// client returns a client with its own connections that trusts the server's certificate.
func (s *serving) client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.roots}, ForceAttemptHTTP2: false, MaxIdleConnsPerHost: 100,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// respond sends a request and returns the response with its body read.
func respond(t *testing.T, client *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func get(ctx context.Context, c *http.Client, url, token string) (*http.Response, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return res, string(body), err
}

// served fails the test unless a normal caller gets its response. On a busy machine a request may
// be refused with Retry-After; then it is retried.
func (s *serving) served(t *testing.T, client *http.Client) {
	t.Helper()
	testutil.Eventually(t, "a healthy caller is served", func() bool {
		res, _, err := get(t.Context(), client, s.https+"/api/v1/me", s.token)
		if err != nil || res.StatusCode != 200 && (res.StatusCode != 503 || res.Header.Get("Retry-After") == "") {
			t.Fatalf("a healthy caller got %v, %v", res, err)
		}
		return res.StatusCode == 200
	})
}

// answers fails the test unless the URL responds with the status.
func (s *serving) answers(t *testing.T, url, token string, status int) string {
	t.Helper()
	res, body, err := get(t.Context(), s.client(t), url, token)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != status {
		t.Errorf("%s answers %d, want %d: %s", url, res.StatusCode, status, body)
	}
	return body
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := serve(t, withGuild(t))
	s.says(t, "`guildhall migrate` runs them, before the first node of a release starts")

	t.Run("answers over TLS, and over plain HTTP only to refuse", func(t *testing.T) {
		t.Parallel()
		s.answers(t, s.https+"/api/v1/me", s.token, 200)
		s.answers(t, s.https+"/api/v1/me", "", 401)
		if body := s.answers(t, s.http+"/api/v1/me", s.token, 403); !strings.Contains(body, "https_required") {
			t.Errorf("plain HTTP is told %s", body)
		}
		old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, MaxVersion: tls.VersionTLS11}}}
		if _, _, err := get(t.Context(), old, s.https+"/api/v1/me", s.token); err == nil {
			t.Error("TLS 1.1 is accepted")
		}
	})
	t.Run("asks for a token whatever is asked", func(t *testing.T) {
		t.Parallel()
		for head, want := range map[string]string{"": "401", "Authorization: Bearer " + s.token + "\r\n": "404"} {
			c, err := tls.Dial("tcp", strings.TrimPrefix(s.https, "https://"), &tls.Config{RootCAs: s.roots})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write([]byte("OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + "\r\n")); err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 "+want+" ") {
				t.Errorf("OPTIONS * gets %v %s, want %s", err, answer, want)
			}
		}
	})
	t.Run("tells operators how it is, on their own listener alone", func(t *testing.T) {
		t.Parallel()
		s.answers(t, s.ops+"/livez", "", 200)
		s.answers(t, s.ops+"/readyz", "", 200)
		body := s.answers(t, s.ops+"/metrics", "", 200)
		for _, name := range []string{`guildhall_db_connections{pool="read",user="api"}`, "go_goroutines", "process_resident_memory_bytes"} {
			if !strings.Contains(body, name) {
				t.Errorf("%s is not measured", name)
			}
		}
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			s.answers(t, s.https+path, s.token, 404)
		}
	})
	t.Run("takes up a renewed certificate", func(t *testing.T) {
		t.Parallel()
		s := serve(t, withGuild(t)) // other clients still trust the old certificate
		for _, old := range []string{s.files.CA, s.files.Cert, s.files.Key} {
			if err := os.Remove(old); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := certificate.Local(filepath.Dir(s.files.CA)); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(s.files.Cert, s.files.Key)
		if err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the new certificate is served", func() bool {
			c, err := tls.Dial("tcp", strings.TrimPrefix(s.https, "https://"), &tls.Config{InsecureSkipVerify: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			return c.ConnectionState().PeerCertificates[0].Equal(pair.Leaf)
		})
	})
	t.Run("writes no secret to its log", func(t *testing.T) {
		t.Parallel()
		s.answers(t, s.https+"/api/v1/cases/"+s.token+"?x="+s.token, s.token, 400)
		s.says(t, `"method":"GET"`)
		if out, log := s.text(); strings.Contains(out+log, s.token) {
			t.Errorf("the log holds the token: %s", log)
		}
	})
}

// Stopping under load fails no request and resets no connection. RELIABILITY.md, Operation.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var done, closing atomic.Int64
	var stopping atomic.Bool
	for i := range 8 {
		client := s.client(t)
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				// As a load balancer does, stop sending once the node reports that it is not ready.
				if stopping.Load() {
					return
				}
				body := fmt.Sprintf(`{"user_id":"%d","delta":1}`, 1000+i)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.https+"/api/v1/economy/adjust", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				req.GetBody = nil // so that the client does not hide a reset by retrying
				req.Header.Set("Authorization", "Bearer "+s.token)
				req.Header.Set("Content-Type", "application/json")
				res, err := client.Do(req)
				if err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
					t.Errorf("a request got %d, %v", res.StatusCode, err)
				}
				res.Body.Close()
				if res.Close {
					closing.Add(1)
				}
				done.Add(1)
				time.Sleep(5 * time.Millisecond) // a rate that a CI machine can handle
			}
		})
	}
	testutil.Eventually(t, "there is traffic", func() bool { return done.Load() > 100 })
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "readiness is off", func() bool {
		res, _, err := get(t.Context(), http.DefaultClient, s.ops+"/readyz", "")
		return err == nil && res.StatusCode == 503
	})
	time.AfterFunc(2*time.Second, func() { stopping.Store(true) })
	if code := s.exits(t, 40*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	cancel()
	wg.Wait()
	if closing.Load() == 0 {
		t.Error("nobody was asked to close their connection")
	}

	// Each acknowledged change is in the ledger once.
	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var sum int64
	if err := pool.QueryRowContext(t.Context(), `
		SELECT coalesce(sum(delta), 0)
		FROM ledger_entries
		WHERE guild_id = $1`, guild).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	if sum != done.Load() {
		t.Errorf("%d requests were answered, the ledger has %d", done.Load(), sum)
	}
}

// A program that is rolled back to a version too old for the schema does not start, and a running
// one becomes unready. RELIABILITY.md, Operation.
func TestANodeThatIsTooOldForTheDatabaseGetsNoRequests(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url)
	s.answers(t, s.ops+"/readyz", "", 200)
	pool, err := db.OpenSQL(url, "test", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.ExecContext(t.Context(), `UPDATE oldest_program SET schema_version = $1`, db.SchemaVersion()+1); err != nil {
		t.Fatal(err)
	}
	if body := s.answers(t, s.ops+"/readyz", "", 503); !strings.Contains(body, "too old") {
		t.Errorf("it is not ready because %s", body)
	}
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	call(t, "", "serve", "--database-url", url, "--secret-key", key, "--discord-url", "off").refused(t, 1, "too old")
	call(t, "", "migrate", "--database-url", url).refused(t, 1, "too old")
	doctor := call(t, "", "doctor", "--database-url", url, "--secret-key", key, "--discord-url", "off")
	if !strings.Contains(doctor.out, "too old") {
		t.Errorf("doctor says %s", doctor.out)
	}
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	if _, err := embedded.Find(t.Context(), 0); err != nil {
		testutil.Without(t, "postgres", err)
	}
	server, err := embedded.Start(t.Context(), embedded.Config{Fast: true, TCP: true, Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	call(t, "", "migrate", "--database-url", server.URL).ok(t)
	call(t, `{"record":"guild","id":"`+guild+`"}`, "import", "-", "--database-url", server.URL).ok(t)
	s := serve(t, server.URL)
	s.answers(t, s.ops+"/readyz", "", 200)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	s.answers(t, s.ops+"/readyz", "", 503)
	s.answers(t, s.ops+"/livez", "", 200)
	if body := s.answers(t, s.https+"/api/v1/me", s.token, 503); !strings.Contains(body, "service_unavailable") {
		t.Errorf("callers are told %s", body)
	}
}

// A failed start stops everything that it has started.
func TestAStartThatFailsEndsWhatItHasStarted(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"--http-listen", "--ops-listen"} {
		args := []string{
			"serve", "--database-url", dbtest.New(t).URL, "--secret-key", key, "--log", "info,text",
			"--ops-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--discord-url", "off", setting, taken.Addr().String(),
		}
		r := call(t, "", args...)
		lines := strings.Split(strings.TrimSpace(r.err), "\n")
		name := "GUILDHALL_" + strings.ToUpper(strings.ReplaceAll(strings.Trim(setting, "-"), "-", "_"))
		if end := lines[len(lines)-1]; r.code != 1 || !strings.HasPrefix(end, "guildhall: "+name) {
			t.Errorf("%s ends with %d and says %s", setting, r.code, end)
		}
		if !strings.Contains(r.err, "msg=stopping") || strings.Contains(r.err, "msg=ready") || strings.Contains(r.err, "drain") {
			t.Errorf("%s: the log holds %s", setting, r.err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	key, err := newSecretKey()
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a bad one is refused by its name", func(t *testing.T) {
		t.Parallel()
		url := dbtest.New(t).URL
		for _, c := range []struct {
			args string
			text string
		}{
			{"--secret-key short", "GUILDHALL_SECRET_KEY"},
			{"--secret-key c2hvcnQ=", "GUILDHALL_SECRET_KEY"},
			{"--http-listen nowhere", "GUILDHALL_HTTP_LISTEN"},
			{"--http-listen off", "GUILDHALL_HTTP_LISTEN"},
			{"--https-listen :8443", "GUILDHALL_HTTPS_LISTEN"},
			{"--tls-cert x.pem", "GUILDHALL_TLS_CERT"},
			{"--tls-cert /no/such.pem --tls-key /no/such.pem", "GUILDHALL_TLS_CERT"},
			{"--ops-listen 127.0.0.1", "GUILDHALL_OPS_LISTEN"},
			{"--ops-hosts https://ops.internal", "GUILDHALL_OPS_HOSTS"},
			{"--trusted-proxies 10.0.0.0/99", "GUILDHALL_TRUSTED_PROXIES"},
			{"--trusted-proxies 0.0.0.0/0", "too wide"},
			{"--trusted-proxies 10.0.0.0/8,8.0.0.0/7", "8.0.0.0/7 is too wide"},
			{"--trusted-proxies ::ffff:0:0/96", "0.0.0.0/0 is too wide"},
			{"--trusted-proxies ::/0", "too wide"},
			{"--trusted-proxies 2000::/31", "too wide"},
			{"--public-url http://api.example.com", "GUILDHALL_PUBLIC_URL"},
			{"--public-url https://u:p@api.example.com/?x", "GUILDHALL_PUBLIC_URL"},
			{"--public-url https://api.example.com?", "GUILDHALL_PUBLIC_URL"},
			{"--public-url https://:8443", "GUILDHALL_PUBLIC_URL"},
			{"--public-url https://api.example.com/api/v1/", "without /api/v1"},
			{"--rate-read lots", "GUILDHALL_RATE_READ"},
			{"--rate-write 0/1m", "GUILDHALL_RATE_WRITE"},
			{"--rate-login 5", "GUILDHALL_RATE_LOGIN"},
			{"--redis-url http://x", "GUILDHALL_REDIS_URL"},
			{"--discord-url discord.com", "GUILDHALL_DISCORD_URL"},
			{"--discord-url https:/discord.com/api/v10", "GUILDHALL_DISCORD_URL: the URL must begin with http:// or https:// and a host"},
			{"--discord-authorize-url https://:8443", "GUILDHALL_DISCORD_AUTHORIZE_URL"},
			{"--dashboard-url https://desk.example.com?", "GUILDHALL_DASHBOARD_URL"},
			{"--dashboard-url https://:8443", "GUILDHALL_DASHBOARD_URL"},
			{"--db-connections 262144", "GUILDHALL_DB_CONNECTIONS: 262144 are more than a Postgres admits"},
			{"--webhook-allow everywhere", "GUILDHALL_WEBHOOK_ALLOW"},
			{"--webhook-ca /no/such.pem", "GUILDHALL_WEBHOOK_CA"},
			{"--webhook-retries never", "GUILDHALL_WEBHOOK_RETRIES"},
			{"--log loud", "GUILDHALL_LOG"},
		} {
			args := []string{
				"serve", "--database-url", url, "--secret-key", key,
				"--ops-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--discord-url", "off",
			}
			r := call(t, "", append(args, strings.Split(c.args, " ")...)...)
			r.err = r.err[strings.Index(r.err, "guildhall: "):] // log lines may come first
			r.refused(t, 1, c.text)
		}
		for _, fine := range []string{"10.0.0.0/8", "::ffff:10.0.0.0/104", "2001:db8::/32", "::1,127.0.0.1", ""} {
			if _, err := proxies([]string{fine}); err != nil {
				t.Errorf("%s as proxies: %v", fine, err)
			}
		}
		if _, err := (Settings{OpsListen: ""}).check(bothRoles); err == nil || !strings.Contains(err.Error(), "GUILDHALL_OPS_LISTEN: is empty") {
			t.Errorf("an empty variable: %v", err)
		}
		if _, err := (Settings{HTTPListen: "off"}).check(roles{[]string{"worker"}}); strings.Contains(fmt.Sprint(err), "GUILDHALL_HTTP_LISTEN") {
			t.Errorf("a worker, which listens nowhere, wants a certificate: %v", err)
		}
		if _, err := (Settings{}).check(roles{}); err == nil || !strings.Contains(err.Error(), "GUILDHALL_ROLES: is empty") {
			t.Errorf("a node in no role: %v", err)
		}
		call(t, "", "serve").refused(t, 1, "GUILDHALL_DATABASE_URL")
		call(t, "", "serve", "--database-url", url, "--secret-key", key).refused(t, 1, "GUILDHALL_DISCORD_TOKEN: live needs the bot's token")
		call(t, "", "serve", "--database-url", "postgres://127.0.0.1:1/d", "--secret-key", someKey(t), "--discord-url", "off",
			"--listen-url", "mysql://u:hunter2@h/d").refused(t, 1, "GUILDHALL_LISTEN_URL")
		call(t, "", "serve", "--env", "prod").refused(t, 2, "live")
	})
}

// running returns the running dev's file, as other commands read it.
func running(t *testing.T, dir string) targetDatabase {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ".guildhall", runningFile))
	if err != nil {
		t.Fatal(err)
	}
	var f targetDatabase
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}
