package weir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/weirlimit/weir/internal/logtest"
)

// A browser is a real chromium that all tests share. The first test that opens a
// tab starts it, and the last one ends it.
type browser struct {
	once   sync.Once
	ctx    context.Context
	end    context.CancelFunc
	err    error
	output transcript
}

// chromium is the browser of this test run.
var chromium browser

// A transcript is a program's output.
type transcript struct{ logtest.Buffer }

// String returns the output without the lines about a desktop's message bus, which
// a test machine does not have.
func (t *transcript) String() string {
	var kept strings.Builder
	for line := range strings.Lines(t.Buffer.String()) {
		if !strings.Contains(line, ":ERROR:dbus/") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// start starts the browser with German as its language. It connects to no server
// but those of the pages it opens.
func (b *browser) start() {
	path, err := exec.LookPath("chromium")
	if err != nil {
		b.err = fmt.Errorf("%w: scripts/deps installs it", err)
		return
	}
	home := filepath.Join(binDir, "browser")
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.UserDataDir(home),
		chromedp.Env("HOME="+home),
		chromedp.CombinedOutput(&b.output),
		chromedp.Flag("accept-lang", "de-DE,de"),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-domain-reliability", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-proxy-server", true),
	)
	alive, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, leave := chromedp.NewContext(alive)
	b.ctx, b.end = ctx, func() { leave(); cancel() }
	opened := make(chan error, 1)
	go func() { opened <- chromedp.Do(ctx) }()
	select {
	case b.err = <-opened:
	case <-time.After(patience):
		b.err = fmt.Errorf("it does not answer after %v", patience)
	}
}

// close ends the browser, if any test has started it.
func (b *browser) close() {
	if b.end != nil {
		b.end()
	}
}

// A tab is a page in a browser profile of its own, with its requests and its
// console messages.
type tab struct {
	*testing.T
	ctx   context.Context
	close func()   // safe to call twice
	hosts []string // hosts that the page may connect to

	mu         sync.Mutex
	requests   []*exchanged
	complaints []string
}

// An exchanged is a request that the browser sent, and its answer.
type exchanged struct {
	id        network.RequestID
	method    string
	url       *url.URL
	preflight bool
	header    network.Headers
	status    int64 // 0 if there is no answer yet
	answer    http.Header
}

// openTab opens a page. The test fails if the page connects to other hosts, breaks
// its own content policy, or writes to its console, unless that was forgiven.
func openTab(t *testing.T, address string, hosts ...string) *tab {
	t.Helper()
	chromium.once.Do(chromium.start)
	if chromium.err != nil {
		t.Fatalf("start chromium: %v\nit printed:\n%s", chromium.err, &chromium.output)
	}
	ctx, leave := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	b := &tab{T: t, ctx: ctx, close: sync.OnceFunc(leave), hosts: hosts}
	t.Cleanup(b.leave)
	b.do("listen", chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		if err := chromedp.Listen(b.ctx, b.onEvent); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, target, audits.Enable, cdp.Empty{})
		return err
	}))
	b.do("open "+address, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: `addEventListener("securitypolicyviolation", (e) => console.error("content policy: " + e.violatedDirective + " " + e.blockedURI))`})
		return err
	}), chromedp.Navigate(address))
	return b
}

// onEvent records an event. The browser waits for it.
func (b *tab) onEvent(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil {
			b.complaints = append(b.complaints, err.Error())
			return
		}
		if u.Scheme != "data" && !slices.Contains(b.hosts, u.Host) {
			b.complaints = append(b.complaints, "it asked "+e.Request.URL)
		}
		b.requests = append(b.requests, &exchanged{id: e.RequestID, method: e.Request.Method, url: u,
			preflight: e.Request.Method == http.MethodOptions, header: e.Request.Headers})
	case *network.EventResponseReceived:
		for _, x := range b.requests {
			if x.id == e.RequestID {
				x.status, x.answer = e.Response.Status, http.Header{}
				for name, value := range e.Response.Headers {
					x.answer.Set(name, fmt.Sprint(value))
				}
			}
		}
	case *runtime.EventConsoleAPICalled:
		var output []string
		for _, a := range e.Args {
			output = append(output, string(a.Value))
		}
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s %s", e.Type, strings.Join(output, " ")))
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, fmt.Sprintf("exception: %s %v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *audits.EventIssueAdded:
		b.complaints = append(b.complaints, "issue: "+string(e.Issue.Code))
	}
}

// forgive accepts complaints that contain a text, such as those about an answer
// that the test expects.
func (b *tab) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = slices.DeleteFunc(b.complaints, func(c string) bool { return strings.Contains(c, text) })
}

