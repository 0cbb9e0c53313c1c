package auth_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"guildhall/internal/access/auth"
	"guildhall/internal/base/fault"
)

func code(err error) string {
	if err == nil {
		return ""
	}
	f, ok := fault.As(err)
	if !ok {
		return "no fault: " + err.Error()
	}
	return f.Code
}

func TestFromHeader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 16<<10)
	for name, tt := range map[string]struct {
		lines []string
		token string
		code  string
	}{
		"nothing":                 {nil, "", "missing_token"},
		"a bearer token":          {[]string{"Bearer abc"}, "abc", ""},
		"a scheme in lower case":  {[]string{"bearer abc"}, "abc", ""},
		"a scheme in upper case":  {[]string{"BEARER abc"}, "abc", ""},
		"several spaces":          {[]string{"Bearer   abc "}, "abc", ""},
		"an empty line":           {[]string{""}, "", "missing_token"},
		"a scheme alone":          {[]string{"Bearer"}, "", "missing_token"},
		"an empty value":          {[]string{"Bearer "}, "", "missing_token"},
		"a blank value":           {[]string{"Bearer  \t "}, "", "missing_token"},
		"a tab after the scheme":  {[]string{"Bearer\tabc"}, "", "missing_token"},
		"a token alone":           {[]string{"abc"}, "", "missing_token"},
		"basic":                   {[]string{"Basic YTpi"}, "", "missing_token"},
		"a longer scheme":         {[]string{"Bearers abc"}, "", "missing_token"},
		"a space before":          {[]string{" Bearer abc"}, "", "missing_token"},
		"two lines":               {[]string{"Bearer abc", "Bearer abc"}, "", "missing_token"},
		"two lines, one of basic": {[]string{"Basic YTpi", "Bearer abc"}, "", "missing_token"},
		"two in one line":         {[]string{"Bearer abc, Bearer def"}, "abc, Bearer def", ""},
		"NUL":                     {[]string{"Bearer a\x00b"}, "a\x00b", ""},
		"16 kB":                   {[]string{"Bearer " + long}, long, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{
				"Authorization": tt.lines, "Cookie": {"Authorization=Bearer abc"}, "X-Api-Key": {"abc"},
				"Proxy-Authorization": {"Bearer abc"},
			}
			token, err := auth.FromHeader(h)
			if token != tt.token || code(err) != tt.code {
				t.Errorf("got %q, %v; want %q, %q", token, err, tt.token, tt.code)
			}
		})
	}
}

