package api_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/server/api/apitest"
)

// respond sends a request that the harness cannot build.
func respond(t testing.TB, client *http.Client, req *http.Request) *apitest.Response {
	t.Helper()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &apitest.Response{Status: res.StatusCode, Header: res.Header, Body: body}
}

// Integers at the limits of int64, of floats and of JSON. RELIABILITY.md, Input.
func TestIntegers(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)

	t.Run("what is no integer in range is refused", func(t *testing.T) {
		for _, n := range []string{
			"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
			"9007199254740992", "-9007199254740992", "9007199254740993", "1" + strings.Repeat("0", 400), "1e400", "-1e400",
			"1.0", "1.5", "1e3", "1E3", "0.0", "-0.0", "1e-1", `"5"`, "null", "true", "[]", "{}", "[1]", "+1", "01", "0x1", "1_000", "NaN",
			"Infinity", "１",
		} {
			for id, body := range map[string]string{
				"adjustBalance": `{"user_id":"9","delta":` + n + `}`,
				"adjustXp":      `{"user_id":"9","total_xp":` + n + `}`,
			} {
				if a := server.Do(t, id, body); a.Status != 400 || a.Code() != "invalid_request" {
					t.Errorf("%s with %s: got %d %s", id, n, a.Status, a.Body)
				}
			}
		}
		server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":0,"updated_at":null}}`)
	})
	t.Run("what is one is kept exactly", func(t *testing.T) {
		balance := func(body, want string) {
			t.Helper()
			a := server.Do(t, "adjustBalance", body).Want(t, 200, "")
			// Compared as text, since a float would lose the last digit.
			if !strings.Contains(string(a.Body), `"balance":`+want+`,`) {
				t.Errorf("%s: got %s, want the balance %s", body, a.Body, want)
			}
			w := server.Do(t, "getWallet", "", apitest.Path("userId", "7"))
			if !strings.Contains(string(w.Body), `"balance":`+want+`,`) {
				t.Errorf("%s: the wallet is %s, want the balance %s", body, w.Body, want)
			}
		}
		balance(`{"user_id":"7","delta":9007199254740991}`, "9007199254740991")
		balance(`{"user_id":"7","delta":-9007199254740990}`, "1")
		balance(`{"user_id":"7","delta":-0}`, "1")
		balance(`{"user_id":"7","delta":0}`, "1")
		balance(`{"user_id":"7","delta":9007199254740990}`, "9007199254740991")
		server.Do(t, "adjustBalance", `{"user_id":"7","delta":1}`).WantError(t, 422, "balance_limit_exceeded")
		server.Do(t, "adjustBalance", `{"user_id":"7","delta":9007199254740991}`).WantError(t, 422, "balance_limit_exceeded")
		balance(`{"user_id":"7","delta":-9007199254740991}`, "0")
		server.Do(t, "adjustBalance", `{"user_id":"7","delta":-1}`).WantError(t, 422, "balance_would_be_negative")
		server.Do(t, "adjustBalance", `{"user_id":"7","delta":-9007199254740991}`).WantError(t, 422, "balance_would_be_negative")
	})
}

// Snowflakes are strings everywhere. RELIABILITY.md, Input.
func TestSnowflakes(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)

	t.Run("good ones are never truncated", func(t *testing.T) {
		for _, id := range []string{
			"1", "9", "10", "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808",
			"18446744073709551615", "18446744073709551616", "99999999999999999999",
		} {
			want := `{"data":{"user_id":"` + id + `"}}`
			server.Do(t, "adjustBalance", `{"user_id":"`+id+`","delta":1}`).Want(t, 200, want)
			server.Do(t, "getWallet", "", apitest.Path("userId", id)).Want(t, 200, `{"data":{"user_id":"`+id+`","balance":1}}`)
			server.Do(t, "listLedgerEntries", "", apitest.Query("user_id", id)).Want(t, 200, `{"data":[{"user_id":"`+id+`"}]}`)
			server.Do(t, "getLevelRecord", "", apitest.Path("userId", id)).Want(t, 200, want)
		}
		server.Do(t, "getEconomyLeaderboard", "").Want(t, 200, `{"data":[
			{"user_id":"1"},{"user_id":"9"},{"user_id":"10"},{"user_id":"4294967296"},{"user_id":"9007199254740993"},
			{"user_id":"9223372036854775807"},{"user_id":"9223372036854775808"},{"user_id":"18446744073709551615"},
			{"user_id":"18446744073709551616"},{"user_id":"99999999999999999999"}]}`)
	})
	t.Run("bad ones are refused wherever they stand", func(t *testing.T) {
		for _, id := range []string{
			"0", "00", "01", "+1", "-1", "1.0", "1e3", "0x1", " 1", "1 ", "1\n", "١", "１", "1a", "a", "100000000000000000000",
			strings.Repeat("1", 64), strings.Repeat("1", 300), "1\x00", "null", "%31", "1;--",
		} {
			for name, a := range map[string]*apitest.Response{
				"path":  server.Do(t, "getWallet", "", apitest.Path("userId", id)),
				"query": server.Do(t, "listLedgerEntries", "", apitest.Query("user_id", id)),
				"body":  server.Do(t, "adjustBalance", fmt.Sprintf(`{"user_id":%s,"delta":1}`, quoted(id))),
				"bare":  server.Do(t, "adjustBalance", `{"user_id":1,"delta":1}`),
			} {
				if a.Status != 400 || a.Code() != "invalid_request" {
					t.Errorf("%q in the %s: got %d %s", id, name, a.Status, a.Body)
				}
			}
		}
	})
}

