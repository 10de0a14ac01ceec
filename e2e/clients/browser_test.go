package clients

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/e2e/child"
)

// A browser is a real chromium, started by the first test that opens a tab.
type browser struct {
	once sync.Once
	ctx  context.Context
	end  context.CancelFunc
	err  error
}

// chromium is the one browser of this test run.
var chromium browser

// start starts the browser. It asks nobody but the server of the test, which is also weir.test.
func (b *browser) start() {
	path, err := exec.LookPath("chromium")
	if err != nil {
		b.err = fmt.Errorf("%w: scripts/deps installs it", err)
		return
	}
	profile := filepath.Join(home, "browser")
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(profile), chromedp.Env("HOME="+profile),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP weir.test 127.0.0.1"),
	)
	alive, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(alive)
	b.ctx, b.end = ctx, func() { leave(); cancel() }
	b.err = chromedp.Do(ctx)
}

// close ends the browser, if any test has started it.
func (b *browser) close() {
	if b.end != nil {
		b.end()
	}
}

// A tab is a page of the browser. All tabs are of one profile, so they share what an origin keeps.
type tab struct {
	*testing.T
	ctx   context.Context
	close func() // safe to call twice
}

// open opens the page of an api, and waits for its script.
func open(t *testing.T, address string) *tab {
	t.Helper()
	b := newTab(t)
	b.navigate(address + "/page.html")
	return b
}

func newTab(t *testing.T) *tab {
	t.Helper()
	chromium.once.Do(chromium.start)
	if chromium.err != nil {
		t.Fatalf("start chromium: %v", chromium.err)
	}
	ctx, leave := chromedp.NewContext(chromium.ctx)
	b := &tab{T: t, ctx: ctx, close: sync.OnceFunc(leave)}
	t.Cleanup(b.close)
	if err := chromedp.Do(ctx); err != nil { // the first call's context is the tab's life
		t.Fatalf("open a tab: %v", err)
	}
	return b
}

func (b *tab) navigate(address string) {
	b.Helper()
	b.load(address, "window.paced")
}

// load loads a page, and waits until an expression is true there.
func (b *tab) load(address, ready string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, child.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(address)); err != nil {
		b.Fatalf("open %s: %v", address, err)
	}
	ask[bool](b, `(async () => { while (!(`+ready+`)) await new Promise(done => setTimeout(done, 10)); return true })()`)
}

// freeze freezes the page, or lets it go on.
func (b *tab) freeze(state page.SetWebLifecycleStateState) {
	b.Helper()
	err := chromedp.Do(b.ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: state})
		return err
	}))
	if err != nil {
		b.Fatalf("make the page %s: %v", state, err)
	}
}

// crash ends the renderer of the page, as a fault of the browser would. Nobody is left to answer
// the command, so crash does not wait.
func (b *tab) crash() {
	go chromedp.Do(b.ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.Crash, cdp.Empty{})
		return err
	}))
}

// ask evaluates JavaScript in the page, waits for what it promises, and returns it.
func ask[T any](b *tab, expression string) T {
	b.Helper()
	value, err := eval[T](b, expression)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

func eval[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, 3*child.Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		err = fmt.Errorf("%s: %w", expression, err)
	}
	return value, err
}

// told returns the events of the page that begin with a text.
func (b *tab) told(text string) []string {
	b.Helper()
	return slices.DeleteFunc(ask[[]string](b, "told"), func(s string) bool { return !strings.HasPrefix(s, text) })
}
