package main

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"time"

	"github.com/chromedp/chromedp"

	"guildhall/internal/base/fault"
	"guildhall/internal/base/testutil/browsertest"
	"guildhall/internal/service/guildfile"
)

// browser is a tab of a real browser.
type browser struct {
	*dev
	ctx   context.Context
	close func()
}

func newBrowser(ctx context.Context, d *dev) (*browser, error) {
	tab, stop, err := browsertest.Open(ctx, chromedp.Flag("hide-scrollbars", true))
	if err != nil {
		return nil, err
	}
	b := &browser{d, tab, stop}
	_, err = chromedp.Run(b.ctx, chromedp.Navigate("about:blank")) // the browser lives as long as this context
	return b, err
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Steps(actions...))
	return err
}

// press clicks on one thing and waits for another.
func press(what, then string) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.Click(chromedp.CSS(what)), chromedp.WaitVisible(chromedp.CSS(then)))
}

// story goes through the pages as somebody does who has just started guildhall dev.
func (b *browser) story(r *receiver) error {
	steps := []func() error{
		func() error { return b.run(chromedp.Navigate(b.dashboard)) },
		func() error { return b.look("welcome") },
		func() error {
			return b.run(press(`a[href="/dashboard/login"]`, "#owner"), press("#owner", ".me"))
		},
		func() error { return b.look("servers") },
		func() error {
			return b.run(chromedp.Navigate(b.page("members", guildfile.DemoMember)), press("a[href*='/ledger/']", "#trace"))
		},
		func() error { return b.look("ledger-entry") },
		func() error {
			return b.run(chromedp.Navigate(b.page("webhooks", "new")), chromedp.SendKeys(chromedp.CSS("#url"), r.URL+"/guildhall"),
				chromedp.SendKeys(chromedp.CSS("#description"), "The shop's receiver"), chromedp.Click(chromedp.CSS(`input[value="all"]`)),
				press("form.form button.primary", "#secret"))
		},
		func() error { return b.look("webhook-secret") },
		b.traffic,
		func() error {
			return b.run(press("a.button[href*=webhooks]", "#live-deliveries th a"))
		},
		func() error { return b.look("webhook") },
		func() error { return b.run(press("#live-deliveries th a", "#body")) },
		func() error { return b.look("delivery") },
		func() error {
			r.fails.Store(true)
			// Not back: a page that Chromium kept is shown without being loaded, for which
			// going back waits in vain.
			return b.run(press("nav a[href*='/webhooks/']", "#live-deliveries"), press(".row-actions .primary", "#problem"))
		},
		func() error { return b.look("delivery-failed") },
		b.wait,
	}
	for n, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
	}
	return b.rest()
}

// wait gives the requests the time to stand in the numbers.
func (b *browser) wait() error {
	select {
	case <-time.After(untilCounted):
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// rest are the pages that need nothing but to be opened.
func (b *browser) rest() error {
	for _, page := range []struct{ name, address, has string }{
		{"overview-webhook", b.page(), "#live-overview"},
		{"tokens", b.page("tokens"), "table"},
		{"token-new", b.page("tokens", "new") + "?name=payday+bot&scopes=economy:read,economy:write&expires_in_days=90", "form.form"},
		{"webhooks", b.page("webhooks"), "table"},
		{"webhook-new", b.page("webhooks", "new"), "form.form"},
		{"requests", b.page("requests"), "figure.plot"},
		{"audit", b.page("audit"), "#audit"},
		{"sessions", b.dashboard + "sessions", "table"},
	} {
		if err := b.run(chromedp.Navigate(page.address), chromedp.WaitVisible(chromedp.CSS(page.has))); err != nil {
			return fault.Wrap(err, page.name)
		}
		if err := b.look(page.name); err != nil {
			return fault.Wrap(err, page.name)
		}
	}
	if err := b.run(chromedp.Navigate(b.docs), chromedp.WaitVisible(chromedp.CSS("rapi-doc"))); err != nil {
		return fault.Wrap(err, "reference")
	}
	return b.look("reference")
}

// look takes the page's pictures, whole, and README's as large as a window, each after
// what has to be done again for a window of another size.
func (b *browser) look(name string, before ...chromedp.Action[chromedp.Void]) error {
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 360} {
			if err := b.run(browsertest.Scheme(scheme), browsertest.Size(width, 800)); err != nil {
				return err
			}
			if err := b.run(before...); err != nil {
				return err
			}
			if err := b.take(chromedp.FullScreenshot(100), allFolder, fmt.Sprintf("%s-%s-%d.png", name, scheme, width)); err != nil {
				return err
			}
			if inREADME[name] && width > 640 {
				if err := b.take(chromedp.CaptureScreenshot(), readmeFolder, fmt.Sprintf("%s-%s.png", name, scheme)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// take writes one picture, compressed as far as its format goes.
func (b *browser) take(what chromedp.Action[[]byte], folder, name string) error {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	shot, err := chromedp.Run(ctx, what)
	if err != nil {
		return err
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return err
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, img); err != nil {
		return err
	}
	if folder == readmeFolder && small.Len() > maxShown {
		return fmt.Errorf("%s has %d bytes, more than %d", name, small.Len(), maxShown)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name), small.Bytes(), 0o644)
}
