package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// A body that was read to its end has ended, also after the answer has begun: net/http closes it
// then, while a transport may still look for what follows its last byte.
func TestABodyThatWasReadStaysAtItsEnd(t *testing.T) {
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); string(b) != "a body" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		w.(http.Flusher).Flush()
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
	}), func(o *Options) { o.Limits.Body = -1 })
	c := e.caller()
	c.request("POST /v1/wp/x", "Content-Length: 6")
	c.write("a body")
	c.readAnswer("POST")
}

// A body whose length is not known beforehand is answered 413 once it is over the bound, also if
// the upstream has half of it. That is no failure of the upstream: nothing counts it, and the log
// has no line.
func TestABodyOfUnknownLengthOverTheBoundIsNoFailureOfTheUpstream(t *testing.T) {
	const bound = 100_000
	for name, serve := range map[string]func(*served){
		"an upstream that reads": func(s *served) {
			for r := s.request(); r != nil; r = s.request() {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				s.answers(ok200)
			}
		},
		"an upstream that waits": func(s *served) {
			if s.request() != nil {
				_, _ = s.Reader.WriteTo(io.Discard) // until the gateway hangs up
			}
		},
	} {
		e := open(t, nil, func(o *Options) { newOrigin(t, serve).use(o); o.Limits.Body = bound })
		client := h2c(t)
		for _, size := range []int{bound + 1, 3 * bound} {
			body := io.MultiReader(strings.NewReader(strings.Repeat("x", size))) // no known length
			res := do(t, client, "POST", e.url("/v1/wp/x"), body)
			if got := text(t, res); res.StatusCode != http.StatusRequestEntityTooLarge || res.ProtoMajor != 2 || !strings.Contains(got, "payload_too_large") || limitOf(res.Header) != wpPlugin {
				t.Errorf("%s, %d bytes: %d %s %s", name, size, res.StatusCode, res.Proto, got)
			}
		}
		for _, u := range e.gateway.Upstreams() {
			if u.Unanswered[http.StatusBadGateway]+u.Unanswered[http.StatusGatewayTimeout] != 0 || u.Failures != 0 || !u.Well {
				t.Errorf("%s: %+v", name, u)
			}
		}
		e.stop()
		if log := e.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
			t.Errorf("%s: the log has\n%s", name, log)
		}
	}
}
