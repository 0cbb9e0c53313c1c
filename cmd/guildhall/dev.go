package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/certificate"
	"guildhall/internal/base/db"
	"guildhall/internal/base/db/embedded"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/server/dashboard"
	"guildhall/internal/service/guildfile"
	"guildhall/internal/service/guilds"
	"guildhall/internal/service/removal"
)

// Files in dev's directory, beside the database.
const (
	secretKeyFile = "secret.key"
	runningFile   = "running.json" // while dev runs: where the database is
	envFile       = "env"          // for shells: the URL of the API and a token
)

// The tokens that dev prints, one at each start: their name, their validity, and how many are kept,
// since a guild can have a hundred.
const (
	startedByDev = "guildhall dev"
	devTokenTime = 30 * 24 * time.Hour
	devTokens    = 20
)

// loopback lists the addresses that dev's webhooks may call besides public ones.
const loopback = "127.0.0.0/8,::1/128"

type devCommand struct {
	Settings    `set:"default_env=test" set:"default_log=info,text" set:"default_webhook_allow=127.0.0.0/8,::1/128"` //nolint:staticcheck // kong reads every set
	Dir         string                                                                                               `default:".guildhall" help:"Folder for the database, the certificate and the keys." placeholder:"FOLDER"`
	DatabaseURL string                                                                                               `name:"database-url" help:"A Postgres for trying it out, 15 or newer, in place of one that dev starts; not an installation's." placeholder:"URL"`
}

// Run starts everything and stops it when ctx ends.
func (c *devCommand) Run(ctx context.Context, io streams) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if c.DatabaseURL != "" {
		return c.serve(ctx, dir, c.DatabaseURL, io)
	}
	if err := output.Say(io.err, "Starting Postgres in %s ...", dir); err != nil {
		return err
	}
	server, err := embedded.Start(ctx, embedded.Config{Dir: filepath.Join(dir, "postgres")})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		<-server.Ended()
		cancel(fmt.Errorf("Postgres has ended; its log is %s", filepath.Join(server.Folder, "postgres.log")))
	}()
	if server.Folder != filepath.Join(dir, "postgres") {
		err = output.Say(io.err, "The database is in %s: Postgres does not run as root, and its user cannot enter %s.", server.Folder, dir)
	}
	if err == nil {
		err = c.serve(ctx, dir, server.URL, io)
	}
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return errors.Join(err, server.Stop())
}

func (c *devCommand) serve(ctx context.Context, dir, databaseURL string, io streams) error {
	if err := db.CheckIdentity(ctx, databaseURL); err != nil {
		if errors.Is(err, db.ErrUnreleased) {
			err = fmt.Errorf("%w; to begin anew, %s", err, c.anew(dir))
		}
		return err
	}
	if err := forTrying(ctx, databaseURL); err != nil {
		return err
	}
	if err := db.Migrate(ctx, databaseURL); err != nil {
		return err
	}
	ca, err := c.complete(dir)
	if err != nil {
		return err
	}
	settings, err := c.check(bothRoles)
	if err == nil {
		settings.share, err = parseConnections(c.DBConnections, bothRoles, true) // dev always has a dashboard
		err = fault.Wrap(err, "GUILDHALL_DB_CONNECTIONS")
	}
	if err != nil {
		return err
	}
	schema, err := db.CheckSchema(ctx, databaseURL)
	if err != nil {
		return err
	}
	note, err := settings.distribution(schema.Distributed)
	if err != nil {
		return err
	}
	if err := checkKey(ctx, databaseURL, settings.box); err != nil {
		return err
	}
	log, lines, err := openLog(io.err, c.Log)
	if err != nil {
		return err
	}
	defer lines.Flush(lastLines)
	warnOf(log, note)
	return c.serveDemo(ctx, dir, io, &node{
		checked: settings, databaseURL: databaseURL, listenURL: databaseURL, log: log, lines: lines, fallback: true, local: true, caFile: ca,
	})
}

