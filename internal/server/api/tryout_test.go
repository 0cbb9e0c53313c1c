//go:build browser

package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"guildhall/internal/base/testutil"
	"guildhall/internal/server/api/apitest"
)

// A person sends a write from the reference page twice, and then another one. Each is carried out,
// and none counts as a repeat of an earlier one.
func TestWritesAreTriedOutInABrowser(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	ctx, cancel := context.WithTimeout(inChromium(t), 3*time.Minute)
	defer cancel()
	do := func(actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if _, err := chromedp.Run(ctx, chromedp.Steps(actions...)); err != nil {
			t.Fatal(err)
		}
	}
	click := func(selector string) chromedp.Action[chromedp.Void] { return chromedp.Click(chromedp.CSS(selector)) }
	// answered returns the text of the response once the page shows the status.
	answered := func(operation, status string) string {
		t.Helper()
		answer := operation + " .live-responses-table .response"
		do(chromedp.WaitVisible(chromedp.CSS(answer)))
		text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS(answer)))
		if err != nil || !strings.HasPrefix(strings.TrimSpace(text), status) {
			t.Fatalf("%s is answered %q, want %s: %v", operation, text, status, err)
		}
		return text
	}

	do(chromedp.Navigate(strings.TrimSuffix(api.URL, "/api/v1")+"/docs"), click("button.authorize"),
		chromedp.SendKeys(chromedp.CSS(".auth-container input"), api.Token), click(".auth-btn-wrapper button.authorize"),
		click(".auth-btn-wrapper .btn-done"))
	adjust, file := "#operations-Economy-adjustBalance", "#operations-Cases-createCase"
	do(click(adjust+" .opblock-summary-control"), click(adjust+" .try-out__btn"), click(adjust+" .execute"))
	first := answered(adjust, "200")
	do(click(adjust+" .btn-clear"), click(adjust+" .execute"))
	if second := answered(adjust, "200"); second == first || strings.Contains(strings.ToLower(first+second), "idempotent-replay") {
		t.Errorf("the second change is the first one again:\n%s\n%s", first, second)
	}
	do(click(file+" .opblock-summary-control"), click(file+" .try-out__btn"), click(file+" .execute"))
	answered(file, "201")

	api.Do(t, "listLedgerEntries", "").Want(t, 200, `{"data":[{"delta":30},{"delta":30}]}`)
	api.Do(t, "listCases", "").Want(t, 200, `{"data":[{"type":"warn"}]}`)
}

// inChromium opens a tab of a real browser that accepts the test server's certificate.
func inChromium(t *testing.T) context.Context {
	t.Helper()
	program, err := testutil.Chromium()
	if err != nil {
		t.Fatal(err)
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("ignore-certificate-errors", true), chromedp.WindowSize(1280, 1600),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(fmt.Errorf("start %s: %w", program, err))
	}
	return ctx
}
