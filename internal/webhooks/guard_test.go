package webhooks

import (
	"context"
	"encoding/binary"
	"errors"
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
)

// nameServer answers DNS questions from a function, with a TTL of zero.
func nameServer(t *testing.T, zone func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := dnsAnswer(buf[:n], zone); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// dnsAnswer answers the one question of a query for A or AAAA.
func dnsAnswer(query []byte, zone func(string) []netip.Addr) []byte {
	if len(query) < 12 {
		return nil
	}
	end, labels := 12, []string{}
	for end < len(query) && query[end] != 0 {
		size := int(query[end])
		labels = append(labels, string(query[end+1:end+1+size]))
		end += 1 + size
	}
	kind := binary.BigEndian.Uint16(query[end+1:])
	question := query[12 : end+5]
	addrs := zone(strings.ToLower(strings.Join(labels, ".")))
	var records []byte
	count := 0
	for _, a := range addrs {
		if (kind == 1) != a.Is4() || kind != 1 && kind != 28 {
			continue
		}
		records = append(records, 0xc0, 12)
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0)
		records = binary.BigEndian.AppendUint16(records, uint16(a.BitLen()/8))
		records = append(records, a.AsSlice()...)
		count++
	}
	flags := uint16(0x8180)
	if len(addrs) == 0 {
		flags |= 3 // no such name
	}
	out := binary.BigEndian.AppendUint16(append([]byte{}, query[:2]...), flags)
	out = append(out, 0, 1)
	out = binary.BigEndian.AppendUint16(out, uint16(count))
	out = append(out, 0, 0, 0, 0)
	return append(append(out, question...), records...)
}

var refusedNames = map[string]string{
	"loopback.test": "127.0.0.1", "loopback6.test": "::1", "unspecified.test": "0.0.0.0", "private.test": "10.1.2.3", "ula.test": "fd12::1",
	"metadata.google.internal": "169.254.169.254", "metadata.test": "169.254.169.254", "instance-data.test": "fd00:ec2::254",
	"mapped.test": "::ffff:127.0.0.1", "nat64.test": "64:ff9b::7f00:1", "sixtofour.test": "2002:7f00:1::", "public.test": "93.184.215.14",
	"mixed.test": "93.184.215.14 127.0.0.1 ::1",
}

// trap listens on every address of the machine and counts who comes.
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

// Fault 18: nothing of the corpus is registered, and nothing of it is connected
// to even if it were.
func TestNothingOfTheCorpusIsReached(t *testing.T) {
	t.Parallel()
	resolver := nameServer(t, func(name string) (out []netip.Addr) {
		for _, a := range strings.Fields(refusedNames[name]) {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
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
		// The public address some tricks lead to is nobody's to call in a test.
		if connecting = append(connecting, a); a.Addr().String() == refusedNames["public.test"] {
			connecting = connecting[:len(connecting)-1]
		}
		return errors.New("stopped by the test")
	}
	c := newClient(g, nil)
	defer c.close()
	for _, raw := range targets {
		if u, err := target(raw); err == nil {
			if err := g.check(t.Context(), u); err == nil {
				t.Errorf("%s can be registered", raw)
			}
		}
		a := c.send(t.Context(), raw, http.Header{}, []byte("{}"))
		if a.Status != 0 || a.Err == nil {
			t.Errorf("%s was sent to", raw)
		}
	}
	time.Sleep(50 * time.Millisecond) // a connection made would have been accepted by now
	if n := came.Load(); n != 0 || len(connecting) != 0 {
		t.Errorf("%d connections arrived, sockets were connecting to %v", n, connecting)
	}
}

// The counterpart: without the guard's refusals the same trap springs, so the
// test above can fail.
func TestTheTrapSpringsForWhatIsListed(t *testing.T) {
	t.Parallel()
	port, came := trap(t)
	g := NewGuard(loopback, nil)
	c := newClient(g, nil)
	defer c.close()
	for _, raw := range []string{"https://127.0.0.1:" + port, "http://127.0.0.1:" + port, "http://[::1]:" + port} {
		u, err := target(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.check(t.Context(), u); err != nil {
			t.Errorf("%s cannot be registered: %v", raw, err)
		}
		c.send(t.Context(), raw, http.Header{}, nil)
	}
	deadline := time.Now().Add(5 * time.Second)
	for came.Load() < 3 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if came.Load() < 3 {
		t.Errorf("%d connections arrived, want 3", came.Load())
	}
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

// Fault 19: a name that answers now with a permitted address and now with
// another, or with both, never leads to the other.
func TestRebindingNeverConnectsToARefusedAddress(t *testing.T) {
	t.Parallel()
	good, bad := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	sets := [][]netip.Addr{{good}, {bad}, {bad, good}, {good, bad}, {netip.MustParseAddr("::1"), good}, {bad, netip.MustParseAddr("::1")}}
	var turn, came [2]atomic.Int64
	resolver := nameServer(t, func(string) []netip.Addr { return sets[int(turn[0].Add(1))%len(sets)] })
	port := ""
	for i, host := range []string{good.String(), bad.String()} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		s := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second, ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				came[i].Add(1)
			}
		}}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}

	g := NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, resolver)
	c := newClient(g, nil)
	defer c.close()
	sent, refusals := 0, 0
	for range 500 {
		a := c.send(t.Context(), "http://rebind.test:"+port+"/", http.Header{}, []byte("{}"))
		switch {
		case a.Status == http.StatusOK:
			sent++
		case classify(a.Status, a.Err) == badAddress:
			refusals++
		default:
			t.Fatalf("got %+v", a)
		}
		c.close() // so that the next one asks for the name again
	}
	if came[1].Load() != 0 {
		t.Errorf("%d connections to the refused address", came[1].Load())
	}
	if sent == 0 || refusals == 0 {
		t.Errorf("%d sent, %d refused: the name did not change", sent, refusals)
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