// serveDemo prepares the demo guild and runs n until ctx ends. Once everything is served, it prints
// where, with a token of the demo guild.
func (c *devCommand) serveDemo(ctx context.Context, dir string, io streams, n *node) (err error) {
	token, show, err := c.demo(ctx, n, io.err)
	if err != nil {
		return err
	}
	greeted := false
	defer func() {
		if !greeted {
			err = errors.Join(err, withdraw(ctx, n, dir, token))
		}
	}()
	show.receive(ctx)
	warnOf(n.log, n.withoutEffect(true))
	warnOfOthers(n.log, n.HTTPSListen, n.HTTPListen)
	running := filepath.Join(dir, runningFile)
	here := targetDatabase{DatabaseURL: n.databaseURL, Env: c.Env}
	if err := here.write(running); err != nil {
		return err
	}
	defer os.Remove(running)
	n.ready = func(at addresses) error {
		here.Dashboard = "https://localhost" + portOf(at.https)
		if n.pages != nil {
			here.Dashboard = "https://" + n.pages.Host
		}
		if err := errors.Join(here.write(running), writeEnv(dir, at, n.caFile, token.Secret)); err != nil {
			n.log.Warn("other programs will not find this server", "error", err)
		}
		if err := show.call(ctx, "https://localhost"+portOf(at.https), n.caFile); err != nil {
			n.log.Warn("the demo guild lacks the call of its shop", "error", err)
		}
		err := c.greet(io.out, at, n.caFile, token.Secret, dir, here.Dashboard+dashboard.Prefix+"/")
		greeted = err == nil
		return err
	}
	return n.run(ctx)
}

// warnOfOthers logs which addresses other machines can reach.
func warnOfOthers(log *slog.Logger, addresses ...string) {
	for _, address := range addresses {
		if !onThisMachine(address) {
			log.Warn("guildhall dev listens beyond this machine: everyone there can reach it, with demo data and a certificate of its own", "address", address)
		}
	}
}

// anew returns instructions for starting with an empty database.
func (c *devCommand) anew(dir string) string {
	if c.DatabaseURL != "" {
		return "name an empty database"
	}
	return "remove the folder " + dir
}

// demoLoaded selects whether the demo guild exists, even if it is being removed.
const demoLoaded = `SELECT EXISTS (SELECT FROM guilds WHERE id = $1)`

// forTrying refuses a database that contains guilds but not the demo guild: it must belong to an
// installation, for which dev must not create tokens.
func forTrying(ctx context.Context, url string) error {
	d, err := db.Open(db.Config{URL: url, Writers: 1, Readers: 1, Name: "guildhall-dev"})
	if err != nil {
		return err
	}
	defer d.Close()
	begun, err := db.Get[bool](ctx, d.Reader(), `SELECT to_regclass('guilds') IS NOT NULL`)
	if err != nil || !begun {
		return err
	}
	filled, err := db.Get[bool](ctx, d.Reader(), `SELECT EXISTS (SELECT 1 FROM guilds)`)
	if err != nil || !filled {
		return err
	}
	ours, err := db.Get[bool](ctx, d.Reader(), demoLoaded, guildfile.DemoGuild)
	if err == nil && !ours {
		err = errors.New("this database holds an installation's guilds: give guildhall dev an empty one, or one that it has filled itself")
	}
	return err
}

