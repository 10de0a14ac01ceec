package gateway

import (
	"io"
	"net/http"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// A backend in the same process, as the sample backend is, settles as an upstream does. Its
// handlers can tell their cost themselves, and a stream holds its slot until its handler returns.
func TestABackendInThisProcessSettles(t *testing.T) {
	policy := settling(t, []string{"1000 per hour by ip"}, func(l *weir.Limiter) {
		l.Cost, l.InFlight = reserved, weir.InFlight{Limit: 1, Key: weir.Key{{"ip"}}}
		l.Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 500, High: 599}}}
	})
	end := make(chan bool)
	e := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/told":
			if err := httplimit.Settle(w, 7); err != nil {
				t.Error(err)
			}
		case "/fails":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/panics":
			panic("a mistake of the handler")
		case "/stream":
			w.(http.Flusher).Flush()
			<-end
		}
	}), policy.use)
	for _, test := range []struct {
		path      string
		remaining string
		spends    int64
	}{
		{"/told", "993", 7},
		{"/fails", "993", 0},
		{"/panics", "993", 0},
		{"/other", "893", reserved},
	} {
		before := policy.spent()
		if got := e.ask("GET " + test.path).Header.Get("X-RateLimit-Remaining"); got != test.remaining {
			t.Errorf("%s: %s units are left, want %s", test.path, got, test.remaining)
		}
		eventually(t, test.path+": the slot is free", func() bool { return policy.slots() == 0 })
		if got := policy.spent() - before; got != test.spends {
			t.Errorf("%s spends %d, want %d", test.path, got, test.spends)
		}
	}
	res, err := http.Get(e.url("/stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if got := e.ask("GET /other").StatusCode; got != http.StatusTooManyRequests || policy.slots() != 1 {
		t.Errorf("beside a stream, another request is answered %d, and %d slots are held", got, policy.slots())
	}
	close(end)
	_, _ = io.Copy(io.Discard, res.Body)
	eventually(t, "the stream's slot is free", func() bool { return policy.slots() == 0 })
}
