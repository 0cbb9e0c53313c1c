package egress

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"guildhall/internal/base/testutil"
	"guildhall/internal/outbound/egress/egresstest"
)

var refusedNames = map[string]string{
	"loopback.test": "127.0.0.1", "loopback6.test": "::1", "unspecified.test": "0.0.0.0", "private.test": "10.1.2.3", "ula.test": "fd12::1",
	"metadata.google.internal": "169.254.169.254", "metadata.test": "169.254.169.254", "instance-data.test": "fd00:ec2::254",
	"mapped.test": "::ffff:127.0.0.1", "nat64.test": "64:ff9b::7f00:1", "sixtofour.test": "2002:7f00:1::", "public.test": "93.184.215.14",
	"mixed.test": "93.184.215.14 127.0.0.1 ::1",
}

// trap listens on every address of the machine and counts the connections.
func trap(t *testing.T) (port string, came *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	came = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = c.Close()
		}
	}()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), came
}

// corpus reads testdata/refused.txt.
func corpus(t *testing.T, port string) []string {
	t.Helper()
	raw, err := os.ReadFile("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		line = strings.ReplaceAll(line, "PORT", port)
		if !strings.Contains(line, "OWN") {
			out = append(out, line)
			continue
		}
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			ip := a.(*net.IPNet).IP
			host := ip.String()
			if ip.To4() == nil {
				host = "[" + host + "]"
			}
			out = append(out, strings.ReplaceAll(line, "OWN", host))
		}
	}
	return out
}

// Every URL of the corpus is refused, and even if it were registered, no connection would be made.
// RELIABILITY.md, Outgoing calls.
func TestNothingOfTheCorpusIsReached(t *testing.T) {
	t.Parallel()
	resolver := egresstest.NameServer(t, func(name string, _ bool) egresstest.Answer {
		if addrs := strings.Fields(refusedNames[name]); addrs != nil {
			return egresstest.Addresses(addrs...)
		}
		return egresstest.NoSuchName
	})
	port, came := trap(t)
	targets := corpus(t, port)
	if len(targets) < 120 {
		t.Fatalf("the corpus has %d targets, want at least 120", len(targets))
	}

	g := NewGuard(nil, resolver)
	var mu sync.Mutex
	var connecting []netip.AddrPort
	g.permitted = func(a netip.AddrPort) error {
		mu.Lock()
		defer mu.Unlock()
		// Some of the URLs lead to a public address, which a test must not call.
		if connecting = append(connecting, a); a.Addr().String() == refusedNames["public.test"] {
			connecting = connecting[:len(connecting)-1]
		}
		return errors.New("stopped by the test")
	}
	c := NewClient(g, nil)
	defer c.Close()
	for _, raw := range targets {
		if u, err := ParseURL(raw); err == nil {
			if err := g.Check(t.Context(), u); err == nil {
				t.Errorf("%s can be registered", raw)
			}
		}
		a := c.Post(t.Context(), raw, http.Header{}, []byte("{}"))
		if a.Status != 0 || a.Err == nil {
			t.Errorf("%s was sent to", raw)
		}
	}
	time.Sleep(50 * time.Millisecond) // long enough for the trap to accept a connection
	if n := came.Load(); n != 0 || len(connecting) != 0 {
		t.Errorf("%d connections arrived, sockets were connecting to %v", n, connecting)
	}
}

// The counterpart of the test above: without the guard's refusals the trap does get connections, so
// that test can fail.
func TestTheTrapSpringsForWhatIsListed(t *testing.T) {
	t.Parallel()
	port, came := trap(t)
	g := NewGuard(egresstest.Loopback, nil)
	c := NewClient(g, nil)
	defer c.Close()
	for _, raw := range []string{"https://127.0.0.1:" + port, "http://127.0.0.1:" + port, "http://[::1]:" + port} {
		u, err := ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Check(t.Context(), u); err != nil {
			t.Errorf("%s cannot be registered: %v", raw, err)
		}
		c.Post(t.Context(), raw, http.Header{}, nil)
	}
	testutil.Eventually(t, "three connections arrive", func() bool { return came.Load() >= 3 })
}

func TestPublicAddressesArePermitted(t *testing.T) {
	t.Parallel()
	g := NewGuard(nil, nil)
	for _, a := range []string{"8.8.8.8:443", "93.184.215.14:8443", "[2606:4700:4700::1111]:443", "[2a00:1450::1]:1024"} {
		if !g.permits(netip.MustParseAddrPort(a), false) {
			t.Errorf("%s is refused", a)
		}
		if g.permits(netip.MustParseAddrPort(a), true) {
			t.Errorf("%s may be called without TLS", a)
		}
	}
}

