package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answersOf is an origin that answers each path in another form.
func answersOf(t testing.TB) *origin {
	long := strings.Repeat("x", 100_000)
	forms := map[string]string{
		"short":   ok200,
		"long":    fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long), long),
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
		"events":  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n0\r\n\r\n",
		"none":    "HTTP/1.1 204 No Content\r\n\r\n",
		"same":    "HTTP/1.1 304 Not Modified\r\nEtag: \"x\"\r\n\r\n",
		"empty":   "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"head":    "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
		"unsized": "HTTP/1.1 200 OK\r\n\r\n", // of a HEAD
		"cost":    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}",
		"bad":     "nonsense\r\n\r\n",
	}
	return newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			_, _ = io.Copy(io.Discard, r.Body)
			name := strings.TrimPrefix(r.URL.Path, "/v1/wp/")
			if name == "closes" {
				s.answers("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")
				return
			}
			if s.answers("%s", forms[name]); name == "bad" {
				return
			}
		}
	})
}

// A client that has a whole answer finds its slot free: with one slot, none of its requests is
// refused that it sends at once, each on another connection.
func TestAClientThatHasItsAnswerFindsItsSlotFree(t *testing.T) {
	const all = 1000
	policy := slotsOf(t, 1)
	o := answersOf(t)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	body := strings.Repeat("y", 100_000)
	kinds := []struct{ method, path, body string }{
		{"GET", "short", ""}, {"GET", "long", ""}, {"GET", "chunked", ""}, {"GET", "events", ""}, {"GET", "closes", ""},
		{"GET", "none", ""}, {"GET", "same", ""}, {"GET", "empty", ""}, {"HEAD", "head", ""}, {"HEAD", "unsized", ""},
		{"GET", "cost", ""}, {"GET", "bad", ""}, {"GET", "%2f", ""},
		{"POST", "short", "small"}, {"POST", "short", body}, {"POST", "long", body}, {"POST", "chunked", body},
	}
	callers := [2]*caller{e.caller(), e.caller()}
	for n := range all {
		kind := kinds[n%len(kinds)]
		c := callers[n%2]
		c.request(kind.method+" /v1/wp/"+kind.path, fmt.Sprintf("Content-Length: %d", len(kind.body)))
		c.write("%s", kind.body)
		res, _ := c.readAnswer(kind.method)
		if res.StatusCode == http.StatusTooManyRequests {
			t.Fatalf("request %d, %s %s after %s %s, is refused", n, kind.method, kind.path, kinds[(n-1)%len(kinds)].method, kinds[(n-1)%len(kinds)].path)
		}
		if res.Close {
			callers[n%2] = e.caller()
		}
	}
}

// An answer that still runs holds its slot: a stream, and one of a known length whose last byte is
// to come. The next request is admitted when they are read.
func TestAnAnswerThatRunsHoldsItsSlot(t *testing.T) {
	more := make(chan bool)
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			switch r.URL.Path {
			case "/v1/wp/stream":
				s.answers("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n:\n\n\r\n")
				<-more
				s.answers("0\r\n\r\n")
			case "/v1/wp/sized":
				s.answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")
				<-more
				s.answers("k")
			default:
				s.answers(ok200)
			}
		}
	})
	policy := slotsOf(t, 1)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	c, other := e.caller(), e.caller()
	begin := func() *http.Response {
		res, err := http.ReadResponse(c.Reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	for n := range 40 {
		path := []string{"stream", "sized"}[n%2]
		c.request("GET /v1/wp/" + path)
		var res *http.Response
		if path == "stream" || e.gateway.Fast() {
			res = begin()
		} else { // net/http keeps a head until there is more
			eventually(t, "the request is under way", func() bool { return policy.slots() == 1 })
		}
		for range 3 {
			other.request("GET /v1/wp/short")
			if res, _ := other.readAnswer("GET"); res.StatusCode != http.StatusTooManyRequests {
				t.Fatalf("beside %s, another request is answered %d", path, res.StatusCode)
			}
		}
		more <- true
		if res == nil {
			res = begin()
		}
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		other.request("GET /v1/wp/short")
		if res, _ := other.readAnswer("GET"); res.StatusCode != http.StatusOK {
			t.Fatalf("after %s, another request is answered %d", path, res.StatusCode)
		}
	}
}

// An answer before the end of the request's body ends the request too: what is left of the body
// goes nowhere.
func TestAnEarlyAnswerHoldsNoSlot(t *testing.T) {
	forms := map[string]string{
		"/v1/wp/empty":   "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n",
		"/v1/wp/sized":   "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno\n",
		"/v1/wp/chunked": "HTTP/1.1 413 Content Too Large\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno\n\r\n0\r\n\r\n",
	}
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			s.answers("%s", forms[r.URL.Path])
			if r.ContentLength != 0 {
				_, _ = io.Copy(io.Discard, s)
			}
		}
	})
	policy := slotsOf(t, 1)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	for n := range 300 {
		path := []string{"empty", "sized", "chunked"}[n%3]
		for _, header := range [][]string{{"Content-Length: 1000000"}, {"Content-Length: 1000000", "Expect: 100-continue"}} {
			c := e.caller()
			c.request("POST /v1/wp/"+path, header...)
			if len(header) == 1 {
				c.write("the beginning")
			}
			if res, _ := c.readAnswer("POST"); res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close {
				t.Fatalf("request %d, %s %v: %d", n, path, header, res.StatusCode)
			}
			defer c.Close()
		}
	}
}
