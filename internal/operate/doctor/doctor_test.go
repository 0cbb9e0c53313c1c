package doctor_test

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"guildhall/internal/access/auth"
	"guildhall/internal/access/seal"
	"guildhall/internal/access/seal/sealtest"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/operate/doctor"
	"guildhall/internal/operate/secretkey"
	"guildhall/internal/outbound/chat"
	"guildhall/internal/outbound/chat/chattest"
	"guildhall/internal/outbound/egress"
	"guildhall/internal/outbound/egress/egresstest"
)

const guild = "402187554310020096"

// installed is a healthy installation with one guild.
type installed struct {
	*dbtest.Database
	doctor.Config
}

func newInstalled(t *testing.T) *installed {
	t.Helper()
	d := dbtest.New(t)
	names := egresstest.NameServer(t, func(name string, _ bool) egresstest.Answer {
		switch name {
		case "gone.test":
			return egresstest.NoSuchName
		case "broken.test":
			return egresstest.ServFail
		case "inside.test":
			return egresstest.Addresses("10.0.0.1")
		case "silent.test":
			return egresstest.Silent
		}
		return egresstest.Addresses("203.0.114.7")
	})
	s := &installed{d, doctor.Config{
		DatabaseURL: d.URL, ListenURL: d.URL, Distributed: d.DB.Distributed(), Box: sealtest.Box(t, 1), Guard: egress.NewGuard(nil, names),
		Connections: 1,
	}}
	dbtest.AddGuilds(t, s.DB, guild)
	return s
}

func (s *installed) endpoint(t *testing.T, id, url string) {
	t.Helper()
	dbtest.Exec(t, s.DB, `
		INSERT INTO webhook_endpoints (guild_id, id, url, events, secret, secret_preview)
		VALUES ($1, $2, $3, '{}', '', '')`, guild, id, url)
}

// public returns a set-up in which every call to the public URL gets this response.
func public(body string) func(t *testing.T, s *installed) {
	return func(t *testing.T, s *installed) {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		t.Cleanup(server.Close)
		s.Probe, s.Client = server.URL, server.Client()
	}
}

