package weir

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page on another origin calls an API of one's own with a key in a field, which needs a
// preflight. With --cors-origins it is served, although the backend knows nothing of origins, and
// it can read how it was refused. Without, the browser lets nothing through.
func TestAPageOfAnotherOriginCallsAnAPIOfOnesOwn(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) }))
	defer backend.Close()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>app</title>`)
	}))
	defer app.Close()
	calls := func(s *server) string {
		b := openTab(t, app.URL, host(t, app.URL), host(t, s.url))
		report := ask[string](b, fmt.Sprintf(`(async () => {
			const lines = [];
			for (let n = 0; n < 10; n++) {
				const key = n === 1 ? "guessed-guessed-guessed" : %q;
				try {
					const r = await fetch(%q + "/v1/items", { method: "PUT", headers: { "X-Api-Key": key } });
					lines.push(r.status + " " + r.headers.get("x-ratelimit-remaining") + " " + (r.headers.get("retry-after") > 0) + " " + (r.ok ? await r.text() : (await r.json()).error.code));
				} catch (e) {
					lines.push(e.name);
				}
			}
			return lines.join("\n");
		})()`, customerKey, s.url))
		for _, complaint := range []string{"status of 401", "status of 429", "blocked by CORS policy", "net::ERR_FAILED", "CorsIssue"} {
			b.forgive(complaint)
		}
		b.leave()
		return report
	}
	open := serveKeys(t, backend.URL, "--token-from", "header:X-Api-Key", "--cors-origins", app.URL)
	if got, want := calls(open), strings.TrimSpace(`
200 7 false PUT
401 7 false unauthenticated
200 6 false PUT
200 5 false PUT
200 4 false PUT
200 3 false PUT
200 2 false PUT
200 1 false PUT
200 0 false PUT
429 0 true rate_limited`); got != want {
		t.Errorf("the page reads:\n%s\nwant:\n%s", got, want)
	}
	if got, want := calls(serveKeys(t, backend.URL, "--token-from", "header:X-Api-Key")), strings.TrimSpace(strings.Repeat("TypeError\n", 10)); got != want {
		t.Errorf("without --cors-origins the page reads:\n%s\nwant:\n%s", got, want)
	}
}
