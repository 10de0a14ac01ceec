package weir

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// hide and unhide are JavaScript that imitates switching to another tab, and back.
const (
	hide = `Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
		document.dispatchEvent(new Event("visibilitychange")); true`
	unhide = `delete document.hidden; document.dispatchEvent(new Event("visibilitychange")); true`
)

// ofOne is JavaScript that sends a message without a key press, so that it has two
// events, and starts the next message before the answer.
const ofOne = `draft.value = "One?"; part("compose").requestSubmit(); draft.value += " And two?"; true`

// feedRequests returns the page's requests for events, without preflights.
func (b *tab) feedRequests() []exchanged {
	return slices.DeleteFunc(b.sent("/api/v1/widget/events"), func(x exchanged) bool { return x.preflight })
}

// A hidden tab follows no feed. When it is shown again, it resumes from its last
// event, over a stream from another origin with the session's token. No event is
// lost or repeated.
func TestTheFeedRestsWhileHiddenAndResumesWithoutLossOrRepeat(t *testing.T) {
	s := serveWeir(t)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, ofOne)
	b.until(`feed.after === 3 && !sending`) // started, sent, answered
	if rest := ask[string](b, "draft.value"); rest != " And two?" {
		t.Errorf("the draft written during the request is %q", rest)
	}

	ask[bool](b, hide)
	b.until(`part("feed-state").textContent === "Paused while this tab is hidden"`)
	ask[bool](b, `call("messages", () => ["messages", json({ text: "Two?" })]).then(() => true)`)
	if at := ask[int64](b, "feed.after"); at != 3 || len(b.feedRequests()) != 1 {
		t.Errorf("hidden, it has seen event %d after %d requests; want 3 and 1", at, len(b.feedRequests()))
	}

	ask[bool](b, unhide)
	b.until(`part("feed-state").textContent === "Live" && feed.after === 5`)
	if shown := ask[int64](b, `part("events").children.length`); shown != 5 {
		t.Errorf("of 5 events the page shows %d:\n%s", shown, b.text("#events"))
	}
	all := b.feedRequests()
	resumed := all[len(all)-1]
	want := ask[string](b, "feed.conversation") + "/3"
	if got := fmt.Sprint(resumed.header["Last-Event-ID"]); len(all) != 2 || got != want {
		t.Errorf("request %d has Last-Event-ID %s; want the second, with %s", len(all), got, want)
	}
	b.leave()
	s.end(t)
}

// If a server or proxy blocks streams, the widget polls, starting after its last
// event.
func TestWithoutStreamsTheFeedIsPolled(t *testing.T) {
	s := serveWeir(t)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, `feed.streams = false; feed.retry = 50; feed.controller.abort(); true`)
	b.until(`part("feed-state").textContent === "Polling"`)
	ask[bool](b, ofOne)
	b.until(`feed.after === 3`)
	if shown := ask[int64](b, `part("events").children.length`); shown != 3 {
		t.Errorf("of 3 events the page shows %d:\n%s", shown, b.text("#events"))
	}
	asked := b.feedRequests()[1].url.Query()
	if asked.Get("after") != "1" || asked.Get("wait") != "25" {
		t.Errorf("it asked with %v, want after=1 and wait=25", asked)
	}
	b.leave()
	s.end(t)
}

// If a session has ended, the widget starts a new one, once, and sends the
// visitor's message in it.
func TestAnEndedSessionIsReplaced(t *testing.T) {
	s := serveWeir(t)
	library(t, s, shopDocuments, shopCoupons)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, `session.token = session.token.slice(0, -4) + "AAAA"; true`)
	b.sendMessage("How do I return a jumper?")
	b.until(`document.querySelectorAll(".answer a").length > 0`)
	b.forgive("status of 401")
	if divider := b.text(".divider"); !strings.Contains(divider, "new one") {
		t.Errorf("the visitor sees %q", divider)
	}
	var begun int
	for _, x := range b.sent("/api/v1/widget/init") {
		if !x.preflight && x.status == http.StatusCreated {
			begun++
		}
	}
	if begun != 2 {
		t.Errorf("the page has begun %d sessions, want 2", begun)
	}
	b.leave()
	s.end(t)
}
