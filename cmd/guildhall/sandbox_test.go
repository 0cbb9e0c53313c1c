package main

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
)

// The reasons why the blocks of the documents run without a program.
const (
	ofTheMachine = "it changes the machine that it runs on"
	ofPostgres   = "it makes, copies or restores another server of Postgres: make drill NAME=restore and NAME=failover do"
	byAnother    = "it needs a package registry: TestTheFirstProgramsWork and CI's job for the examples run it"
)

// notRun lists the programs that a document calls and that stand still in a sandbox, with the
// reason. A program that is in none of these lists is not found, which fails the test.
var notRun = map[string]string{
	"apt-get": ofTheMachine, "systemctl": ofTheMachine, "chown": ofTheMachine, "certbot": ofTheMachine, "promtool": ofTheMachine,
	"dpkg": ofTheMachine, "make": "its targets are what CI runs; TestDocumentsNameFilesThatThereAre looks for them",
	"createdb": ofPostgres, "pg_ctlcluster": ofPostgres, "pg_restore": ofPostgres,
	"npm": byAnother, "npx": byAnother, "pip": byAnother, "python": byAnother, "openapi-python-client": byAnother, "go": byAnother,
}

// scripts are programs that do a part of what they do on a machine.
var scripts = map[string]string{
	"su":               `for last; do :; done; exec sh -ec "$last"`,
	"hostname":         `echo node1`,
	"pg_lsclusters":    `echo 15 main 5432 online`,
	"pg_basebackup":    `mkdir -p "$2"`,
	"pg_createcluster": `mkdir -p ROOT/etc/postgresql/$1/$2/conf.d ROOT/var/lib/postgresql/$1/$2`,
	// psql keeps the statements, which the test runs.
	"psql": `while [ $# -gt 0 ]; do [ "$1" != -c ] || printf '%s\0' "$2" >> ROOT/statements; shift; done`,
	// Only root may give files away.
	"install": `for a; do shift; case $a in -o|-g) owner=1;; *) [ -n "$owner" ] || set -- "$@" "$a"; owner=;; esac; done
		exec REAL/install "$@"`,
	"openssl": `[ "$1" = s_client ] || exec REAL/openssl "$@"`, // the databases that s_client asks are not there
	"docker":  `while [ $# -gt 0 ]; do case $1 in -f) [ -e "$2" ] || exit 1;; */guildhall) shift; exec guildhall "$@";; esac; shift; done`,
	"python3": `[ "$2" != venv ] || { mkdir -p $3/bin; : > $3/bin/activate; ln -s ROOT/bin/python ROOT/bin/pip $3/bin; }`,
	"less":    `exec cat`,
	"guildhall": `out=$(ENVIRONMENT 'PROGRAM' "$@") || echo "guildhall $*" >> ROOT/failed
		printf '%s\n' "$out"; case $out in svc_*) printf %s "${out%%[!a-zA-Z0-9_-]*}" > ROOT/token;; esac`,
	// Whatever host a call names, the test's server answers. TOKEN is the one that the page has made.
	"curl": `token=$(cat ROOT/token 2>&1)
		for a; do shift; case $a in *'Bearer TOKEN') a="${a%TOKEN}$token";; esac; set -- "$@" "$a"; done
		REAL/curl --fail-with-body --silent --show-error --insecure --connect-to "::127.0.0.1:PORT" "$@" || echo "curl $*" >> ROOT/failed`,
}

// tools lists the programs that run as they are, over the sandbox's files.
var tools = []string{"cat", "chmod", "cp", "cut", "date", "head", "ln", "ls", "mkdir", "rm", "sh"}

// page says how the shell blocks of a document are run.
type page struct {
	server  string                               // what guildhall and curl talk to: dev, node, or nothing
	folder  string                               // in which the blocks are run, if not that of the repository
	files   func(t *testing.T) map[string]string // files that the reader has, by their names
	before  string                               // what the reader has done before, in the shell
	replace []string                             // pairs of what a reader replaces, and by what
	prints  []string                             // patterns of what the blocks print, in their order
	after   string                               // shows what the blocks have left behind
}

const (
	theGuild = `echo '{"record":"guild","id":"402187554310020096","name":"The Harbour"}' | guildhall import -`
	whoAmI   = `"token":{.*"guild_id":"\d{18}"`
)

