package sample

import (
	"regexp"
	"strings"
	"testing"
)

// A page is open to all, and its policy lets the browser load nothing from elsewhere and run
// nothing inline.
func TestPagesAreForAnybodyAndLoadNothingFromElsewhere(t *testing.T) {
	k := setUp(t)
	for _, p := range pageTable {
		got := k.send("GET "+p.path, "", "").want(200)
		for name, value := range map[string]string{
			"Content-Type":           p.kind,
			"X-Content-Type-Options": "nosniff",
			"Referrer-Policy":        "no-referrer",
			"Cache-Control":          "no-cache",
		} {
			if got.header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", p.path, name, got.header.Get(name), value)
			}
		}
		sources := strings.Split(got.header.Get("Content-Security-Policy"), "; ")
		if sources[0] != "default-src 'none'" {
			t.Errorf("%s: the policy begins with %q", p.path, sources[0])
		}
		for _, s := range sources {
			if words := strings.Fields(s); len(words) != 2 || words[1] != "'none'" && words[1] != "'self'" && words[1] != "'script'" {
				t.Errorf("%s: the policy allows more than the page's own server: %q", p.path, s)
			}
		}
		if head := k.send("HEAD "+p.path, "", "").want(200); len(head.body) != 0 || head.header.Get("Content-Length") != got.header.Get("Content-Length") {
			t.Errorf("%s: HEAD answers %d bytes and %v", p.path, len(head.body), head.header)
		}
		if again := k.send("GET "+p.path, "", "", "If-None-Match", got.header.Get("ETag")).want(304); len(again.body) != 0 {
			t.Errorf("%s: 304 with %d bytes", p.path, len(again.body))
		}
		if refused := k.send("POST "+p.path, "", "{}").want(405); refused.header.Get("Allow") != pageMethods {
			t.Errorf("%s: POST is allowed %q", p.path, refused.header.Get("Allow"))
		}
	}
}

// A person who opens the server's address gets the demo page.
func TestTheRootLeadsToTheDemoPage(t *testing.T) {
	k := setUp(t)
	for _, method := range []string{"GET", "HEAD"} {
		got := k.send(method+" /", "", "").want(302)
		if got.header.Get("Location") != "demo" || got.header.Get("Cache-Control") != "no-store" || len(got.body) != 0 {
			t.Errorf("%s / answers %v with %q", method, got.header, got.body)
		}
	}
	if refused := k.send("POST /", "", "{}").want(405); refused.header.Get("Allow") != pageMethods {
		t.Errorf("POST / is allowed %q", refused.header.Get("Allow"))
	}
}

// Pages do not contain what their policy forbids: inline script and style, handlers in attributes,
// other hosts.
func TestPagesHoldNothingThatTheirPolicyForbids(t *testing.T) {
	k := setUp(t)
	inline := regexp.MustCompile(`(?i)<style|<script(?: [^>]*)?>[^<]|\sstyle=|\son[a-z]+=|javascript:|(?:src|href)="(?:https?:)?//`)
	for _, p := range pageTable {
		if body := k.send("GET "+p.path, "", "").want(200).body; strings.HasPrefix(p.kind, "text/html") && inline.Match(body) {
			t.Errorf("%s holds %q", p.path, inline.Find(body))
		}
	}
	script := string(k.send("GET /demo/demo.js", "", "").body)
	for _, sink := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
		if strings.Contains(script, sink) {
			t.Errorf("/demo/demo.js uses %s: what others have written is set as text", sink)
		}
	}
}