// onThisMachine reports whether an address can be reached from this machine only.
func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return true // no listener, or loopback
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// writeEnv writes the file that `. .guildhall/env` reads, with what programs need to call this
// server.
func writeEnv(dir string, at addresses, ca, token string) error {
	lines := []string{
		"# Written by guildhall dev when it starts. In a shell: . " + filepath.Join(dir, envFile),
		"export GUILDHALL_URL=" + quote("https://localhost"+portOf(at.https)+"/api/v1"),
		"export GUILDHALL_TOKEN=" + quote(token),
	}
	if ca != "" {
		lines = append(lines, "export GUILDHALL_CA="+quote(ca), "export NODE_EXTRA_CA_CERTS="+quote(ca))
	}
	return os.WriteFile(filepath.Join(dir, envFile), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// complete sets the settings that dev chooses itself: addresses, secret key and certificate. It
// returns the path of the CA, or "" if the certificate was given.
func (c *devCommand) complete(dir string) (ca string, err error) {
	// Tokens and demo data must not be reachable from elsewhere.
	if c.HTTPListen == ":8080" {
		c.HTTPListen = "127.0.0.1:8080"
	}
	if c.HTTPSListen == "" {
		c.HTTPSListen = "127.0.0.1:8443"
	}
	if c.SecretKey == "" {
		path := filepath.Join(dir, secretKeyFile)
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			key, err := newSecretKey()
			if err != nil {
				return "", err
			}
			text = []byte(key + "\n")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				return "", err
			}
		} else if err != nil {
			return "", err
		}
		c.SecretKey = strings.TrimSpace(string(text))
	}
	if c.TLSCert != "" || c.TLSKey != "" {
		return "", nil
	}
	files, err := certificate.Local(dir)
	if err != nil {
		return "", err
	}
	c.TLSCert, c.TLSKey = files.Cert, files.Key
	return files.CA, nil
}

// openForDemo opens n's database to change the demo guild and its token.
func openForDemo(n *node) (*db.DB, error) {
	return db.Open(db.Config{URL: n.databaseURL, Writers: 2, Readers: 1, Name: "guildhall-dev", Distributed: n.DBDistributed == "on"})
}

// demo prepares the demo guild and its showcase for n.
func (c *devCommand) demo(ctx context.Context, n *node, progress io.Writer) (auth.Token, showcase, error) {
	d, err := openForDemo(n)
	if err != nil {
		return auth.Token{}, showcase{}, err
	}
	defer d.Close()
	token, err := c.prepare(ctx, d, progress)
	if err != nil {
		return auth.Token{}, showcase{}, err
	}
	show, err := addShowcase(ctx, d, c.Env, n.hooks)
	return token, show, fault.Wrap(err, "add to the demo guild")
}

// prepare loads the demo guild into an empty database and creates a token.
func (c *devCommand) prepare(ctx context.Context, d *db.DB, progress io.Writer) (auth.Token, error) {
	loaded, err := takeBack(ctx, d)
	if err != nil {
		return auth.Token{}, fault.Wrap(err, "look for the demo guild")
	}
	if !loaded {
		if err := output.Say(progress, "Loading the demo guild ..."); err != nil {
			return auth.Token{}, err
		}
		if err := loadDemo(ctx, d); err != nil {
			return auth.Token{}, err
		}
	}
	return c.token(ctx, d)
}

// loadDemo creates the demo guild. The network's listings belong to no guild, so those from an
// earlier demo guild still exist and are skipped.
func loadDemo(ctx context.Context, d *db.DB) error {
	var file, lines bytes.Buffer
	if err := guildfile.Demo(&file); err != nil {
		return err
	}
	listed, err := db.Get[bool](ctx, d.Reader(), `SELECT EXISTS (SELECT FROM network_listings)`)
	if err != nil {
		return fault.Wrap(err, "look for listings")
	}
	for line := range bytes.Lines(file.Bytes()) {
		if !listed || !bytes.Contains(line, []byte(`"record":"network_listing"`)) {
			lines.Write(line)
		}
	}
	_, err = guildfile.Import(ctx, d, &lines, nil)
	return err
}

