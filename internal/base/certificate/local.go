package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// LocalFiles are the paths of a certificate for this machine's own name, of its key, and of the
// certificate of the authority that signed it.
type LocalFiles struct{ CA, Cert, Key string }

// LocalPaths returns the paths of the files in dir.
func LocalPaths(dir string) LocalFiles {
	return LocalFiles{
		CA:   filepath.Join(dir, "ca.pem"),
		Cert: filepath.Join(dir, "localhost.pem"),
		Key:  filepath.Join(dir, "localhost-key.pem"),
	}
}

// Local returns the paths of the files in dir, and makes the files when they are missing or about
// to expire. The authority's private key is never stored, so trusting the authority means trusting
// this one certificate.
func Local(dir string) (LocalFiles, error) {
	f := LocalPaths(dir)
	now := time.Now()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	_, missing := os.Stat(f.CA)
	if err == nil && missing == nil && pair.Leaf.NotAfter.After(now.AddDate(0, 0, 30)) {
		return f, nil
	}
	authority := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Guildhall local CA " + now.UTC().Format("2006-01-02")},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, 800),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return f, err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return f, err
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return f, err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &leafKey.PublicKey, authorityKey)
	if err != nil {
		return f, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return f, err
	}
	return f, errors.Join(
		writePEM(f.Key, "PRIVATE KEY", keyDER, 0o600),
		writePEM(f.Cert, "CERTIFICATE", leafDER, 0o644),
		writePEM(f.CA, "CERTIFICATE", authorityDER, 0o644),
	)
}

func serial() *big.Int {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return new(big.Int).SetBytes(b)
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
