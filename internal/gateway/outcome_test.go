package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir"
)

func counting(t testing.TB, window, statuses string, not bool) *settled {
	t.Helper()
	return settling(t, []string{window}, func(l *weir.Limiter) {
		s, err := weir.ParseStatuses(statuses)
		if err != nil {
			t.Fatal(err)
		}
		l.Count = weir.Count{Not: not, Statuses: []weir.Statuses{s}}
	})
}

// Of 1000 parallel logins with a limit of 5 that counts 401, exactly 5 reach the backend before the
// first is answered. Those that succeed are given back, and as many more reach it.
func TestLoginsAreCountedByTheirOutcome(t *testing.T) {
	const limit, all = 5, 1000
	arrived, answers, stop := make(chan bool, all), make(chan string), make(chan bool)
	defer close(stop)
	o := newOrigin(t, func(s *served) {
		for s.request() != nil {
			arrived <- true
			select {
			case line := <-answers:
				s.answers("HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", line)
			case <-stop:
				return
			}
		}
	})
	policy := counting(t, fmt.Sprintf("%d per hour by ip", limit), "401", false)
	e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
	var asked sync.WaitGroup
	refused := make(chan bool, all)
	admitted := make(chan *http.Response, all)
	login := func() {
		c := e.caller()
		asked.Go(func() {
			defer c.Close()
			c.request("POST /login", "Content-Length: 0")
			switch res, _ := c.readAnswer("POST"); res.StatusCode {
			case http.StatusTooManyRequests:
				refused <- true
			default:
				admitted <- res
			}
		})
	}
	for range all {
		login()
	}
	for range all - limit {
		within(t, patience, "the others are refused", refused)
	}
	if n := o.requests.Load(); n != limit {
		t.Errorf("%d requests are at the backend, want %d", n, limit)
	}
	remain := 0
	for _, line := range []string{"401 Unauthorized", "200 OK", "401 Unauthorized", "200 OK", "401 Unauthorized"} {
		answers <- line
		res := within(t, patience, "an answer", admitted)
		if res.StatusCode != http.StatusOK {
			continue // it has what remained when it was admitted
		}
		remain++
		if remaining := res.Header.Get("X-RateLimit-Remaining"); remaining != fmt.Sprint(remain) {
			t.Errorf("after %d are given back, %s remain", remain, remaining)
		}
	}
	if n := policy.spent(); n != 3 {
		t.Errorf("%d are counted, want the three with 401", n)
	}
	for range 3 {
		login()
	}
	within(t, patience, "the third is refused", refused)
	for range 2 {
		answers <- "401 Unauthorized"
		within(t, patience, "an answer", admitted)
	}
	asked.Wait()
	if n := o.requests.Load(); n != limit+2 || policy.spent() != limit {
		t.Errorf("%d requests were at the backend and %d are counted, want %d and %d", n, policy.spent(), limit+2, limit)
	}
}

// The head of an answer has the budget after it was settled: for the upstream's status and field,
// behind interim answers, for an upgrade, and for the gateway's own answer after a failure.
func TestTheHeadHasTheSettledBudget(t *testing.T) {
	o := newOrigin(t, func(s *served) {
		for r := s.request(); r != nil; r = s.request() {
			_, _ = io.Copy(io.Discard, r.Body)
			switch r.URL.Path {
			case "/nothing":
				return
			case "/interim":
				s.answers("HTTP/1.1 103 Early Hints\r\nX-Cost: 1\r\n\r\n")
			case "/socket":
				s.answers("%s", switching[:len(switching)-2]+"X-Cost: 2\r\n\r\n")
				return
			case "/named":
				s.answers("HTTP/1.1 200 OK\r\nConnection: X-Cost\r\nX-Cost: 2\r\nContent-Length: 0\r\n\r\n")
				continue
			case "/announced":
				s.answers("HTTP/1.1 200 OK\r\nTrailer: X-Cost\r\nX-Cost: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Cost: 2\r\n\r\n")
				continue
			}
			s.answers("HTTP/1.1 %s\r\nX-Cost: %s\r\nContent-Length: 0\r\n\r\n", r.Header.Get("X-Status"), r.Header.Get("X-Told"))
		}
	})
	byStatus := counting(t, "100 per hour by ip", "5xx", true)
	byField := settling(t, []string{"100 per hour by ip"}, func(l *weir.Limiter) {
		l.Cost, l.Actual = 10, weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}
	})
	for _, test := range []struct {
		name   string
		policy *settled
		line   string
		fields []string
		status int
		spends int64
	}{
		{"a status that is counted", byStatus, "GET /", []string{"X-Status: 404 Not Found"}, 404, 1},
		{"a status that is not", byStatus, "GET /", []string{"X-Status: 503 Service Unavailable"}, 503, 0},
		{"without an answer of the upstream", byStatus, "GET /nothing", nil, 502, 0},
		{"a HEAD", byStatus, "HEAD /", []string{"X-Status: 500 Internal Server Error"}, 500, 0},
		{"a field", byField, "GET /", []string{"X-Status: 200 OK", "X-Told: 3"}, 200, 3},
		{"a HEAD's field", byField, "HEAD /", []string{"X-Status: 200 OK", "X-Told: 3"}, 200, 3},
		{"a field of a 204", byField, "GET /", []string{"X-Status: 204 No Content", "X-Told: 0"}, 204, 0},
		{"a field behind an interim answer with another", byField, "GET /interim", []string{"X-Status: 200 OK", "X-Told: 4"}, 200, 4},
		{"a field with more than was reserved", byField, "GET /", []string{"X-Status: 200 OK", "X-Told: 25"}, 200, 25},
		{"a field that tells nothing", byField, "GET /", []string{"X-Status: 200 OK", "X-Told: -5"}, 200, 10},
		{"a field that Connection names", byField, "GET /named", nil, 200, 10},
		{"a field that is announced as a trailer", byField, "GET /announced", nil, 200, 10},
		{"an upgrade", byField, "GET /socket", []string{"Connection: Upgrade", "Upgrade: websocket"}, 101, 2},
		{"without an answer", byField, "GET /nothing", nil, 502, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := open(t, nil, func(options *Options) { o.use(options); test.policy.use(options) })
			before := test.policy.spent()
			c := e.caller()
			c.request(test.line, test.fields...)
			status, h := c.head()
			for strings.HasPrefix(status, "103") {
				if h.Get("X-Ratelimit-Remaining") != "" {
					t.Errorf("the interim answer has %v", h)
				}
				status, h = c.head()
			}
			after := test.policy.spent()
			if !strings.HasPrefix(status, fmt.Sprint(test.status)) || after-before != test.spends {
				t.Errorf("%s, and %d units are spent, want %d and %d", status, after-before, test.status, test.spends)
			}
			if remaining := h.Get("X-Ratelimit-Remaining"); remaining != fmt.Sprint(100-after) {
				t.Errorf("the head says that %s remain, want %d", remaining, 100-after)
			}
		})
	}
}

