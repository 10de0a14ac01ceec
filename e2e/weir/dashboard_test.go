package weir

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/internal/admin"
)

// operating returns the URL of a server's admin listener, and the operator's token.
func operating(t *testing.T, s *server) (url, token string) {
	t.Helper()
	m, err := s.stdout.await(adminAt)
	if err != nil {
		t.Fatal(err)
	}
	if token, err = admin.ReadOperator(s.data); err != nil {
		t.Fatal(err)
	}
	return m[1], token
}

// dashboard opens the dashboard of a server and waits until it shows data.
func dashboard(t *testing.T, s *server) *tab {
	t.Helper()
	url, token := operating(t, s)
	b := openTab(t, url+"/#token="+token, host(t, url))
	b.until(`document.body.dataset.state === "live"`)
	return b
}

// A total is the number of requests by limiter and outcome: "widget-leads refused".
type total = map[string]int64

// shownTotals returns the dashboard's totals, once they include all answers of the
// server.
func (b *tab) shownTotals() total {
	b.Helper()
	ask[bool](b, `(async () => { const before = heard; loop.now(); while (heard === before || loop.busy) await new Promise((done) => setTimeout(done, 10)); return true })()`)
	ask[bool](b, `(async () => { const before = heard; loop.now(); while (heard === before || loop.busy) await new Promise((done) => setTimeout(done, 10)); return true })()`)
	read := ask[map[string]string](b, `Object.fromEntries([...document.querySelectorAll("article[data-limiter] td[data-total]")]
		.map((td) => [td.closest("article").dataset.limiter + " " + td.dataset.total, td.textContent]))`)
	out := make(total)
	for name, text := range read {
		n, err := strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 64)
		if err != nil {
			b.Fatalf("%s reads %q", name, text)
		}
		if n != 0 {
			out[name] = n
		}
	}
	return out
}

var (
	decisionLine = regexp.MustCompile(`^weir_decisions_total\{(.*)\} ([0-9.e+]+)$`)
	nearLine     = regexp.MustCompile(`^weir_near_limit_total\{(.*)\} ([0-9.e+]+)$`)
	labelOf      = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// measuredTotals returns the totals of /metrics.
func measuredTotals(t *testing.T, s *server) total {
	t.Helper()
	url, token := operating(t, s)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	out := make(total)
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		m, near := decisionLine.FindStringSubmatch(lines.Text()), false
		if m == nil {
			if m, near = nearLine.FindStringSubmatch(lines.Text()), true; m == nil {
				continue
			}
		}
		labels := make(map[string]string)
		for _, l := range labelOf.FindAllStringSubmatch(m[1], -1) {
			labels[l[1]] = l[2]
		}
		outcome := map[string]string{"store_unavailable": "unavailable", "unlimited": "admitted"}[labels["outcome"]]
		if near {
			outcome = "near"
		} else if outcome == "" {
			outcome = labels["outcome"]
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if n != 0 {
			out[labels["limiter"]+" "+outcome] += int64(n)
		}
	}
	if err := lines.Err(); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("GET /metrics: status %d, %v", answer.StatusCode, err)
	}
	return out
}

// agree checks that the page and the metrics have the same totals, and that the
// named ones are not zero.
func agree(t *testing.T, when string, s *server, b *tab, some ...string) {
	t.Helper()
	shown, measured := b.shownTotals(), measuredTotals(t, s)
	for name, n := range measured {
		if shown[name] != n {
			t.Errorf("%s: %s: the page shows %d, /metrics %d", when, name, shown[name], n)
		}
		delete(shown, name)
	}
	if len(shown) > 0 {
		t.Errorf("%s: the page also shows %v", when, shown)
	}
	for _, name := range some {
		if measured[name] == 0 {
			t.Errorf("%s: there is no %s, so nothing was compared: %v", when, name, measured)
		}
	}
}

