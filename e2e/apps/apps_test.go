package apps

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/e2e/apptest"
	"github.com/weirlimit/weir/internal/gateway"
)

const lead = "POST /api/v1/widget/leads"

// leadsSeen returns how many leads an application has routed.
func leadsSeen(t *testing.T, app *apptest.Server) (n int64) {
	t.Helper()
	for _, request := range app.Seen(t) {
		if request == lead {
			n++
		}
	}
	return n
}

// Some applications read a field as their mount point, the path or the method. No
// spelling of such a field turns another request into a lead that was not counted
// (D10).
func TestNoFieldTurnsARequestIntoALead(t *testing.T) {
	mounted := func(field string) []string {
		return []string{"POST /x/api/v1/widget/leads", field + ": /x", "Content-Length: 0"}
	}
	renamed := func(path, method string) []string {
		return []string{"PUT /elsewhere", path + ": /api/v1/widget/leads", method + ": POST", "Content-Length: 0"}
	}
	for name, test := range map[string]struct {
		start   func(testing.TB) *apptest.Server
		attacks [][]string
	}{
		"gunicorn": {apptest.Gunicorn, [][]string{
			mounted("SCRIPT_NAME"), mounted("script_name"), mounted("Script_Name"), mounted("SCRIPT-NAME"),
			{"POST /elsewhere", "PATH_INFO: /api/v1/widget/leads", "Path-Info: /api/v1/widget/leads", "Content-Length: 0"},
		}},
		"daphne": {apptest.Daphne, [][]string{
			mounted("Daphne-Root-Path"), mounted("DAPHNE-ROOT-PATH"), mounted("daphne-root-path"), mounted("Daphne_Root_Path"),
		}},
		"php": {apptest.PHP, [][]string{
			renamed("X-Rewrite-Url", "X-HTTP-Method-Override"), renamed("X.Rewrite.Url", "X.HTTP.Method.Override"),
			renamed("X_Rewrite_Url", "X_HTTP_Method_Override"), renamed("X-Rewrite.Url", "X-HTTP-Method_Override"),
		}},
		"lighttpd": {apptest.Lighttpd, [][]string{
			renamed("X-Rewrite-Url", "X-HTTP-Method-Override"), renamed("X.Rewrite.Url", "X!HTTP!Method!Override"),
			renamed("X~Rewrite~Url", "X|HTTP|Method|Override"), renamed("X_Rewrite*Url", "X'HTTP+Method^Override"),
		}},
	} {
		onEachEngine(t, name, func(t *testing.T, engine gateway.Engine) {
			app := test.start(t)
			e := before(t, engine, app)
			for range 10 {
				for _, attack := range test.attacks {
					if res := e.ask(attack[0], attack[1:]...); res.StatusCode != http.StatusOK {
						t.Fatalf("%q: status %d, %s", attack, res.StatusCode, res.text)
					}
				}
			}
			if n := leadsSeen(t, app); n != 0 || e.leads.Load() != 0 {
				t.Errorf("%d leads of %d attacks reach the application, and %d were counted", n, 10*len(test.attacks), e.leads.Load())
			}
			if res := e.ask(lead, "Content-Length: 0"); res.StatusCode != http.StatusOK || res.Header.Get("X-RateLimit-Limit") != leadsLimit {
				t.Errorf("a lead: status %d, %v", res.StatusCode, res.Header)
			}
			if n := leadsSeen(t, app); n != 1 || e.leads.Load() != 1 {
				t.Errorf("%d leads, %d counted, want one", n, e.leads.Load())
			}
		})
	}
}

// separators are the bytes of field names other than letters, digits and dashes.
const separators = "_.~!*'|^$%&+#`"

