package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// A backend that stops answering is the first thing that an operator sees, and is gone from there
// when it answers again.
func TestTheDashboardShowsABackendThatIsDown(t *testing.T) {
	var down atomic.Bool
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler) // closes the connection
		}
	}))
	t.Cleanup(upstream.Close)
	at := upstream.Listener.Addr().String()
	s := serveWeir(t, "--upstream", upstream.URL, "--access-log=off", "--policy", policyFile(t, `
limiters:
  - name: all
    routes: [/*]
    windows: [4 per hour by ip]
`))
	get := func(want int) string {
		t.Helper()
		answer, err := http.Get(s.url + "/x")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Fatalf("a request is answered %d, want %d", answer.StatusCode, want)
		}
		return answer.Header.Get("X-Weir-Denial")
	}
	get(http.StatusOK)
	b := dashboard(t, s)
	b.until(`document.getElementById("verdict-text").textContent === "All is well"`)
	b.until(`document.querySelector("#backend-rows tr").dataset.up === "yes"`)
	down.Store(true)
	get(http.StatusBadGateway) // a kept connection that ends proves nothing
	get(http.StatusBadGateway)
	b.until(`document.getElementById("verdict-text").textContent === "The backend is down"`)
	b.until(`document.getElementById("verdict").dataset.level === "bad"`)
	if got := b.text("#troubles"); !strings.Contains(got, at) || !strings.Contains(got, "2 requests answered 502 since the start") {
		t.Errorf("the reason is %q", got)
	}
	if got := b.text("#backend-rows tr"); !strings.Contains(got, "down since") || !strings.Contains(got, at) {
		t.Errorf("the row of the backend is %q", got)
	}
	down.Store(false)
	get(http.StatusOK)
	b.until(`document.getElementById("verdict-text").textContent === "All is well"`)

	denial := get(http.StatusTooManyRequests)
	find := func(what, want string) {
		t.Helper()
		ask[bool](b, `(part("find-what").value = "`+what+`", part("find-form").requestSubmit(), true)`)
		b.until(`document.querySelector("#found table, #found .hint:not(:empty), #find-wrong:not(:empty)") && !document.querySelector("#found").textContent.includes("Asking")`)
		if got := b.text("#find"); !strings.Contains(got, want) {
			t.Errorf("a search for %.12s… shows\n%s\nwant %q in it", what, got, want)
		}
	}
	find("127.0.0.1", "4 of 4")
	find(denial, "4 of 4 units")
	find("no-such-token", "No limiter")
	b.forgive("keys?token=no-such-token") // 422
	if got := ask[string](b, `JSON.stringify(questionOf("wpt_abc123_secretsecret"))`); got != `{"token":"abc123"}` {
		t.Errorf("the secret of a token is sent: %s", got)
	}
}

// On a phone the callers come before the charts, also for a screen reader.
func TestTheDashboardHasCallersFirstOnAPhone(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t), "--access-log=off", "--policy", policyFile(t, onePerHour))
	b := dashboard(t, s)
	const before = `!!(part("callers").compareDocumentPosition(part("limiters")) & Node.DOCUMENT_POSITION_FOLLOWING)`
	if ask[bool](b, before) {
		t.Error("the callers are before the charts on a wide screen")
	}
	b.do("resize", chromedp.EmulateViewport(390, 844))
	b.until(before)
	b.until(`document.documentElement.scrollWidth <= 390`)
	b.do("resize", chromedp.EmulateViewport(1280, 900))
	b.until(`!` + before)
}

// If more sites are down than the headline names, it says how many more. On a phone the alarm has
// the whole width.
func TestTheDashboardShowsThatManySitesAreDown(t *testing.T) {
	var upstreams []string
	for i := range 7 {
		upstreams = append(upstreams, fmt.Sprintf("s%d.example.com=http://127.0.0.1:%d", i, i+1))
	}
	s := serveWeir(t, "--upstream", strings.Join(upstreams, ","), "--access-log=off", "--policy", policyFile(t, onePerHour))
	b := dashboard(t, s)
	for i := range 7 {
		r, err := http.NewRequest(http.MethodGet, s.url+"/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = fmt.Sprintf("s%d.example.com", i)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	b.until(`document.getElementById("verdict-text").textContent === "7 backends are down"`)
	b.until(`document.querySelectorAll("#troubles li").length === 6`)
	if got := ask[string](b, `document.querySelector("#troubles li:last-child").textContent`); got != "And 2 more: see Backend." {
		t.Errorf("after five sites the headline says %q", got)
	}
	if got := b.text("#troubles"); !strings.Contains(got, "s0.example.com: no answer since ") {
		t.Errorf("the troubles are %q", got)
	}
	if got := b.text("#fact-backend"); !strings.Contains(got, "7 of 7 down") || !strings.Contains(got, "addresses") {
		t.Errorf("the tile of the backend says %q", got)
	}
	b.do("resize", chromedp.EmulateViewport(390, 844))
	b.until(`part("verdict").getBoundingClientRect().width > 340 && document.documentElement.scrollWidth <= 390`)
	if height := ask[float64](b, `part("verdict").getBoundingClientRect().height`); height > 500 {
		t.Errorf("the alarm is %v pixels high on a phone", height)
	}
	b.leave()
	s.end(t)
}
