package gateway

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// An erratic is an origin that answers each request with the request's own id, in its head and its
// body, and misbehaves in between. It counts how often it sees each id.
type erratic struct {
	*origin
	arrives func(seen int64) // called with the number of requests so far, if set

	mu   sync.Mutex
	seen map[string]int
	all  int64
}

func newErratic(t *testing.T) *erratic {
	e := &erratic{seen: make(map[string]int)}
	e.origin = newOrigin(t, func(s *served) {
		for r := s.request(); r != nil && e.answer(s, r); r = s.request() {
		}
	})
	return e
}

// answer answers one request. It reports whether the connection goes on.
func (e *erratic) answer(s *served, r *http.Request) bool {
	id := r.Header.Get("X-Id")
	e.mu.Lock()
	e.seen[id]++
	e.all++
	all := e.all
	e.mu.Unlock()
	if e.arrives != nil {
		e.arrives(all)
	}
	head := "HTTP/1.1 200 OK\r\nX-Id: " + id + "\r\n"
	whole := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(id), id)
	kind := r.URL.Query().Get("kind")
	if kind == "early" {
		s.answers("%s", whole)
		return false
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return false
	}
	switch kind {
	case "chunks":
		s.answers("%sTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n1\r\n%s\r\n", head, id[:1])
		s.answers("%x\r\n%s\r\n0\r\nX-End: %s\r\n\r\n", len(id)-1, id[1:], id)
	case "hints":
		s.answers("HTTP/1.1 103 Early Hints\r\nX-Id: %s\r\n\r\n%s", id, whole)
	case "half":
		s.answers("%sContent-Length: %d\r\n\r\n%s", head, len(id)+1, id)
		return false
	case "nothing":
		return false
	case "empty":
		s.answers("%sContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Id: evil\r\nContent-Length: 4\r\n\r\nevil", head)
	case "unasked":
		s.answers("%sHTTP/1.1 200 OK\r\nX-Id: evil\r\nContent-Length: 4\r\n\r\nevil", whole)
	case "nonsense":
		s.answers("nonsense\r\n\r\n")
	default:
		s.answers("%s", whole)
	}
	return true
}

// Whatever upstreams and clients do, no answer reaches another stream, and no request goes up
// twice.
func TestNoAnswerReachesAnotherStream(t *testing.T) {
	const callers, each = 8, 60
	o := newErratic(t)
	e := open(t, nil, o.use)
	kinds := []string{"", "chunks", "early", "hints", "half", "nothing", "nonsense", "unasked", "empty"}
	var all sync.WaitGroup
	for pair := range callers / 2 {
		client := h2c(t) // two callers share a connection
		if pair%2 == 1 {
			client = &http.Client{Transport: new(http.Transport)}
			t.Cleanup(client.CloseIdleConnections)
		}
		for i := range 2 {
			all.Go(func() {
				for n := range each {
					id := fmt.Sprintf("%d-%d-%d", pair, i, n)
					kind := kinds[(n+i)%len(kinds)]
					body := ""
					if n%3 > 0 { // short, or more than is sent in one write
						body = strings.Repeat("x", 10+(n%3-1)*40_000)
					}
					askOwn(t, client, e.url("/v1/wp/x?kind="+kind), id, body, n%7 == 6)
				}
			})
		}
	}
	all.Wait()
	eventually(t, "nothing is under way", func() bool { return e.gateway.InFlight() == 0 && e.gateway.Upstreams()[0].Busy == 0 })
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(o.seen)) {
		if n := o.seen[id]; n > 1 {
			t.Errorf("request %s was sent %d times", id, n)
		}
	}
	if n := len(o.seen); n < callers*each/2 {
		t.Errorf("only %d requests reached the upstream", n)
	}
}

// askOwn sends a request with an id, and checks that a good answer is its own. If leaves, the
// client may cancel it at any point. also are statuses that it may get, beside 200 and 502.
func askOwn(t *testing.T, client *http.Client, url, id, body string, leaves bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if leaves {
		go func() {
			runtime.Gosched()
			cancel()
		}()
	}
	r, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header.Set("X-Id", id)
	res, err := client.Do(r)
	if err != nil {
		return // the answer broke off before its head, or the client has left
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	switch {
	case strings.Contains(string(got), "evil"), res.StatusCode != http.StatusOK && res.StatusCode != http.StatusBadGateway:
		t.Errorf("%s: %d %q", id, res.StatusCode, got)
	case res.StatusCode != http.StatusOK:
	case res.Header.Get("X-Id") != id, err == nil && string(got) != id && !strings.HasSuffix(url, "=empty"), !strings.HasPrefix(id, string(got)):
		t.Errorf("%s is answered with the head of %s and %q, %v", id, res.Header.Get("X-Id"), got, err)
	case err == nil && res.Trailer["X-End"] != nil && res.Trailer.Get("X-End") != id:
		t.Errorf("%s gets the trailer of %s", id, res.Trailer.Get("X-End"))
	}
}