// leave closes the tab before the server ends, and fails the test if the page
// complained.
func (b *tab) leave() {
	b.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.Errorf("the page: %s", c)
	}
	b.complaints = nil
}

// sent returns the requests to a path, including preflights, in the order in which
// they were sent.
func (b *tab) sent(path string) []exchanged {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []exchanged
	for _, x := range b.requests {
		if x.url.Path == path {
			all = append(all, *x)
		}
	}
	return all
}

// do runs actions. If the browser does not finish in time, the test fails.
func (b *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if chromedp.FromContext(b.ctx).Target == nil { // the first call's context is the tab's lifetime
		if err := chromedp.Do(b.ctx); err != nil {
			b.Fatalf("open a tab: %v\nchromium printed:\n%s", err, &chromium.output)
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%s: %v\nchromium printed:\n%s", what, err, &chromium.output)
	}
}

// ask evaluates JavaScript in the page, awaits its promise, and returns the result.
func ask[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v\nchromium printed:\n%s", expression, err, &chromium.output)
	}
	return value
}

// until waits until a condition holds in the page.
func (b *tab) until(condition string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	wait := fmt.Sprintf("(async () => { while (!(%s)) await new Promise((done) => setTimeout(done, 10)); return true })()", condition)
	var err error
	for range 100 { // a page that is left while its promise is awaited ends the evaluation
		_, err = chromedp.Run(ctx, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise))
		if err == nil || !strings.Contains(err.Error(), "navigated or closed") {
			break
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		b.Fatalf("waited %v in vain for %s; the page reads:\n%s\nchromium printed:\n%s", patience, condition, ask[string](b, "document.body.innerText"), &chromium.output)
	}
	if err != nil {
		b.Fatalf("wait for %s: %v\nchromium printed:\n%s", condition, err, &chromium.output)
	}
}

// press presses keys, one after another.
func (b *tab) press(keys string, modifiers ...chromedp.Modifier) {
	b.Helper()
	for _, key := range keys {
		if key == '\r' {
			b.do("press Enter", chromedp.Func(pressEnter))
			continue
		}
		b.do("press a key", chromedp.KeyEvent(string(key), chromedp.KeyModifiers(modifiers...)))
	}
}

// pressEnter sends a single key event with text, as a keyboard does. A page that
// handles the key then inserts no line break.
func pressEnter(ctx context.Context, target *chromedp.Target) error {
	const code = 13
	for _, event := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r", UnmodifiedText: "\r", WindowsVirtualKeyCode: code},
		{Type: input.DispatchKeyEventTypeKeyUp, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: code},
	} {
		if _, err := cdp.Call(ctx, target, input.DispatchKeyEvent, event); err != nil {
			return err
		}
	}
	return nil
}

// sendMessage types a message, sends it, and waits until it is answered or refused.
func (b *tab) sendMessage(text string) {
	b.Helper()
	b.do("go to the message box", chromedp.Focus(chromedp.CSS("#draft")))
	b.press(text + "\r")
	b.until("!sending")
}

// text returns the text of an element.
func (b *tab) text(selector string) string {
	b.Helper()
	return ask[string](b, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// shop serves the demo's files from another origin, like a shop's page that embeds
// the widget. Its content policy is the demo's, except for the hosts that the page
// may connect to.
func shop(t *testing.T, s *server) (address string) {
	t.Helper()
	h := http.NewServeMux()
	for _, path := range []string{"/demo", "/demo/demo.js", "/demo/demo.css", "/demo/icon.svg"} {
		from, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Body.Close()
		body, err := io.ReadAll(from.Body)
		if err != nil || from.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: %d, %v", path, from.StatusCode, err)
		}
		body = bytes.Replace(body, []byte(`<html lang="en">`), []byte(`<html lang="en" data-api="`+s.url+`">`), 1)
		policy := strings.Replace(from.Header.Get("Content-Security-Policy"), "connect-src 'self'", "connect-src "+s.url, 1)
		h.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", from.Header.Get("Content-Type"))
			w.Header().Set("Content-Security-Policy", policy)
			_, _ = w.Write(body) // the browser is gone: the test has failed elsewhere
		})
	}
	other := httptest.NewServer(h)
	t.Cleanup(other.Close)
	return other.URL + "/demo"
}

// visit opens the widget of a server on another origin.
func visit(t *testing.T, s *server) *tab {
	t.Helper()
	address := shop(t, s)
	return openTab(t, address, host(t, address), host(t, s.url))
}

func host(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// policyFile writes a policy.
func policyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