// tokens is a policy whose answers tell their cost in JSON.
func tokens(t testing.TB) *settled {
	return settling(t, []string{"100000 per hour by ip"}, func(l *weir.Limiter) {
		l.Cost, l.Actual = 1000, weir.Reading{Form: weir.ReadJSON, Name: "usage.total_tokens"}
	})
}

// A body tells the cost however it is framed, and the budget is settled when the client has all of
// it. What is sent is what the upstream has sent. The part of a body that a range selects tells
// nothing: the caller chooses it.
func TestABodyTellsTheCost(t *testing.T) {
	const told = `{"usage":{"total_tokens":7}}`
	long := `{"text":"` + strings.Repeat("x", 300<<10) + `","usage":{"total_tokens":7}}`
	chunks := func(body string, size int) string {
		var b strings.Builder
		for len(body) > 0 {
			n := min(size, len(body))
			fmt.Fprintf(&b, "%x;ext=\"{}\"\r\n%s\r\n", n, body[:n])
			body = body[n:]
		}
		return b.String() + "0\r\nX-Cost: 3\r\n\r\n"
	}
	const head, json = "HTTP/1.1 200 OK\r\nContent-Type: ", "application/json\r\n"
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body) }
	for _, test := range []struct {
		name, answer, body string
		spends             int64
	}{
		{"with the head", head + json + length(told), told, 7},
		{"long", head + json + length(long), long, 7},
		{"in chunks", head + json + "Transfer-Encoding: chunked\r\n\r\n" + chunks(told, 5), told, 7},
		{"long, in chunks", head + json + "Transfer-Encoding: chunked\r\n\r\n" + chunks(long, 50_000), long, 7},
		{"until the end of the connection", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + json + "\r\n" + told, told, 7},
		{"events", head + "text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks("data: {}\n\ndata: "+told+"\n\ndata: [DONE]\n\n", 9), "data: {}\n\ndata: " + told + "\n\ndata: [DONE]\n\n", 7},
		{"another type", head + "text/plain\r\n" + length(told), told, 1000},
		{"none", head + json + length(""), "", 1000},
		{"a part", strings.Replace(head, "200 OK", "206 Partial Content\r\nContent-Range: bytes 9-27/100", 1) + json + length(told), told, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			policy := tokens(t)
			o := newOrigin(t, func(s *served) {
				if r := s.request(); r != nil {
					if coding := r.Header["Accept-Encoding"]; coding != nil {
						t.Errorf("the upstream is asked for the coding %q", coding)
					}
					s.answers("%s", test.answer)
				}
			})
			e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
			c := e.caller()
			c.request("GET /", "Accept-Encoding: gzip, br")
			if _, body := c.readAnswer("GET"); body != test.body {
				t.Errorf("%.100q arrives, want %.100q", body, test.body)
			}
			if e.gateway.Fast() {
				if n := policy.spent(); n != test.spends {
					t.Errorf("%d units are spent when the answer is whole, want %d", n, test.spends)
				}
			}
			eventually(t, "the request has ended", func() bool { return e.gateway.InFlight() == 0 })
			if n := policy.spent(); n != test.spends {
				t.Errorf("%d units are spent, want %d", n, test.spends)
			}
		})
	}
}

// Only a cost in the body keeps the upstream from compressing it, and only under a limiter that is
// enforced: a caller could see it.
func TestOtherRequestsMayBeCompressed(t *testing.T) {
	triedOut := settling(t, []string{"100000 per hour by ip"}, func(l *weir.Limiter) {
		l.Mode, l.Cost, l.Actual = weir.Shadow, 1000, weir.Reading{Form: weir.ReadJSON, Name: "usage.total_tokens"}
	})
	for name, policy := range map[string]*settled{"slots": slotsOf(t, 5), "a shadow": triedOut} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, func(s *served) {
				for r := s.request(); r != nil; r = s.request() {
					s.answers("HTTP/1.1 200 OK\r\nX-Heard: %s\r\nContent-Length: 0\r\n\r\n", r.Header.Get("Accept-Encoding"))
				}
			})
			e := open(t, nil, func(options *Options) { o.use(options); policy.use(options) })
			if heard := e.ask("GET /", "Accept-Encoding: gzip, br").Header.Get("X-Heard"); heard != "gzip, br" {
				t.Errorf("the upstream heard %q", heard)
			}
		})
	}
}
