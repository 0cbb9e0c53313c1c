// Package browsertest drives a real Chromium, and checks the accessibility of pages with axe.
package browsertest

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"guildhall/internal/base/testutil"
)

// axe is part of this repository, so that the checks always run.
//
//go:embed axe/axe.min.js
var axe string

// Open returns the context of a tab in a browser of its own. The browser starts with the first
// action in the tab, and ends with stop.
func Open(ctx context.Context, options ...chromedp.ExecAllocatorOption) (tab context.Context, stop func(), err error) {
	program, err := testutil.Chromium()
	if err != nil {
		return nil, nil, err
	}
	all := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("ignore-certificate-errors", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	alloc, end := chromedp.NewExecAllocator(ctx, append(all, options...)...)
	tab, cancel := chromedp.NewContext(alloc)
	return tab, func() { cancel(); end() }, nil
}

// Command returns an action that sends one command of the browser's protocol.
func Command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// Size gives the tab the size of a screen. A screen that is narrower than 640 pixels is a phone's.
func Size(width, height int64) chromedp.Action[chromedp.Void] {
	return Command(emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 640})
}

// Scheme shows the tab in light or dark colours, without animations.
func Scheme(scheme string) chromedp.Action[chromedp.Void] {
	return Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// Rules are a choice of axe's rules.
type Rules struct {
	runOnly string
	least   int // how many of the rules must apply to a page and pass
}

var (
	// AllRules are the rules of WCAG 2.2 AA and the best practices. Ten of them pass on any page,
	// but not on an empty one.
	AllRules = Rules{`["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]`, 10}
	// TargetSize is the rule that depends on the font: links and buttons must be 24 pixels high
	// and wide, or that far apart.
	TargetSize = Rules{`{type: "rule", values: ["target-size"]}`, 0}
)

// Problems checks the page of a tab and returns what is wrong with it.
func Problems(tab context.Context, rules Rules) ([]string, error) {
	ctx, cancel := context.WithTimeout(tab, time.Minute)
	defer cancel()
	if loaded, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`"axe" in window`)); err != nil {
		return nil, err
	} else if !loaded {
		if _, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void](axe+";undefined")); err != nil {
			return nil, err
		}
	}
	result, err := chromedp.Run(ctx, chromedp.Evaluate[struct {
		Passes     int
		Violations []string
	}](`
		axe.run(document, {resultTypes: ["violations"], runOnly: `+rules.runOnly+`}).then(r => ({
			Passes: r.passes.length,
			Violations: r.violations.map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary).join(" | ")),
		}))`, chromedp.EvalAwaitPromise))
	if err == nil && result.Passes < rules.least {
		result.Violations = append(result.Violations,
			fmt.Sprintf("axe has looked at next to nothing: only %d of its rules have passed", result.Passes))
	}
	return result.Violations, err
}