// fieldless sends requests that no limiter covers, or only one in shadow mode.
func fieldless(t *testing.T, url string, n int) {
	t.Helper()
	for range n {
		answer, err := http.Post(url, "text/plain", nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != http.StatusCreated || answer.Header.Get("X-RateLimit-Limit") != "" {
			t.Fatalf("an unlimited request is answered %d, %v", answer.StatusCode, answer.Header)
		}
	}
}

const twoLimiters = `
limiters:
  - name: chat
    routes: [POST /chat]
    windows: [%d per hour by ip]
  - name: rest
    routes: [/v1/*]
    windows: [10000 per minute by ip]
`

// The dashboard's totals are correct: under load, after a reload, and without
// traffic.
func TestTheDashboardMatchesTheMetrics(t *testing.T) {
	policy := policyFile(t, fmt.Sprintf(twoLimiters, 100))
	s := serveWeir(t, "--upstream", accepting(t), "--policy", policy, "--access-log=off")
	b := dashboard(t, s)
	agree(t, "with nothing asked", s, b)
	if shown := b.text("#verdict-text"); shown != "All is well" {
		t.Errorf("without traffic the page shows %q", shown)
	}
	b.until(`document.querySelectorAll("article[data-quiet=yes]").length === 2 && !part("no-callers").hidden && !part("no-refusals").hidden`)
	flood(t, s.url, 400, call{method: "POST", path: "/chat", foreign: true})
	flood(t, s.url, 1600, call{method: "GET", path: "/v1/any", foreign: true})
	fieldless(t, s.url+"/nobody/limits/this", 3)
	agree(t, "under load", s, b, "chat admitted", "chat refused", "chat near", "rest admitted", " admitted")
	b.until(`document.querySelector("article[data-limiter=chat] canvas") !== null && document.querySelectorAll(".refusals > li").length > 50`)
	if label := ask[string](b, `document.querySelector("article[data-limiter=chat] .chart").getAttribute("aria-label")`); !strings.Contains(label, "100 requests admitted") || !strings.Contains(label, "300 refused") {
		t.Errorf("the chart is read as %q", label)
	}

	before := b.text("#fact-policy")
	replaceFile(t, policy, fmt.Sprintf(twoLimiters, 150)+"  # another\n")
	b.until(`document.querySelector("#fact-policy").textContent !== ` + strconv.Quote(before))
	b.until(`part("policy-text").textContent.includes("# another")`)
	flood(t, s.url, 200, call{method: "POST", path: "/chat", foreign: true})
	agree(t, "after a reload", s, b, "chat admitted")

	replaceFile(t, policy, strings.Replace(fmt.Sprintf(twoLimiters, 0), "chat", "<b id=x1>chat", 1))
	b.until(`part("verdict-text").textContent === "The new policy was rejected" && part("policy-problems").childElementCount > 1`)
	if b.text("#policy-text") == "" || ask[bool](b, `document.querySelector("#x1") !== null`) {
		t.Error("the policy in force is gone, or the other's text became markup")
	}
	agree(t, "after a reload that was refused", s, b)
	replaceFile(t, policy, fmt.Sprintf(twoLimiters, 150))
	b.until(`part("verdict-text").textContent === "All is well" && part("policy-refused").hidden`)
	b.leave()
	s.end(t)
}

// While the store is down, the page reports it and shows the local counts. It also
// reports the recovery.
func TestTheDashboardShowsAStoreThatIsAway(t *testing.T) {
	redis := redistest.Start(t)
	s := serveWeir(t, "--store", redis.URL(), "--leases", "auto", "--upstream", accepting(t), "--policy", policyFile(t, fmt.Sprintf(twoLimiters, 300)+`
  - name: strict
    routes: [/strict]
    windows: [1000 per minute by ip]
    on_store_failure: deny
`), "--access-log=off")
	b := dashboard(t, s)
	flood(t, s.url, 100, call{method: "POST", path: "/chat", foreign: true})
	agree(t, "with the store", s, b, "chat admitted")
	b.until(`part("fact-store").textContent.includes("from leased units") && part("fact-store").title.includes("Leased units: ")`)
	redis.Kill()
	flood(t, s.url, 400, call{method: "POST", path: "/chat", foreign: true})
	flood(t, s.url, 5, call{method: "POST", path: "/strict", foreign: true})
	b.until(`part("verdict").dataset.level === "bad" && part("verdict-text").textContent === "The store does not answer"`)
	if shown := b.text("#fact-store"); !strings.Contains(shown, "no answer") {
		t.Errorf("for the store the page shows %q", shown)
	}
	agree(t, "without the store", s, b, "chat admitted", "chat refused", "strict unavailable")
	redis.Restart(t)
	b.until(`part("verdict-text").textContent === "All is well"`)
	agree(t, "with the store again", s, b, "chat admitted", "chat refused", "strict unavailable")
	b.leave()
	s.end(t)
}

// If the server is gone, the page reports it, and continues once a server is back.
// A new server has totals of its own.
func TestTheDashboardOutlivesTheServer(t *testing.T) {
	s := serveWeir(t, "--upstream", accepting(t), "--policy", policyFile(t, fmt.Sprintf(twoLimiters, 10)), "--access-log=off")
	url, _ := operating(t, s)
	b := dashboard(t, s)
	flood(t, s.url, 30, call{method: "POST", path: "/chat", foreign: true})
	agree(t, "before", s, b, "chat refused")
	b.until(`document.querySelectorAll(".refusals > li").length === 20`)
	s.end(t)
	b.until(`part("verdict-text").textContent === "The server does not answer" && document.body.dataset.state === "stale"`)
	again := serveIn(t, s.data, "--upstream", accepting(t), "--policy", policyFile(t, fmt.Sprintf(twoLimiters, 10)), "--access-log=off", "--admin", host(t, url))
	b.until(`part("verdict-text").textContent === "All is well" && document.body.dataset.state === "live"`)
	agree(t, "of the next process", again, b)
	b.until(`document.querySelectorAll(".refusals > li").length === 0`)
	b.forgive("ERR_CONNECTION")
	b.forgive("ERR_EMPTY_RESPONSE")
	b.leave()
	again.end(t)
}

// Without a token the page shows nothing. The token is removed from the address
// bar. It survives a reload of the page, but not the tab.
func TestTheDashboardNeedsAToken(t *testing.T) {
	s := serveWeir(t)
	url, token := operating(t, s)
	b := openTab(t, url+"/", host(t, url))
	b.until(`!part("door").hidden && document.activeElement === part("door-token")`)
	if asked := b.sent("/status"); len(asked) != 0 {
		t.Errorf("without a token it asked for %d statuses", len(asked))
	}
	b.press("wrong\r")
	b.until(`part("door-wrong").textContent !== "" && !part("door").hidden && part("main").hidden`)
	b.forgive("status of 401")
	b.press(token + "\r")
	b.until(`document.body.dataset.state === "live" && part("door").hidden`)
	if at := ask[string](b, "location.href"); at != url+"/" {
		t.Errorf("the address bar reads %q", at)
	}
	ask[bool](b, `(setTimeout(() => location.reload(), 0), true)`)
	b.until(`document.readyState === "complete" && document.body?.dataset.state === "live"`)
	b.leave()

	c := openTab(t, url+"/#token="+token, host(t, url))
	c.until(`document.body.dataset.state === "live"`)
	if at := ask[string](c, "location.href + history.length"); strings.Contains(at, "token") || strings.Contains(at, token) {
		t.Errorf("the address bar reads %q", at)
	}
	c.leave()
	page, err := http.Get(url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil || page.StatusCode != http.StatusOK || len(text) > 200_000 || strings.Contains(string(text), token) {
		t.Errorf("GET /: status %d, %d bytes, %v; want at most 200,000 without a secret", page.StatusCode, len(text), err)
	}
	s.end(t)
}
