package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// Slow senders of large bodies hold both permits of a guild for five seconds. Meanwhile a bot key's
// large body is read at once, another large body of the guild waits two seconds and is refused, and
// small bodies are read.
func TestSlowSendersOfLargeBodiesHoldFewPermits(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	second, key := server.As(t, "economy:write"), server.Bot(t).In(server.Guild)
	body := `{"adjustments":[{"user_id":"9","delta":1}]}` + strings.Repeat(" ", 100_000)
	var slow []net.Conn
	for n := range 40 {
		slow = append(slow, begin(t, []*apitest.API{server, second}[n/20], body, n%2 == 0))
	}
	testutil.Eventually(t, "the guild's permits are held", func() bool {
		return server.Do(t, "adjustBalances", body).Status == http.StatusServiceUnavailable
	})
	key.Do(t, "adjustBalances", body).Want(t, 200, "")
	second.Do(t, "adjustBalances", body[:60_000]).Want(t, 200, "")
	late, busy := 0, 0
	for _, c := range slow {
		switch status, text := answered(t, c); {
		case status == 400 && strings.Contains(text, "has not arrived in time"):
			late++
		case status == 503:
			busy++
		default:
			t.Errorf("a slow sender is answered %d %s", status, text)
		}
	}
	if late != 2 || busy != 38 {
		t.Errorf("%d were late and %d refused, want 2 and 38", late, busy)
	}
	for _, by := range []*apitest.API{server, second} {
		if a := by.Key("k").Do(t, "adjustBalances", body).Want(t, 200, ""); a.Header.Get("Idempotent-Replay") != "" {
			t.Error("the refusal was kept")
		}
	}
}

// begin sends a request up to the middle of its body, with or without a Content-Length.
func begin(t *testing.T, by *apitest.API, body string, told bool) net.Conn {
	t.Helper()
	u, err := url.Parse(by.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tlsDial(by, u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	half, length := body[:80_000], fmt.Sprintf("Content-Length: %d", len(body))
	if !told {
		half, length = fmt.Sprintf("%x\r\n%s\r\n", len(half), half), "Transfer-Encoding: chunked"
	}
	if _, err := fmt.Fprintf(c, "POST /api/v1/economy/adjustments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\n%s\r\n\r\n%s", by.Token, length, half); err != nil {
		t.Fatal(err)
	}
	return c
}

func answered(t *testing.T, c net.Conn) (status int, text string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}
