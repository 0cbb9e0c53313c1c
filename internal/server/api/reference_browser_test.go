//go:build browser

package api_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"guildhall/internal/base/testutil"
	"guildhall/internal/base/testutil/browsertest"
	"guildhall/internal/server/api/apitest"
)

// inShadows are functions for the reference's page, whose elements stand in shadow trees
// within shadow trees.
const inShadows = `
	function* every(root = document) {
		for (const e of root.querySelectorAll('*')) { yield e; if (e.shadowRoot) yield* every(e.shadowRoot); }
	}
	function find(selector, text = '') { for (const e of every()) if (e.matches(selector) && e.textContent.includes(text)) return e; }
	function shown(root = document.body) {
		let text = '';
		for (const n of [...(root.shadowRoot ? root.shadowRoot.childNodes : []), ...root.childNodes]) {
			if (n.nodeType === 3) text += n.data; else if (n.nodeType === 1 && !['STYLE', 'SCRIPT'].includes(n.tagName)) text += shown(n);
		}
		return text;
	}`

// reference is the reference in a tab of a real browser, which may talk to nobody but the
// test's server.
type reference struct {
	t    *testing.T
	ctx  context.Context
	page string
}

func openReference(t *testing.T, api *apitest.API) reference {
	t.Helper()
	ctx, stop, err := browsertest.Open(context.Background(), chromedp.WindowSize(1280, 1600),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	t.Cleanup(cancel)
	r := reference{t: t, ctx: ctx}
	r.page = strings.TrimSuffix(api.URL, "/api/v1") + "/docs"
	r.opens()
	return r
}

// opens opens the page anew.
func (r reference) opens() {
	r.t.Helper()
	r.do(chromedp.Navigate(r.page))
	r.waits(`find('rapi-doc') && shown().includes('adjustBalance')`)
}

func (r reference) do(actions ...chromedp.Action[chromedp.Void]) {
	r.t.Helper()
	if _, err := chromedp.Run(r.ctx, chromedp.Steps(actions...)); err != nil {
		r.t.Fatal(err)
	}
}

// evaluate is the value of an expression on the page.
func evaluate[T any](r reference, expression string) T {
	r.t.Helper()
	v, err := chromedp.Run(r.ctx, chromedp.Evaluate[T]("(() => {"+inShadows+"; return "+expression+" })()"))
	if err != nil {
		r.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

func (r reference) waits(expression string) {
	r.t.Helper()
	testutil.Eventually(r.t, expression, func() bool { return evaluate[bool](r, "!!("+expression+")") })
}

// shows has the viewer show an operation, which is found by its name.
func (r reference) shows(operation string) {
	r.t.Helper()
	r.waits(fmt.Sprintf(`(() => { const e = find('.nav-bar-path', %q); if (e) e.click(); return e })()`, operation+":"))
	r.waits(fmt.Sprintf(`find('.section-gap--focused-mode h2, .expanded-endpoint-body h2, h2', %q)`, operation+":"))
}

// sends tries the operation out that is shown, and returns the response.
func (r reference) sends(status string) string {
	r.t.Helper()
	evaluate[bool](r, `(() => {
		const old = find('.response-message');
		if (old) old.textContent = '';
		find('button[part~="btn-try"]').click();
		return true
	})()`)
	r.waits(fmt.Sprintf(`find('.response-message', %q)`, status))
	_, response, _ := strings.Cut(evaluate[string](r, `shown(find('api-request'))`), "Response Status:")
	return response
}

// The reference shows every operation by its name. With GUILDHALL_TEST_ARTIFACTS set to a
// folder, a picture of the page is kept there.
func TestTheReferenceInABrowser(t *testing.T) {
	t.Parallel()
	r := openReference(t, apitest.New(t))
	text := evaluate[string](r, `shown(find('nav'))`)
	each(t, func(t *testing.T, op apitest.Operation) {
		if !strings.Contains(text, op.ID+": "+op.Spec.Summary) {
			t.Error("the page does not show this operation")
		}
	})
	if dir := os.Getenv("GUILDHALL_TEST_ARTIFACTS"); dir != "" {
		picture, err := chromedp.Run(r.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "reference.png"), picture, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// People with other eyes and hands can use the reference, in light and dark, on a desk and
// on a phone.
func TestTheReferenceIsAccessibleInABrowser(t *testing.T) {
	t.Parallel()
	r := openReference(t, apitest.New(t))
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			r.do(browsertest.Scheme(scheme), browsertest.Size(width, 1200))
			r.opens()
			for _, operation := range []string{"adjustBalance", "listCases"} {
				r.shows(operation)
				if problems, err := browsertest.Problems(r.ctx, browsertest.AllRules); err != nil || len(problems) > 0 {
					t.Errorf("%s in %s, %d pixels wide: %v %q", operation, scheme, width, err, problems)
				}
				if wide := evaluate[int64](r, `document.documentElement.scrollWidth`); wide > width {
					t.Errorf("%s in %s is %d pixels wide of %d", operation, scheme, wide, width)
				}
			}
		}
	}
}

// A person tries a write out in the reference, twice in a row, and then another
// one: each is made, as they come from the page, and nothing is taken for a repeat
// of what was tried before.
func TestWritesAreTriedOutInABrowser(t *testing.T) {
	t.Parallel()
	api := apitest.New(t)
	r := openReference(t, api)
	evaluate[bool](r, fmt.Sprintf(`(() => {
		const viewer = find('rapi-doc');
		return viewer.setApiKey(viewer.resolvedSpec.securitySchemes[0].securitySchemeId, %q) || true
	})()`, api.Token))
	r.shows("adjustBalance")
	first := r.sends("200")
	if second := r.sends("200"); second == first || strings.Contains(strings.ToLower(first+second), "idempotent-replay") {
		t.Errorf("the second change is the first one again:\n%s\n%s", first, second)
	}
	r.shows("createCase")
	r.sends("201")
	api.Do(t, "listLedgerEntries", "").Want(t, 200, `{"data":[{"delta":30},{"delta":30}]}`)
	api.Do(t, "listCases", "").Want(t, 200, `{"data":[{"type":"warn"}]}`)
}