// takeBack restores the demo guild if its removal is scheduled, and reports whether it exists. If
// its deletion is due, the guild is deleted here, since no worker runs yet.
func takeBack(ctx context.Context, d *db.DB) (there bool, err error) {
	for {
		there, err = db.Get[bool](ctx, d.Reader(), demoLoaded, guildfile.DemoGuild)
		if err != nil || !there {
			return there, err
		}
		err = d.Do(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := guilds.Restore(ctx, tx, guildfile.DemoGuild)
			return err
		})
		if !fault.Is(err, "guild_being_removed") {
			return err == nil, err
		}
		if err := removal.Guilds(ctx, d); err != nil {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond): // the deletion may have become due just now
		}
	}
}

// token creates the token of this start. The tokens of earlier starts stay valid for the shells
// that use them, except the oldest.
func (c *devCommand) token(ctx context.Context, d *db.DB) (auth.Token, error) {
	oldest, err := auth.Page(ctx, d, guildfile.DemoGuild, false, devTokens-1, 1000)
	if err != nil {
		return auth.Token{}, err
	}
	for _, t := range oldest {
		if t.Name != startedByDev {
			continue
		}
		if err := auth.Revoke(ctx, d, guildfile.DemoGuild, t.ID); err != nil {
			return auth.Token{}, err
		}
	}
	return auth.Create(ctx, d, auth.New{
		GuildID: guildfile.DemoGuild, Env: c.Env, Name: startedByDev, Scopes: auth.Scopes, ExpiresIn: devTokenTime,
	})
}

// withdraw revokes the token of a start that failed before the token was printed, and removes the
// file for shells if it has that token.
func withdraw(ctx context.Context, n *node, dir string, token auth.Token) error {
	path := filepath.Join(dir, envFile)
	if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), token.Secret) {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	d, err := openForDemo(n)
	if err != nil {
		return err
	}
	defer d.Close()
	return fault.Wrap(auth.Revoke(context.WithoutCancel(ctx), d, token.GuildID, token.ID), "revoke the token", token.ID, "of this start")
}

// greet prints the URLs and example calls that can be copied.
func (c *devCommand) greet(w io.Writer, at addresses, ca, token, dir, pages string) error {
	base := "https://localhost" + portOf(at.https)
	curl := "curl -sS"
	if ca != "" {
		curl += " --cacert " + quote(ca)
	}
	curl += " -H " + quote("Authorization: Bearer "+token)
	ours := ""
	if dir != filepath.Join(workingDir(), ".guildhall") {
		ours = " --dir " + quote(dir)
	}
	rows := []string{
		"", "Guildhall is running.", "",
		"  API        " + base + "/api/v1",
		"  Docs       " + base + "/docs",
		"  Dashboard  " + pages,
		"  CA file    " + ca,
		"  Ops        " + operators(at.ops),
		"  Guild      " + guildfile.DemoGuild,
		"  Token      " + token,
		"", "Read the leaderboard:", "",
		"  " + curl + " " + quote(base+"/api/v1/economy/leaderboard?per_page=3"),
		"", "Give a member 25 coins, once, however often it is sent:", "",
		"  " + curl + " -H 'Content-Type: application/json' -H 'Idempotency-Key: first-call' -d " +
			quote(`{"user_id":"`+guildfile.DemoMember+`","delta":25,"reason":"hello"}`) + " " + quote(base+"/api/v1/economy/adjust"),
		"", "Give a shell's programs all of it:  . " + quote(filepath.Join(dir, envFile)),
		"Other commands find this server from the same folder: " + program() + " token list" + ours + " --guild " + guildfile.DemoGuild,
		"Ctrl-C stops everything. The data stays for the next start.", "",
	}
	_, err := fmt.Fprintln(w, strings.Join(rows, "\n"))
	return err
}

// operators returns the URL of the metrics.
func operators(a net.Addr) string {
	if a == nil {
		return "off"
	}
	return "http://" + text(a) + "/metrics"
}

func portOf(a net.Addr) string {
	_, port, err := net.SplitHostPort(text(a))
	if err != nil || port == "443" {
		return ""
	}
	return ":" + port
}

// quote quotes a word for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// program returns the name under which this program was called.
func program() string { return os.Args[0] }

func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}
