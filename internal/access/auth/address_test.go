package auth_test

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"guildhall/internal/access/auth"
)

func TestClientIP(t *testing.T) {
	t.Parallel()
	trusted, err := auth.ParsePrefixes("10.0.0.0/8, 2001:db8:1::/48")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		remote string
		xff    []string
		want   string // empty: the address is unknown
	}{
		"the peer":                             {"192.0.2.1:1234", nil, "192.0.2.1"},
		"a mapped peer":                        {"[::ffff:192.0.2.1]:1234", nil, "192.0.2.1"},
		"a peer with a zone":                   {"[fe80::1%eth0]:1234", nil, "fe80::1"},
		"no port":                              {"192.0.2.1", nil, "192.0.2.1"},
		"no address":                           {"@", []string{"192.0.2.9"}, ""},
		"an untrusted peer's header":           {"192.0.2.1:1234", []string{"198.51.100.7"}, "192.0.2.1"},
		"a proxy that says nothing":            {"10.0.0.1:1", nil, "10.0.0.1"},
		"a proxy":                              {"10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		"a mapped proxy":                       {"[::ffff:10.0.0.1]:1", []string{"198.51.100.7"}, "198.51.100.7"},
		"an IPv6 proxy":                        {"[2001:db8:1::5]:1", []string{"2001:db8:2::7"}, "2001:db8:2::7"},
		"a mapped client":                      {"10.0.0.1:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		"two proxies":                          {"10.0.0.1:1", []string{"198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		"what the client wrote":                {"10.0.0.1:1", []string{"203.0.113.5, 198.51.100.7"}, "198.51.100.7"},
		"several lines":                        {"10.0.0.1:1", []string{"203.0.113.5", "198.51.100.7", "10.0.0.2,\t10.9.9.9"}, "198.51.100.7"},
		"only proxies":                         {"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"},
		"junk at the end":                      {"10.0.0.1:1", []string{"198.51.100.7, unknown"}, ""},
		"junk between proxies":                 {"10.0.0.1:1", []string{"198.51.100.7, _hidden, 10.0.0.2"}, ""},
		"junk that the client wrote":           {"10.0.0.1:1", []string{"<script>, 198.51.100.7"}, "198.51.100.7"},
		"a port":                               {"10.0.0.1:1", []string{"198.51.100.7:80"}, "198.51.100.7"},
		"a port behind brackets":               {"10.0.0.1:1", []string{"[2001:db8::1]:80"}, "2001:db8::1"},
		"a proxy with a port":                  {"10.0.0.1:1", []string{"198.51.100.7:443, 10.0.0.2:80"}, "198.51.100.7"},
		"a port that is none":                  {"10.0.0.1:1", []string{"198.51.100.7:x"}, ""},
		"a zone":                               {"10.0.0.1:1", []string{"fe80::1%eth0"}, ""},
		"an empty entry":                       {"10.0.0.1:1", []string{"198.51.100.7,"}, ""},
		"an empty line":                        {"10.0.0.1:1", []string{"198.51.100.7", ""}, ""},
		"an empty entry that the client wrote": {"10.0.0.1:1", []string{",,198.51.100.7"}, "198.51.100.7"},
		"a hundred entries of the client":      {"10.0.0.1:1", []string{strings.Repeat("203.0.113.5, ", 100) + "198.51.100.7"}, "198.51.100.7"},
		"an address in a form that is no standard": {"10.0.0.1:1", []string{"198.51.100.007"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want netip.Addr
			if tt.want != "" {
				want = netip.MustParseAddr(tt.want)
			}
			if got := auth.ClientIP(auth.Peer(tt.remote), tt.xff, trusted); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// Whatever headers an attacker sends, to the server directly or through trusted proxies that append
// what they saw, ClientIP returns the attacker's own address, and a request without TLS does not
// count as HTTPS. RELIABILITY.md, Tokens.
func TestSpoofedHeaders(t *testing.T) {
	t.Parallel()
	trusted, err := auth.ParsePrefixes("10.0.0.0/8 2001:db8:1::/48")
	if err != nil {
		t.Fatal(err)
	}
	const friend = "198.51.100.7" // an address on the allowlist
	writings := []string{
		friend, "::ffff:" + friend, friend + ":443", "[::ffff:" + friend + "]", "10.0.0.9", "2001:db8:1::9", "127.0.0.1", "::1",
		"unknown", "", " ", "for=" + friend, "\"" + friend + "\"", friend + "%eth0", "0", friend + "\x00",
		strings.Repeat(friend+",", 100) + friend, ",,,",
	}
	attackers := []string{"203.0.113.66", "2001:db8:bad::66", "fe80::66"}
	proxies := []string{"10.0.0.1", "10.200.0.2", "2001:db8:1::3", "::ffff:10.0.0.4"}
	random := rand.New(rand.NewPCG(1, 16))
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	remote := func(a string) string { return netip.AddrPortFrom(netip.MustParseAddr(a), 40000).String() }

	const cases = 4000
	behind := 0
	for range cases {
		attacker := pick(attackers)
		var xff, proto []string
		for range random.IntN(4) {
			var line []string
			for range 1 + random.IntN(3) {
				line = append(line, pick(writings))
			}
			xff = append(xff, strings.Join(line, pick([]string{",", ", ", " ,\t"})))
			proto = append(proto, pick([]string{"https", "HTTPS", "https, https", "http", "", "https,"}))
		}
		// Each proxy of the chain appends its caller's address and scheme, to the last header line
		// or as a new line.
		caller, scheme := attacker, "http"
		for range random.IntN(4) {
			behind++
			say := func(lines []string, what string) []string {
				if n := len(lines); n > 0 && random.IntN(2) == 0 {
					lines[n-1] += ", " + what
					return lines
				}
				return append(lines, what)
			}
			xff, proto = say(xff, caller), say(proto, scheme)
			caller, scheme = pick(proxies), "https"
		}
		if got := auth.ClientIP(auth.Peer(remote(caller)), xff, trusted); got != netip.MustParseAddr(attacker) {
			t.Fatalf("peer %s, X-Forwarded-For %q: took %v for the client, who is %s", caller, xff, got, attacker)
		}
		if auth.IsHTTPS(false, auth.Peer(remote(caller)), proto, trusted) {
			t.Fatalf("peer %s, X-Forwarded-Proto %q: took plain HTTP for HTTPS", caller, proto)
		}
	}
	if behind < 500 {
		t.Fatalf("only %d proxies were passed", behind)
	}
}

func TestIsHTTPS(t *testing.T) {
	t.Parallel()
	trusted, err := auth.ParsePrefixes("10.0.0.0/8")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		tls    bool
		remote string
		proto  []string
		want   bool
	}{
		"TLS":                                {true, "192.0.2.1:1", nil, true},
		"TLS, and a header of the client":    {true, "192.0.2.1:1", []string{"http"}, true},
		"plain":                              {false, "192.0.2.1:1", nil, false},
		"plain, and a header of the client":  {false, "192.0.2.1:1", []string{"https"}, false},
		"a proxy that says nothing":          {false, "10.0.0.1:1", nil, false},
		"a proxy over TLS that says nothing": {true, "10.0.0.1:1", nil, true},
		"a proxy that says https":            {false, "10.0.0.1:1", []string{"https"}, true},
		"a mapped proxy":                     {false, "[::ffff:10.0.0.1]:1", []string{" HTTPS "}, true},
		"a proxy that says http":             {false, "10.0.0.1:1", []string{"http"}, false},
		"a proxy over TLS that says http":    {true, "10.0.0.1:1", []string{"http"}, false},
		"two hops over TLS":                  {false, "10.0.0.1:1", []string{"https, https"}, true},
		"one hop in clear":                   {false, "10.0.0.1:1", []string{"https", "http"}, false},
		"an empty value":                     {false, "10.0.0.1:1", []string{""}, false},
		"something else":                     {false, "10.0.0.1:1", []string{"wss"}, false},
		"no peer":                            {false, "", []string{"https"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := auth.IsHTTPS(tt.tls, auth.Peer(tt.remote), tt.proto, trusted); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
