//go:build browser

package dashboard_test

import (
	"context"
	"fmt"

	"github.com/chromedp/cdproto/cdp"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"guildhall/internal/base/testutil"
	"guildhall/internal/base/testutil/browsertest"
)

// tall is a font whose letters are nearly 24 pixels high, and so come closer to the link below than
// with any installed font: only the style sheet can keep the distance.
const tall = `(async () => {
	const face = new FontFace("tall", 'local("DejaVu Sans"), local("Liberation Sans"), local("Noto Sans")',
		{ascentOverride: "120%", descentOverride: "45%", lineGapOverride: "0%"});
	document.fonts.add(await face.load());
	const sheet = new CSSStyleSheet();
	sheet.replaceSync("* { font-family: tall !important }");
	document.adoptedStyleSheets = [sheet];
})()`

// lookInOtherFonts loads the page's HTML in a browser for each of the other installed fonts, and
// then with the font tall. It repeats the checks that depend on the font.
func (b *tab) lookInOtherFonts(name string) {
	b.t.Helper()
	html := get(b, chromedp.Evaluate[string](`(() => {
		const page = document.documentElement.cloneNode(true);
		page.querySelectorAll("script").forEach(s => s.remove());
		return "<!doctype html>" + page.outerHTML;
	})()`))
	if b.others == nil {
		for _, font := range testutil.Fonts(b.t)[1:] {
			other := newTabIn(b.t, b.s, true, font)
			other.open("/dashboard/") // so that the style sheet comes from the origin of the page
			b.others = append(b.others, other)
		}
	}
	for _, other := range b.others {
		other.show(html)
		for _, width := range []int64{1280, 360} {
			other.run(browsertest.Size(width, 800))
			other.measure(name, width)
			other.axe(fmt.Sprintf("%s, %d pixels", name, width), browsertest.TargetSize)
		}
	}
	b.run(chromedp.Evaluate[chromedp.Void](tall, chromedp.EvalAwaitPromise))
	for _, width := range []int64{1280, 360} {
		b.run(browsertest.Size(width, 800))
		b.axe(fmt.Sprintf("%s, %d pixels, tall letters", name, width), browsertest.TargetSize)
	}
	b.run(chromedp.Evaluate[chromedp.Void](`document.adoptedStyleSheets = []; undefined`))
}

// show replaces the page of the tab by html and waits for its style sheet.
func (b *tab) show(html string) {
	b.t.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		tree, err := cdp.Call(ctx, t, cdppage.GetFrameTree, cdp.Empty{})
		if err != nil {
			return err
		}
		_, err = cdp.Call(ctx, t, cdppage.SetDocumentContent, cdppage.SetDocumentContentParams{FrameID: tree.FrameTree.Frame.ID, HTML: html})
		return err
	}))
	testutil.Eventually(b.t, "the style sheet is loaded", func() bool {
		ready, err := ask(b, chromedp.Evaluate[bool](`document.styleSheets.length > 0`))
		return err == nil && ready
	})
}
