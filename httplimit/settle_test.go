package httplimit_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// settling replaces the policy by one limiter of 100 units a minute by address, of which a request
// reserves 10.
func settling(change func(l *weir.Limiter)) setting {
	return func(_ *edge, _ *httplimit.Options, _ *identity.Options, p *weir.Policy) {
		l := weir.Limiter{
			Name:    "chat",
			Routes:  []weir.Route{{Path: "/v1/", Prefix: true}},
			Windows: []weir.Window{{Limit: 100, Per: time.Minute, Key: weir.Key{{"ip"}}}},
			Cost:    10,
		}
		change(&l)
		p.Limiters = []weir.Limiter{l}
	}
}

var (
	costInField = settling(func(l *weir.Limiter) { l.Actual = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"} })
	costInBody  = settling(func(l *weir.Limiter) { l.Actual = weir.Reading{Form: weir.ReadJSON, Name: "usage.total"} })
	failures    = settling(func(l *weir.Limiter) { l.Count.Statuses = []weir.Statuses{{Low: 401, High: 401}} })
	served      = settling(func(l *weir.Limiter) {
		l.Count = weir.Count{Not: true, Statuses: []weir.Statuses{{Low: 500, High: 599}}}
	})
	oneInFlight = settling(func(l *weir.Limiter) { l.InFlight = weir.InFlight{Limit: 1, Key: weir.Key{{"ip"}}} })
)

// states returns the windows of this machine's address, and its limit in flight.
func (e *edge) states() []weir.WindowState {
	e.Helper()
	states, err := e.decider.Inspect(context.Background(), "chat", anAddress(netip.MustParseAddr("127.0.0.1")))
	if err != nil {
		e.Fatal(err)
	}
	return states
}

// wantSpent checks what is spent of the budget.
func (e *edge) wantSpent(want int64) {
	e.Helper()
	if got := e.states()[0].Count; got != want {
		e.Errorf("%d units are spent, want %d", got, want)
	}
}

// wantHeld checks how many slots are held.
func (e *edge) wantHeld(want int64) {
	e.Helper()
	if got := e.states()[1].Count; got != want {
		e.Errorf("%d slots are held, want %d", got, want)
	}
}

// ended tells when a request has passed the middleware. A client may have its response before.
func (e *edge) ended() <-chan struct{} {
	h, ended := e.server.Config.Handler, make(chan struct{}, 1)
	e.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		h.ServeHTTP(w, r)
	})
	return ended
}

func TestTheStatusOfAHandlerIsCounted(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for _, test := range []struct {
		name      string
		counts    setting
		handler   http.HandlerFunc
		remaining string // in the response; empty: there is none
		spent     int64
	}{
		{"counted", failures, status(401), "90", 10},
		{"not counted", failures, status(200), "100", 0},
		{"nothing is written", failures, func(http.ResponseWriter, *http.Request) {}, "100", 0},
		{"a body alone", failures, ok, "100", 0},
		{"flushed", failures, func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, "100", 0},
		{"103 before it", failures, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(401)
		}, "", 10},
		{"a second one has no effect", failures, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(401)
			w.WriteHeader(200)
		}, "90", 10},
		{"a failure", served, status(503), "100", 0},
		{"a panic", served, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", 0},
		{"a panic after the head", served, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			panic(http.ErrAbortHandler)
		}, "", 10},
		{"the handler's own refusal", served, status(429), "0", 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := setUp(t, test.handler, test.counts)
			got := e.raw("POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n")
			if test.remaining != "" {
				e.parse(got).wantFields("X-RateLimit-Remaining", test.remaining)
			}
			e.wantSpent(test.spent)
		})
	}
}

// A client that leaves before the head of the response has been served all the same: it cannot undo
// what it is charged by leaving.
func TestAClientThatLeavesBeforeTheHeadStaysCharged(t *testing.T) {
	for _, test := range []struct {
		name   string
		counts setting
		status int
	}{
		{"a guess", failures, 200},
		{"a failure because it has left", served, 502},
		{"no answer", failures, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			arrived := make(chan struct{})
			e := setUp(t, func(w http.ResponseWriter, r *http.Request) {
				close(arrived)
				<-r.Context().Done()
				if test.status != 0 {
					w.WriteHeader(test.status)
				}
			}, test.counts)
			ended := e.ended()
			c, _ := e.dial()
			_, _ = io.WriteString(c, "POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\n\r\n")
			<-arrived
			_ = c.Close()
			<-ended
			e.wantSpent(10)
		})
	}
}

