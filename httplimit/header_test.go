package httplimit_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

const perKey = 5

// byField serves behind a limiter that counts by an HTTP field. All test callers
// share one address.
func byField(t *testing.T, handler http.HandlerFunc) *edge {
	return setUp(t, handler, func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		*p = limiters(t, map[string][]string{"keyed /*": {fmt.Sprintf("%d per day by header:X-Api-Key or ip", perKey)}})
	})
}

func TestEachValueOfAFieldHasItsBudget(t *testing.T) {
	e := byField(t, ok)
	long := strings.Repeat("k", 256)
	values := []string{"", "k", "K", "k2", "127.0.0.1", "ip", long, long + "1", long + "2"}
	admitted := make([]atomic.Int64, len(values))
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for i, value := range values {
				var fields []string
				if value != "" {
					fields = []string{"x-api-key:  " + value + " "}
				}
				if e.send("GET /", fields...).status == http.StatusOK {
					admitted[i].Add(1)
				}
			}
		})
	}
	senders.Wait()
	for i, value := range values {
		if n := admitted[i].Load(); n != perKey {
			t.Errorf("%.20q (%d bytes): %d of 8 requests were admitted, want %d", value, len(value), n, perKey)
		}
	}
}

// A request without exactly one usable value is counted by address. A handler,
// unlike a backend behind the gateway, sees a field that Connection names, so here
// it counts.
func TestOnlyOneUsableValueIsCounted(t *testing.T) {
	e := byField(t, ok)
	for range perKey {
		e.send("GET /", "X-Api-Key: k")
	}
	if got := e.send("GET /", "X-Api-Key: k", "Connection: X-Api-Key"); got.status != http.StatusTooManyRequests {
		t.Errorf("a field that Connection names: status %d", got.status)
	}
	none := [][]string{{"X-Api-Key: k", "X-Api-Key: new"}, {"X-Api-Key:"}, {"X_Api_Key: new"}, {}}
	for n, fields := range none {
		e.send("GET /", fields...).want(http.StatusOK, perKey, int64(perKey-1-n), 86400)
	}
}

// A field in the trailer arrives after the decision, so it does not count. Over
// HTTP/2 a field's value has the same budget.
func TestAFieldOverHTTP2IsTheSameBudget(t *testing.T) {
	e := byField(t, ok)
	s := e.startHTTP2(e.middleware.Wrap(http.HandlerFunc(ok)))
	for range perKey {
		e.send("GET /", "X-Api-Key: k")
	}
	ask := func(trailer http.Header, values ...string) (status int, remaining string) {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["X-Api-Key"], r.Trailer = values, trailer
		res, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.ProtoMajor != 2 {
			t.Fatalf("spoke %s", res.Proto)
		}
		return res.StatusCode, res.Header.Get("X-RateLimit-Remaining")
	}
	if status, _ := ask(nil, "k"); status != http.StatusTooManyRequests {
		t.Errorf("one more is admitted over HTTP/2: status %d", status)
	}
	for n, ask := range []func() (int, string){
		func() (int, string) { return ask(nil, "k", "k") },
		func() (int, string) { return ask(http.Header{"X-Api-Key": {"new"}}) },
		func() (int, string) { return ask(nil) },
	} {
		if status, remaining := ask(); status != http.StatusOK || remaining != fmt.Sprint(perKey-1-n) {
			t.Errorf("request %d without one value: status %d, Remaining %s", n+1, status, remaining)
		}
	}
}
