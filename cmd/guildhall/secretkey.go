package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"guildhall/internal/access/seal"
	"guildhall/internal/base/db"
	"guildhall/internal/base/fault"
	"guildhall/internal/base/output"
	"guildhall/internal/operate/secretkey"
)

// newSecretKey returns a new key for GUILDHALL_SECRET_KEY.
func newSecretKey() (string, error) {
	key := make([]byte, seal.KeySize)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(key), nil
}

// checkKey is wantKey with a new connection.
func checkKey(ctx context.Context, url string, box *seal.Box) error {
	d, err := db.Open(db.Config{URL: url, Writers: 1, Readers: 1, Name: "guildhall-check"})
	if err != nil {
		return err
	}
	defer d.Close()
	return wantKey(ctx, d, box)
}

// wantKey returns an error if the key is not this installation's.
func wantKey(ctx context.Context, d *db.DB, box *seal.Box) error {
	err := secretkey.Check(ctx, d, box)
	if errors.Is(err, secretkey.ErrOther) { // any other error is not caused by the setting
		return fault.Wrap(err, "GUILDHALL_SECRET_KEY")
	}
	return err
}

// box returns a Box with the configured keys; the first one seals. In the environment test it also
// opens what was written without a key. The error does not repeat a key.
func box(setting, env string) (*seal.Box, error) {
	var keys [][]byte
	for text := range strings.SplitSeq(setting, ",") {
		if text = strings.TrimSpace(text); text == "" && !strings.Contains(setting, ",") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(raw) != seal.KeySize {
			return nil, fmt.Errorf("a key must be base64 of %d bytes, several separated by commas, as `openssl rand -base64 32` makes one for a new installation", seal.KeySize)
		}
		keys = append(keys, raw)
	}
	if env == "test" {
		keys = append(keys, openKey())
	}
	if len(keys) == 0 {
		return nil, errors.New("a key is needed to keep signing secrets: the one that the servers have; make it for a new installation alone, with `openssl rand -base64 32`")
	}
	return seal.New(keys...)
}

// openKey returns the key of test installations without a configured key, so that they can read
// what they wrote before a restart or on another node. It is public and protects nothing.
func openKey() []byte {
	sum := sha256.Sum256([]byte("guildhall: a test installation without a secret key"))
	return sum[:]
}

type resealCommand struct {
	connection
	SecretKey string `env:"GUILDHALL_SECRET_KEY" help:"The keys, separated by commas: everything is sealed with the first. Default: that of the running guildhall dev." placeholder:"KEYS"`
	Env       string `env:"GUILDHALL_ENV" enum:"live,test" default:"live" help:"The installation's environment."`
	JSON      bool   `help:"Print one JSON object."`
}

// Help says when to run the command.
func (c *resealCommand) Help() string {
	return "Give every node OLD,NEW, then every node NEW,OLD, run this with NEW,OLD while they serve, then leave OLD out. It prints counts."
}

// Run re-encrypts everything. It fails in the end if no key opens some of it.
func (c *resealCommand) Run(ctx context.Context, io streams) error {
	d, f, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	c.SecretKey = cmp.Or(c.SecretKey, f.SecretKey)
	if f.Env != "" {
		c.Env = f.Env
	}
	b, err := box(c.SecretKey, c.Env)
	if err != nil {
		return fault.Wrap(err, "GUILDHALL_SECRET_KEY")
	}
	if err := wantKey(ctx, d, b); err != nil {
		return err
	}
	done, err := secretkey.Reseal(ctx, d, b)
	if err != nil {
		return err
	}
	if c.JSON {
		err = output.JSON(io.out, done)
	} else {
		row := func(what string, n seal.Count) []string {
			return []string{what, fmt.Sprint(n.Resealed), fmt.Sprint(n.Current), fmt.Sprint(n.Unreadable)}
		}
		err = output.Table(io.out, [][]string{
			{"", "RESEALED", "WERE SO", "UNREADABLE"}, row("endpoints", done.Endpoints), row("stored answers", done.Answers),
		})
	}
	err = unreported(err)
	if left := done.Endpoints.Unreadable + done.Answers.Unreadable; err == nil && left > 0 {
		err = fmt.Errorf("%d are sealed with a key that was not given, and were left as they are", left)
	}
	return err
}

// withoutKey sets the public key for a test installation without a key.
func (s *Settings) withoutKey() bool {
	if s.SecretKey != "" || s.Env == "live" {
		return false
	}
	s.SecretKey = base64.StdEncoding.EncodeToString(openKey())
	return true
}