func TestAFieldOfTheResponseTellsTheCost(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		spent   int64
	}{
		{"less", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "3") }, 3},
		{"more", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "120") }, 120},
		{"in another spelling", func(w http.ResponseWriter, _ *http.Request) { w.Header()["x-cost"] = []string{"3"} }, 3},
		{"twice, in two spellings", func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["x-cost"], w.Header()["X-Cost"] = []string{"3"}, []string{"3"}
		}, 10},
		{"negative", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Cost", "-3") }, 10},
		{"in an announced trailer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Cost")
			ok(w, nil)
			w.Header().Set("X-Cost", "3")
		}, 10},
		{"announced, and set before the body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Cost")
			w.Header().Set("X-Cost", "3")
			ok(w, nil)
		}, 10},
		{"in a trailer", func(w http.ResponseWriter, _ *http.Request) {
			ok(w, nil)
			w.Header().Set(http.TrailerPrefix+"X-Cost", "3")
		}, 10},
		{"after the head", func(w http.ResponseWriter, _ *http.Request) {
			ok(w, nil)
			w.Header().Set("X-Cost", "3")
		}, 10},
		{"in an informational response", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Cost", "3")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("X-Cost")
		}, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := setUp(t, test.handler, costInField)
			e.raw("POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n")
			e.wantSpent(test.spent)
		})
	}
}

const told = `{"text":"an answer","usage":{"total":3}}`

// The body is read in each way in which a handler can write it, and arrives as it was written.
func TestABodyThatPassesTellsTheCost(t *testing.T) {
	name := filepath.Join(t.TempDir(), "answer.json")
	long := strings.Repeat(" ", 100_000) + told
	if err := os.WriteFile(name, []byte(long), 0o600); err != nil {
		t.Fatal(err)
	}
	isJSON := func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json") }
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc
		body    string
		spent   int64
	}{
		{"Write", func(w http.ResponseWriter, _ *http.Request) {
			isJSON(w)
			for _, c := range []byte(told) {
				_, _ = w.Write([]byte{c})
			}
		}, told, 3},
		{"WriteString", func(w http.ResponseWriter, _ *http.Request) {
			isJSON(w)
			_, _ = io.WriteString(w, long)
		}, long, 3},
		{"ReadFrom", func(w http.ResponseWriter, _ *http.Request) {
			isJSON(w)
			_, _ = io.Copy(w, strings.NewReader(long))
		}, long, 3},
		{"a file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, name) }, long, 3},
		{"events", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 2 {
				_, _ = fmt.Fprintf(w, "data: %s\n\n", told)
				w.(http.Flusher).Flush()
			}
		}, "data: " + told + "\n\ndata: " + told + "\n\n", 3},
		{"events that break off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: %s\n\ndata: {", told)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, "", 3},
		{"no type", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, told) }, told, 10},
		{"broken off", func(w http.ResponseWriter, _ *http.Request) {
			isJSON(w)
			_, _ = io.WriteString(w, told[:len(told)-1])
		}, told[:len(told)-1], 10},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(test.name+" over "+protocol, func(t *testing.T) {
				e := setUp(t, test.handler, costInBody)
				ended, s := e.ended(), e.server
				if protocol == "HTTP/2.0" {
					s = e.startHTTP2(e.server.Config.Handler)
				}
				res, err := s.Client().Get(s.URL + "/v1/chat")
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(res.Body) // an error where the handler panics
				_ = res.Body.Close()
				<-ended
				if test.body != "" && string(body) != test.body {
					t.Errorf("%d bytes arrive, want %d", len(body), len(test.body))
				}
				if got := res.Header.Get("X-RateLimit-Remaining"); got != "90" {
					t.Errorf("the head says that %s units are left, want 90", got)
				}
				e.wantSpent(test.spent)
			})
		}
	}
}

// A client that has a whole response finds its budget settled, also if the handler goes on.
func TestABodyOfAKnownLengthIsSettledBeforeItsEndIsSent(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	e := setUp(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"], w.Header()["Content-Length"] = []string{"application/json"}, []string{strconv.Itoa(len(told))}
		_, _ = io.WriteString(w, told)
		w.(http.Flusher).Flush()
		<-leave
	}, costInBody)
	res, err := e.server.Client().Get(e.server.URL + "/v1/chat")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err := io.ReadAll(res.Body); string(body) != told || err != nil {
		t.Errorf("%q arrives, %v", body, err)
	}
	e.wantSpent(3)
}

// A body that is to be read is asked for without compression. Other requests are left alone, and so
// is the request that an outer handler has.
func TestABodyThatIsReadIsAskedForUncompressed(t *testing.T) {
	for _, test := range []struct {
		name  string
		reads setting
		want  string
	}{{"read", costInBody, ""}, {"not read", costInField, "gzip"}} {
		t.Run(test.name, func(t *testing.T) {
			var inner, outer, pattern string
			e := setUp(t, func(_ http.ResponseWriter, r *http.Request) {
				inner, r.Pattern = r.Header.Get("Accept-Encoding"), "/v1/{name}"
			}, test.reads)
			limited := e.server.Config.Handler
			e.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				limited.ServeHTTP(w, r)
				outer, pattern = r.Header.Get("Accept-Encoding"), r.Pattern
			})
			e.send("GET /v1/chat", "Accept-Encoding: gzip")
			if inner != test.want || outer != "gzip" || pattern != "/v1/{name}" {
				t.Errorf("the handler is asked for %q, and the outer one for %q of %q", inner, outer, pattern)
			}
		})
	}
}