var pages = map[string]page{
	"README.md": {server: "dev", prints: []string{
		`{"data":\[{"balance":\d+,"rank":1,.*"has_more":true,"page":1,"per_page":3}`, `"data":{"balance":\d+,"ledger_entry":{.*"reason":"Payday"`,
	}},
	"docs/bot/README.md": {
		server: "dev",
		prints: []string{
			`^{"data":\[({"id":"\d+","number":null,"record":"(guild|wallet|level)","result":"created",[^}]*},?){3}\]}`,
			`{"data":\[({"id":"\d+","number":null,"record":"member","result":"created",[^}]*},?){2}\]}`,
			`{"data":{.*"name":"my-bot"`, `{"data":\[.*\],"has_more":(true|false),"complete_since":"[^"]+"}`,
			`"127\.0\.0\.1",.*"::1"`, // localhost may be the IPv4 or the IPv6 address
		},
		after: "guildhall bot-key list --json",
	},
	"docs/bot/convert.md": {
		server: "node",
		files: func(t *testing.T) map[string]string {
			t.Helper()
			return map[string]string{"page-0.json": exported(t, "mee6.0.json"), "page-1.json": exported(t, "mee6.1.json")}
		},
		before:  theGuild,
		replace: []string{"FORMAT … ", "mee6 page-*.json "},
		prints:  []string{`level: 3 created`, `level: 0 created, 0 updated, 3 unchanged, 0 kept`},
	},
	"docs/bot/import.md": {
		server: "node",
		files: func(t *testing.T) map[string]string {
			t.Helper()
			return map[string]string{"harbour.ndjson": one(t, codeOf(t, "docs/bot/import.md", ""), "json")}
		},
		prints: []string{`^Imported 2 records\.\n`, `wallet: 0 created, 0 updated, 1 unchanged, 0 kept\n.*dry run`},
	},
	"docs/integrate/draws.md":         {},
	"docs/integrate/first-program.md": {server: "dev"},
	"docs/integrate/webhooks.md": {
		server: "node", before: theGuild, replace: []string{"shop.example", "localhost"}, prints: []string{`whsec_`},
	},
	"docs/integrate/writes.md": {server: "dev", prints: []string{`"data":{"balance":\d+,"ledger_entry":{.*"reason":"Order 1006"`}},
	"docs/operate/backup.md": { // the node's database is the old one
		server: "node",
		before: theGuild + `; guildhall token create --guild 402187554310020096 --name lost --all-scopes; mkdir -p /backup/base-DATE
			echo "GUILDHALL_DATABASE_URL='NODE'" > /etc/guildhall/env; export RESTORED='FRESH'`,
		replace: []string{"INSTANT", "2026-11-22 10:00:00+00", "2026-11-22T10:00:00Z", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)},
		prints:  []string{`ok   books`, `lost +token`},
	},
	"docs/operate/install.md": {server: "node", prints: []string{`ready\n`, `Imported 1 record`, `svc_live_`, whoAmI}},
	"docs/operate/two-nodes.md": {
		server:  "node",
		before:  `cat /dev/null > db.crt`,
		replace: []string{"'KEY'", "'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='"},
		prints:  []string{`ready\n`, `Imported 1 record`, `svc_live_`, whoAmI},
	},
	"docs/operate/upgrade.md":      {server: "node", prints: []string{`ready\n`}},
	"examples/README.md":           {server: "dev"},
	"examples/bot/README.md":       {server: "dev"},
	"deploy/Containerfile":         {},
	"deploy/release.Containerfile": {folder: "deploy"},
	"deploy/compose.yaml": {
		server: "node", folder: "deploy", replace: []string{`"ID"`, `"402187554310020096"`, "--guild ID", "--guild 402187554310020096"},
		prints: []string{`Imported 1 record`, `svc_live_`},
	},
	"deploy/try.compose.yaml": {
		server: "dev", folder: "deploy", before: "ln -s ../.guildhall .; ln -s $PWD/.guildhall /data", prints: []string{"/dashboard/"},
	},
}

// exported returns a file of another bot's, as that bot writes it for the guild of the documents.
func exported(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(fixtures + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "500000000000000001", guild)
}

// target is a server that the blocks call.
type target struct {
	process     *process
	database    string
	port        string            // of the API, over HTTPS
	environment string            // assignments for the commands of guildhall
	variables   map[string]string // of the shell
	folder      string            // .guildhall
}

