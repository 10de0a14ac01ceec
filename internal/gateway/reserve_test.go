package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
)

// reserving is a policy whose requests tell what is reserved for them.
func reserving(t testing.TB, from string) *settled {
	t.Helper()
	reading, err := weir.ParseReading(from)
	if err != nil {
		t.Fatal(err)
	}
	return settling(t, []string{"100000 per hour by ip"}, func(l *weir.Limiter) {
		l.Cost, l.Reserve = 8000, weir.Reserve{From: reading, Times: 2, Plus: 500}
	})
}

// echoing is an origin that answers with the body of the request, and with its coding and length.
func echoing(t testing.TB) *origin {
	return newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			if r.Header.Get("Expect") != "" {
				s.answers("HTTP/1.1 100 Continue\r\n\r\n")
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			s.answers("HTTP/1.1 200 OK\r\nX-Heard: %d %v %v\r\nContent-Length: %d\r\n\r\n%s", r.ContentLength, r.TransferEncoding, r.Trailer, len(body), body)
		}
	})
}

// A field or a member of a JSON body tells what is reserved for a request, and the upstream gets
// the request as it came. A body that is longer than is read tells nothing, and nothing of it is
// lost.
func TestARequestTellsWhatIsReserved(t *testing.T) {
	const told = `{"model":"m","max_tokens":1000}`
	exact := told + strings.Repeat(" ", answer.MaxRequestRead-len(told))
	chunks := func(body string) string {
		var b strings.Builder
		for len(body) > 0 {
			n := min(10_000, len(body))
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		return b.String() + "0\r\nX-Note: last\r\n\r\n"
	}
	const json = "Content-Type: application/json\r\n"
	declared := func(body string) string { return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", json, len(body), body) }
	chunked := func(body string) string {
		return json + "Transfer-Encoding: chunked\r\nTrailer: X-Note\r\n\r\n" + chunks(body)
	}
	for _, test := range []struct {
		name, from, rest, body string
		spends                 int64
	}{
		{"a field", "header:X-Max-Cost", "X-Max-Cost: 1000\r\n" + declared(told), told, 2500},
		{"a field that is sent twice", "header:X-Max-Cost", "X-Max-Cost: 1\r\nX-Max-Cost: 1\r\n" + declared(told), told, 8000},
		{"a field that Connection names", "header:X-Max-Cost", "X-Max-Cost: 1\r\nConnection: X-Max-Cost\r\n" + declared(told), told, 8000},
		{"a small body", "json:max_tokens", declared(told), told, 2500},
		{"no body", "json:max_tokens", declared(""), "", 8000},
		{"a body of as many bytes as are read", "json:max_tokens", declared(exact), exact, 2500},
		{"one byte more", "json:max_tokens", declared(exact + " "), exact + " ", 8000},
		{"in chunks", "json:max_tokens", chunked(told), told, 2500},
		{"in chunks, as many bytes as are read", "json:max_tokens", chunked(exact), exact, 2500},
		{"in chunks, much longer", "json:max_tokens", chunked(exact + exact), exact + exact, 8000},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy, o := reserving(t, test.from), echoing(t)
			e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
			c := e.caller()
			go func() {
				_, _ = io.WriteString(c.Conn, "POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\n"+test.rest+"GET /next HTTP/1.1\r\nHost: weir.test\r\n\r\n")
			}()
			res, body := c.readAnswer("POST")
			if res.StatusCode != http.StatusOK || body != test.body {
				t.Errorf("%d, and the upstream got %d bytes, want %d", res.StatusCode, len(body), len(test.body))
			}
			want := fmt.Sprintf("%d [] map[]", len(test.body))
			if strings.Contains(test.rest, "chunked") {
				want = "-1 [chunked] map[X-Note:[last]]"
			}
			if heard := res.Header.Get("X-Heard"); heard != want {
				t.Errorf("the upstream got %q, want %q", heard, want)
			}
			if remaining := res.Header.Get("X-RateLimit-Remaining"); remaining != fmt.Sprint(100_000-test.spends) {
				t.Errorf("%s units remain, want that %d are reserved", remaining, test.spends)
			}
			if res, body := c.readAnswer("GET"); res.StatusCode != http.StatusOK || body != "" {
				t.Errorf("the next request: %d %q", res.StatusCode, body)
			}
		})
	}
}