// platform starts a chat platform and configures the bot's token for it.
func (s *installed) platform(t *testing.T, token string) *chattest.Server {
	t.Helper()
	server := chattest.New(t)
	client, err := chat.NewDiscord(chat.Config{Token: token, URL: server.URL, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.Chat = client
	return server
}

func (s *installed) noteKey(t *testing.T, b *seal.Box) {
	t.Helper()
	if err := secretkey.Check(t.Context(), s.DB, b); err != nil {
		t.Fatal(err)
	}
}

// certificate writes a certificate for api.example with these dates.
func (s *installed) certificate(t *testing.T, from, until time.Duration) {
	t.Helper()
	made := testutil.SelfSigned(func(c *x509.Certificate) {
		c.Subject, c.DNSNames = pkix.Name{CommonName: "api.example"}, []string{"api.example"}
		c.NotBefore, c.NotAfter, c.IPAddresses, c.IsCA = time.Now().Add(from), time.Now().Add(until), nil, false
	}).Certificates[0]
	keyDER, err := x509.MarshalPKCS8PrivateKey(made.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	s.Certificate = certificate.Files{Cert: filepath.Join(t.TempDir(), "crt"), Key: filepath.Join(t.TempDir(), "key")}
	for file, block := range map[string]*pem.Block{
		s.Certificate.Cert: {Type: "CERTIFICATE", Bytes: made.Certificate[0]},
		s.Certificate.Key:  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// The permissions that the bot needs in every guild, and those it needs to archive or to delete
// channels.
const (
	always   = 1<<6 | 1<<10 | 1<<11 | 1<<16 | 1<<34 | 1<<38
	toLock   = 1<<28 | 1<<35 | 1<<36
	toDelete = 1 << 4
)

// Each check finds its problem and describes it in one line. RELIABILITY.md, Operation.
func TestEachCheckSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		arrange             func(t *testing.T, s *installed)
		check, status, text string
	}{
		"a database that answers": {nil, doctor.Database, doctor.OK, "takes writes"},
		"a database that is away": {func(_ *testing.T, s *installed) {
			s.DatabaseURL = "postgres://u:hunter2@127.0.0.1:1/x"
		}, doctor.Database, doctor.Fail, "does not answer"},

		"a database whose disk is full": {func(t *testing.T, s *installed) {
			dbtest.Fill(t, s.DB, `
				CREATE FUNCTION no_space() RETURNS event_trigger LANGUAGE plpgsql AS $$
				BEGIN RAISE 'could not extend file "x": No space left on device' USING ERRCODE = 'disk_full'; END $$`,
				`CREATE EVENT TRIGGER no_space ON ddl_command_start EXECUTE FUNCTION no_space()`)
			t.Cleanup(func() { dbtest.Fill(t, s.DB, `DROP EVENT TRIGGER no_space`, `DROP FUNCTION no_space`) })
		}, doctor.Database, doctor.Fail, "its disk is full"},

		"a database that is not UTF8": {func(t *testing.T, s *installed) {
			s.DatabaseURL = dbtest.Empty(t, "template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
		}, doctor.Schema, doctor.Fail, "ENCODING 'UTF8'"},
		"settings that make statements go wrong, behind a pooler": {func(t *testing.T, s *installed) {
			dbtest.Fill(t, s.DB, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET array_nulls = off', current_database()); END $$`)
			s.DatabaseURL += "&binary_parameters=yes"
		}, doctor.Database, doctor.Fail, "ALTER ROLE ... RESET"},
		"the same settings, without a pooler": {func(t *testing.T, s *installed) {
			dbtest.Fill(t, s.DB, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET array_nulls = off', current_database()); END $$`)
		}, doctor.Database, doctor.OK, "takes writes"},

		"a role that may do everything": {nil, doctor.Privileges, doctor.OK, "every table"},
		"a role that may only read": {func(t *testing.T, s *installed) {
			s.asRole(t, `GRANT pg_read_all_data TO `)
		}, doctor.Privileges, doctor.Fail, "DELETE on api_tokens"},
		"a role that has lost a privilege": {func(t *testing.T, s *installed) {
			s.asRole(t, `GRANT ALL ON ALL TABLES IN SCHEMA public TO `, `REVOKE INSERT ON wallets FROM `)
		}, doctor.Privileges, doctor.Fail, "role lacks privileges that a node needs: INSERT on wallets"},
		"a role that is told the remedy": {func(t *testing.T, s *installed) {
			s.asRole(t, `GRANT pg_read_all_data TO `)
		}, doctor.Privileges, doctor.Fail, "can run GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "},
		"a role that may make no temporary table": {func(t *testing.T, s *installed) {
			dbtest.Fill(t, s.DB, `DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$`)
			s.asRole(t, `GRANT ALL ON ALL TABLES IN SCHEMA public TO `)
		}, doctor.Database, doctor.OK, "was not tried"},

		"connections that fit": {nil, doctor.Connections, doctor.OK, "a node takes 1 connections"},
		"more connections than the server admits": {func(_ *testing.T, s *installed) {
			s.Connections = 100_000
		}, doctor.Connections, doctor.Fail, "raise max_connections"},
		"more connections than the role may have": {func(t *testing.T, s *installed) {
			s.asRole(t, `GRANT pg_read_all_data TO `, `ALTER ROLE CONNECTION LIMIT 9 `)
			s.Connections = 10
		}, doctor.Connections, doctor.Fail, "the database admits 9"},
		"no connection left": {func(t *testing.T, s *installed) {
			s.asRole(t, `GRANT pg_read_all_data TO `, `ALTER ROLE CONNECTION LIMIT 0 `)
		}, doctor.Database, doctor.Fail, "no connection left for a node"},
		"connections that are too few for all nodes": {func(t *testing.T, s *installed) {
			s.asRole(t, `GRANT pg_read_all_data TO `, `ALTER ROLE CONNECTION LIMIT 9 `)
			s.Connections = 4
			dbtest.Exec(t, s.DB, `INSERT INTO auth_nodes (id, epoch, seen_at) SELECT n::text, 0, now() FROM generate_series(1, 3) AS n`)
		}, doctor.Connections, doctor.Warn, "3 nodes with the role api run"},
		"connections of a pooler": {func(_ *testing.T, s *installed) {
			s.Connections, s.ListenURL = 100_000, s.ListenURL+"&connect_timeout=3"
		}, doctor.Connections, doctor.OK, "pooler"},

		"an index that is gone": {func(t *testing.T, s *installed) {
			dbtest.Fill(t, s.DB, `DROP INDEX cases_newest`)
		}, doctor.Schema, doctor.Warn, "cases_newest"},
		"an index that is gone and that writes rely on": {func(t *testing.T, s *installed) {
			dbtest.Fill(t, s.DB, `ALTER TABLE cases DROP CONSTRAINT cases_number`)
		}, doctor.Schema, doctor.Fail, "cases_number"},

		"this schema": {nil, doctor.Schema, doctor.OK, "as this program's"},
		"no schema": {func(t *testing.T, s *installed) {
			s.DatabaseURL = dbtest.Empty(t, "template0")
		}, doctor.Schema, doctor.Fail, "guildhall migrate"},
		"a newer schema": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `INSERT INTO goose_db_version (version_id, is_applied, sha256) VALUES (999999, true, '')`)
		}, doctor.Schema, doctor.Warn, "a newer guildhall"},
		"an index that was cut off": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'audit_log_age'::regclass`)
		}, doctor.Schema, doctor.Warn, "audit_log_age"},

		"work that waits for nobody": {
			func(_ *testing.T, s *installed) { s.ChatByBot = true }, doctor.Platform, doctor.OK, "no work waits",
		},
		"work that was asked for just now": {askedBefore("1 second"), doctor.Platform, doctor.OK, "wait for the bot: 1"},
		"work that nobody answers":         {askedBefore("1 hour"), doctor.Platform, doctor.Warn, "has not answered 1 pieces"},

		"a platform that is switched off": {func(_ *testing.T, s *installed) { s.ChatOff = true }, doctor.Platform, doctor.OK, "is not asked"},

		"a clock that is right": {nil, doctor.Clock, doctor.OK, "ahead of the database's"},
		"a clock that is off": {func(_ *testing.T, s *installed) {
			s.Now = func() time.Time { return time.Now().Add(20 * time.Second) }
		}, doctor.Clock, doctor.Warn, "synchronised"},
		"a clock that is far off": {func(_ *testing.T, s *installed) {
			s.Now = func() time.Time { return time.Now().Add(-65 * time.Second) }
		}, doctor.Clock, doctor.Fail, "-1m"},

		"a clock beside a server that is gone": {func(t *testing.T, s *installed) {
			gone, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { gone.Close() })
			u := dbtest.OverTCP(t, s.DatabaseURL)
			u.Host = gone.Addr().String() + "," + u.Host
			s.DatabaseURL = u.String() + "&target_session_attrs=read-write"
		}, doctor.Clock, doctor.OK, "clock is 0s|clock is 100ms|clock is -100ms|clock is 200ms|clock is -200ms|clock is 300ms|clock is -300ms"},

		"nothing sealed": {nil, doctor.SecretKey, doctor.OK, "nothing is sealed yet"},
		"the key": {
			func(t *testing.T, s *installed) { s.noteKey(t, sealtest.Box(t, 1)) },
			doctor.SecretKey, doctor.OK, "opens what is sealed",
		},
		"another key": {func(t *testing.T, s *installed) { s.noteKey(t, sealtest.Box(t, 2)) }, doctor.SecretKey, doctor.Fail, "opens nothing"},
		"an older key": {
			func(t *testing.T, s *installed) { s.noteKey(t, sealtest.Box(t, 2)); s.Box = sealtest.Box(t, 1, 2) },
			doctor.SecretKey, doctor.Warn, "guildhall reseal",
		},
		"secrets unopened": {func(t *testing.T, s *installed) {
			s.noteKey(t, sealtest.Box(t, 1))
			s.endpoint(t, "a", "https://x.test/")
		}, doctor.SecretKey, doctor.Fail, "opens nothing"},

		"a direct connection": {nil, doctor.Listener, doctor.OK, "come through"},
		"a line to another database": {func(t *testing.T, s *installed) {
			s.ListenURL = dbtest.New(t).URL
		}, doctor.Listener, doctor.Warn, "GUILDHALL_LISTEN_URL"},
		"no connection": {func(_ *testing.T, s *installed) {
			s.ListenURL = "postgres://u:hunter2@127.0.0.1:1/x"
		}, doctor.Listener, doctor.Fail, "no connection"},

		"no Redis": {nil, doctor.Redis, doctor.OK, "counts rate limits for itself"},
		"no Redis and three nodes": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `INSERT INTO auth_nodes (id, epoch, seen_at) SELECT n, 0, now() FROM unnest('{a,b,c}'::text[]) AS n`)
		}, doctor.Redis, doctor.Warn, "each of 3 nodes"},
		"a Redis": {func(t *testing.T, s *installed) { s.RedisURL = "redis://" + miniredis.RunT(t).Addr() }, doctor.Redis, "", "ecision|decides"},
		"a Redis that is away": {func(_ *testing.T, s *installed) {
			s.RedisURL = "redis://:hunter2@127.0.0.1:1"
		}, doctor.Redis, doctor.Fail, "counts rate limits for itself"},

		"no bot": {nil, doctor.Platform, doctor.Warn, "stand-in"},
		"a bot with its rights": {func(t *testing.T, s *installed) {
			s.platform(t, chattest.Token).Admit(guild, always|toLock)
		}, doctor.Platform, doctor.OK, "1 guild"},
		"a bot in a guild that deletes channels": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `INSERT INTO guild_settings (guild_id, close_action) VALUES ($1, 'delete')`, guild)
			s.platform(t, chattest.Token).Admit(guild, always|toDelete)
		}, doctor.Platform, doctor.OK, "1 guild"},
		"a bot that may not delete channels": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `INSERT INTO guild_settings (guild_id, close_action) VALUES ($1, 'delete')`, guild)
			s.platform(t, chattest.Token).Admit(guild, always|toLock)
		}, doctor.Platform, doctor.Warn, guild + " (Manage Channels)"},
		"a bot that may not lock channels": {func(t *testing.T, s *installed) {
			s.platform(t, chattest.Token).Admit(guild, always)
		}, doctor.Platform, doctor.Warn, guild + " (Manage Roles, Create Public Threads, Create Private Threads)"},
		"a bot that administers": {func(t *testing.T, s *installed) {
			s.platform(t, chattest.Token).Admit(guild, 8)
		}, doctor.Platform, doctor.OK, "1 guild"},
		"a bot without a right": {func(t *testing.T, s *installed) {
			s.platform(t, chattest.Token).Admit(guild, always&^(1<<6)|toLock)
		}, doctor.Platform, doctor.Warn, guild + " (Add Reactions)"},
		"a bot that was thrown out": {func(t *testing.T, s *installed) {
			s.platform(t, chattest.Token)
		}, doctor.Platform, doctor.Warn, guild + " (the bot is not in it)"},
		"a token that is refused": {func(t *testing.T, s *installed) {
			s.platform(t, "another")
		}, doctor.Platform, doctor.Fail, "refuses GUILDHALL_DISCORD_TOKEN"},
		"a platform in trouble": {func(t *testing.T, s *installed) {
			h := chattest.HTML(503)
			s.platform(t, chattest.Token).Next(h, h, h)
		}, doctor.Platform, doctor.Fail, "could not be asked"},

		"no collector": {nil, doctor.Traces, doctor.OK, "nothing is traced"},
		"a collector": {
			func(_ *testing.T, s *installed) { s.Traces = func(context.Context) error { return nil } },
			doctor.Traces, doctor.OK, "takes traces",
		},
		"a collector that is away": {func(_ *testing.T, s *installed) {
			s.Traces = func(context.Context) error { return errors.New("connection refused") }
		}, doctor.Traces, doctor.Warn, "connection refused"},

		"no certificate": {nil, doctor.Certificate, doctor.OK, "a proxy has"},
		"a certificate":  {func(t *testing.T, s *installed) { s.certificate(t, -day, 90*day) }, doctor.Certificate, doctor.OK, "valid until"},
		"one that ends":  {func(t *testing.T, s *installed) { s.certificate(t, -day, 13*day) }, doctor.Certificate, doctor.Warn, "renew it"},
		"one that ended": {func(t *testing.T, s *installed) { s.certificate(t, -2*day, -day) }, doctor.Certificate, doctor.Fail, "has expired"},
		"one from later": {
			func(t *testing.T, s *installed) { s.certificate(t, day, 2*day) },
			doctor.Certificate, doctor.Fail, "not valid before",
		},
		"one for another": {
			func(t *testing.T, s *installed) { s.certificate(t, -day, 90*day); s.Hosts = []string{"other.example"} },
			doctor.Certificate, doctor.Fail, "other.example",
		},
		"one that is not there": {func(_ *testing.T, s *installed) {
			s.Certificate = certificate.Files{Cert: "/no/such/file", Key: "/no/such/file"}
		}, doctor.Certificate, doctor.Fail, "cannot be used"},

		"no public URL": {nil, doctor.PublicURL, doctor.OK, "is not set"},
		"the API at its public URL": {
			public(`{"error":{"code":"missing_token","message":"m"}}`),
			doctor.PublicURL, doctor.OK, "is reached over HTTPS",
		},
		"a proxy that hides HTTPS": {
			public(`{"error":{"code":"https_required","message":"The proxy says nothing."}}`),
			doctor.PublicURL, doctor.Fail, "The proxy says nothing.",
		},
		"another program at the URL": {public(`<html>`), doctor.PublicURL, doctor.Warn, "another program"},
		"a public URL that nobody hears": {
			func(_ *testing.T, s *installed) { s.Probe = "https://127.0.0.1:1/" },
			doctor.PublicURL, doctor.Warn, "connection refused",
		},

		"endpoints that resolve": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://x.test/")
			s.endpoint(t, "b", "https://x.test/y")
		}, doctor.Endpoints, doctor.OK, "2 endpoints"},
		"endpoints of a name that is gone": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://gone.test/")
			s.endpoint(t, "b", "https://gone.test/y")
			s.endpoint(t, "c", "https://x.test/y")
		}, doctor.Endpoints, doctor.Warn, "2 of 3 endpoints"},
		"a name that cannot be asked for": {
			func(t *testing.T, s *installed) { s.endpoint(t, "a", "https://broken.test/") },
			doctor.Endpoints, doctor.Warn, "cannot be resolved now",
		},
		"a name server that is silent": {
			func(t *testing.T, s *installed) { s.endpoint(t, "a", "https://silent.test/") },
			doctor.Endpoints, doctor.Warn, "1 of 1 endpoints",
		},
		"a name that leads inside": {
			func(t *testing.T, s *installed) { s.endpoint(t, "a", "https://inside.test/") },
			doctor.Endpoints, doctor.Warn, "public address",
		},
		"an endpoint that was disabled": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://gone.test/")
			dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET enabled = false, disabled_reason = 'gone'`)
		}, doctor.Endpoints, doctor.Warn, "1 webhook endpoint failing or disabled by the service|answered 410"},
		"an endpoint that fails": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://hooks.test/")
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_schedule (guild_id, endpoint_id, failures, failing_since, last_failure)
				VALUES ($1, 'a', 1, '2026-11-28T09:03:00Z', '{"at":"2026-11-28T09:03:00Z","status":401,"outcome":"client_error"}')`, guild)
		}, doctor.Endpoints, doctor.Warn, "a of guild 402187554310020096: failing since 2026-11-28T09:03:00.000Z. The receiver answered 401"},
		"a pull endpoint whose events wait": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_endpoints (guild_id, id, delivery, url, events, secret, secret_preview)
				VALUES ($1, 'p', 'pull', '', '{}', '', '')`, guild)
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_deliveries (guild_id, id, endpoint_id, event_id, event_type, event_at, fresh)
				VALUES ($1, 'd', 'p', 'e', 'case.created', now() - interval '50 hours', false)`, guild)
		}, doctor.Endpoints, doctor.Warn, "p of guild 402187554310020096: failing since |Events have waited for more than two days"},
		"an endpoint of a guild that leaves": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://gone.test/")
			dbtest.Exec(t, s.DB, `UPDATE webhook_endpoints SET enabled = false, disabled_reason = 'guild_removed'`)
		}, doctor.Endpoints, doctor.OK, ""},

		"no pull endpoint": {nil, doctor.Fetches, doctor.OK, "no pull endpoint and no stream is left unread"},
		"a pull endpoint that nobody fetches from": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_schedule (guild_id, endpoint_id, disposition, fetched_at)
				SELECT id, 'e', 'pull', now() - interval '73 hours' FROM guilds LIMIT 1`)
		}, doctor.Fetches, doctor.Warn, "after 7 days each is disabled"},
		"a stream that nobody fetches from": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `
				INSERT INTO bot_streams (id, name, events, echo, created_at, fetched_at)
				VALUES ('s', 'mirror', '{case.created}', false, now() - interval '9 days', now() - interval '73 hours')`)
		}, doctor.Fetches, doctor.Warn, "from 0 pull endpoints and 1 streams"},
		"a stream that somebody fetches from": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `
				INSERT INTO bot_streams (id, name, events, echo, created_at, fetched_at)
				VALUES ('s', 'mirror', '{case.created}', false, now() - interval '9 days', now() - interval '71 hours')`)
		}, doctor.Fetches, doctor.OK, "is left unread"},

		"no bot key": {nil, doctor.BotKeys, doctor.OK, "no bot key"},
		"a bot key that is well kept": {func(t *testing.T, s *installed) {
			s.botKey(t, 15*day, "192.0.2.0/24")
		}, doctor.BotKeys, doctor.OK, "in use: 1"},
		"a bot key that ends soon": {func(t *testing.T, s *installed) {
			s.botKey(t, 13*day, "192.0.2.0/24")
		}, doctor.BotKeys, doctor.Warn, "1 of 1 bot keys end within 14 days"},
		"a bot key without an allowlist": {func(t *testing.T, s *installed) {
			s.botKey(t, 0)
		}, doctor.BotKeys, doctor.Warn, "1 of 1 bot keys may be used from any address"},
		"a revoked bot key": {func(t *testing.T, s *installed) {
			if err := auth.RevokeKey(t.Context(), s.DB, s.botKey(t, 0)); err != nil {
				t.Fatal(err)
			}
		}, doctor.BotKeys, doctor.OK, "no bot key"},
		"no work": {nil, doctor.Pending, doctor.OK, "no delivery is due"},
		"a delivery that waits": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://receiver.test/")
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due)
				VALUES ($1, 'a', now() - interval '2 minutes')`, guild)
		}, doctor.Pending, doctor.Warn, "delivery has waited 2m"},
		"a delivery that nobody takes": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://receiver.test/")
			dbtest.Exec(t, s.DB, `INSERT INTO webhook_schedule (guild_id, endpoint_id) VALUES ($1, 'a')`, guild)
			dbtest.Exec(t, s.DB, `INSERT INTO webhook_events (guild_id, id, type, payload) VALUES ($1, 'e', 'case.created', '')`, guild)
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, due_at)
				VALUES ($1, 'a', 'e', now() - interval '1 hour')`, guild)
		}, doctor.Pending, doctor.Fail, "1h0m"},
		"a receiver that asked to be left alone": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://receiver.test/")
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due, quiet_until)
				VALUES ($1, 'a', now() - interval '1 hour', now() + interval '1 hour')`, guild)
		}, doctor.Pending, doctor.OK, "no delivery is due"},
		"a receiver that fails": {func(t *testing.T, s *installed) {
			s.endpoint(t, "a", "https://receiver.test/")
			dbtest.Exec(t, s.DB, `
				INSERT INTO webhook_schedule (guild_id, endpoint_id, next_due, failing_since, failures)
				VALUES ($1, 'a', now() - interval '1 hour', now() - interval '2 hours', 3)`, guild)
		}, doctor.Pending, doctor.OK, "no delivery is due"},
		"a delivery that no worker finds": {func(t *testing.T, s *installed) {
			s.endpoint(t, "lost", "https://receiver.test/")
			dbtest.Exec(t, s.DB, `INSERT INTO webhook_deliveries (guild_id, endpoint_id, event_id, state) VALUES ($1, 'lost', 'e', 'held')`, guild)
		}, doctor.Pending, doctor.Fail, "1 webhook endpoints wait, and no worker finds them"},
		"a job that keeps failing": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `
				INSERT INTO chat_intents (guild_id, id, kind, subject_id, channel_id, content, nonce, created_at, try_at)
				VALUES ($1, 'i', 'giveaway_ended', 'g', '1', 'x', 'n', now() - interval '2 hours', now() + interval '9 minutes')`, guild)
		}, doctor.Pending, doctor.Warn, "2h0m"},

		"books that balance": {func(t *testing.T, s *installed) { s.wallet(t, 5, 3, 2) }, doctor.Books, doctor.OK, "1 wallet: each is the sum"},
		"a wallet with more than its ledger": {func(t *testing.T, s *installed) {
			s.wallet(t, 6, 3, 2)
		}, doctor.Books, doctor.Fail, guild + "/7"},
		"a ledger without a wallet": {func(t *testing.T, s *installed) {
			s.wallet(t, 5, 3, 2)
			dbtest.Exec(t, s.DB, `DELETE FROM wallets`)
		}, doctor.Books, doctor.Fail, "of 1 wallet the balance of 1 is not the sum of the ledger: " + guild + "/7"},
		"a wallet among thousands": {func(t *testing.T, s *installed) {
			dbtest.Exec(t, s.DB, `INSERT INTO wallets (guild_id, user_id, balance) SELECT $1, n, 1 FROM generate_series(1, 999) AS n`, guild)
			dbtest.Exec(t, s.DB, `
				INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
				SELECT $1, n, n, 1, 1, ''
				FROM generate_series(1, 999) AS n`, guild)
			dbtest.Exec(t, s.DB, `UPDATE wallets SET balance = 2 WHERE user_id = '777'`)
			dbtest.Exec(t, s.DB, `DELETE FROM wallets WHERE user_id = '333'`)
		}, doctor.Books, doctor.Fail, "of 999 wallets the balance of 2 is not the sum of the ledger: " + guild + "/777, " + guild + "/333"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newInstalled(t)
			s.Config.Books = true
			if tt.arrange != nil {
				tt.arrange(t, s)
			}
			var found *doctor.Finding
			if err := doctor.Examine(t.Context(), s.Config, func(f doctor.Finding) {
				if f.Check == tt.check {
					found = &f
				}
				if strings.Contains(f.Message, "hunter2") {
					t.Errorf("a password is shown: %s", f.Message)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if found == nil {
				t.Fatalf("nothing was said of %s", tt.check)
			}
			if tt.status != "" && found.Status != tt.status || !containsAny(found.Message, strings.Split(tt.text, "|")) {
				t.Errorf("%+v, want %s with %q", *found, tt.status, tt.text)
			}
		})
	}
}

// botKey creates a bot key, with or without an expiry, and returns its id.
func (s *installed) botKey(t *testing.T, expiresIn time.Duration, allow ...string) string {
	t.Helper()
	k, err := auth.CreateKey(t.Context(), s.DB, auth.NewKey{Env: "live", Name: "bot", AllowIP: allow, ExpiresIn: expiresIn})
	if err != nil {
		t.Fatal(err)
	}
	return k.ID
}

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// wallet adds a wallet of member 7 whose ledger has these changes.
func (s *installed) wallet(t *testing.T, balance int, deltas ...int) {
	t.Helper()
	dbtest.Exec(t, s.DB, `INSERT INTO wallets (guild_id, user_id, balance) VALUES ($1, '7', $2)`, guild, balance)
	for i, d := range deltas {
		dbtest.Exec(t, s.DB, `
			INSERT INTO ledger_entries (guild_id, id, user_id, delta, balance_after, note)
			VALUES ($1, $2, '7', $3, 0, '')`, guild, string(rune('a'+i)), d)
	}
}

// The command that doctor prints recreates what is missing, while the installation runs.
func TestWhatIsMissingIsMadeAnewAsDoctorSays(t *testing.T) {
	t.Parallel()
	s := newInstalled(t)
	dbtest.Fill(t, s.DB, `DROP INDEX cases_newest`, `ALTER TABLE cases DROP CONSTRAINT cases_number`)
	of := func() (schema doctor.Finding) {
		t.Helper()
		err := doctor.Examine(t.Context(), s.Config, func(f doctor.Finding) {
			if f.Check == doctor.Schema {
				schema = f
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return schema
	}
	said := of()
	if len(said.About) != 2 {
		t.Fatalf("%+v", said)
	}
	pool, err := sql.Open("postgres", s.URL) // package db would run every statement in a transaction
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, statement := range said.About {
		if strings.Contains(statement, " INDEX ") && !strings.HasPrefix(statement, "CREATE INDEX CONCURRENTLY cases_newest ON cases ") {
			t.Errorf("writes wait for %s", statement)
		}
		if _, err := pool.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("%v: %s", err, statement)
		}
	}
	if after := of(); after.Status != doctor.OK {
		t.Errorf("afterwards: %+v", after)
	}
}

// A check is skipped if it needs another check that has failed; all others run.
func TestWhatCannotBeFoundOutIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newInstalled(t)
	s.DatabaseURL = "postgres://u@127.0.0.1:1/x"
	s.Config.Books = true
	for byBot, want := range map[bool]string{
		false: "database redis chat_platform certificate public_url traces",
		true:  "database redis certificate public_url traces", // the bot's work needs the database
	} {
		s.ChatByBot = byBot
		var checks []string
		if err := doctor.Examine(t.Context(), s.Config, func(f doctor.Finding) { checks = append(checks, f.Check) }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(checks, " "); got != want {
			t.Errorf("by the bot %t: checked %s, want %s", byBot, got, want)
		}
	}
}

// asRole makes the installation use a new role. Each of the statements gets the role's name
// appended.
func (s *installed) asRole(t *testing.T, grants ...string) {
	t.Helper()
	role := "doctor_" + strings.ToLower(rand.Text())
	statements := []string{`CREATE ROLE ` + role + ` LOGIN PASSWORD 'p'`}
	for _, g := range grants {
		if limit, ok := strings.CutPrefix(g, `ALTER ROLE `); ok {
			g = `ALTER ROLE ` + role + ` ` + limit
		} else {
			g += role
		}
		statements = append(statements, g)
	}
	dbtest.Fill(t, s.DB, statements...)
	t.Cleanup(func() { dbtest.Fill(t, s.DB, `DROP OWNED BY `+role, `DROP ROLE `+role) })
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "p")
	s.DatabaseURL, s.ListenURL = u.String(), u.String()
}

// Doctor leaves nothing behind: no row is added or changed.
func TestNothingOfAnExaminationStays(t *testing.T) {
	t.Parallel()
	s := newInstalled(t)
	s.noteKey(t, sealtest.Box(t, 1))
	s.wallet(t, 5, 3, 2)
	s.asRole(t, `GRANT ALL ON ALL TABLES IN SCHEMA public TO `, `GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO `)
	s.Config.Books = true
	s.platform(t, chattest.Token).Admit(guild, always|toLock)
	changes := func() int {
		return dbtest.Value[int](t, s.DB, `
			SELECT count(*) FROM pg_class WHERE relnamespace <> 'pg_catalog'::regnamespace AND relname LIKE 'guildhall%'`) +
			dbtest.Value[int](t, s.DB, `SELECT count(*) FROM auth_nodes`)
	}
	before := changes()
	if err := doctor.Examine(t.Context(), s.Config, func(f doctor.Finding) {
		if f.Status != doctor.OK {
			t.Errorf("%+v", f)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if after := changes(); after != before {
		t.Errorf("%d rows and tables have become %d", before, after)
	}
}

// askedBefore returns a setup in which the bot was asked for something some time ago.
func askedBefore(ago string) func(*testing.T, *installed) {
	return func(t *testing.T, s *installed) {
		s.ChatByBot = true
		dbtest.Exec(t, s.DB, `INSERT INTO guilds (id, name, owner_id) VALUES ('1', 'g', '1') ON CONFLICT DO NOTHING`)
		dbtest.Exec(t, s.DB, `
			INSERT INTO bot_work (guild_id, id, kind, subject_id, event_id, created_at, deadline)
			VALUES ('1', 'w', 'edit_giveaway', 'g', 'e', now() - $1::interval, now())`, ago)
	}
}
