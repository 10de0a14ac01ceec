package weir

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// hide and unhide are JavaScript that does what switching to another tab, and back, does.
const (
	hide = `Object.defineProperty(document, "hidden", { configurable: true, get: () => true });
		document.dispatchEvent(new Event("visibilitychange")); true`
	unhide = `delete document.hidden; document.dispatchEvent(new Event("visibilitychange")); true`
)

// ofOne is JavaScript that sends a message without a key being pressed, so that its events are two,
// and has begun the next one before it is answered.
const ofOne = `draft.value = "One?"; part("compose").requestSubmit(); draft.value += " And two?"; true`

// feedRequests returns the page's requests for events, without preflights.
func (b *tab) feedRequests() []exchanged {
	return slices.DeleteFunc(b.sent("/api/v1/widget/events"), func(x exchanged) bool { return x.preflight })
}

// Nobody looks at a hidden tab: it follows no feed. When it is looked at again it goes on where it
// was, over a stream that carries the session, from another origin; no event is lost and none is
// shown twice.
func TestTheFeedRestsWhileHiddenAndResumesWithoutLossOrRepeat(t *testing.T) {
	s := serveWeir(t)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, ofOne)
	b.until(`feed.after === 3 && !sending`) // started, said, answered
	if rest := ask[string](b, "draft.value"); rest != " And two?" {
		t.Errorf("of what was written while a message was on its way, %q is left", rest)
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

// A stream that a server or something before it does not let through is replaced by asking, from
// the same event on.
func TestWithoutStreamsTheFeedIsAskedFor(t *testing.T) {
	s := serveWeir(t)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, `feed.streams = false; feed.retry = 50; feed.controller.abort(); true`)
	b.until(`part("feed-state").textContent === "Asking now and then"`)
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

// A session that has ended is replaced by a new one, once, and what the visitor wrote reaches it.
func TestAnEndedSessionIsReplaced(t *testing.T) {
	s := serveWeir(t)
	library(t, s, shopDocuments, shopCoupons)
	b := visit(t, s)
	b.until(`part("feed-state").textContent === "Live" && feed.after > 0`)
	ask[bool](b, `session.token = session.token.slice(0, -4) + "AAAA"; true`)
	b.say("How do I return a jumper?")
	b.until(`document.querySelectorAll(".answer a").length > 0`)
	b.forgive("status of 401")
	if told := b.text(".divider"); !strings.Contains(told, "new one") {
		t.Errorf("the visitor is told %q", told)
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
