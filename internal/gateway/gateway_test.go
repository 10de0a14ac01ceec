package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway/rules"
)

// Methods are case-sensitive tokens (D10).
func TestAnUnknownMethodIsCountedAndRejected(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, nil)
	for line, limit := range map[string]string{
		"get /v1/wp/status":               wpPlugin,
		"post /api/v1/widget/leads":       other, // not POST, so not the route of POST
		"TRACE /api/v1/widget/events":     "1000001",
		"CONNECT /v1/wp/x":                wpPlugin,
		"PROPFIND /api/v1/widget/init":    other,
		"M-SEARCH /":                      "",
		"CONNECT weir.test:80":            "",
		"Options /api/v1/widget/leads":    other,
		"POST_ /api/v1/widget/leads":      other,
		"XXXXXXXXXXXXXXXXXXXX /v1/wp/%3F": wpPlugin,
	} {
		res := e.ask(line)
		t.Run(line, func(t *testing.T) {
			want(t, res, http.StatusMethodNotAllowed, "method_not_allowed", limit)
			if got := res.Header.Get("Allow"); got != rules.AllMethods {
				t.Errorf("Allow: %q", got)
			}
		})
		if s, reached := seen.last(); reached {
			t.Errorf("%s reached the backend: %v", line, s)
		}
	}
}

func TestOptionsOfTheServerAreItsMethods(t *testing.T) {
	e := open(t, new(recorder), nil)
	res := e.ask("OPTIONS *")
	want(t, res, http.StatusNoContent, "", "")
	if got := res.Header.Get("Allow"); got != rules.AllMethods {
		t.Errorf("Allow: %q", got)
	}
	want(t, e.ask("GET *"), http.StatusBadRequest, "invalid_request", "")
}

// If the HTTP parser rejects bytes, they are not a request of a surface (D9).
func TestMalformedRequestsCloseTheConnection(t *testing.T) {
	seen := new(recorder)
	e := open(t, seen, func(o *Options) { o.Limits.HeaderBytes = 8 << 10 })
	for raw, status := range map[string]int{
		"GET /v1/wp/status\r\n\r\n":                      400,
		"GET  /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n": 400,
		// No Host.
		"GET /v1/wp/status HTTP/1.1\r\n\r\n":                                                         400,
		"GET /v1/wp/status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n":                                   400,
		"GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n":                                 400,
		"GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX : y\r\n\r\n":                                     400,
		"POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\n\r\n":                       400,
		"POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab": 400,
		"POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n":                       400,
		"POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n":                  501,
		"POST /v1/wp/status HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n":     501,
		"GET /v1/wp/status HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 16<<10) + "\r\n\r\n":    431,
		"GET /" + strings.Repeat("x", 16<<10) + " HTTP/1.1\r\nHost: h\r\n\r\n":                       431,
		"GET /v1/wp/% HTTP/1.1\r\nHost: h\r\n\r\n":                                                   400,
		"GET /v1/wp/status HTTP/3.0\r\nHost: h\r\n\r\n":                                              505,
	} {
		c := e.dial()
		if _, err := io.WriteString(c, raw); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil && len(answer) == 0 {
			t.Errorf("%.60q: %v", raw, err)
			continue
		}
		if !strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", status)) {
			t.Errorf("%.60q: %.60q, want %d", raw, answer, status)
		}
		if strings.Contains(string(answer), "RateLimit") {
			t.Errorf("%.60q: %q has fields of a limiter", raw, answer)
		}
		if s, reached := seen.last(); reached {
			t.Errorf("%.60q reached the backend: %v", raw, s)
		}
	}
}

func TestAPanicIsAnInternalErrorWithTheFields(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "7")
		if r.URL.RawQuery == "late" {
			_, _ = io.WriteString(w, "partial")
			_ = http.NewResponseController(w).Flush()
		}
		panic("a handler's own mistake")
	}), nil)
	want(t, e.ask("GET /v1/wp/status"), http.StatusInternalServerError, "internal", wpPlugin)
	want(t, e.ask("GET /elsewhere"), http.StatusInternalServerError, "internal", "")
	if n := strings.Count(e.log.String(), "a handler's own mistake"); n != 2 {
		t.Errorf("logged %d times, want 2", n)
	}
	if strings.Contains(text(t, e.ask("GET /v1/wp/status")), "mistake") {
		t.Error("the answer has a text that only the log should have")
	}

	c := e.dial()
	if _, err := io.WriteString(c, "GET /v1/wp/status?late HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 200") || !strings.HasSuffix(string(answer), "partial") {
		t.Errorf("%q, want the written bytes and then the end", answer)
	}
	eventually(t, "the late panic is logged", func() bool { return strings.Count(e.log.String(), "own mistake") == 4 })
}

func TestAnAbortedAnswerEndsTheConnectionQuietly(t *testing.T) {
	e := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), nil)
	c := e.dial()
	if _, err := io.WriteString(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(c); len(answer) > 0 {
		t.Errorf("%q, want nothing", answer)
	}
	e.stop()
	if !strings.Contains(e.access.String(), "aborted=true") || e.log.String() != "" {
		t.Errorf("access log %q, log %q", e.access.String(), e.log.String())
	}
}

