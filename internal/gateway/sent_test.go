package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// sentDecider counts by the tenant of a path, and everything else together.
func sentDecider(t testing.TB) *weir.Decider {
	t.Helper()
	var p weir.Policy
	for route, window := range map[string]string{"/projects/{tenant}": "3 per day by ip+path:tenant", "/v1/search": "1000 per day by ip", "/*": "1000000 per day by ip"} {
		r, err := weir.ParseRoute(route)
		if err != nil {
			t.Fatal(err)
		}
		w, err := weir.ParseWindow(window)
		if err != nil {
			t.Fatal(err)
		}
		p.Limiters = append(p.Limiters, weir.Limiter{Name: "l" + strings.Fields(window)[0], Routes: []weir.Route{r}, Windows: []weir.Window{w}})
	}
	return testDecider(t, p)
}

// recordingOrigin returns an origin, and the heads that it received.
func recordingOrigin(t testing.TB) (*origin, chan string) {
	heads := make(chan string, 1)
	return newOrigin(t, func(s *served) {
		head, _ := readHead(s.Conn)
		heads <- head
		s.answers("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
	}), heads
}

// With --paths as-sent the upstream gets the target byte for byte, from HTTP/1.1 and HTTP/2, with
// and without a base path.
func TestATargetIsForwardedAsSent(t *testing.T) {
	for _, base := range []string{"", "/base%2Fpath"} {
		o, heads := recordingOrigin(t)
		e := open(t, nil, func(options *Options) {
			o.use(options)
			if base != "" {
				u := *options.Sites[0].Upstreams[0]
				u.Path, u.RawPath = "/base/path", "/base/path"
				options.Sites = To(&u)
				base = "/base/path"
			}
			options.Paths, options.Decider = AsSent, sentDecider(t)
		})
		client := h2c(t)
		for _, target := range []string{
			"/plain", "/plain?", "/", "/@scope%2fname", "/@scope%2Fname?a;b&q=100%", "/img/https://example.com//x.png", "/a%2520b/%25", "/%7e/%41",
			"/caf\xc3\xa9?caf\xc3\xa9", "/\xff\xfe/%ff?\x80", "/a|b<c>^`{}\"[]", "/a//|", "/.well-known/x", "/a;x=%2fb", "/trailing//", "/x%20%3f%23?%23", "/100%25?a=%zz",
		} {
			if res := e.ask("GET " + target); res.StatusCode != http.StatusOK {
				t.Errorf("%q is answered %d", target, res.StatusCode)
				continue
			}
			if head := within(t, 10*time.Second, "the upstream is asked", heads); !strings.HasPrefix(head, "GET "+base+target+" HTTP/1.1\r\n") {
				t.Errorf("%q arrives as %.80q", target, head)
			}
			u, err := url.Parse(e.url("/"))
			if err != nil {
				t.Fatal(err)
			}
			u.Opaque = target // of which net/http sends every byte
			res, err := client.Do(&http.Request{Method: "GET", URL: u, Header: http.Header{}})
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("HTTP/2: %q is answered %d", target, res.StatusCode)
				continue
			}
			if head := within(t, 10*time.Second, "the upstream is asked", heads); !strings.HasPrefix(head, "GET "+base+target+" HTTP/1.1\r\n") {
				t.Errorf("HTTP/2: %q arrives as %.80q", target, head)
			}
		}
	}
}