// devTarget starts guildhall dev.
func devTarget(t *testing.T) target {
	t.Helper()
	dir := t.TempDir()
	d := target{folder: filepath.Join(dir, ".guildhall"), variables: map[string]string{}}
	d.process = begin(t, dir, append([]string{"GUILDHALL_CHECK_ANSWERS=log"}, anyPorts...), "dev", "--database-url", dbtest.New(t).URL)
	d.process.says(t, "Ctrl-C stops everything")
	out, _ := d.process.text()
	for variable, label := range map[string]string{"GUILDHALL_URL": "API", "GUILDHALL_TOKEN": "Token", "GUILDHALL_CA": "CA file"} {
		d.variables[variable] = regexp.MustCompile(`(?m)^  ` + label + ` +(.*)$`).FindStringSubmatch(out)[1]
	}
	at, err := url.Parse(d.variables["GUILDHALL_URL"])
	if err != nil {
		t.Fatal(err)
	}
	d.port = at.Port()
	return d
}

// nodeTarget starts guildhall serve over an empty database.
func nodeTarget(t *testing.T) target {
	t.Helper()
	url := dbtest.New(t).URL
	node := startNode(t, url, "GUILDHALL_CHECK_ANSWERS=log", "GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8")
	return target{
		process: node.process, database: url, port: node.https[strings.LastIndex(node.https, ":")+1:],
		environment: fmt.Sprintf("GUILDHALL_DATABASE_URL=\"${RESTORED:-%s}\" GUILDHALL_SECRET_KEY='%s' GUILDHALL_DISCORD_URL=off "+
			"GUILDHALL_OPS_LISTEN='%s' GUILDHALL_WEBHOOK_ALLOW=127.0.0.0/8,::1/128", url, keyOf(url), strings.TrimPrefix(node.ops, "http://")),
	}
}

// sandbox is a folder that stands for the root of a machine, with the few programs that a
// document's blocks may call.
type sandbox struct {
	target
	root, home string // home stands for the repository's folder
}

