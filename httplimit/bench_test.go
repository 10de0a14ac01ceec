package httplimit_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// A bareWriter is a minimal ResponseWriter, so that its cost does not hide the
// middleware's.
type bareWriter struct {
	header http.Header
	status int
}

func (w *bareWriter) Header() http.Header         { return w.header }
func (w *bareWriter) WriteHeader(status int)      { w.status = status }
func (w *bareWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *bareWriter) Flush()                      {}

var okBody = []byte("ok\n")

func okHandler(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(okBody) }

func fourFields(w http.ResponseWriter, r *http.Request) {
	h, value := w.Header(), okValue
	for _, name := range [...]string{headers.Limit, headers.Remaining, headers.Reset, headers.Date} {
		h[name] = value
	}
	okHandler(w, r)
}

var okValue = []string{"1800000060"}

func knownID(*weir.Decision, weir.Keys, *weir.Scratch) string { return "an id that is known already" }

// perIP limits by one window, which counts by address.
func perIP(tb testing.TB, limit int64, o httplimit.Options) *httplimit.Middleware {
	tb.Helper()
	return perPolicy(tb, weir.Policy{Limiters: []weir.Limiter{{
		Name:    "per-ip",
		Routes:  []weir.Route{{Method: "POST", Path: "/api/v1/widget/typing"}},
		Windows: []weir.Window{{Limit: limit, Per: time.Hour, Key: weir.Key{{"ip"}}}},
	}}}, o)
}

// perPolicy limits by p with an embedded store and the system clock.
func perPolicy(tb testing.TB, p weir.Policy, o httplimit.Options) *httplimit.Middleware {
	tb.Helper()
	store, err := memstore.New(memstore.Options{Memory: 16 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	d, err := weir.New(p, store, weir.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	key, err := identity.NewSecretKey("test", []byte(secret))
	if err != nil {
		tb.Fatal(err)
	}
	sessions, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{key}})
	if err != nil {
		tb.Fatal(err)
	}
	if o.Identity, err = identity.New(identity.Options{Sessions: sessions}); err != nil {
		tb.Fatal(err)
	}
	m, err := httplimit.New(d, o)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func typing(tb testing.TB) *http.Request {
	tb.Helper()
	r, err := http.NewRequest("POST", "http://localhost/api/v1/widget/typing", http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	r.RemoteAddr = "192.0.2.7:50123"
	return r
}

func TestServingOneRequestAllocatesTwice(t *testing.T) {
	h := perIP(t, weir.MaxLimit, httplimit.Options{}).Wrap(http.HandlerFunc(okHandler))
	w, r := &bareWriter{header: http.Header{}}, typing(t)
	n := testing.AllocsPerRun(1000, func() {
		clear(w.header)
		h.ServeHTTP(w, r)
	})
	if n > 2 {
		t.Errorf("the middleware allocates %v times a request, at most 2 are allowed: one for the response, one for its values", n)
	}
}

// Compare figures of one run only: they include the machine's noise.
func BenchmarkServeHTTP(b *testing.B) {
	bare := http.HandlerFunc(okHandler)
	for _, bench := range []struct {
		name    string
		handler http.Handler
	}{
		{"bare handler", bare},
		// the cost of the map, and of clearing it
		{"bare handler that sets four fields", http.HandlerFunc(fourFields)},
		{"per address", perIP(b, weir.MaxLimit, httplimit.Options{}).Wrap(bare)},
		{"per session seen before", perSession(b).Wrap(bare)},
		{"per field and address", countingBy(b, "ip+header:Accept-Language").Wrap(bare)},
		{"per claim seen before", countingBy(b, "claim:sid or ip").Wrap(bare)},
		{"per address, IETF fields", perIP(b, weir.MaxLimit, httplimit.Options{IETF: true}).Wrap(bare)},
		{"refused", perIP(b, 1, httplimit.Options{}).Wrap(bare)},
		{"refused with an id", perIP(b, 1, httplimit.Options{Denial: knownID}).Wrap(bare)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			w, r := &bareWriter{header: http.Header{}}, typing(b)
			r.Header.Set("Accept-Language", "de-CH, de;q=0.9, en;q=0.5")
			r.Header.Set("Authorization", "Bearer "+mint(b, "alice", time.Now().Add(time.Hour)))
			for b.Loop() {
				clear(w.header)
				bench.handler.ServeHTTP(w, r)
			}
			if !strings.HasPrefix(bench.name, "bare") && (w.status == http.StatusOK) == strings.HasPrefix(bench.name, "refused") {
				b.Fatalf("the status is %d", w.status)
			}
		})
	}
}

func perSession(tb testing.TB) *httplimit.Middleware { return countingBy(tb, "session or ip") }

// countingBy returns a Middleware with one window, counted by a key.
func countingBy(tb testing.TB, key string) *httplimit.Middleware {
	tb.Helper()
	return perPolicy(tb, limiters(tb, map[string][]string{"l POST /api/v1/widget/typing": {"2147483647 per hour by " + key}}), httplimit.Options{})
}

// What settling costs, beside the same request unsettled: in the middleware alone, and over a real
// connection, as it is in a service.
func BenchmarkSettle(b *testing.B) {
	answer := []byte(`{"text":"` + strings.Repeat(`A sentence of an answer.\n`, 157) + `","usage":{"prompt_tokens":5,"total":3}}`)
	for _, bench := range []struct {
		name   string
		change setting
	}{
		{"unsettled", settling(func(*weir.Limiter) {})},
		{"a slot", oneInFlight},
		{"by status", failures},
		{"by a field", costInField},
		{"JSON of 4 KiB", costInBody},
	} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"], w.Header()["X-Cost"] = []string{"application/json"}, []string{"3"}
			_, _ = w.Write(answer)
		})
		var p weir.Policy
		bench.change(nil, nil, nil, &p)
		p.Limiters[0].Windows[0].Limit = weir.MaxLimit
		limited := perPolicy(b, p, httplimit.Options{}).Wrap(h)
		b.Run(bench.name+", middleware alone", func(b *testing.B) {
			b.ReportAllocs()
			w, r := &bareWriter{header: http.Header{}}, typing(b)
			r.URL.Path = "/v1/chat"
			for b.Loop() {
				clear(w.header)
				limited.ServeHTTP(w, r)
			}
			if w.status != http.StatusOK {
				b.Fatalf("the status is %d", w.status)
			}
		})
		b.Run(bench.name, func(b *testing.B) {
			s := httptest.NewServer(limited)
			defer s.Close()
			for b.Loop() {
				res, err := s.Client().Post(s.URL+"/v1/chat", "", nil)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK {
					b.Fatalf("the status is %d", res.StatusCode)
				}
			}
		})
	}
}
