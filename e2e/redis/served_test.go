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
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/failover"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/redisstore"
)

// A limitedBy is a decider with one limit in flight, over a store with a fallback as in a server.
type limitedBy struct {
	decider  *weir.Decider
	resolver *identity.Resolver
}

func inFlight(t testing.TB, o redisstore.Options, limit int64) *limitedBy {
	t.Helper()
	s := open(t, o)
	mem, err := memstore.New(memstore.Options{Now: s.Now})
	if err != nil {
		t.Fatal(err)
	}
	over, err := failover.New(s, mem, failover.Options{Deadline: lenient})
	if err != nil {
		t.Fatal(err)
	}
	route, err := weir.ParseRoute("/*")
	if err != nil {
		t.Fatal(err)
	}
	one := weir.Limiter{
		Name: "all", Routes: []weir.Route{route}, Windows: []weir.Window{window(1e6, time.Hour)},
		InFlight: weir.InFlight{Limit: limit, Key: weir.Key{{"ip"}}},
	}
	one.Windows[0].Key = one.InFlight.Key
	d, err := weir.New(weir.Policy{Limiters: []weir.Limiter{one}}, over, weir.Options{})
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
		_ = over.Close(ctx)
		_ = mem.Close()
	})
	return &limitedBy{d, resolver}
}

// A servedBy serves requests under a limit, and returns its address.
type servedBy func(testing.TB, *limitedBy) string

// answers answers every request with a body of a known length, or of one that is not known.
func answers(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "here")
	if r.URL.Path == "/flushed" {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, " it is")
	}
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
// slots as there are, one request after another.
func TestACallerWithItsAnswerFindsItsSlotFree(t *testing.T) {
	t.Parallel()
	doors := map[string]servedBy{
		"middleware": middleware, "fast": engine(gateway.EngineAuto), "net/http": engine(gateway.EngineStd),
	}
	for kind, start := range kinds() {
		o := start(t)
		for door, serve := range doors {
			t.Run(kind+" "+door, func(t *testing.T) {
				for _, load := range []struct {
					path              string
					callers, requests int
				}{{"/", 1, 2000}, {"/flushed", 1, 500}, {"/", 16, 100}} {
					t.Run(fmt.Sprintf("%d callers of %s", load.callers, load.path), func(t *testing.T) {
						address := serve(t, inFlight(t, o, int64(load.callers)))
						var all sync.WaitGroup
						for range load.callers {
							all.Go(func() {
								if n := oneAfterTheOther(t, address, load.path, load.requests); n > 0 {
									t.Errorf("%d of %d requests were refused", n, load.requests)
								}
							})
						}
						all.Wait()
					})
				}
			})
		}
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