// newSandbox makes the folders and programs of a machine.
func newSandbox(t *testing.T, at target) *sandbox {
	t.Helper()
	root := t.TempDir()
	s := &sandbox{at, root, filepath.Join(root, "home")}
	for _, folder := range []string{
		"bin", "home/bin", "home/examples/go", "home/examples/bot/typescript", "home/examples/bot/python", "usr/share/doc/guildhall", "backup",
		"etc/caddy", "etc/cron.d", "etc/guildhall", "etc/prometheus", "etc/systemd/system",
		"etc/postgresql/15/main/conf.d", "var/lib/postgresql/15/main",
	} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(s.home, "deploy"), os.DirFS(deployFolder)); err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{ // as .ci/deb installs them
		"rules.yaml": "prometheus/rules.yaml", "certificate.conf": "systemd/guildhall.service.d/certificate.conf",
	} {
		if err := os.Link(filepath.Join(s.home, "deploy", from), filepath.Join(root, "usr/share/doc/guildhall", to)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, root, "etc/postgresql/15/main/pg_hba.conf", "")
	link := func(from, to string) {
		if err := os.Symlink(from, filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	link("../../bin/guildhall", "home/bin/guildhall")
	if s.folder != "" {
		link(s.folder, "home/.guildhall")
	}
	for _, name := range tools {
		link(testutil.Program(t, name), "bin/"+name)
	}
	for name := range notRun {
		link(testutil.Program(t, "true"), "bin/"+name)
	}
	fill := []string{"ROOT", root, "PROGRAM", os.Args[0], "ENVIRONMENT", asProgram + "=1 " + s.environment, "PORT", s.port}
	for name, script := range scripts {
		if strings.Contains(script, "REAL/"+name) {
			fill = append(fill, "REAL/"+name, testutil.Program(t, name))
		}
	}
	for name, script := range scripts {
		script = "#!/bin/sh\n" + strings.NewReplacer(fill...).Replace(script)
		if err := os.WriteFile(filepath.Join(root, "bin", name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

var (
	absolutePath = regexp.MustCompile("(^|[\\s\"'=<>])(/[a-z]+)")
	commented    = regexp.MustCompile(`(?m)^#   (.*\n)`)
)

// run runs a script over the sandbox's files and returns its output.
func (s *sandbox) run(t *testing.T, folder, script string) string {
	t.Helper()
	script = absolutePath.ReplaceAllStringFunc(script, func(found string) string {
		if strings.HasSuffix(found, "/dev") {
			return found
		}
		i := strings.Index(found, "/")
		return found[:i] + s.root + found[i:]
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testutil.Program(t, "sh"), "-ec", script)
	cmd.Dir = filepath.Join(s.home, folder)
	cmd.Env = []string{"PATH=" + filepath.Join(s.root, "bin"), "HERE=" + cmd.Dir}
	for name, value := range s.variables {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "not found") {
		t.Errorf("%v:\n%s", err, out)
	}
	if failed, err := os.ReadFile(filepath.Join(s.root, "failed")); err == nil {
		t.Errorf("these fail:\n%s%s", failed, out)
	}
	return string(out)
}

// Each shell block of a document runs as it stands, in the order of the page: its calls are
// answered as the contract says, and its commands succeed. The settings that it writes are
// accepted, and its SQL is a statement that Postgres takes.
func TestTheShellBlocksOfTheDocumentsRun(t *testing.T) {
	t.Parallel()
	all := map[string][]block{}
	for at, text := range documents(t) {
		blocks, _ := blocksOf(text)
		for _, b := range blocks {
			if b.language == "sh" || at != "README.md" && readBy[b.language][at] == "TestTheShellBlocksOfTheDocumentsRun" {
				all[at] = append(all[at], b)
			}
		}
	}
	files, err := filepath.Glob(deployFolder + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files { // comments hold their commands
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a folder
		}
		at := strings.TrimPrefix(file, "../../")
		for _, m := range commented.FindAllStringSubmatch(string(text), -1) {
			all[at] = append(all[at], block{"", "sh", m[1]})
		}
	}
	targets := map[string]target{"dev": devTarget(t), "node": nodeTarget(t)}
	t.Run("pages", func(t *testing.T) {
		for i, at := range slices.Sorted(maps.Keys(all)) {
			t.Run(at, func(t *testing.T) {
				t.Parallel()
				p, known := pages[at]
				if !known {
					t.Fatalf("pages does not say how to run the blocks of %s", at)
				}
				own := guild
				if p.server == "node" { // each page has a guild of its own there
					own = fmt.Sprintf("4021875543100%05d", 30000+i)
				}
				runPage(t, newSandbox(t, targets[p.server]), p, own, all[at])
			})
		}
	})
	sendShown(t, targets["dev"])
	runShown(t, targets["node"])
	for name, s := range targets {
		if _, log := s.process.text(); regexp.MustCompile(`level=ERROR|"level":"ERROR"`).MatchString(log) {
			t.Errorf("an answer of %s is not as the contract says: %s", name, log)
		}
	}
	greeting, _ := targets["dev"].process.text()
	for line := range strings.Lines(one(t, codeOf(t, "README.md", "Start"), "text")) {
		if label, _, _ := strings.Cut(line[2:], "  "); !strings.Contains(greeting, "\n  "+label+" ") {
			t.Errorf("README.md shows %q, dev prints %s", line, greeting)
		}
	}
}

// runPage runs the blocks of a page, with another guild id, each from the folder in which the page
// begins.
func runPage(t *testing.T, s *sandbox, p page, own string, blocks []block) {
	t.Helper()
	replace := func(text string) string {
		return strings.ReplaceAll(strings.NewReplacer(p.replace...).Replace(text), guild, own)
	}
	if p.files != nil {
		for name, text := range p.files(t) {
			writeFile(t, s.home, name, replace(text))
		}
	}
	if strings.Contains(p.before, "FRESH") { // another database
		p.before = strings.NewReplacer("FRESH", dbtest.New(t).URL, "NODE", s.database).Replace(p.before)
	}
	script := replace(p.before) + "\n"
	var statements, output []string
	for _, b := range blocks {
		switch b.language {
		case "sql":
			statements = append(statements, b.text)
		case "text":
			output = append(output, b.text)
		case "sh":
			script += "cd \"$HERE\"\n" + replace(b.text) + "\n"
		}
	}
	out := s.run(t, p.folder, script+p.after)
	wantMatch(t, "the page", out, `(?s)`+strings.Join(p.prints, ".*"))
	for _, text := range output {
		wantMatch(t, "the page", out, strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*"))
	}
	if written := readSettings(filepath.Join(s.root, "etc/guildhall/env")); len(written) > 0 {
		if err := acceptable(t, written); err != nil {
			t.Errorf("the settings of the page: %v", err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(s.root, "statements")); err == nil {
		statements = append(statements, strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")...)
	}
	if len(statements) > 0 {
		takes(t, statements)
	}
}

// takes fails the test unless Postgres accepts the statements, none of which is kept.
func takes(t *testing.T, statements []string) {
	t.Helper()
	pool, err := sql.Open("postgres", dbtest.New(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, statement := range statements {
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.ExecContext(t.Context(), statement)
		_ = tx.Rollback()
		// Postgres has parsed a statement that it refuses to run inside a transaction, or for this role.
		if err != nil && !regexp.MustCompile("cannot run inside a transaction block|permission denied").MatchString(err.Error()) {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