// A name that resolves to a permitted address at one time and to a refused address at another, or
// to both, never leads to a connection to the refused one. RELIABILITY.md, Outgoing calls.
func TestRebindingNeverConnectsToARefusedAddress(t *testing.T) {
	t.Parallel()
	sets := []egresstest.Answer{
		egresstest.Addresses("127.0.0.2"), egresstest.Addresses("127.0.0.1"),
		egresstest.Addresses("127.0.0.1", "127.0.0.2"), egresstest.Addresses("127.0.0.2", "127.0.0.1"),
		egresstest.Addresses("::1", "127.0.0.2"), egresstest.Addresses("127.0.0.1", "::1"),
	}
	var came [2]atomic.Int64
	resolver := egresstest.NameServer(t, func(string, bool) egresstest.Answer { return sets[rand.IntN(len(sets))] })
	port := ""
	for i, host := range []string{"127.0.0.2", "127.0.0.1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		s := &http.Server{
			Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second,
			ConnState: func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					came[i].Add(1)
				}
			},
		}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}

	g := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, resolver)
	c := NewClient(g, nil)
	defer c.Close()
	sent, refusals := 0, 0
	for range 500 {
		a := c.Post(t.Context(), "http://rebind.test:"+port+"/", http.Header{}, []byte("{}"))
		switch {
		case a.Status == http.StatusOK:
			sent++
		case errors.Is(a.Err, ErrNotAllowed):
			refusals++
		default:
			t.Fatalf("got %+v", a)
		}
		c.Close() // so that the next request looks the name up again
	}
	if came[1].Load() != 0 {
		t.Errorf("%d connections to the refused address", came[1].Load())
	}
	if sent == 0 || refusals == 0 {
		t.Errorf("%d sent, %d refused: the name did not change", sent, refusals)
	}
}

// A missing name and a failing DNS server give different errors, because the caller can correct the
// first and has to wait for the second.
func TestCheckTellsMissingNamesFromFailingServers(t *testing.T) {
	t.Parallel()
	public, inside := egresstest.Addresses("93.184.215.14"), egresstest.Addresses("10.1.2.3")
	for name, c := range map[string]struct {
		v4, v6 egresstest.Answer
		want   error
	}{
		"both.test":       {public, egresstest.Addresses("2606:4700::1"), nil},
		"v4.test":         {public, egresstest.NoData, nil},
		"half.test":       {public, egresstest.ServFail, nil},
		"missing.test":    {egresstest.NoSuchName, egresstest.NoSuchName, ErrNoSuchHost},
		"empty.test":      {egresstest.NoData, egresstest.NoData, ErrNoSuchHost},
		"broken.test":     {egresstest.ServFail, egresstest.ServFail, ErrLookup},
		"halfwrong.test":  {egresstest.NoData, egresstest.ServFail, ErrLookup},
		"wrongfirst.test": {egresstest.ServFail, egresstest.NoData, ErrLookup},
		"silent.test":     {egresstest.Silent, egresstest.Silent, ErrLookup},
		"inside.test":     {inside, egresstest.NoData, ErrNotAllowed},
		"insidehalf.test": {inside, egresstest.ServFail, ErrNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := NewGuard(nil, egresstest.NameServer(t, func(asked string, v6 bool) egresstest.Answer {
				switch {
				case asked != name:
					return egresstest.NoSuchName // lookups with the machine's search domains
				case v6:
					return c.v6
				default:
					return c.v4
				}
			}))
			u, err := ParseURL("https://" + name + "/x")
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Check(t.Context(), u); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestIsName(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"https://example.net/": true, "https://localhost/": true, "https://10.0.0.1/": false, "https://10.0.0.1./": false,
		"https://[::1]:8443/": false, "https://2130706433/": false, "https://0x7f.1/": false,
	} {
		u, err := ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		if IsName(u) != want {
			t.Errorf("IsName(%s) is %t", raw, !want)
		}
	}
}

func TestParseAllow(t *testing.T) {
	t.Parallel()
	got, err := ParseAllow(" 127.0.0.0/8, ::1\n10.0.0.7 ")
	if err != nil || len(got) != 3 || got[1].Bits() != 128 || got[2].Bits() != 32 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"localhost", "10.0.0.0/33", "10.0.0"} {
		if _, err := ParseAllow(bad); err == nil {
			t.Errorf("%q passes", bad)
		}
	}
	g := NewGuard([]netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}, nil)
	if !g.permits(netip.MustParseAddrPort("10.1.1.1:80"), true) {
		t.Error("a mapped prefix of the list does not count")
	}
}
