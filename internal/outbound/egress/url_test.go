package egress

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"guildhall/internal/contract"
)

// RELIABILITY.md, Outgoing calls.
func TestParseURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://hooks.example.net", "https://hooks.example.net/", "https://hooks.example.net:8443/a/b?c=d&e=%20", "https://EXAMPLE.net/x",
		"https://example.net/" + strings.Repeat("a", 2028),
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
		"HTTPS://EXAMPLE.net/x", "https://example.net:024500/", "https://example.net/ü", "https://ü.example/", "https://example.net/<script>",
		"https://example.net/" + strings.Repeat("a", 2029), "https://a..b/", "https://example.net?[x]",
	} {
		if u, err := ParseURL(bad); err == nil {
			t.Errorf("%q passes as %v", bad, u)
		}
	}
}

// The error for a malformed URL says what to change.
func TestABadURLIsToldHowToMendIt(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                     "is not a URL",
		"hooks.example.net":                    "is not a URL",
		"https://[::1":                         "is not a URL",
		"ftp://example.net/":                   "must start with https://",
		"javascript:alert(1)":                  "must start with https://",
		"https://user@example.net/":            "credentials",
		"https://example.net/#frag":            "fragment",
		"https://example.net:024500/":          "without zeros",
		"https://example.net:65536/":           "between 1 and 65535",
		"https://example.net/\u00fc":           "must write the character '\u00fc' as %C3%BC",
		"https://example.net/<script>":         "as %3C",
		"https://b\u00fccher.example/hook":     "must write the host name as xn--bcher-kva.example",
		"https://\u4f8b\u3048.test:8443/":      "must write the host name as xn--r8jz45g.test",
		"https:///x":                           "must name a host",
		"https://" + strings.Repeat("a", 2041): "at most 2048 characters",
	} {
		if _, err := ParseURL(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", raw, err, want)
		}
	}
}

// ParseURL accepts exactly the URLs that the contract's pattern accepts, except for brackets
// without an address, which the pattern cannot detect.
func TestAURLIsJudgedAsTheContractDoes(t *testing.T) {
	t.Parallel()
	doc, err := contract.Document()
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"CreateWebhookEndpointRequest", "UpdateWebhookEndpointRequest"} {
		member := doc.Components.Schemas[body].Value.Properties["url"].Value
		pattern := regexp.MustCompile(member.Pattern)
		rapid.Check(t, func(rt *rapid.T) {
			raw := rapid.OneOf(
				rapid.StringMatching(`https?://(a|b-c\.d|\[[0-9a-f:.]{1,6}\]|\[::1\]|1\.2\.3\.4)\.?(:[0-9]{0,6})?([/?#][a-z%0-9@:<>ü\[\] ]{0,12})?`),
				rapid.StringMatching(member.Pattern), rapid.String(),
			).Draw(rt, "url")
			n := uint64(utf8.RuneCountInString(raw))
			want := n >= member.MinLength && n <= *member.MaxLength && pattern.MatchString(raw)
			if _, err := ParseURL(raw); (err == nil || errors.Is(err, ErrNoAddress)) != want {
				rt.Fatalf("%s: %q: the contract says %v, and here %v", body, raw, want, err)
			}
		})
	}
}
