package weir

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// longWindows is a policy whose windows outlast any test.
const longWindows = `limiters:
  - name: init
    routes: [POST /api/v1/widget/init]
    windows: [1000 per hour by ip]
  - name: chat
    routes: [POST /api/v1/widget/messages*, /api/v1/widget/events*, /api/v1/widget/conversations*]
    windows: [300 per hour by session or ip]
  - name: leads
    routes: [POST /api/v1/widget/leads]
    windows: [3 per hour by session or ip]
  - name: widget-other
    routes: [/api/v1/widget/*]
    windows: [6000 per hour by ip]
`

// readFields is JavaScript that calls the API from the page, and returns the fields
// of each answer that the page can read.
const readFields = `(async () => {
	const number = (r, name) => Number(r.headers.get(name) ?? -1);
	const ask = async (method, path, token, body) => {
		const r = await fetch(api + "/api/v1/widget/" + path, {
			method,
			headers: { ...(token && { Authorization: "Bearer " + token }), ...(body && { "Content-Type": "application/json" }) },
			body: body && JSON.stringify(body),
		});
		seen.push({ what: method + " " + path, status: r.status, limit: number(r, "X-RateLimit-Limit"), remaining: number(r, "X-RateLimit-Remaining"),
			reset: number(r, "X-RateLimit-Reset"), wait: number(r, "Retry-After"), date: Date.parse(r.headers.get("Date")) / 1000 });
		return r.json();
	};
	const seen = [];
	const { token, conversation_id } = await ask("POST", "init", "", { agent_id: "demo" });
	for (let n = 0; n < 3; n++) {
		await ask("POST", "messages", token, { text: "hello" });
		await ask("GET", "events", token);
		await ask("GET", "conversations", token);
		await ask("GET", "conversations/" + conversation_id, token);
	}
	for (let n = 0; n < 4; n++) await ask("POST", "leads", token, { email: "ada@example.com" });
	await ask("GET", "conversations", "nonsense");
	await ask("GET", "nothing");
	return seen;
})()`

// A script on another origin reads every field of every answer, including 401, 404
// and 429 (D22, D9). Each request costs exactly one unit; the browser's preflights
// have another budget.
func TestCrossOriginScriptsReadTheFieldsAndPreflightsAreFree(t *testing.T) {
	s := serveWeir(t, "--policy", policyFile(t, longWindows))
	b := visit(t, s)
	b.until(`feed.after > 0`) // the widget is idle
	seen := ask[[]struct {
		What                                        string
		Status, Limit, Remaining, Reset, Wait, Date int64
	}](b, readFields)
	for _, status := range []string{"401", "404", "429"} {
		b.forgive("status of " + status)
	}
	if len(seen) != 1+12+4+2 {
		t.Fatalf("the page has seen %d answers: %v", len(seen), seen)
	}
	for i, a := range seen {
		wanted := [3]int64{201, 1000, 998} // of init; the widget has started a session too
		switch {
		case i > 0 && i <= 12:
			wanted = [3]int64{200, 300, 300 - int64(i)}
			if strings.HasPrefix(a.What, "POST") {
				wanted[0] = 201
			}
		case i > 12 && i <= 15:
			wanted = [3]int64{201, 3, 15 - int64(i)}
		case i == 16:
			wanted = [3]int64{429, 3, 0}
			if a.Wait != a.Reset-a.Date {
				t.Errorf("%s: Retry-After %d, but Reset %d is %d s after Date", a.What, a.Wait, a.Reset, a.Reset-a.Date)
			}
		case i == 17:
			wanted = [3]int64{401, 300, 299} // the address's limit
		case i == 18:
			wanted = [3]int64{404, 6000, 6000 - 1 - int64(b.preflights())}
		}
		if got := [3]int64{a.Status, a.Limit, a.Remaining}; got != wanted || a.Reset <= a.Date || a.Reset > a.Date+3600 {
			t.Errorf("answer %d, %+v: want status, Limit and Remaining %v, and Reset within the hour after Date", i, a, wanted)
		}
	}
	if n := b.preflights(); n < 6 {
		t.Errorf("the browser sent %d preflights, fewer than there were endpoints: the test proves nothing", n)
	}
	b.leave()
	s.end(t)
}

// preflights returns how many the browser has sent.
func (b *tab) preflights() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.requests {
		if x.preflight {
			n++
		}
	}
	return n
}

