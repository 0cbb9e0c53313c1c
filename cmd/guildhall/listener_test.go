package main

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestTLSTakesWhatAuthenticatesOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, withGuild(t))
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		if suite.SupportedVersions[0] == tls.VersionTLS13 {
			continue
		}
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.https, "https://"), &tls.Config{
			RootCAs: s.roots, ServerName: "localhost", MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{suite.ID},
		})
		if err == nil {
			c.Close()
		}
		if aead := strings.Contains(suite.Name, "GCM") || strings.Contains(suite.Name, "POLY1305"); err == nil && !aead {
			t.Errorf("%s is taken", suite.Name)
		}
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.https, "https://"),
		&tls.Config{RootCAs: s.roots, ServerName: "localhost", MaxVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatalf("TLS 1.2 as it should be: %v", err)
	}
	c.Close()
}
