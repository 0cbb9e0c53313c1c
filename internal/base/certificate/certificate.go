// Package certificate loads a server's TLS certificate, reloads it when its files change, and can
// make a self-signed certificate for this machine.
package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"guildhall/internal/base/fault"
)

// certificateInterval is how often the files are polled. The documents promise that a renewed
// certificate is served within a minute.
const certificateInterval = 10 * time.Second

// RenewBefore is the time before expiry from which on a certificate should be renewed.
const RenewBefore = 14 * 24 * time.Hour

// warnInterval is how often the log repeats that the certificate in use should be renewed.
const warnInterval = 24 * time.Hour

// Files are the paths of a certificate with its chain and of the certificate's private key, and the
// names of the settings that say so. An error begins with the name of the setting whose file is
// wrong.
type Files struct {
	Cert, Key               string
	CertSetting, KeySetting string
}

// Read reads the files and returns the certificate with its key.
func (f Files) Read() (tls.Certificate, error) {
	cert, key, err := f.contents()
	if err != nil {
		return tls.Certificate{}, err
	}
	return f.parse(cert, key)
}

func (f Files) contents() (cert, key []byte, err error) {
	if cert, err = os.ReadFile(f.Cert); err != nil {
		return nil, nil, fault.Wrap(err, f.CertSetting)
	}
	key, err = os.ReadFile(f.Key)
	return cert, key, fault.Wrap(err, f.KeySetting)
}

// parse parses the contents of the files. The error of tls.X509KeyPair does not say which of both is
// wrong, so the certificate is parsed alone first.
func (f Files) parse(cert, key []byte) (tls.Certificate, error) {
	if err := checkCertificate(cert); err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %s: %w", f.CertSetting, f.Cert, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	switch {
	case err == nil:
		return pair, nil
	case strings.Contains(err.Error(), "does not match"):
		return tls.Certificate{}, fmt.Errorf("%s: %s does not belong to the certificate of %s: %w", f.KeySetting, f.Key, f.CertSetting, err)
	}
	return tls.Certificate{}, fmt.Errorf("%s: %s: %w", f.KeySetting, f.Key, err)
}

// checkCertificate returns an error unless the PEM text has a certificate and its first certificate
// can be parsed.
func checkCertificate(text []byte) error {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			_, err := x509.ParseCertificate(block.Bytes)
			return err
		}
	}
	return errors.New("there is no certificate in it")
}

// Pair is a certificate with its key, reloaded when its files change.
type Pair struct {
	files     Files
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate] // written by Watch, read by handshakes
	cert, key []byte                          // last contents of the certificate and key files; only Watch uses them
	warned    string                          // the last warning about expiry, and when it was logged; only Watch uses them
	warnedAt  time.Time
}

// Load reads a certificate and its key from their files.
func Load(files Files, log *slog.Logger) (*Pair, error) {
	c := &Pair{files: files, log: log}
	if _, err := c.reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Metric returns the gauge of the instant at which the certificate in use expires.
func (c *Pair) Metric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "guildhall_certificate_expiration_timestamp_seconds",
		Help: "When the certificate that this node serves expires, in seconds since 1970.",
	}, func() float64 { return float64(c.current.Load().Leaf.NotAfter.Unix()) })
}

// reload reads the files and reports whether their contents have changed.
func (c *Pair) reload() (bool, error) {
	cert, key, err := c.files.contents()
	if err != nil {
		return false, err
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	pair, err := c.files.parse(cert, key)
	if err != nil {
		return false, err
	}
	c.cert, c.key = cert, key
	c.current.Store(&pair)
	return true, nil
}

// Watch reloads the files whenever they change, until ctx ends. While the two files do not fit
// together, as in the middle of a renewal, Watch keeps the certificate in use and retries.
func (c *Pair) Watch(ctx context.Context) error {
	tick := time.NewTicker(certificateInterval)
	defer tick.Stop()
	for {
		c.warnExpiry(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		switch renewed, err := c.reload(); {
		case err != nil:
			c.log.Error("the certificate could not be read again; the old one stays in use", "error", err)
		case renewed:
			c.log.Info("the certificate was renewed", "expires", c.current.Load().Leaf.NotAfter)
		}
	}
}

// warnExpiry logs that the certificate in use is about to expire or has expired: at once, then once
// a day.
func (c *Pair) warnExpiry(now time.Time) {
	until, say, level := c.current.Load().Leaf.NotAfter, "", slog.LevelWarn
	switch left := until.Sub(now); {
	case left <= 0:
		say, level = "the certificate has expired, so clients refuse it: renew it", slog.LevelError
	case left < RenewBefore:
		say = "the certificate expires soon: renew it"
	}
	if say == c.warned && now.Sub(c.warnedAt) < warnInterval {
		return
	}
	c.warned, c.warnedAt = say, now
	if say != "" {
		c.log.Log(context.Background(), level, say, "expires", until)
	}
}

// TLSConfig returns a server's TLS configuration that uses the certificate.
func (c *Pair) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The cipher suites of TLS 1.2 are limited to authenticated encryption (AEAD); TLS 1.3 has
		// no others.
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}