// The middleware reads the beginning of a request for what it can cost, and its handler gets all.
func TestARequestThatTellsItsCostArrivesWhole(t *testing.T) {
	const ask = `{"max_tokens":40,"messages":[]}`
	long := ask + strings.Repeat(" ", 1<<20)
	reserves := settling(func(l *weir.Limiter) {
		l.Cost, l.Reserve = 90, weir.Reserve{From: weir.Reading{Form: weir.ReadJSON, Name: "max_tokens"}, Plus: 2}
	})
	for _, test := range []struct {
		name, fields, body string
		spent              int64
	}{
		{"a length", "Content-Length: " + strconv.Itoa(len(ask)) + "\r\n\r\n", ask, 42},
		{"chunks", "Transfer-Encoding: chunked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(ask), ask), 42},
		{"a trailer", "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\nX-Sum: 7\r\n\r\n", len(ask), ask), 42},
		{"100-continue", "Expect: 100-continue\r\nContent-Length: " + strconv.Itoa(len(ask)) + "\r\n\r\n", ask, 42},
		{"more than is read", "Content-Length: " + strconv.Itoa(len(long)) + "\r\n\r\n", long, 90},
		{"more than is read, in chunks", "Transfer-Encoding: chunked\r\n\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(long), long), 90},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []byte
			var sum string
			e := setUp(t, func(_ http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				sum = r.Trailer.Get("X-Sum")
			}, reserves)
			e.raw("POST /v1/chat HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\nContent-Type: application/json\r\n" + test.fields + test.body)
			if !strings.Contains(test.body, string(got)) || len(got) < len(ask) || strings.Contains(test.body, long) != (len(got) == len(long)) {
				t.Errorf("the handler gets %d bytes: %.60q", len(got), got)
			}
			if strings.Contains(test.fields, "Trailer") != (sum == "7") {
				t.Errorf("the trailer is %q", sum)
			}
			e.wantSpent(test.spent)
		})
	}
}

// A wrapper is another middleware's ResponseWriter.
type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestAHandlerSettlesItsRequest(t *testing.T) {
	settle := func(w http.ResponseWriter, units int64) {
		if err := httplimit.Settle(wrapper{wrapper{w}}, units); err != nil {
			panic(err)
		}
	}
	for _, test := range []struct {
		name      string
		handler   http.HandlerFunc
		remaining string
		spent     int64
	}{
		{"before the head", func(w http.ResponseWriter, _ *http.Request) { settle(w, 3) }, "97", 3},
		{"after it", func(w http.ResponseWriter, _ *http.Request) {
			ok(w, nil)
			settle(w, 3)
		}, "90", 3},
		{"more than is left", func(w http.ResponseWriter, _ *http.Request) { settle(w, 130) }, "0", 130},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := setUp(t, test.handler, settling(func(*weir.Limiter) {}))
			e.send("POST /v1/chat").wantFields("X-RateLimit-Remaining", test.remaining)
			e.wantSpent(test.spent)
		})
	}
}

func TestSettlingWithoutEffectIsAnError(t *testing.T) {
	var errs []error
	var kept http.ResponseWriter
	e := setUp(t, func(w http.ResponseWriter, r *http.Request) {
		kept = w
		if r.URL.Path == "/v1/chat" {
			errs = append(errs, httplimit.Settle(w, 4))
		}
		errs = append(errs, httplimit.Settle(w, -1), httplimit.Settle(w, 5))
	}, settling(func(*weir.Limiter) {}))
	e.send("POST /v1/chat")
	errs = append(errs, httplimit.Settle(kept, 6))
	e.send("POST /of/no/limiter")
	for i, want := range []string{
		"<nil>",
		"settle -1 units: 0 or more are allowed",
		"settle 5 units: the request is settled already, at 4: tell its cost once",
		"settle 6 units: no limiter covers the request, its handler has returned, or its ResponseWriter is wrapped in one without Unwrap",
		"settle -1 units: no limiter covers the request, its handler has returned, or its ResponseWriter is wrapped in one without Unwrap",
		"settle 5 units: no limiter covers the request, its handler has returned, or its ResponseWriter is wrapped in one without Unwrap",
	} {
		if got := fmt.Sprint(errs[i]); got != want {
			t.Errorf("error %d is %s, want %s", i, got, want)
		}
	}
	e.wantSpent(4)
}
