package gateway

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// Over HTTP/2 the engines give upstreams the same requests, and clients the same answers, access
// logs and observations.
func TestBothEnginesServeHTTP2Alike(t *testing.T) {
	const forwarded = "X-Forwarded-For: 203.0.113.7, 10.0.0.4"
	requests := [][]string{
		{"GET /v1/wp/x?b=2&a=1;c", forwarded, "X-Forwarded-Proto: https", "Cookie: a=1", "TE: trailers", "X-Real-IP: 6.6.6.6", "X_Odd: 1"},
		{"HEAD /v1/wp/x", forwarded, "User-Agent: one"},
		{"POST /v1/wp/a//b/../c%7E", forwarded, "Accept-Encoding: gzip"},
		{"PUT /v1/wp/body", forwarded, "Content-Type: text/plain", "+ a body"},
		{"PATCH /v1/wp/body", forwarded, "+" + strings.Repeat(" a long body", 5000)},
		{"DELETE /v1/wp/body", forwarded, "+ a body of a method that gives it no meaning"},
		{"GET /v1/wp/missing", forwarded}, {"GET /v1/wp/busy", forwarded}, {"GET /v1/wp/nothing", forwarded},
		{"POST /v1/wp/broken", forwarded}, {"GET /v1/wp/nonsense", forwarded}, {"GET /v1/wp/early-hints", forwarded},
		{"GET /v1/wp/%2f", forwarded}, {"BREW /v1/wp/x", forwarded}, {"GET /healthz"},
		{"GET /api/v1/widget/x", "Origin: https://shop.test"}, {"GET /elsewhere"},
		{"POST /v1/wp/x", forwarded, "+" + strings.Repeat("too large", 200_000)},
	}
	for range 12 { // the last are refused
		requests = append(requests, []string{"GET /v1/wp/again", "X-Forwarded-For: 203.0.113.9", "Accept-Language: de"})
	}
	run := func(engine Engine) (exchanges []string, log string, observed []string) {
		heads := make(chan string, len(requests))
		o := newOrigin(t, func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				n, _ := io.Copy(io.Discard, r.Body)
				heads <- fmt.Sprintln(r.Method, r.RequestURI, r.Host, r.ContentLength, r.TransferEncoding, r.Close, n) + fieldLines(r.Header)
				switch r.URL.Path {
				case "/v1/wp/broken":
					return
				case "/v1/wp/nonsense":
					s.answers("nonsense\r\n\r\n")
					return
				case "/v1/wp/missing":
					s.answers("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Type: text/plain\r\n\r\nnone")
				case "/v1/wp/busy":
					s.answers("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n")
				case "/v1/wp/nothing":
					s.answers("HTTP/1.1 204 No Content\r\nServer: one\r\nX-RateLimit-Limit: 7\r\n\r\n")
				case "/v1/wp/early-hints":
					s.answers("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n%s", ok200)
				default:
					body := "ok"
					if r.Method == "HEAD" {
						body = ""
					}
					s.answers("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nVary: Accept\r\n\r\n%s", body)
				}
			}
		})
		var seen observer
		e := open(t, nil, func(options *Options) {
			o.use(options)
			options.Engine, options.IETF, options.TrustedProxies, options.Observe = engine, true, append(loopback, mustPrefix("10.0.0.0/8")), seen.observe
			options.Limits.Body = 1 << 20
			p := testPolicy(t)
			for i := range p.Limiters {
				w, err := weir.ParseWindow("10 per day by ip")
				if err != nil {
					t.Fatal(err)
				}
				p.Limiters[i].Windows = []weir.Window{w}
			}
			options.Decider = testDecider(t, p)
		})
		client := h2c(t)
		client.Transport.(*http.Transport).DisableCompression = true
		for _, r := range requests {
			exchanges = append(exchanges, exchangeOver(t, client, e.url(""), r)+received(heads))
		}
		e.stop()
		for line := range strings.Lines(e.access.String()) {
			log += passing.ReplaceAllString(line, "")
		}
		return exchanges, log, seen.seen
	}
	exchanges, log, observed := run(EngineAuto)
	stdExchanges, stdLog, stdObserved := run(EngineStd)
	for i := range exchanges {
		if exchanges[i] != stdExchanges[i] {
			t.Errorf("the fast engine's way up:\n%s\nnet/http's:\n%s", exchanges[i], stdExchanges[i])
		}
	}
	if log != stdLog || strings.Count(log, "\n") != len(requests) {
		t.Errorf("access logs:\n%s\n%s", log, stdLog)
	}
	if !slices.Equal(observed, stdObserved) {
		t.Errorf("observed\n%q\n%q", observed, stdObserved)
	}
}

// exchangeOver sends a request: its method and path, its fields, and its body after a plus. It
// returns the request and its answer as text.
func exchangeOver(t *testing.T, client *http.Client, base string, request []string) string {
	t.Helper()
	method, path, _ := strings.Cut(request[0], " ")
	body := ""
	if last := request[len(request)-1]; last[0] == '+' {
		body = last[1:]
		request = request[:len(request)-1]
	}
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "weir.test"
	for _, field := range request[1:] {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return fmt.Sprintln(request, res.Status, res.ContentLength, res.ProtoMajor) + fieldLines(res.Header) + text(t, res) + "\n"
}

// fieldLines returns a header as text, without the values that vary between runs.
func fieldLines(h http.Header) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if slices.Contains([]string{"Date", "X-Ratelimit-Reset", "Ratelimit", "Retry-After"}, name) {
			fmt.Fprintln(&b, name, len(h[name]))
		} else {
			fmt.Fprintln(&b, name, h[name])
		}
	}
	return b.String()
}

// received returns what the upstream got of the last request; empty if that was nothing.
func received(heads <-chan string) string {
	select {
	case head := <-heads:
		return "the upstream got " + head
	default:
		return "the upstream got nothing\n"
	}
}
