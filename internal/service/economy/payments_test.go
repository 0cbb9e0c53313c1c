package economy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"testing"
	"time"

	"guildhall/internal/base/db/dbtest"
	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

const (
	orders     = 60
	perOrder   = 7
	payingURL  = "GUILDHALL_TEST_PAY_URL"
	payingWith = "GUILDHALL_TEST_PAY_TOKEN"
)

// TestPayOrders is not a test but the process that TestPaymentsAreMadeOnceForEver kills: the
// process stores nothing, and pays all orders until it knows that each is paid.
func TestPayOrders(t *testing.T) {
	t.Parallel()
	base := os.Getenv(payingURL)
	if base == "" {
		t.Skip("only as a child of TestPaymentsAreMadeOnceForEver")
	}
	client := &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	for _, order := range rand.Perm(orders) {
		testutil.Eventually(t, fmt.Sprintf("order %d is paid", order), func() bool { return pay(t, client, base, order) })
	}
}

// pay reports whether the order is paid, by this call or an earlier one.
func pay(t *testing.T, client *http.Client, base string, order int) bool {
	t.Helper()
	body := fmt.Sprintf(`{"user_id":"%d","delta":%d,"reference":"order %d"}`, 1+order%5, perOrder, order)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/economy/adjust", bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv(payingWith))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("order-%d", order))
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	var response struct{ Error struct{ Code string } }
	if text, err := io.ReadAll(res.Body); err != nil || json.Unmarshal(text, &response) != nil {
		return false
	}
	return res.StatusCode == http.StatusOK ||
		res.StatusCode == http.StatusUnprocessableEntity && response.Error.Code == "reference_already_used"
}

// A client is killed at random moments and starts again, on the same day and on later days when its
// idempotency keys have expired. It pays each order once.
func TestPaymentsAreMadeOnceForEver(t *testing.T) {
	t.Parallel()
	if os.Getenv(payingURL) != "" {
		t.Skip("this is the child")
	}
	a := apitest.New(t)
	ctx := context.Background()
	paid := func() (n int) {
		if err := a.DB().Reader().GetContext(ctx, &n, `SELECT count(*) FROM ledger_entries WHERE guild_id = $1`, a.Guild); err != nil {
			t.Fatal(err)
		}
		return n
	}
	killed, midway := 0, 0
	for day := range 8 {
		for try := range 3 {
			client := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPayOrders$", "-test.count=1")
			client.Env = append(os.Environ(), payingURL+"="+a.URL, payingWith+"="+a.Token)
			var out bytes.Buffer
			client.Stdout, client.Stderr = &out, &out
			before := paid()
			if err := client.Start(); err != nil {
				t.Fatal(err)
			}
			if day == 7 && try == 2 { // the last process runs to its end
				if err := client.Wait(); err != nil {
					t.Fatalf("the client: %v\n%s", err, &out)
				}
				continue
			}
			// The process is killed after some payments; if no payment is left, while it checks.
			ended := make(chan struct{})
			go func() { _ = client.Wait(); close(ended) }()
			enough := before + 1 + rand.IntN(4)
			testutil.Eventually(t, "the client has paid some orders, or ended", func() bool {
				select {
				case <-ended:
					return true
				default:
					return paid() >= enough || before == orders
				}
			})
			if err := client.Process.Kill(); err == nil {
				killed++
			}
			<-ended
			if n := paid(); before < n && n < orders {
				midway++
			}
		}
		// A day passes, and the idempotency keys expire.
		dbtest.Exec(t, a.DB(), `UPDATE idempotency_keys SET `+dbtest.Earlier(`interval '25 hours'`, "created_at"))
	}
	if midway == 0 {
		t.Errorf("of %d kills none came in the midst of paying", killed)
	}
	var got struct {
		Rows    int   `db:"rows"`
		Names   int   `db:"names"`
		Balance int64 `db:"balance"`
	}
	if err := a.DB().Reader().GetContext(ctx, &got, `
		SELECT (SELECT count(*) FROM ledger_entries WHERE guild_id = $1) AS rows,
		       (SELECT count(DISTINCT reference) FROM ledger_entries WHERE guild_id = $1) AS names,
		       (SELECT sum(balance) FROM wallets WHERE guild_id = $1) AS balance`, a.Guild); err != nil {
		t.Fatal(err)
	}
	if got.Rows != orders || got.Names != orders || got.Balance != orders*perOrder {
		t.Errorf("%d rows, %d references, %d coins; want %d, %d and %d (%d kills, %d midway)",
			got.Rows, got.Names, got.Balance, orders, orders, orders*perOrder, killed, midway)
	}
	t.Logf("%d kills, %d in the midst of paying, %d payments made once", killed, midway, got.Rows)
}
