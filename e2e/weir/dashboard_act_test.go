package weir

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// dashboardPicture is where `make screenshot` writes the dashboard's picture.
var dashboardPicture = flag.String("dashboard", "", "`file` to write the dashboard's picture to; takes a minute")

// hostile is markup that a caller sends in every field it controls.
const hostile = `<img src=x onerror="pwned=1"><script>pwned=1</script><b id=x1>"'` + "`"

// Callers' values are shown as text everywhere; the operator's browser executes
// none of them.
func TestCallersCannotInjectMarkupIntoTheDashboard(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t), "--access-log=off", "--trusted-proxies", "127.0.0.0/8", "--policy", policyFile(t, `
# <img src=x onerror="pwned=1"><b id=x1>
limiters:
  - name: agents
    routes: [/agents]
    windows: [1 per hour by agent]
    chosen: yes
  - name: both
    routes: [/both]
    windows: [1 per hour by ip+agent, 2 per day by session or ip]
    mode: enforce
`))
	b := dashboard(t, s)
	for _, path := range []string{"/agents", "/both", "/agents?agent_id=" + "%3Cimg%20src=x%20onerror=pwned=1%3E"} {
		for _, header := range []string{"X-Agent-Id", "User-Agent", "Authorization", "X-Forwarded-For", "Cookie", "Accept-Language"} {
			for range 2 {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set(header, hostile)
				if header == "Authorization" {
					r.Header.Set(header, "Bearer "+hostile)
				}
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				answer.Body.Close()
			}
		}
	}
	b.until(`document.querySelectorAll("#callers-rows tr").length >= 4 && document.querySelectorAll(".refusals > li").length >= 8`)
	ask[bool](b, `(document.querySelectorAll(".refusals button").forEach((button) => button.click()), true)`)
	b.until(`document.querySelectorAll(".explained dl").length === document.querySelectorAll(".refusals > li").length`)
	b.until(`part("policy-text").textContent.includes("<img src=x onerror=")`)
	if shown := b.text("#callers-rows") + b.text("#refusals-list"); strings.Contains(shown, "pwned") {
		t.Errorf("the page shows callers' values:\n%s", shown)
	}
	// No server of ours sends such values. If one did, they would be text.
	ask[bool](b, `(() => {
		const evil = "<img src=x onerror=pwned=1><b id=x1>", w = seen.watch, caller = [...callers.rows.values()][0].caller;
		const said = { ...caller, name: evil, kind: evil, limiter: evil, last: { ...caller.last, window: evil } };
		act.open("reset", said, document.body);
		draw({ ...seen, version: evil, policy: { ...seen.policy, version: evil, path: evil, by: evil, last: { at: 1, ok: false, problems: [{ line: 1, message: evil }] } },
			store: { kind: evil, up: false, since: 1, error: evil },
			candidate: { version: evil, path: evil, last: { at: 1, ok: false, problems: [{ line: 1, message: evil }] } },
			watch: { ...w, limiters: [{ ...w.limiters[1], name: evil, spending: [said], shadow: { on: true, would_admit: 1, would_refuse: 1, skipped: 0 } }],
				candidate: { since: 1, limiters: [{ limiter: evil, same: 1, newly_refused: 1, newly_admitted: 1, callers_newly_refused: 1, callers_newly_admitted: 1 }] },
				refusals: { list: [{ number: 1e6, at: 1, limiter: evil, kind: evil, name: evil, hash: evil, standing: { window: evil }, denial: evil }], next: 1, not_shown: 0 } } });
		document.querySelector(".refusals li").append(explained({ window: evil, kinds: evil, token: evil, limiter: evil, line: evil, policy: evil, changed: evil, reads: evil, count: 1, limit: 1, reset: 1 }));
		return true;
	})()`)
	if n := ask[int](b, `document.body.textContent.split("<img src=x onerror=pwned=1>").length - 1`); n < 20 {
		t.Errorf("the page shows %d of the texts that it was given, want 20 at least", n)
	}
	if ask[bool](b, `"pwned" in window || document.querySelector("#x1, main img, main script, dialog img, dialog b") !== null || document.scripts.length !== 2`) {
		t.Errorf("markup became elements: %s", ask[string](b, "document.querySelector('main').outerHTML"))
	}
	b.leave()
	s.end(t)
}

