package weir

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
	"golang.org/x/net/websocket"
)

// callsByPage is JavaScript that makes the calls of the other clients, and returns their report
// without what a page does not get to see: interim answers and trailers.
var callsByPage = `(async () => {
	const lines = [], sum = (bytes) => bytes.reduce((total, byte) => total + byte, 0);
	const bytes = async (response) => new Uint8Array(await response.arrayBuffer());
	let r = await fetch("/get");
	lines.push("get: " + r.status + " " + await r.text());
	r = await fetch("/echo", { method: "POST", body: Uint8Array.from({ length: 100000 }, (_, i) => (i * 7) % 251) });
	let b = await bytes(r);
	lines.push("echo: " + r.status + " " + b.length + " " + sum(b));
	r = await fetch("/big");
	b = await bytes(r);
	lines.push("big: " + r.status + " " + b.length + " " + sum(b));
	r = await fetch("/trailers");
	lines.push("trailers: " + r.status + " " + await r.text());
	r = await fetch("/hints");
	lines.push("hints: " + r.status);
	lines.push("events: " + await new Promise((resolve) => {
		const seen = [], source = new EventSource("/events");
		source.onmessage = async (event) => {
			seen.push(event.data);
			if (seen.length === 3) source.close();
			await fetch("/seen?" + event.data, { method: "POST" });
			if (seen.length === 3) resolve(seen.join(" "));
		};
	}));
	const statuses = [];
	for (let i = 0; i < 3; i++) statuses.push((r = await fetch("/limited")).status);
	lines.push("limited: " + statuses.join(" ") + " " + r.headers.get("x-ratelimit-remaining") + " " + (r.headers.get("retry-after") > 0));
	lines.push("socket: " + await new Promise((resolve, reject) => {
		const socket = new WebSocket(location.origin.replace("https", "wss") + "/socket"), seen = [];
		socket.onerror = () => reject(new Error("the websocket fails"));
		socket.onopen = () => { for (const n of [1, 2, 3]) socket.send("message " + n); };
		socket.onmessage = (event) => { seen.push(event.data); if (seen.length === 3) socket.close(); };
		socket.onclose = () => resolve(seen.join(" "));
	}));
	const protocols = new Set(performance.getEntriesByType("resource").map((entry) => entry.nextHopProtocol));
	lines.push("by: " + [...protocols].join(" "));
	return lines.join("\n") + "\n";
})()`

// A browser gets everything over HTTP/2 with TLS, and a websocket.
func TestABrowserOverHTTP2GetsEverything(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		t.Fatal(err)
	}
	policy := policyFile(t, "limiters:\n  - {name: limited, routes: [/limited], windows: [2 per day by ip]}\n  - {name: all, routes: [/*], windows: [1000 per day by ip]}\n")
	s := serveWeir(t, "--policy", policy, "--upstream", newCallersUpstream(t), "--tls-cert", cert, "--tls-key", key)
	b := openTab(t, "about:blank", host(t, s.url))
	b.do("accept the certificate", chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
		return err
	}), chromedp.Navigate(s.url+"/page"))
	want := withoutInterim(report) + "socket: message 1 message 2 message 3\nby: h2\n"
	if got := ask[string](b, callsByPage); got != want {
		t.Errorf("the page has\n%swant\n%s", got, want)
	}
	b.forgive("429")
	b.leave()
	s.end(t)
}

// servePage serves what only a browser asks for. It reports whether the request was one of these.
func servePage(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/page":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><html lang="en"><title>HTTP/2</title><link rel="icon" href="data:,">`)
	case "/socket":
		websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }).ServeHTTP(w, r)
	default:
		return false
	}
	return true
}
