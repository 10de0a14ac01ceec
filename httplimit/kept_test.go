package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// If a handler keeps its caller, decision or writer, they never show another
// request's data.
func TestValuesThatAHandlerKeepsAreNotReused(t *testing.T) {
	var (
		writers   []http.ResponseWriter
		callers   []*identity.Caller
		decisions []*weir.Decision
	)
	m := perIP(t, 1000, httplimit.Options{})
	h := m.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writers = append(writers, w)
		if r.Header.Get("Look") == "" {
			return
		}
		c, _ := httplimit.CallerOf(w)
		d, _ := httplimit.DecisionOf(w)
		callers, decisions = append(callers, c), append(decisions, d)
	}))
	const keepers = 20
	for i := range 10 * keepers { // reused values would be in use by now
		r := httptest.NewRequest("POST", "/api/v1/widget/typing", nil)
		r.RemoteAddr = "192.0.2.7:1"
		if i%10 != 0 {
			r.RemoteAddr = "198.51.100.1:1"
		} else {
			r.Header.Set("Look", "yes")
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for i, c := range callers {
		if c.Addr().String() != "192.0.2.7" {
			t.Errorf("kept caller %d is %v now", i, c.Addr())
		}
		if got, want := decisions[i].Binding().Remaining, int64(999-i); got != want {
			t.Errorf("kept decision %d has %d remaining, want %d", i, got, want)
		}
	}
	for i, w := range writers {
		if _, ok := httplimit.CallerOf(w); ok {
			t.Fatalf("writer %d still has a caller after its request has ended", i)
		}
		w.WriteHeader(http.StatusTeapot) // has no effect, and does not crash
	}
	if len(callers) != keepers {
		t.Fatalf("%d callers were kept, want %d", len(callers), keepers)
	}
}
