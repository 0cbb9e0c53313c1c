package egress

import "testing"

// RELIABILITY.md, Outgoing calls.
func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://hooks.example.net", "https://hooks.example.net/", "https://hooks.example.net:8443/a/b?c=d&e=%20", "HTTPS://EXAMPLE.net/x",
		"https://[2001:4860:4860::8888]/x", "http://127.0.0.1:9000/", "https://example.net./x",
	} {
		if _, err := ParseURL(good); err != nil {
			t.Errorf("%q is refused: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "hooks.example.net", "//hooks.example.net/x", "ftp://example.net/", "file:///etc/passwd", "gopher://example.net",
		"javascript:alert(1)",
		"https://", "https:///path", "https:example.net", "https://user@example.net/", "https://user:pw@example.net/",
		"https://@example.net/", "https://example.net@127.0.0.1/",
		"https://example.net/#", "https://example.net/#frag", "https://example.net:0/", "https://example.net:65536/", "https://example.net:/",
		"https://example.net:x/",
		"https://exa mple.net/", "https://example.net/\n", "https://example.net\\@127.0.0.1/", "https://example.net/%zz", "https://[::1",
		"https://[aC]:65502/", "https://[1.2.3.4]/", "https://[::1]x/", "https://example.net/\x00", "https://%31%32%37.0.0.1/",
	} {
		if u, err := ParseURL(bad); err == nil {
			t.Errorf("%q passes as %v", bad, u)
		}
	}
}
