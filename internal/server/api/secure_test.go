package api

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

// If a trusted proxy does not say whether the request used HTTPS, the message blames the proxy's
// configuration. The caller is not told to revoke a token that may have been sent over HTTPS.
func TestAProxyThatDoesNotSayHTTPSIsNamed(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for proto, want := range map[string]error{"": errNoProto, "http": errPlain} {
		rs := stated(t.Context())
		rs.Request().RemoteAddr = "10.0.0.1:1"
		rs.Request().Header.Set("X-Forwarded-For", "198.51.100.7:443")
		if proto != "" {
			rs.Request().Header.Set("X-Forwarded-Proto", proto)
		}
		if err := overHTTPS(rs, trusted); !errors.Is(err, want) || rs.from.String() != "198.51.100.7" {
			t.Errorf("%q: %v from %v", proto, err, rs.from)
		}
	}
	if strings.Contains(errNoProto.Message, "revoke") || errNoProto.Code != errPlain.Code {
		t.Errorf("the caller is told %v", errNoProto)
	}
}
