package main

import (
	"strings"
	"testing"
	"time"
)

// A variable that resembles a setting's name is refused with that name; other variables with our
// prefix cause a warning, known ones do not.
func TestVariablesThatAreNoSettingsAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ       string
		refused, note string
	}{
		"letters in the wrong order": {
			"GUILDHALL_REDIS_ULR=redis://x",
			"GUILDHALL_REDIS_ULR: there is no such setting; did you mean GUILDHALL_REDIS_URL?", "",
		},
		"a letter too many":   {"GUILDHALL_SECRET_KEYS=", "did you mean GUILDHALL_SECRET_KEY?", ""},
		"two letters too few": {"GUILDHALL_TRUSTED_PROXI=x", "did you mean GUILDHALL_TRUSTED_PROXIES?", ""},
		"three letters off":   {"GUILDHALL_TRUSTED_PROX=x", "", "no settings of this program: GUILDHALL_TRUSTED_PROX"},
		"a newer release's":   {"GUILDHALL_FLIGHT_MODE=on GUILDHALL_ANTENNA=x", "", "GUILDHALL_ANTENNA, GUILDHALL_FLIGHT_MODE"},
		"ours": {
			"GUILDHALL_REDIS_URL=x GUILDHALL_DATABASE_URL=x GUILDHALL_ENV=live GUILDHALL_ROLES=api GUILDHALL_LISTEN_URL=x",
			"", "",
		},
		"of a service named guildhall": {
			"GUILDHALL_SERVICE_HOST=10.0.0.1 GUILDHALL_PORT=tcp://x GUILDHALL_PORT_8443_TCP_ADDR=x GUILDHALL_SERVICE_PORT_API=1",
			"", "",
		},
		"of the examples and the tests": {
			"GUILDHALL_TOKEN=x GUILDHALL_URL=x GUILDHALL_CA=x GUILDHALL_SOURCE=x GUILDHALL_INBOX=x GUILDHALL_RECEIVER=x " +
				"GUILDHALL_TEST_POSTGRES=x",
			"", "",
		},
		"of other services in the namespace": {
			"GUILDHALL_TLS_PORT=tcp://x GUILDHALL_TLS_PORT_8443_TCP_ADDR=x GUILDHALL_TLS_SERVICE_HOST=x GUILDHALL_DB_SERVICE_PORT=1", "", "",
		},
		"short names of other things": {
			"GUILDHALL_TAG=x GUILDHALL_UID=1 GUILDHALL_ID=x GUILDHALL_IP=x GUILDHALL_DB=x GUILDHALL_BOT=x GUILDHALL_LANG=x GUILDHALL_CRT=x", "",
			"GUILDHALL_BOT, GUILDHALL_CRT, GUILDHALL_DB, GUILDHALL_ID, GUILDHALL_IP, GUILDHALL_LANG, GUILDHALL_TAG, GUILDHALL_UID",
		},
		"somebody else's":                 {"PATH=/bin GUILD=x", "", ""},
		"one that is wrong beside others": {"GUILDHALL_ANTENNA=x GUILDHALL_LOGS=x", "did you mean GUILDHALL_LOG?", ""},
	} {
		note, err := checkEnvironment(strings.Fields(c.environ))
		if (err != nil) != (c.refused != "") || err != nil && !strings.HasSuffix(err.Error(), c.refused) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
		if (note != "") != (c.note != "") || !strings.HasSuffix(string(note), c.note) {
			t.Errorf("%s is noted as %q, want %q", name, note, c.note)
		}
	}
}

// Every command fails with wrong usage for a misspelt variable, before it reports a missing
// setting. Help still works.
func TestEveryCommandRefusesAMisspeltVariable(t *testing.T) {
	t.Parallel()
	const misspelt = "GUILDHALL_DATABASE_ULR=postgres://127.0.0.1:1/x"
	for _, command := range commandLine(t).Leaves(true) {
		t.Run(command.Path(), func(t *testing.T) {
			t.Parallel()
			p := begin(t, t.TempDir(), []string{misspelt}, strings.Fields(command.Path())...)
			if code := p.exits(t, time.Minute); code != 2 {
				t.Errorf("it exits with %d", code)
			}
			p.says(t, "GUILDHALL_DATABASE_ULR: there is no such setting; did you mean GUILDHALL_DATABASE_URL?")
		})
	}
	if code := begin(t, t.TempDir(), []string{misspelt}, "serve", "--help").exits(t, time.Minute); code != 0 {
		t.Errorf("help exits with %d", code)
	}
}

// serve and doctor warn of unknown variables with our prefix.
func TestServeAndDoctorNameVariablesThatAreNoSettings(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	env := []string{"GUILDHALL_DATABASE_URL=" + url, "GUILDHALL_SECRET_KEY=" + someKey(t), "GUILDHALL_DISCORD_URL=off", "GUILDHALL_ANTENNA=x"}
	begin(t, t.TempDir(), env, "doctor").says(t, "no settings of this program: GUILDHALL_ANTENNA")
	serve(t, url, "GUILDHALL_ANTENNA=x").says(t, "no settings of this program: GUILDHALL_ANTENNA")
}

// A command about a guild that does not exist says so.
func TestAGuildThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	for _, command := range []string{"token list", "webhook list"} {
		args := append(strings.Fields(command), "--database-url", url, "--guild")
		call(t, "", append(args, "12345")...).refused(t, 1, "There is no guild 12345.")
		call(t, "", append(args, guild)...).ok(t)
	}
	doctor := []string{"doctor", "--database-url", url, "--secret-key", someKey(t), "--discord-url", "off", "--guild"}
	r := call(t, "", append(doctor, guild+", 12345")...)
	r.refused(t, 1, "guilds")
	if !strings.Contains(r.out, "There is no guild 12345") {
		t.Error(r.out)
	}
	call(t, "", append(doctor, guild)...).ok(t)
}
