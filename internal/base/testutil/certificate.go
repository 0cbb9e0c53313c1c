package testutil

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// LocalTLS returns the TLS configuration of a test's server, made once for all tests of a package. httptest's own certificate
// has an RSA key, with which each handshake takes a millisecond of CPU.
var LocalTLS = sync.OnceValue(func() *tls.Config { return SelfSigned(func(*x509.Certificate) {}) })

// NewTLSServer starts a server with the configuration that LocalTLS returns: clients of one such server trust the others.
func NewTLSServer(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.TLS = LocalTLS()
	s.StartTLS()
	return s
}

// SelfSigned returns a TLS configuration whose certificate is its own authority. It is for 127.0.0.1 and example.com, as that
// of httptest; edit may change it before it is signed.
func SelfSigned(edit func(*x509.Certificate)) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"example.com"}, IsCA: true, BasicConstraintsValid: true,
	}
	edit(c)
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
}
