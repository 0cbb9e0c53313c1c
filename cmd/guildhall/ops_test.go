package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheOperatorsListenerAnswersToKnownNamesOnly(t *testing.T) {
	t.Parallel()
	names, err := hostNames([]string{"Guildhall.internal, ops"})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{checked: checked{opsHosts: names}}
	h := n.knownHost(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for host, want := range map[string]int{
		"127.0.0.1:9190": 200, "10.1.2.3": 200, "[::1]:9190": 200, "[::1]": 200, "localhost:9190": 200, "LOCALHOST": 200, "": 200,
		"guildhall.internal": 200, "guildhall.INTERNAL.:9190": 200, "ops:9190": 200,
		"evil.example": 421, "evil.example:9190": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421, "x.ops": 421, ":9190": 200,
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want || want == 421 && !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("as %q: %d %s, want %d", host, w.Code, w.Header().Get("Content-Type"), want)
		}
	}
}

func TestProfilesStayOnThisMachine(t *testing.T) {
	t.Parallel()
	here, everywhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv6unspecified}
	for _, c := range []struct {
		setting string
		at      net.Addr
		want    bool
	}{
		{"", here, true},
		{"", &net.TCPAddr{IP: net.IPv6loopback}, true},
		{"", everywhere, false},
		{"", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, false},
		{"on", everywhere, true},
		{"off", here, false},
	} {
		n := &node{checked: checked{Settings: Settings{Pprof: c.setting}}}
		if got := n.profiles(c.at); got != c.want {
			t.Errorf("GUILDHALL_PPROF=%s on %s: %v", c.setting, c.at, got)
		}
	}
}

func TestTheOperatorsListenerCanBeOff(t *testing.T) {
	t.Parallel()
	url := withGuild(t)
	s := serve(t, url, "GUILDHALL_OPS_LISTEN=off")
	if s.ops != "http://" {
		t.Errorf("operators are served at %s", s.ops)
	}
	s.answers(t, s.https+"/api/v1/me", s.token, 200)

	on := serve(t, url, "GUILDHALL_PPROF=off")
	on.answers(t, on.ops+"/metrics", "", 200)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(on.ops, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	call(t, "", "ready", "--ops-listen", ":"+port).ok(t) // as inside a container, where it listens on all addresses
	call(t, "", "ready", "--ops-listen", "127.0.0.1:1").refused(t, 1, "refused")
	call(t, "", "ready", "--ops-listen", "off").refused(t, 1, "off")
	on.answers(t, on.ops+"/debug/pprof/", "", 404)
}

func TestReadyWaitsForAServerAndSaysWhyNoneCame(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", opsServer)
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	at := strings.TrimPrefix(server.URL, "http://")
	call(t, "", "ready", "--ops-listen", at, "--wait", "1m").ok(t)
	if n := asked.Load(); n != 3 {
		t.Errorf("it asked %d times", n)
	}
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	call(t, "", "ready", "--ops-listen", strings.TrimPrefix(other.URL, "http://")).refused(t, 1, "another program answers")
	none := call(t, "", "ready", "--ops-listen", "127.0.0.1:1", "--wait", "1s")
	none.refused(t, 1, "not ready within 1s")
	none.refused(t, 1, "refused")
	none.refused(t, 1, "journalctl -u guildhall")
	began := time.Now()
	call(t, "", "ready", "--ops-listen", "9190", "--wait", "1m").refused(t, 1, `GUILDHALL_OPS_LISTEN: "9190" is not an address`)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("an address that is none was asked for %v", took)
	}
	asked.Store(-1000)
	call(t, "", "ready", "--ops-listen", at, "--wait", "1s").refused(t, 1, "not ready within 1s")
}
