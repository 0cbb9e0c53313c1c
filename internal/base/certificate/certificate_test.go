package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// served returns the certificate that a server with the pair presents.
func served(t *testing.T, p *Pair) *x509.Certificate {
	t.Helper()
	c, err := p.TLSConfig().GetCertificate(&tls.ClientHelloInfo{ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func local(t *testing.T, dir string) LocalFiles {
	t.Helper()
	files, err := Local(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func pair(files LocalFiles) Files {
	return Files{Cert: files.Cert, Key: files.Key, CertSetting: "CERT", KeySetting: "KEY"}
}

func TestARenewedPairIsTakenUpWhenItFitsTogether(t *testing.T) {
	t.Parallel()
	files, renewed := local(t, t.TempDir()), local(t, t.TempDir())
	p, err := Load(pair(files), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	first := served(t, p)
	if again, err := p.reload(); again || err != nil {
		t.Errorf("files that have not changed are %t, %v", again, err)
	}
	for _, step := range []struct {
		about, from, to string
		taken, fails    bool
	}{
		{about: "a certificate before its key", from: renewed.Cert, to: files.Cert, fails: true},
		{about: "both", from: renewed.Key, to: files.Key, taken: true},
	} {
		text, err := os.ReadFile(step.from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(step.to, text, 0o600); err != nil {
			t.Fatal(err)
		}
		taken, err := p.reload()
		if taken != step.taken || (err != nil) != step.fails || step.fails && !strings.HasPrefix(err.Error(), "KEY: "+files.Key) {
			t.Errorf("%s: %t, %v", step.about, taken, err)
		}
		if changed := !served(t, p).Equal(first); changed != step.taken {
			t.Errorf("%s: another certificate is served: %t", step.about, changed)
		}
		metrics := prometheus.NewRegistry()
		metrics.MustRegister(p.Metric())
		shown, err := metrics.Gather()
		if err != nil || len(shown) != 1 || shown[0].GetMetric()[0].GetGauge().GetValue() != float64(served(t, p).NotAfter.Unix()) {
			t.Errorf("%s: the metric shows %v, %v, want %v", step.about, shown, err, served(t, p).NotAfter)
		}
	}
}

func TestTheLogSaysThatACertificateIsToBeRenewed(t *testing.T) {
	t.Parallel()
	files := local(t, t.TempDir())
	var log bytes.Buffer
	p, err := Load(pair(files), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	until := served(t, p).NotAfter
	for _, step := range []struct {
		left time.Duration
		says string
	}{
		{RenewBefore, ""},
		{RenewBefore - time.Second, "level=WARN"},
		{RenewBefore - warnInterval, ""},
		{RenewBefore - warnInterval - time.Second, "level=WARN"},
		{time.Second, "level=WARN"},
		{0, "level=ERROR"},
		{time.Second - warnInterval, ""},
		{-warnInterval, "level=ERROR"},
	} {
		log.Reset()
		p.warnExpiry(until.Add(-step.left))
		if said := log.String(); !strings.Contains(said, step.says) || step.says == "" && said != "" {
			t.Errorf("%s before its end the log says %q, not %q", step.left, said, step.says)
		}
	}
}

func TestTheLocalCertificateIsThisMachinesAndStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := local(t, dir)
	p, err := Load(pair(files), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	authority, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	leaf := served(t, p)
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
			t.Errorf("for %s: %v", name, err)
		}
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "example.com"}); err == nil {
		t.Error("it speaks for other machines")
	}
	info, err := os.Stat(files.Key)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the key: %v, %v", info.Mode(), err)
	}
	if again := local(t, dir); again != LocalPaths(dir) || !same(t, files, leaf) {
		t.Error("a certificate that holds for long is made again")
	}
	if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if local(t, dir); same(t, files, leaf) {
		t.Error("without its authority nobody can trust it, and it is not made again")
	}
}

// same reports whether the files still hold the certificate leaf.
func same(t *testing.T, files LocalFiles, leaf *x509.Certificate) bool {
	t.Helper()
	p, err := Load(pair(files), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return served(t, p).Equal(leaf)
}