func TestAHandlerThatEndsItsGoroutineIsInTheAccessLog(t *testing.T) {
	e := open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }), nil)
	c := e.dial()
	if _, err := io.WriteString(c, "GET /v1/wp/status HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, _ := io.ReadAll(c); len(answer) > 0 {
		t.Errorf("%q, want nothing", answer)
	}
	e.stop()
	if line := e.access.String(); !strings.Contains(line, "path=/v1/wp/status") || !strings.Contains(line, "aborted=true") {
		t.Errorf("access log %q, want the request, aborted", line)
	}
	if e.log.String() != "" {
		t.Errorf("log %q", e.log.String())
	}
}

func TestABodyIsBounded(t *testing.T) {
	read := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			bodyFailed(w, err)
		}
	})
	for _, change := range []func(*Options){func(*Options) {}, behind(t, read)} {
		testBodyBound(t, open(t, read, func(o *Options) { change(o); o.Limits.Body = 1000 }))
	}
}

func testBodyBound(t *testing.T, e *edge) {
	post := func(length string, body string) *http.Response {
		return e.ask("POST /api/v1/widget/leads", length+"\r\n\r\n"+body)
	}
	// ask ends the header a second time, after the body: one connection, one
	// answer.
	want(t, post("Content-Length: 1000", strings.Repeat("x", 1000)), http.StatusOK, "", leads)
	want(t, post("Content-Length: 1001", ""), http.StatusRequestEntityTooLarge, "payload_too_large", leads)
	chunks := "1f4\r\n" + strings.Repeat("x", 500) + "\r\n"
	want(t, post("Transfer-Encoding: chunked", chunks+chunks+"0\r\n\r\n"), http.StatusOK, "", leads)
	want(t, post("Transfer-Encoding: chunked", chunks+chunks+chunks+"0\r\n\r\n"), http.StatusRequestEntityTooLarge, "payload_too_large", leads)
}

func TestHealthEndpointsAreNotLimited(t *testing.T) {
	var problem error
	asked := 0
	p := testPolicy(t)
	everything, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	p.Limiters[0].Routes = append(p.Limiters[0].Routes, everything)
	e := open(t, new(recorder), func(o *Options) {
		o.Decider = testDecider(t, p)
		o.Ready = func(context.Context) error { asked++; return problem }
	})
	for _, path := range []string{"/healthz", "/readyz", "/x/../healthz", "/%68ealthz"} {
		res := e.ask("GET " + path)
		if res.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s may be cached", path)
		}
		want(t, res, http.StatusOK, "", "")
	}
	want(t, e.ask("HEAD /healthz"), http.StatusOK, "", "")
	want(t, e.ask("POST /readyz"), http.StatusMethodNotAllowed, "method_not_allowed", "")
	want(t, e.ask("GET /healthz2"), http.StatusOK, "", initLimit)
	if asked != 1 {
		t.Errorf("readiness was checked %d times within a second", asked)
	}
	problem = errors.New("the database is closed")
	eventually(t, "readiness is checked again after a second", func() bool {
		res := e.ask("GET /readyz")
		body := text(t, res)
		return res.StatusCode == http.StatusServiceUnavailable && body == "not ready: the database is closed\n"
	})
	want(t, e.ask("GET /healthz"), http.StatusOK, "", "")
}

func TestAKeptConnectionServesSequentialRequests(t *testing.T) {
	e := open(t, new(recorder), nil)
	c := e.dial()
	r := bufio.NewReader(c)
	for _, path := range []string{"/v1/wp/status", "/v1/wp/%2f", "/healthz", "/elsewhere"} {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text(t, res)
		if res.Close {
			t.Errorf("%s closes the connection", path)
		}
	}
}

func TestNewReportsInvalidOptions(t *testing.T) {
	good := func() Options {
		e := open(t, new(recorder), nil)
		return Options{Decider: e.gateway.options.Decider, Identity: e.gateway.options.Identity, Backend: new(recorder)}
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for reason, change := range map[string]func(*Options){
		"Decider and Identity are required": func(o *Options) { o.Decider = nil },
		"one of Backend and Sites":          func(o *Options) { o.Backend = nil },
		"not both":                          before(t, "http://h"),
		"needs trusted proxies":             func(o *Options) { o.ProxyProtocol = true },
		"an origin is a scheme and a host":  func(o *Options) { o.CORSOrigins = []string{"https://a.test/"} },
		"must be the only one":              func(o *Options) { o.CORSOrigins = []string{"*", "https://a.test"} },
		"no such file":                      func(o *Options) { o.Certificates = []KeyPair{{"missing.pem", "missing.key"}} },
		"with a host":                       func(o *Options) { o.Backend = nil; before(t, "http:///x")(o) },
		"http or https":                     func(o *Options) { o.Backend = nil; before(t, "ftp://h")(o) },
		"base path are allowed":             func(o *Options) { o.Backend = nil; before(t, "http://u:secret@h/?q")(o) },
		"escaped slash":                     func(o *Options) { o.Backend = nil; before(t, "http://h/a%2Fb")(o) },
	} {
		t.Run(reason, func(t *testing.T) {
			o := good()
			change(&o)
			_, err := New(o)
			if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want it to contain %q", err, reason)
			}
		})
	}
}