// No spelling of a path has a budget of its own, and what no backend reads in one way is answered
// 400 and does not reach the upstream.
func TestAPathAsSentSharesABudgetWithItsOtherSpellings(t *testing.T) {
	seen := new(recorder)
	e := open(t, nil, func(options *Options) {
		behind(t, seen.ServeHTTP)(options)
		options.Paths, options.Decider = AsSent, sentDecider(t)
	})
	for _, spelled := range []string{"/projects/a%2fb", "/Projects/%61", "/projects/%2561"} {
		if res := e.ask("GET " + spelled); res.StatusCode != http.StatusOK || limitOf(res.Header) != "3" {
			t.Errorf("%q: %d, limit %s", spelled, res.StatusCode, limitOf(res.Header))
		}
		seen.last()
	}
	for _, spelled := range []string{"/projects/a", "/projects/A%2Fc", "/projects/a.json", "/projects/%61;x//"} {
		if res := e.ask("GET " + spelled); res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%q: %d, want 429", spelled, res.StatusCode)
		}
	}
	for _, spelled := range []string{
		"/v1%2fsearch", "/v1//search", "/x/..%2fv1/search", "/x/../v1/search", "/x/./y", "/v1\\search", "/v1%5csearch", "//v1/search", "/x%00", "/x%0a", "/projects//a", "/x/..;/v1/search",
	} {
		want(t, e.ask("GET "+spelled), http.StatusBadRequest, "invalid_request", "1000000")
		if s, reached := seen.last(); reached {
			t.Errorf("%q reached the upstream: %v", spelled, s)
		}
	}
	e.stop()
	for _, path := range []string{"/projects/{tenant}/b", "/Projects/{tenant}", "/projects/{tenant}/c", "/projects/{tenant}/", "/v1%2fsearch", "//v1/search", "/x/../v1/search"} {
		if log := e.access.String(); !strings.Contains(log, " path="+path+" ") {
			t.Errorf("the access log has no path %s: the one that was counted, without what counts, or as sent if it was refused\n%s", path, log)
		}
	}
}

// The advice of a 400 is about what is wrong with the path.
func TestTheAdviceOfA400IsAboutThePath(t *testing.T) {
	e := open(t, nil, func(options *Options) {
		behind(t, new(recorder).ServeHTTP)(options)
		options.Paths, options.Decider = AsSent, sentDecider(t)
	})
	for path, want := range map[string]string{
		"/x/../v1/search": "without dot segments", "/x%5cy": "backslashes", "//v1/search": "two slashes at its beginning", "/x/;a/y": "segments that have no name",
		"/projects//a": "without empty segments", "/v1%2fsearch": "escaped slashes", "/v1//search": "without empty segments", "/v1/%2573earch": "escaped more than once",
	} {
		if got := text(t, e.ask("GET "+path)); !strings.Contains(got, want) {
			t.Errorf("%s is answered %s: want %q", path, got, want)
		}
	}
}

// Strict, which is the default, forwards the canonical form and rejects what has none.
func TestPathsAreStrictByDefault(t *testing.T) {
	o, heads := recordingOrigin(t)
	e := open(t, nil, o.use)
	want(t, e.ask("GET /v1/wp/@scope%2fname"), http.StatusBadRequest, "invalid_request", wpPlugin)
	e.ask("GET /v1/wp//%7Ea")
	if head := within(t, 10*time.Second, "the upstream is asked", heads); !strings.HasPrefix(head, "GET /v1/wp/~a HTTP/1.1\r\n") {
		t.Errorf("it arrives as %.80q", head)
	}
}