// A client that waits for 100 Continue gets it before the decision if the body tells the cost, and
// not if the body is declared to be too long for that. A refused one gets its answer.
func TestABodyThatTellsIsAskedFor(t *testing.T) {
	const told = `{"max_tokens":30000}`
	policy, o := reserving(t, "json:max_tokens"), echoing(t)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	for i, status := range []int{200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429} {
		c := e.caller()
		c.request("POST /v1/chat", "Content-Type: application/json", "Expect: 100-continue", fmt.Sprintf("Content-Length: %d", len(told)))
		c.reads("HTTP/1.1 100 Continue\r\n\r\n")
		before := o.requests.Load()
		c.write("%s", told)
		res, body := c.readAnswer("POST")
		if res.StatusCode != status || status == 200 && body != told {
			t.Fatalf("request %d: %d %q", i, res.StatusCode, body)
		}
		if status == 429 && o.requests.Load() != before {
			t.Error("the upstream got a refused request")
		}
	}
	c := e.caller()
	c.request("POST /v1/chat", "Content-Type: application/json", "Expect: 100-continue", "Content-Length: 1000000")
	if status, _ := c.head(); !strings.HasPrefix(status, "429") {
		t.Errorf("a body that is declared too long: %s, want a refusal before it is sent", status)
	}
}

// A client that sends a body slowly, or breaks off, is bounded by the limits of a body, and costs
// as much as it could.
func TestASlowBodyThatTellsIsBounded(t *testing.T) {
	for _, length := range []string{"Content-Length: 100", "Content-Length: 100000", "Transfer-Encoding: chunked"} {
		policy, o := reserving(t, "json:max_tokens"), echoing(t)
		e := open(t, nil, func(options *Options) {
			o.use(options)
			policy.use(options)
			options.Limits.Stall = 200 * time.Millisecond
		})
		c := e.caller()
		c.request("POST /v1/chat", "Content-Type: application/json", length)
		c.write("14\r\n{")
		if status, _ := c.head(); !strings.HasPrefix(status, "408") {
			t.Errorf("%s: %s, want 408", length, status)
		}
		if n := policy.spent(); n != 8000 {
			t.Errorf("%s: %d units are spent", length, n)
		}
	}
}

// A request that is refused whatever its body reports gets its 429 before it sends the body: it is
// not asked to, and a body that never comes is not waited for. It costs nothing.
func TestARefusalDoesNotWaitForABody(t *testing.T) {
	policy, o := reserving(t, "json:max_tokens"), echoing(t)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	full := `{"max_tokens":30000}`
	for range 12 {
		c := e.caller()
		c.request("POST /v1/chat", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(full)))
		c.write("%s", full)
		c.readAnswer("POST")
	}
	c := e.caller()
	c.request("POST /v1/chat", "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(`{"max_tokens":1740}`)))
	c.write("%s", `{"max_tokens":1740}`)
	if res, _ := c.readAnswer("POST"); res.StatusCode != http.StatusOK || res.Header.Get("X-RateLimit-Remaining") != "20" {
		t.Fatalf("%d, %s remain", res.StatusCode, res.Header.Get("X-RateLimit-Remaining"))
	}
	for _, fields := range [][]string{
		{"Content-Length: 100"},
		{"Content-Length: 100", "Expect: 100-continue"},
		{"Transfer-Encoding: chunked"},
	} {
		if len(fields) == 1 && !e.gateway.Fast() {
			continue // net/http's server reads a short body before it sends an answer
		}
		c := e.caller()
		c.request("POST /v1/chat", append(fields, "Content-Type: application/json")...)
		res, body := c.readAnswer("POST")
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("X-RateLimit-Remaining") != "0" || res.Header.Get("Retry-After") == "" ||
			!strings.Contains(body, "rate_limited") {
			t.Errorf("%q: %d %v %s", fields, res.StatusCode, res.Header, body)
		}
	}
	if spent := policy.spent(); spent != 99_980 {
		t.Errorf("%d units are spent", spent)
	}
}