// No spelling of a field that names the client reaches the application, even if
// Connection lists it. Weir's own fields arrive exactly once (D10, D12).
func TestNoSpellingOfAFieldReachesAnApplication(t *testing.T) {
	forged := []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Client-Ip", "Proxy", "Fastly-Client-Ip", "X-Script-Name"}
	for name, start := range map[string]func(testing.TB) *apptest.Server{
		"gunicorn": apptest.Gunicorn, "daphne": apptest.Daphne, "php": apptest.PHP, "lighttpd": apptest.Lighttpd,
	} {
		onEachEngine(t, name, func(t *testing.T, engine gateway.Engine) {
			app := start(t)
			e := before(t, engine, app)
			for _, separator := range separators + "-" {
				header := []string{
					"Connection: X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host", "Authorization: Bearer mine", "Cookie: a=mine",
					"X-Requested-With: XMLHttpRequest", "X-Foo: mine", "Content-Type: application/json", "Content-Length: 2",
					fmt.Sprintf("X-Agent%cId: evil", separator),
				}
				if separator == '-' {
					header = header[:len(header)-1]
				}
				for _, field := range forged {
					spelled := strings.ReplaceAll(field, "-", string(separator))
					header = append(header, spelled+": evil", strings.ToLower(spelled)+": evil", strings.ToUpper(spelled)+": evil")
				}
				res := e.send("POST /v1/wp/x HTTP/1.1\r\nHost: weir.test\r\n" + strings.Join(header, "\r\n") + "\r\nConnection: close\r\n\r\n{}")
				received := strings.Split(res.text, "\n")
				if i := slices.IndexFunc(received, func(line string) bool { return strings.Contains(line, "evil") }); i >= 0 {
					t.Errorf("with %q for the dash: the application receives %q", separator, received[i])
				}
				for _, line := range []string{
					"HTTP_X_FORWARDED_FOR=127.0.0.1", "HTTP_X_FORWARDED_PROTO=http", "HTTP_X_FORWARDED_HOST=weir.test", "HTTP_AUTHORIZATION=Bearer mine",
					"HTTP_COOKIE=a=mine", "HTTP_X_REQUESTED_WITH=XMLHttpRequest", "HTTP_X_FOO=mine",
				} {
					if n := countOf(received, line); n != 1 {
						t.Errorf("with %q for the dash: the application receives %s %d times, want once", separator, line, n)
					}
				}
			}
		})
	}
}

func countOf(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// If a server does not read the body of a GET, it takes the body for further
// requests. Weir's connection ends after such a request, so no answer goes to
// another caller (D10).
func TestAnUnreadBodyIsNotARequest(t *testing.T) {
	smuggled := lead + " HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n"
	for _, method := range []string{"GET", "HEAD", "DELETE", "OPTIONS"} {
		onEachEngine(t, method, func(t *testing.T, engine gateway.Engine) {
			app := apptest.Python(t)
			e := before(t, engine, app)
			victim := e.caller()
			for n := range 40 {
				framed := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(smuggled), smuggled)
				if n%2 == 1 {
					framed = fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(smuggled), smuggled)
				}
				attacker := e.caller()
				attacker.send("%s /v1/wp/attack HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n%s", method, framed)
				// If a server closes while more of a chunked body arrives, its
				// answer may be lost.
				if answer, _ := io.ReadAll(attacker); n%2 == 0 && !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") {
					t.Fatalf("the attacker gets %q", answer)
				}
				victim.request("GET /v1/wp/victim")
				if res, body := victim.readAnswer("GET"); res.StatusCode != http.StatusOK || !strings.HasPrefix(body, "GET /v1/wp/victim\n") {
					t.Fatalf("the next caller gets %d %q", res.StatusCode, body)
				}
			}
			if n := leadsSeen(t, app); n != 0 || e.leads.Load() != 0 {
				t.Errorf("%d leads reach the application, %d were counted; none was sent", n, e.leads.Load())
			}
			if all := app.Seen(t); len(all) > 80 {
				t.Errorf("the application was asked %d times, want 80", len(all))
			}
		})
	}
}

// If an answer has no body by definition, bytes that the server sends after it
// reach no caller. Python's server sends such bytes if a handler answers 304 with
// a page.
func TestTheBodyOfA304ReachesNoOtherCaller(t *testing.T) {
	onEachEngine(t, "", func(t *testing.T, engine gateway.Engine) {
		app := apptest.Python(t)
		e := before(t, engine, app)
		attacker, victim := e.caller(), e.caller()
		for range 40 {
			attacker.request("GET /v1/wp/unchanged")
			if res, _ := attacker.readAnswer("GET"); res.StatusCode != http.StatusNotModified {
				t.Fatalf("%d, want 304", res.StatusCode)
			}
			victim.request("GET /v1/wp/victim")
			if res, body := victim.readAnswer("GET"); res.StatusCode != http.StatusOK || !strings.HasPrefix(body, "GET /v1/wp/victim\n") {
				t.Fatalf("the next caller gets %d %q", res.StatusCode, body)
			}
		}
	})
}