// Methods that the options name are forwarded and counted; others stay unknown.
func TestFurtherMethodsAreForwardedAndCounted(t *testing.T) {
	o, heads := recordingOrigin(t)
	e := open(t, nil, func(options *Options) {
		o.use(options)
		options.Methods = []string{"PROPFIND", "M-SEARCH"}
	})
	client := h2c(t)
	for _, method := range []string{"PROPFIND", "M-SEARCH"} {
		want(t, e.ask(method+" /v1/wp/x"), http.StatusOK, "", wpPlugin)
		if head := within(t, 10*time.Second, "the upstream is asked", heads); !strings.HasPrefix(head, method+" /v1/wp/x HTTP/1.1\r\n") {
			t.Errorf("it arrives as %.80q", head)
		}
		req, err := http.NewRequest(method, e.url("/v1/wp/x"), strings.NewReader("<propfind/>"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("HTTP/2: %s is answered %d", method, res.StatusCode)
		}
		if head := within(t, 10*time.Second, "the upstream is asked", heads); !strings.HasPrefix(head, method+" /v1/wp/x HTTP/1.1\r\n") {
			t.Errorf("HTTP/2: it arrives as %.80q", head)
		}
	}
	const all = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, PROPFIND, M-SEARCH"
	for _, line := range []string{"PURGE /v1/wp/x", "propfind /v1/wp/x", "TRACE /v1/wp/x"} {
		res := e.ask(line)
		want(t, res, http.StatusMethodNotAllowed, "method_not_allowed", wpPlugin)
		if got := res.Header.Get("Allow"); got != all {
			t.Errorf("%s: Allow %q", line, got)
		}
	}
	if got := e.ask("OPTIONS *").Header.Get("Allow"); got != all {
		t.Errorf("OPTIONS *: Allow %q", got)
	}
	preflight := e.ask("OPTIONS /api/v1/widget/x", "Origin: https://shop.test", "Access-Control-Request-Method: PROPFIND")
	if got := preflight.Header.Get("Access-Control-Allow-Methods"); got != all {
		t.Errorf("preflight: Access-Control-Allow-Methods %q", got)
	}
}

func TestMethodsThatCannotBeAccepted(t *testing.T) {
	for method, why := range map[string]string{
		"CONNECT": "tunnel", "TRACE": "credentials", "PRI": "HTTP/2", "GET": "always accepted", "propfind": "capital letters", "": "capital letters", "A B": "capital letters", "A\r\nB": "capital letters",
	} {
		if err := CheckMethod(method); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", method, err, why)
		}
	}
}

// The upstream learns who is calling by the fields that the options name, and by no others.
func TestForwardingFieldsAreThoseThatAreNamed(t *testing.T) {
	o, heads := recordingOrigin(t)
	all := []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-Ip", "Forwarded"}
	for _, c := range []struct {
		names []string
		chain string // of the trusted proxy's X-Forwarded-For
		want  map[string]string
	}{
		{nil, "203.0.113.7", map[string]string{"X-Forwarded-For": "203.0.113.7, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "weir.test"}},
		{[]string{NoForwarding}, "203.0.113.7", nil},
		{[]string{"x-real-ip"}, "203.0.113.7", map[string]string{"X-Real-Ip": "203.0.113.7"}},
		{[]string{"Forwarded", "x-forwarded-for"}, "203.0.113.7", map[string]string{
			"X-Forwarded-For": "203.0.113.7, 127.0.0.1", "Forwarded": "for=203.0.113.7;host=weir.test;proto=https, for=127.0.0.1",
		}},
		{[]string{"forwarded", "x-real-ip"}, "2001:db8::7", map[string]string{
			"X-Real-Ip": "2001:db8::7", "Forwarded": `for="[2001:db8::7]";host=weir.test;proto=https, for=127.0.0.1`,
		}},
	} {
		e := open(t, nil, func(options *Options) {
			o.use(options)
			options.Forwarded, options.TrustedProxies = c.names, loopback
		})
		check := func(what string) {
			t.Helper()
			head := within(t, 10*time.Second, "the upstream is asked", heads)
			got := map[string]string{}
			for line := range strings.SplitSeq(head, "\r\n") {
				name, value, _ := strings.Cut(line, ": ")
				if name = http.CanonicalHeaderKey(name); strings.Contains(strings.Join(all, " ")+" ", name+" ") && name != "" {
					got[name] += value
				}
			}
			for _, name := range all {
				if got[name] != c.want[name] {
					t.Errorf("%s, %q: %s is %q, want %q", what, c.names, name, got[name], c.want[name])
				}
			}
		}
		forged := []string{"X-Forwarded-For: " + c.chain, "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.test", "X-Real-IP: 192.0.2.1", "Forwarded: for=192.0.2.1;proto=gopher"}
		e.ask("GET /v1/wp/x", forged...)
		check("HTTP/1.1")
		req, err := http.NewRequest("GET", e.url("/v1/wp/x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "weir.test"
		for _, f := range forged {
			name, value, _ := strings.Cut(f, ": ")
			req.Header.Set(name, value)
		}
		res, err := h2c(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		check("HTTP/2")
	}
}