// shortWindow is a policy whose 429 comes soon and ends soon.
const shortWindow = `limiters:
  - name: chat
    routes: [POST /api/v1/widget/messages*]
    windows: [3 per 4 seconds by session or ip]
    message: widget
  - name: widget-other
    routes: [/api/v1/widget/*]
    windows: [6000 per minute by ip]
`

// german is the catalogue's sentence for a German visitor of the widget.
const german = "Zu viele Widget-Anfragen in dieser Unterhaltung. Bitte senden Sie Anfragen langsamer."

// wrongClock is JavaScript that sets the visitor's clock back by an hour.
const wrongClock = `(() => { const now = Date.now; Date.now = () => now() - 3600000; return true })()`

// watchWaiting is JavaScript that records what the page shows when it starts to
// wait, and keeps trying to send.
const watchWaiting = `
	window.during = null;
	const watch = setInterval(() => {
		if (waiting === null) return;
		clearInterval(watch);
		window.during = { message: part("notice-text").textContent, language: part("notice-text").lang, hidden: part("notice").hidden,
			disabled: part("send").disabled, draft: draft.value, left: part("gauge").getAttribute("aria-valuenow"),
			countdown: part("countdown").textContent, said: part("announcer").textContent };
		for (let n = 0; n < 20; n++) {
			part("compose").requestSubmit();
			call("messages", () => ["messages", json({ text: "again" })]).catch(() => {});
		}
	}, 5);
	true`

// The widget shows the 429 in the browser's language, sends nothing until Reset
// even if a key or button is pressed, and keeps the draft. At Reset it continues by
// itself, and its next request is served. All this holds if the local clock is
// wrong (D1, D6, D20).
func TestTheWidgetWaitsForResetAndContinues(t *testing.T) {
	s := serveWeir(t, "--policy", policyFile(t, shortWindow))
	b := visit(t, s)
	b.until(`feed.after > 0`)
	ask[bool](b, wrongClock)
	ask[bool](b, watchWaiting)
	// Three fit into a window, unless the machine is very slow.
	for n := 0; !ask[bool](b, "waiting !== null || window.during !== null"); n++ {
		if n == 40 {
			t.Fatal("40 messages, and no 429")
		}
		b.sendMessage("Hallo?")
	}
	b.until("window.during !== null")
	during := ask[struct {
		Message, Language, Draft, Left, Countdown, Said string
		Hidden, Disabled                                bool
	}](b, "window.during")
	b.forgive("status of 429")
	if during.Message != german || during.Language != "de" || during.Hidden {
		t.Errorf("the widget shows %+v; want the catalogue's German sentence", during)
	}
	countdown := regexp.MustCompile(`^You can send again in [1-4] s\.$`)
	if !during.Disabled || during.Draft != "Hallo?" || during.Left != "0" || !countdown.MatchString(during.Countdown) {
		t.Errorf("while it waits: %+v; want the button off, the draft kept, an empty gauge and a countdown", during)
	}
	if during.Said != german+" "+during.Countdown {
		t.Errorf("a screen reader reads %q", during.Said)
	}

	b.until("waiting === null")
	if !ask[bool](b, `part("notice").hidden && !part("send").disabled && draft.value === "Hallo?"`) || b.text("#announcer") != "You can send again." {
		t.Errorf("after Reset the widget shows:\n%s", ask[string](b, "document.body.innerText"))
	}
	b.press("\r")
	b.until(`!sending && draft.value === ""`)

	var all []exchanged
	for _, x := range b.sent("/api/v1/widget/messages") {
		if !x.preflight {
			all = append(all, x)
		}
	}
	refused := slices.IndexFunc(all, func(x exchanged) bool { return x.status == http.StatusTooManyRequests })
	if refused < 0 || refused != len(all)-2 || all[refused+1].status != http.StatusCreated {
		t.Fatalf("the page has sent %d messages, the 429 was the answer to number %d: want one more after it, and that one served", len(all), refused)
	}
	reset, err := strconv.ParseInt(all[refused].answer.Get("X-RateLimit-Reset"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if asked := len(b.sent("/api/v1/widget/messages")) - len(all); asked != 1 {
		t.Errorf("the browser sent %d preflights for messages: one is valid for hours", asked)
	}
	if served, err := http.ParseTime(all[refused+1].answer.Get("Date")); err != nil || served.Unix() < reset {
		t.Errorf("the next message was served at %v (%v), before Reset %d", served, err, reset)
	}
	b.leave()
	s.end(t)
}
