package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/redisstore"
)

// A limitedBy is a decider with one limiter, over a store with a fallback as in a server.
type limitedBy struct {
	decider  *weir.Decider
	resolver *identity.Resolver
	lost     *atomic.Int64 // units that a settlement could not give back
}

func inFlight(t testing.TB, o redisstore.Options, limit int64) *limitedBy {
	t.Helper()
	return limited(t, o, weir.Limiter{Windows: []weir.Window{window(1e6, time.Hour)}, InFlight: weir.InFlight{Limit: limit, Key: weir.Key{{"ip"}}}})
}

// limited returns a decider with one limiter of all requests, whose windows count by address.
func limited(t testing.TB, o redisstore.Options, one weir.Limiter) *limitedBy {
	t.Helper()
	s := open(t, o)
	over := bridge(t, s, s, failover.Options{Deadline: lenient})
	route, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	one.Name, one.Routes = "all", []weir.Route{route}
	for i := range one.Windows {
		one.Windows[i].Key = weir.Key{{"ip"}}
	}
	lost := new(atomic.Int64)
	d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{one}}, over, weir.Options{OnSettled: func(s weir.Settled) { lost.Add(s.Lost) }})
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lenient)
		defer cancel()
		d.Close(ctx)
	})
	return &limitedBy{d, resolver, lost}
}

// A servedBy serves requests under a limit, and returns its address.
type servedBy func(testing.TB, *limitedBy) string

// answers answers every request with a body of a known length, or of one that is not known. The
// request has cost nothing.
func answers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Cost", "0")
	_, _ = io.WriteString(w, `{"cost":`)
	if r.URL.Path == "/flushed" {
		_ = http.NewResponseController(w).Flush()
	}
	_, _ = io.WriteString(w, "0}")
}