// quoted returns s as a JSON string.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r < 0x20 || r == '"' || r == '\\' {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// Ids of resources are opaque: a text that cannot be an id gets the same 404 as an unknown id.
func TestOpaqueIDs(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	absent := server.Do(t, "getCase", "", apitest.Path("id", "absent")).WantError(t, 404, "not_found")
	for _, id := range []string{
		"0", "00000000-0000-0000-0000-000000000000", "{}", "a b", "a/b", "..", ".", "a%2fb", "%00", "a?x=1", "a#b", "é", "🎉", "'", `"`, "\\",
		strings.Repeat("x", 64), "a\u2028b", "' OR 1=1 --",
	} {
		if a := server.Do(t, "getCase", "", apitest.Path("id", id)); a.Status != 404 || a.Code() != "not_found" {
			t.Errorf("%q: got %d %s", id, a.Status, a.Body)
		}
	}
	for _, raw := range []string{"%00", "a%00b", "%ff", "a%c3", "%ed%a0%80", strings.Repeat("x", 65), strings.Repeat("x", 3000), "%2e%2e"} {
		a := server.Raw(t, http.MethodGet, "/api/v1/cases/"+raw, "")
		if a.Status != 404 || a.Code() != "not_found" {
			t.Errorf("%.20s: got %d %s", raw, a.Status, a.Body)
		}
		if len(a.Body) > 2*len(absent.Body) {
			t.Errorf("%.20s: the answer repeats the id: %s", raw, a.Body)
		}
	}
}

// The parameters page and per_page. RELIABILITY.md, Input.
func TestPages(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	dbtest.Exec(t, server.DB(), `
		INSERT INTO cases (guild_id, id, number, user_id, moderator_id, type, source, created_at)
		SELECT $1, 'c' || n, n, (n % 3 + 1)::text, '8', 'note', 'bot', timestamptz '2026-01-01' + (n / 4) * interval '1 second'
		FROM generate_series(1, 60) AS n`, server.Guild)
	dbtest.Exec(t, server.DB(), `UPDATE guilds SET last_case = 60 WHERE id = $1`, server.Guild)
	ids := func(a *apitest.Response) (list []string, more bool) {
		t.Helper()
		var body struct {
			Data    []struct{ ID string }
			HasMore bool `json:"has_more"`
		}
		a.Want(t, 200, "").Into(t, &body)
		for _, c := range body.Data {
			list = append(list, c.ID)
		}
		return list, body.HasMore
	}
	page := func(number, size int, args ...apitest.Arg) ([]string, bool) {
		t.Helper()
		args = append(args, apitest.Query("page", fmt.Sprint(number)), apitest.Query("per_page", fmt.Sprint(size)))
		return ids(server.Do(t, "listCases", "", args...))
	}
	all, _ := page(1, 100)

	t.Run("numbers out of range or no numbers are refused", func(t *testing.T) {
		for _, name := range []string{"page", "per_page"} {
			for _, v := range []string{
				"0", "-1", "-0", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
				"100001", "abc", "", " ", "1 ", "+1", "1.0", "1e1", "0x1", "1_0", "１", "null", "1,2", strings.Repeat("9", 500),
			} {
				if a := server.Do(t, "listCases", "", apitest.Query(name, v)); a.Status != 400 || a.Code() != "invalid_request" {
					t.Errorf("%s=%.30q: got %d %s", name, v, a.Status, a.Body)
				}
			}
		}
		server.Do(t, "listCases", "", apitest.Query("per_page", "101")).WantError(t, 400, "invalid_request")
		server.Do(t, "listCases", "", apitest.Query("page", "1"), apitest.Query("page", "1")).WantError(t, 400, "invalid_request")
		for _, q := range []string{"?page=%zz", "?page=1;per_page=2", "?%00=1", "?page=1%00", "?=1", "?page"} {
			server.Raw(t, http.MethodGet, "/api/v1/cases"+q, "").WantError(t, 400, "invalid_request")
		}
	})
	t.Run("leading zeros are still digits", func(t *testing.T) {
		got, _ := ids(server.Do(t, "listCases", "", apitest.Query("per_page", "007")))
		if len(got) != 7 {
			t.Errorf("got %d cases", len(got))
		}
	})
	t.Run("the defaults are page 1 and 25 a page", func(t *testing.T) {
		got, more := ids(server.Do(t, "listCases", "").Want(t, 200, `{"page":1,"per_page":25}`))
		if len(got) != 25 || !more {
			t.Errorf("got %d cases, more %v", len(got), more)
		}
	})
	t.Run("has_more and the rows are right for any page", func(t *testing.T) {
		random := rand.New(rand.NewPCG(54, 1))
		for range 300 {
			number, size := 1+random.IntN(70), 1+random.IntN(100)
			got, more := page(number, size)
			from := min((number-1)*size, len(all))
			to := min(number*size, len(all))
			if want := all[from:to]; strings.Join(got, " ") != strings.Join(want, " ") || more != (number*size < len(all)) {
				t.Fatalf("page %d of %d: got %v, more %v; want %v", number, size, got, more, want)
			}
		}
	})
	t.Run("nothing is lost while rows are added", func(t *testing.T) {
		seen := map[string]int{}
		for number := 1; ; number++ {
			got, more := page(number, 7, apitest.Query("user_id", "2"))
			for _, id := range got {
				seen[id]++
			}
			if !more {
				break
			}
			server.Do(t, "createCase", `{"user_id":"2","moderator_id":"8","type":"note","reason":"new"}`).Want(t, 201, "")
		}
		for n := 1; n <= 60; n++ {
			if id := fmt.Sprint("c", n); n%3 == 1 && seen[id] == 0 {
				t.Errorf("%s was not on any page", id)
			}
		}
	})
}

