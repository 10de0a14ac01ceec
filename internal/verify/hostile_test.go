package verify

import (
	"bytes"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// onePolicy returns a policy with one limiter, by address.
func onePolicy(window string) string {
	return "limiters:\n  - name: things\n    routes: [/things*]\n    windows: [" + window + "]\n"
}

// limited puts a correct limiter of the policy before a handler.
func limited(t *testing.T, policy string, next http.Handler) http.Handler {
	t.Helper()
	m, err := httplimit.New(decider(t, policyOf(t, policy)), httplimit.Options{Identity: resolver(t, identity.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	return m.Wrap(next)
}

func fine(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }

// every calls one handler for each nth request, and the other for the rest.
func every(n int64, strange, usual http.HandlerFunc) http.HandlerFunc {
	var served atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if served.Add(1)%n == 0 {
			strange(w, r)
			return
		}
		usual(w, r)
	}
}

// A failing deployment causes no panic and no request beyond the plan, and a
// correct limiter is never reported as broken.
func TestADeploymentsFailuresBreakNoClause(t *testing.T) {
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	huge := func(w http.ResponseWriter, _ *http.Request) {
		block := bytes.Repeat([]byte("x"), 64<<10)
		for range 1 << 14 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}
	for _, c := range []struct {
		name   string
		window string
		// The clause that the failure breaks, or empty.
		broken  string
		trouble func(t *testing.T, limited http.Handler) http.Handler // around the limiter
		backend http.HandlerFunc
	}{
		{name: "answers are lost after they were counted", backend: every(5, abort, fine)},
		{name: "some requests hang", backend: every(17, hang, fine)},
		{name: "all requests hang", backend: hang},
		{name: "bodies without end", backend: huge},
		{name: "redirects", backend: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example.com/things", http.StatusFound)
		}},
		{name: "500s", backend: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
		{name: "slower than its window", window: "1000 per minute by ip", backend: func(http.ResponseWriter, *http.Request) { time.Sleep(3 * time.Second) }},
		{name: "a little slower than its window", window: "100 per 10 seconds by ip", backend: func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }},
		{name: "a window of a second", window: "10 per second by ip", backend: func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }},
		{name: "a limit of one", window: "1 per 10 seconds by ip", backend: fine},
		{name: "a limit of three", window: "3 per minute by ip", backend: fine},
		{name: "502s of something in between", broken: "fields-5xx", backend: fine, trouble: func(_ *testing.T, limited http.Handler) http.Handler {
			return every(5, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }, limited.ServeHTTP)
		}},
		{name: "connections that close before an answer", backend: fine, trouble: func(_ *testing.T, limited http.Handler) http.Handler {
			return every(5, abort, limited.ServeHTTP)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				window := c.window
				if window == "" {
					window = "40 per minute by ip"
				}
				handler := limited(t, onePolicy(window), c.backend)
				if c.trouble != nil {
					handler = c.trouble(t, handler)
				}
				verifyWithin(t, onePolicy(window), handler, c.broken)
			})
		})
	}
}

// verifyWithin verifies a server and counts its requests. At most the allowed
// clause may be broken.
func verifyWithin(t *testing.T, policy string, handler http.Handler, allowed string) {
	t.Helper()
	n := newNetwork()
	var arrived atomic.Int64
	stop := n.serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		handler.ServeHTTP(w, r)
	}))
	defer stop()
	plan, err := NewPlan(n.options(policyOf(t, policy)))
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Run(t.Context())
	t.Logf("sent %d of %d, error %v", report.Sent, plan.Requests, err)
	for _, x := range report.Results {
		if x.Verdict == Broken && x.Clause != allowed {
			t.Errorf("%s is broken: %s", x.Clause, x.Detail)
		}
		if x.Verdict != Broken && x.Clause == allowed {
			t.Errorf("%s is %s: %s", x.Clause, x.Verdict, x.Detail)
		}
	}
	if arrived.Load() > int64(plan.Requests) || arrived.Load() > int64(report.Sent) {
		t.Errorf("%d requests arrived, %d were planned, %d are reported as sent", arrived.Load(), plan.Requests, report.Sent)
	}
	if len(report.Results) != len(Clauses) {
		t.Errorf("%d results for %d clauses", len(report.Results), len(Clauses))
	}
}

// If a server does not speak HTTP, that is an error, without a verdict.
func TestGarbageIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		"no HTTP":                 "SSH-2.0-OpenSSH_9.9\r\n",
		"nothing":                 "",
		"a header without end":    "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Padding: "+strings.Repeat("x", 1000)+"\r\n", 1000),
		"a length that is no one": "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				var running sync.WaitGroup
				running.Go(func() {
					for {
						c, err := n.Accept()
						if err != nil {
							return
						}
						running.Go(func() { answerGarbage(c, text) })
					}
				})
				defer running.Wait()
				defer n.Close()
				plan, err := NewPlan(n.options(policyOf(t, onePolicy("5 per minute by ip"))))
				if err != nil {
					t.Fatal(err)
				}
				report, err := plan.Run(t.Context())
				if err == nil || report.Broken() {
					t.Errorf("error %v, report\n%s", err, table(report))
				}
			})
		})
	}
}

func answerGarbage(c net.Conn, text string) {
	defer c.Close()
	buffer := make([]byte, 4096)
	_, _ = c.Read(buffer)
	_, _ = c.Write([]byte(text))
}

func TestAnUnreachableServerIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		n.Close()
		plan, err := NewPlan(n.options(policyOf(t, onePolicy("5 per minute by ip"))))
		if err != nil {
			t.Fatal(err)
		}
		report, err := plan.Run(t.Context())
		if err == nil || report == nil || report.Sent != 0 {
			t.Errorf("error %v, report %+v", err, report)
		}
	})
}