func middleware(t testing.TB, by *limitedBy) string {
	t.Helper()
	limit, err := httplimit.New(by.decider, httplimit.Options{Identity: by.resolver})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(limit.Wrap(http.HandlerFunc(answers)))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func engine(of gateway.Engine) servedBy {
	return func(t testing.TB, by *limitedBy) string {
		t.Helper()
		upstream := httptest.NewServer(http.HandlerFunc(answers))
		t.Cleanup(upstream.Close)
		to, err := url.Parse(upstream.URL)
		if err != nil {
			t.Fatal(err)
		}
		g, err := gateway.New(gateway.Options{
			Engine: of, Decider: by.decider, Identity: by.resolver, Sites: gateway.To(to), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(ctx, l) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
}

// oneAfterTheOther sends requests on one connection, each when the answer to the one before is
// complete. It returns how many were refused.
func oneAfterTheOther(t testing.TB, address, path string, requests int) (refused int) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for range requests {
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: example.com\r\n\r\n", path); err != nil {
			t.Error(err)
			return refused
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Error(err)
			return refused
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Error(err)
			return refused
		}
		switch res.StatusCode {
		case http.StatusOK:
		case http.StatusTooManyRequests:
			refused++
		default:
			t.Errorf("the status is %s", res.Status)
		}
	}
	return refused
}

// A caller that has its whole answer finds its slot free, on one node: it can always use as many
// slots as there are, one request after another. So it finds the units of its window that the
// answer gives back: the budget is that of as many requests as are under way, and none costs
// anything.
func TestACallerWithItsAnswerFindsItFree(t *testing.T) {
	t.Parallel()
	units := func(n, each int64) weir.Limiter {
		return weir.Limiter{Windows: []weir.Window{window(n*each, time.Hour)}, Cost: each}
	}
	limits := map[string]func(*testing.T, redisstore.Options, int64) *limitedBy{
		"slots": func(t *testing.T, o redisstore.Options, n int64) *limitedBy { return inFlight(t, o, n) },
		"count by status": func(t *testing.T, o redisstore.Options, n int64) *limitedBy {
			one := units(n, 1)
			one.Count = weir.Count{Statuses: []weir.Statuses{{Low: 401, High: 401}}}
			return limited(t, o, one)
		},
		"cost in a field": func(t *testing.T, o redisstore.Options, n int64) *limitedBy {
			one := units(n, 10)
			one.Actual = weir.Reading{Form: weir.ReadHeader, Name: "X-Cost"}
			return limited(t, o, one)
		},
		"cost in the body": func(t *testing.T, o redisstore.Options, n int64) *limitedBy {
			one := units(n, 10)
			one.Actual = weir.Reading{Form: weir.ReadJSON, Name: "cost"}
			return limited(t, o, one)
		},
	}
	doors := map[string]servedBy{
		"middleware": middleware, "fast": engine(gateway.EngineAuto), "net/http": engine(gateway.EngineStd),
	}
	for kind, start := range kinds() {
		for of, limit := range limits {
			t.Run(kind+" "+of, func(t *testing.T) {
				o := start(t)
				for door, serve := range doors {
					t.Run(door, func(t *testing.T) { findItFree(t, o, limit, serve) })
				}
			})
		}
	}
}

func findItFree(t *testing.T, o redisstore.Options, limit func(*testing.T, redisstore.Options, int64) *limitedBy, serve servedBy) {
	for _, load := range []struct {
		path              string
		callers, requests int
	}{{"/", 1, 1000}, {"/flushed", 1, 300}, {"/", 16, 50}} {
		t.Run(fmt.Sprintf("%d callers of %s", load.callers, load.path), func(t *testing.T) {
			for tries := 1; ; tries++ {
				o.Prefix = fmt.Sprintf("run%d", prefixes.Add(1)) // windows of its own
				by := limit(t, o, int64(load.callers))
				address := serve(t, by)
				var all sync.WaitGroup
				var refused atomic.Int64
				for range load.callers {
					all.Go(func() { refused.Add(int64(oneAfterTheOther(t, address, load.path, load.requests))) })
				}
				all.Wait()
				// on a machine that stands still for a second; these units stay spent
				lost := by.lost.Load()
				if lost > 0 && tries < 5 {
					continue
				}
				if n := refused.Load(); n > 0 {
					t.Errorf("%d of %d requests were refused, and %d units are lost", n, load.callers*load.requests, lost)
				}
				return
			}
		})
	}
}

var prefixes atomic.Int64

// A take that the server refuses is asked again when the settlements under way are answered, if it
// may fit then. It waits no longer than its caller.
func TestARefusedTakeWaitsForUnitsThatComeBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	ten := charge("a", 10, 3600, 10)
	k := admitted(t, s, ten)
	finish := s.StartSettle(t.Context(), &k.receipt.Ticket, k.changes(0)) // nothing is sent yet

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var r weir.Receipt
	if err := s.Take(short, []weir.Charge{ten}, &r); err != nil || r.Allowed || r.Used[0].Count != 10 {
		t.Errorf("while nothing has come back: %+v, %v", r, err)
	}
	// the server's answer to these is final: they would not fit, or are of another window
	for _, c := range []weir.Charge{charge("a", 4, 3600, 5), charge("b", 10, 3600, 11)} {
		before := s.Stats().Asked
		if r := take(t, s, c); r.Allowed || s.Stats().Asked != before+1 {
			t.Errorf("%d of %d: allowed %v, after %d tries", c.Cost, c.Limit, r.Allowed, s.Stats().Asked-before)
		}
	}

	before, ran := s.Stats().Asked, server.Info(t, "commandstats")["cmdstat_evalsha"]
	answered := make(chan weir.Receipt)
	go func() {
		var r weir.Receipt
		if err := s.Take(context.Background(), []weir.Charge{ten}, &r); err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	eventually(t, "the take is sent", func() bool { return s.Stats().Asked > before })
	eventually(t, "the server has refused it", func() bool { return server.Info(t, "commandstats")["cmdstat_evalsha"] != ran })
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	if r := <-answered; !r.Allowed || r.Used[0].Count != 10 {
		t.Errorf("after they came back: %+v", r)
	}
	if n := spent(t, s, ten); n != 10 {
		t.Errorf("%d units are spent, want 10", n)
	}
}

// What a take gives back again is of earlier takes alone: requests that are under way keep their
// slots.
func TestSlotsThatAreGivenBackTwiceAreFreedOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, at(server))
	first, other := admitted(t, s, slot("a", 2)), admitted(t, s, slot("a", 2))
	changes := []weir.Change{{Charge: first.charges[0], Units: -1}}
	finish := s.StartSettle(t.Context(), &first.receipt.Ticket, changes)
	// the server does not know yet that the first has ended: no command was sent
	second := admitted(t, s, slot("a", 2))
	if r := take(t, s, slot("a", 2)); r.Allowed {
		t.Error("one slot too many")
	}
	if err := finish(); err != nil || !changes[0].Done || changes[0].Used.Count != 2 {
		t.Errorf("the slot was given back as %+v, %v", changes, err)
	}
	if r := take(t, s, slot("a", 2)); r.Allowed {
		t.Error("one slot too many after it was given back twice")
	}
	second.end(t, s)
	other.end(t, s)
	if n := spent(t, s, slot("a", 2)); n != 0 {
		t.Errorf("%d slots are held, want 0", n)
	}
}