// Request bodies made to do harm. RELIABILITY.md, Input.
func TestBodyAbuse(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)

	t.Run("what is not clean JSON is refused", func(t *testing.T) {
		deep := func(open, inner, end string, n int) string {
			return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
		}
		for name, body := range map[string]string{
			"nested arrays":           deep("[", "", "]", 10000),
			"nested objects":          deep(`{"a":`, "1", "}", 10000),
			"nested in a member":      `{"user_id":"9","delta":` + deep("[", "", "]", 100) + `}`,
			"nesting never closed":    strings.Repeat("[", 60000),
			"a duplicate member":      `{"user_id":"9","delta":1,"delta":2}`,
			"an escaped duplicate":    `{"user_id":"9","delta":1,"\u0064elta":2}`,
			"NUL in a string":         `{"user_id":"9","delta":1,"reason":"a\u0000b"}`,
			"a raw NUL":               "{\"user_id\":\"9\",\"delta\":1,\"reason\":\"a\x00b\"}",
			"NUL in a name":           `{"user_id":"9","delta":1,"re\u0000ason":"x"}`,
			"a lone high surrogate":   `{"user_id":"9","delta":1,"reason":"\ud83c"}`,
			"a lone low surrogate":    `{"user_id":"9","delta":1,"reason":"\udf89\ud83c"}`,
			"two high surrogates":     `{"user_id":"9","delta":1,"reason":"\ud83c\ud83c"}`,
			"a surrogate in a name":   `{"user_id":"9","delta":1,"\ud83c":1}`,
			"a byte order mark":       "\ufeff" + one,
			"a huge number":           `{"user_id":"9","delta":1e400}`,
			"a long number":           `{"user_id":"9","delta":` + strings.Repeat("9", 60000) + `}`,
			"broken UTF-8":            "{\"user_id\":\"9\",\"delta\":1,\"reason\":\"\xc3\x28\"}",
			"overlong UTF-8":          "{\"user_id\":\"9\",\"delta\":1,\"reason\":\"\xc0\xaf\"}",
			"UTF-16":                  "{\x00\"\x00}\x00",
			"two values":              one + one,
			"something after":         one + "x",
			"a trailing comma":        `{"user_id":"9","delta":1,}`,
			"a comment":               `{"user_id":"9","delta":1/**/}`,
			"single quotes":           `{'user_id':'9','delta':1}`,
			"an array":                `[` + one + `]`,
			"a string":                `"{}"`,
			"a number":                `1`,
			"null":                    `null`,
			"only white space":        "  \n",
			"a control character":     "{\"user_id\":\"9\",\"delta\":1,\"reason\":\"a\nb\"}",
			"an unfinished escape":    `{"user_id":"9","delta":1,"reason":"\u00`,
			"other case of a name":    `{"User_id":"9","delta":1}`,
			"proto":                   `{"user_id":"9","delta":1,"__proto__":{}}`,
			"only blank characters":   `{"user_id":"9","delta":1,"reason":" \u200b\u2060\u3000"}`,
			"forty thousand members":  `{` + strings.Repeat(`"a":1,`, 9000) + `"b":1}`,
			"forty thousand elements": `{"user_id":[` + strings.Repeat(`1,`, 30000) + `1]}`,
		} {
			a := server.Do(t, "adjustBalance", body)
			if a.Status != 400 || a.Code() != "invalid_request" {
				t.Errorf("%s: got %d %s", name, a.Status, a.Body)
			}
			if len(a.Body) > 2000 {
				t.Errorf("%s: the answer has %d bytes", name, len(a.Body))
			}
		}
		server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"updated_at":null}}`)
	})
	t.Run("what is unusual but clean is taken", func(t *testing.T) {
		for _, body := range []string{
			" \t\r\n" + `{ "user_id" : "8" , "delta" : 1 }` + "\n\n",
			`{"\u0075ser_id":"8","delta":1}`,
			`{"user_id":"8","delta":1,"reason":"\ud83c\udf89 \\ud800 \u0001 \u007f \ufffd"}`,
			`{"user_id":"8","delta":1,"reason":"` + strings.Repeat("🎉", 1000) + `"}`,
		} {
			server.Do(t, "adjustBalance", body).Want(t, 200, "")
		}
		server.Header("Content-Type", "application/json; charset=UTF-8").Do(t, "adjustBalance", `{"user_id":"8","delta":1}`).Want(t, 200, "")
		server.Header("Content-Type", "Application/JSON").Do(t, "adjustBalance", `{"user_id":"8","delta":1}`).Want(t, 200, "")
		server.Header("Accept", "text/html").Do(t, "adjustBalance", `{"user_id":"8","delta":1}`).Want(t, 200, "")
	})
	t.Run("a body is read to its limit and no further", func(t *testing.T) {
		pad := func(n int) string { return strings.Repeat(" ", n-len(one)) + one }
		server.Do(t, "adjustBalance", pad(65536)).Want(t, 200, "")
		server.Do(t, "adjustBalance", pad(65537)).WantError(t, 413, "payload_too_large")
		server.Do(t, "adjustBalance", pad(10<<20)).WantError(t, 413, "payload_too_large")
	})
}

// Malformed HTTP, sent as raw bytes that no client library would send. RELIABILITY.md, Input.
func TestBrokenFrames(t *testing.T) {
	t.Parallel()
	server := apitest.New(t)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	// say sends raw bytes, closes the sending side if end is set, and returns the status line of
	// the response, or "closed".
	say := func(t *testing.T, head string, body io.Reader, end bool) string {
		t.Helper()
		c, err := tlsDial(server, u.Host)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(c, "POST /api/v1/economy/adjust HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+server.Token+
				"\r\nContent-Type: application/json\r\n"+head+"\r\n")
			_, _ = io.Copy(c, body)
			if w, ok := c.(interface{ CloseWrite() error }); ok && end {
				_ = w.CloseWrite()
			}
		}()
		line := make([]byte, 12)
		if _, err := io.ReadFull(c, line); err != nil {
			return "closed"
		}
		return string(line)
	}
	t.Run("an endless body in chunks is cut off", func(t *testing.T) {
		if got := say(t, "Transfer-Encoding: chunked\r\n", endless{}, false); got != "HTTP/1.1 413" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a body shorter than announced is no request", func(t *testing.T) {
		if got := say(t, "Content-Length: 100\r\n", strings.NewReader(one), true); got != "HTTP/1.1 400" && got != "closed" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("an announced length decides before the body is read", func(t *testing.T) {
		if got := say(t, "Content-Length: 10000000000\r\n", strings.NewReader(""), false); got != "HTTP/1.1 413" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("what follows the announced length is no part of it", func(t *testing.T) {
		head := fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n", len(one))
		if got := say(t, head, strings.NewReader(one+`,"x":1}`), false); got != "HTTP/1.1 200" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("broken chunks are no request", func(t *testing.T) {
		if got := say(t, "Transfer-Encoding: chunked\r\n", strings.NewReader("zz\r\n"+one), false); got != "HTTP/1.1 400" && got != "closed" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("two lengths are no request", func(t *testing.T) {
		if got := say(t, "Content-Length: 25\r\nContent-Length: 26\r\n", strings.NewReader(one), false); got != "HTTP/1.1 400" &&
			got != "closed" {
			t.Errorf("got %q", got)
		}
	})
	server.Do(t, "getWallet", "", apitest.Path("userId", "9")).Want(t, 200, `{"data":{"balance":1}}`)
}

// endless is a chunked body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	const chunk = "400\r\n"
	n := copy(p, chunk+strings.Repeat(" ", 0x400)+"\r\n")
	if n < len(chunk)+0x402 {
		return 0, io.ErrShortBuffer
	}
	return n, nil
}