// Without a mouse an operator resets a caller's budget, then grants twice as much.
// The next requests are counted accordingly.
func TestResetAndGrantFromTheKeyboard(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t), "--access-log=off", "--policy", policyFile(t, `
limiters:
  - name: few
    routes: [/few]
    windows: [3 per hour by ip]
`))
	b := dashboard(t, s)
	few := call{method: http.MethodGet, path: "/few", foreign: true}
	spend := func(want ...int) {
		t.Helper()
		for i, status := range want {
			got, err := few.send(t.Context(), http.DefaultClient, s.url)
			if err != nil || got.status != status {
				t.Fatalf("request %d is answered %d, want %d: %v", i, got.status, status, err)
			}
		}
	}
	const ok, no = http.StatusCreated, http.StatusTooManyRequests
	spend(ok, ok, ok, no)
	b.until(`document.querySelector("#callers-rows tr[data-level=spent]") !== null`)

	if first := b.tabTo(func(stop) bool { return true }); first.Text != "Skip to the limiters" {
		t.Errorf("the first stop is %+v", first)
	}
	at := b.tabTo(func(at stop) bool { return at.Text == "Reset" })
	if !regexp.MustCompile(`^Reset [0-9a-f]{16} at few$`).MatchString(at.Label) {
		t.Errorf("the button is read as %q", at.Label)
	}
	b.press("\r")
	b.until(`part("act").open && document.activeElement === part("act-why")`)
	b.press("\r") // a reason is required
	if !ask[bool](b, `part("act").open`) {
		t.Error("a reset without a reason was sent")
	}
	b.press("they asked nicely\r")
	b.until(`!part("act").open && part("callers-said").textContent.startsWith("Reset: address ")`)
	if back := ask[stop](b, focused); back.Text != "Reset" {
		t.Errorf("after the reset the focus is on %+v", back)
	}
	spend(ok, ok, ok, no)

	b.tabTo(func(at stop) bool { return at.Text == "Grant" })
	b.press("\r")
	b.until(`part("act").open && document.activeElement === part("act-times")`)
	b.tabTo(func(at stop) bool { return at.ID == "act-why" })
	b.press("a launch\r")
	b.until(`!part("act").open && part("callers-said").textContent.startsWith("Granted: address ")`)
	spend(ok, ok, ok, no) // 3 of 6 were spent
	b.until(`document.querySelector("#callers-rows .count").textContent === "6 of 6"`)

	if back := ask[stop](b, focused); back.Text != "Grant" {
		t.Errorf("after the grant the focus is on %+v", back)
	}
	b.press("\r")
	b.until(`part("act").open`)
	b.press(kb.Escape)
	b.until(`!part("act").open`)
	at = b.tabTo(func(at stop) bool { return at.Text == "Explain" })
	b.press("\r")
	b.until(`document.querySelector(".explained dl") !== null && document.activeElement.getAttribute("aria-expanded") === "true"`)
	if shown := b.text(".explained"); !strings.Contains(shown, "3 per hour by ip") || !strings.Contains(shown, "few") {
		t.Errorf("the refusal is explained as %q", shown)
	}
	b.leave()
	s.end(t)
}