func TestParseScopes(t *testing.T) {
	t.Parallel()
	got, err := auth.ParseScopes("economy:write, cases:read", "cases:read\twebhooks:manage")
	if want := []string{"cases:read", "economy:write", "webhooks:manage"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if len(auth.Scopes) != 15 {
		t.Errorf("there are %d scopes, want 15", len(auth.Scopes))
	}
	for _, bad := range []string{"", " , ", "*", "cases:*", "Cases:read", "cases:delete", "cases:read;cases:write"} {
		if got, err := auth.ParseScopes(bad); code(err) != "invalid_request" {
			t.Errorf("ParseScopes(%q) = %v, %v", bad, got, err)
		}
	}
}

func TestParseExpiresIn(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"1s": time.Second, "90m": 90 * time.Minute, "36h": 36 * time.Hour,
		"90d": 90 * 24 * time.Hour, "36500d": 36500 * 24 * time.Hour,
	} {
		if got, err := auth.ParseExpiresIn(s); err != nil || got != want {
			t.Errorf("ParseExpiresIn(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, bad := range []string{
		"", "d", "90", "0d", "-1d", "+1d", "1.5d", "1w", "1 d", "36501d", "99999999999999999999s",
		"9223372036854775807d", "1h30m", "1D", "١d",
	} {
		if got, err := auth.ParseExpiresIn(bad); code(err) != "invalid_request" {
			t.Errorf("ParseExpiresIn(%q) = %v, %v", bad, got, err)
		}
	}
}

func TestParsePrefixes(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"":                                   "[]",
		"192.0.2.1":                          "[192.0.2.1/32]",
		"192.0.2.1, 192.0.2.1\n192.0.2.1/32": "[192.0.2.1/32]",
		"10.1.2.3/8 , 2001:db8::1":           "[10.0.0.0/8 2001:db8::1/128]",
		"2001:db8:ffff::/32;":                "error",
		"::ffff:192.0.2.1":                   "[192.0.2.1/32]",
		"::ffff:192.0.2.7/120":               "[192.0.2.0/24]",
		"::ffff:0.0.0.0/96":                  "[0.0.0.0/0]",
		"::ffff:0.0.0.0/95":                  "error",
		"0.0.0.0/0\t::/0":                    "[0.0.0.0/0 ::/0]",
		"fe80::1%eth0":                       "error",
		"fe80::%eth0/64":                     "error",
		"192.0.2.1/33":                       "error",
		"192.0.2.1/-1":                       "error",
		"192.0.2.1/024":                      "error",
		"192.0.2.1/255.255.255.0":            "error",
		"192.0.2.01":                         "error",
		"192.0.2":                            "error",
		"192.0.2.1:80":                       "error",
		"[::1]":                              "error",
		"localhost":                          "error",
		"0x7f.1":                             "error",
		"2130706433":                         "error",
		"192.0.2.1-192.0.2.9":                "error",
	} {
		got, err := auth.ParsePrefixes(list)
		if s := fmt.Sprint(got); (err != nil) != (want == "error") || err == nil && s != want {
			t.Errorf("ParsePrefixes(%q) = %s, %v; want %s", list, s, err, want)
		}
	}
}

func FuzzParsePrefixes(f *testing.F) {
	for _, s := range []string{
		"192.0.2.1, 10.0.0.0/8", "::ffff:1.2.3.4/97 ::/0", "fe80::1%lo", "1.2.3.4/", "/", ",,", "\x00",
		"::ffff:0:0/90",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := auth.ParsePrefixes(s)
		if err != nil {
			if code(err) != "invalid_request" {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		var text []string
		for _, p := range list {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
				t.Fatalf("%q gave %v", s, p)
			}
			text = append(text, p.String())
		}
		again, err := auth.ParsePrefixes(text...)
		if err != nil || !slices.Equal(again, list) {
			t.Fatalf("%q gave %v, which reads as %v, %v", s, list, again, err)
		}
	})
}

// RELIABILITY.md, Operation.
func TestTokenTextStaysOutOfLogs(t *testing.T) {
	t.Parallel()
	tok := auth.Token{ID: "1", Preview: "svc_test_...wxyz", Secret: "svc_test_secret"}
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, nil))
	log.Info("made", "token", tok, "list", []auth.Token{tok})
	fmt.Fprintf(&out, "%v %+v %s %q %x %v %+v", tok, tok, tok, tok, tok, &tok, []auth.Token{tok})
	if strings.Contains(out.String(), "secret") || !strings.Contains(out.String(), "svc_test_...wxyz") {
		t.Errorf("logged: %s", out.String())
	}
}

func TestLoginKey(t *testing.T) {
	t.Parallel()
	key := func(s string) string { return auth.LoginKey(netip.MustParseAddr(s)) }
	if key("192.0.2.1") == key("192.0.2.2") || key("192.0.2.1") != key("::ffff:192.0.2.1") {
		t.Error("IPv4 addresses have a bucket each, however they are written")
	}
	if key("2001:db8::1") != key("2001:db8::ffff:1") || key("2001:db8::1") == key("2001:db8:0:1::1") {
		t.Error("the addresses of one IPv6 /64 share a bucket, others do not")
	}
	if auth.LoginKey(netip.Addr{}) == "" {
		t.Error("unknown addresses have a bucket too")
	}
}