// The page fits a wide and a narrow window, in light and dark mode, and its
// controls are large enough for a finger.
func TestTheDashboardFits(t *testing.T) {
	next := policyFile(t, strings.Replace(fmt.Sprintf(twoLimiters, 2), "rest", "other", 1))
	s := serveWeir(t, "--upstream", accepting(t), "--access-log=off", "--candidate", next, "--policy", policyFile(t, fmt.Sprintf(twoLimiters, 10)+`
  - name: a-limiter-with-quite-a-long-name-that-is-allowed-all-the-same
    routes: [/long]
    windows: [1 per hour by ip+agent]
    mode: shadow
`))
	b := dashboard(t, s)
	flood(t, s.url, 30, call{method: "POST", path: "/chat", foreign: true})
	fieldless(t, s.url+"/long", 30)
	b.until(`document.querySelectorAll("#shadow-rows tr").length === 1 && document.querySelectorAll("#candidate-rows tr").length > 0 && document.querySelectorAll(".refusals > li").length === 20`)
	ask[bool](b, `(document.querySelector(".refusals button").click(), true)`)
	b.until(`document.querySelector(".explained dl") !== null`)
	if shown := ask[string](b, `part("shadow-rows").innerText`); !strings.Contains(shown, "29") {
		t.Errorf("for the shadow limiter the page shows %q, want 29 that it would have refused", shown)
	}
	if shown := ask[string](b, `document.querySelector("#candidate-rows tr[data-limiter=chat]").innerText`); !strings.Contains(shown, "8\t1") {
		t.Errorf("for the candidate the page shows %q, want 8 newly refused of one caller", shown)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.prefer(scheme)
		for _, width := range []int64{1280, 400} {
			b.do("resize", chromedp.EmulateViewport(width, 900))
			b.until(fmt.Sprintf(`innerWidth === %d && [...cards.values()].every((c) => !c.plot || Math.abs(c.plot.width - c.chart.clientWidth) <= 1)`, width))
			if wide := ask[int64](b, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s: in a window of %d pixels the page takes %d", scheme, width, wide)
			}
			if out := ask[[]string](b, `[...cards].filter(([, c]) => c.chart.getBoundingClientRect().right > c.element.getBoundingClientRect().right || c.chart.scrollWidth > c.chart.clientWidth + 1).map(([name]) => name)`); len(out) > 0 {
				t.Errorf("%s, %d pixels: the charts of %v are wider than their cards", scheme, width, out)
			}
			small := ask[[]string](b, `[...document.querySelectorAll("button, input, select, nav a")].filter((e) => e.checkVisibility())
				.filter((e) => { const box = (e.closest("label") ?? e).getBoundingClientRect(); return box.width < 24 || box.height < 24 }).map((e) => e.outerHTML)`)
			if len(small) > 0 {
				t.Errorf("%s, %d pixels: too small to be hit with a finger (WCAG 2.2, 2.5.8): %v", scheme, width, small)
			}
			nameless := ask[[]string](b, `[...document.querySelectorAll("button, input, select, [role=img], pre[tabindex]")].filter((e) => e.checkVisibility())
				.filter((e) => !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length || e.textContent.trim())).map((e) => e.outerHTML)`)
			if len(nameless) > 0 {
				t.Errorf("without an accessible name: %v", nameless)
			}
		}
	}
	b.leave()
	s.end(t)
}

// The dashboard of --demo, as its operator sees it. The README shows the picture,
// so the picture must be small.
func TestThePictureOfTheDashboardIsSmall(t *testing.T) {
	s := serveWeir(t, "--demo")
	b := dashboard(t, s)
	b.prefer("light")
	b.do("resize", chromedp.EmulateViewport(1280, 1180))
	b.until(`!part("demo").hidden && document.querySelectorAll("article[data-quiet=no] canvas").length >= 3 && document.querySelectorAll("#callers-rows tr").length >= 5`)
	if *dashboardPicture != "" { // as it looks after a while
		select {
		case <-time.After(112 * time.Second):
		case <-t.Context().Done():
		}
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	if len(png) < 30_000 || len(png) > 300_000 {
		t.Errorf("the picture has %d bytes, want a picture of at most 300,000", len(png))
	}
	if *dashboardPicture != "" {
		if err := os.WriteFile(*dashboardPicture, png, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.leave()
	s.end(t)
}
