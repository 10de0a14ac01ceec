package httplimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

var done = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// status returns the answer to one request of an address.
func status(h http.Handler, from string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", "/", http.NoBody)
	r.RemoteAddr = from + ":4711"
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func statuses(n int, h http.Handler, from string, change ...func(*http.Request)) (all []int) {
	for range n {
		all = append(all, status(h, from, change...).Code)
	}
	return all
}

func wantStatuses(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func field(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func TestOneLineLimitsEachAddress(t *testing.T) {
	h := httplimit.Limit("2 per minute by ip")(done)
	wantStatuses(t, "one address", statuses(3, h, "192.0.2.1"), 200, 200, 429)
	wantStatuses(t, "another", statuses(1, h, "192.0.2.2"), 200)
	refused := status(h, "192.0.2.1").Header()
	for name, want := range map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "0", "Retry-After": "60"} {
		if got := strings.Join(refused[name], ","); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A recorder has the fields as they are sent, so its Header.Get, which looks for net/http's
// spelling, finds none of them: the comment of Limit says how they are read. Over a connection it
// finds them.
func TestARecorderHasTheFieldsInTheirOwnSpelling(t *testing.T) {
	h := httplimit.Limit("2 per minute by ip")(done)
	for n, remaining := range []string{"1", "0", "0"} {
		w := status(h, "192.0.2.1")
		for where, fields := range map[string]http.Header{"Header": w.Header(), "Result": w.Result().Header} {
			for name, want := range map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": remaining} {
				if got := fields[name]; len(got) != 1 || got[0] != want || fields.Get(name) != "" {
					t.Errorf("request %d, %s: %s is %q, and Get finds %q; want %s, and nothing", n+1, where, name, got, fields.Get(name), want)
				}
			}
			if _, err := strconv.ParseInt(strings.Join(fields["X-RateLimit-Reset"], ","), 10, 64); err != nil || fields.Get("X-RateLimit-Reset") != "" {
				t.Errorf("request %d, %s: the reset is %q", n+1, where, fields["X-RateLimit-Reset"])
			}
			if retries := fields.Get("Retry-After") != ""; retries != (n == 2) {
				t.Errorf("request %d, %s: Retry-After is %q", n+1, where, fields.Get("Retry-After"))
			}
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	res, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := res.Header.Get("X-RateLimit-Remaining"); got != "1" {
		t.Errorf("over a connection Get finds %q", got)
	}
}

func TestARequestIsChargedToAllWindowsOfLimitOrToNone(t *testing.T) {
	h := httplimit.Limit("1 per minute by ip", "2 per hour by everyone")(done)
	wantStatuses(t, "the minute is full", statuses(5, h, "192.0.2.1"), 200, 429, 429, 429, 429)
	wantStatuses(t, "the hour was not charged for it", statuses(1, h, "192.0.2.2"), 200)
	wantStatuses(t, "the hour is full", statuses(1, h, "192.0.2.3"), 429)
}

func TestLimitIsExactUnderParallelRequests(t *testing.T) {
	h := httplimit.Limit("50 per hour by ip")(done)
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			if status(h, "192.0.2.1").Code == http.StatusOK {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if passed.Load() != 50 {
		t.Errorf("%d requests have passed, want 50", passed.Load())
	}
}

func TestEachLimitCountsForItself(t *testing.T) {
	first, second := httplimit.Limit("1 per minute by ip"), httplimit.Limit("1 per minute by ip")
	wantStatuses(t, "the first", statuses(2, first(done), "192.0.2.1"), 200, 429)
	wantStatuses(t, "the second", statuses(1, second(done), "192.0.2.1"), 200)
	wantStatuses(t, "another handler of the first", statuses(1, first(done), "192.0.2.1"), 429)
}

func TestSetupsWithOneStoreShareCountsUnderOneNameOnly(t *testing.T) {
	store, err := memstore.New(memstore.Options{Memory: memstore.MinMemory})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	of := func(name string) http.Handler {
		return httplimit.Setup{Store: store, Limiter: weir.Limiter{Name: name}}.Limit("1 per minute by ip")(done)
	}
	wantStatuses(t, "a", statuses(1, of("a"), "192.0.2.1"), 200)
	wantStatuses(t, "b", statuses(1, of("b"), "192.0.2.1"), 200)
	wantStatuses(t, "a again", statuses(1, of("a"), "192.0.2.1"), 429)
	if _, err := (httplimit.Setup{Store: store}).LimitErr("1 per minute by ip"); err == nil || !strings.Contains(err.Error(), "name each") {
		t.Errorf("a store without a name: %v", err)
	}
}

// Every request is limited: the path chooses nothing, so none is ambiguous or without a limiter.
func TestLimitCoversEveryRequestThatItGets(t *testing.T) {
	h := httplimit.Limit("1 per minute by ip")(done)
	for i, target := range []string{"*", "/a/../b", "//", "/A;b/%2e%2e/", "http://example.com", "/"} {
		r := httptest.NewRequest("OPTIONS", "/", http.NoBody)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:4711", i)
		r.URL.Path, r.RequestURI = target, target
		for _, want := range []int{200, 429} {
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s: %d, want %d", target, w.Code, want)
			}
		}
	}
}

func TestNoProxyIsTrustedUnlessItIsNamed(t *testing.T) {
	from := func(client string) func(*http.Request) { return field("X-Forwarded-For", client) }
	h := httplimit.Setup{Log: slog.New(slog.DiscardHandler)}.Limit("1 per minute by ip")(done)
	wantStatuses(t, "a field is no other caller", append(
		statuses(1, h, "10.0.0.1", from("192.0.2.1")), statuses(1, h, "10.0.0.1", from("192.0.2.2"))...), 200, 429)

	behind := httplimit.Setup{Caller: identity.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	h = behind.Limit("1 per minute by ip")(done)
	wantStatuses(t, "the client of a trusted proxy", append(
		statuses(2, h, "10.0.0.1", from("192.0.2.1")), statuses(1, h, "10.0.0.1", from("192.0.2.2"))...), 200, 429, 200)
	wantStatuses(t, "what the client has written", statuses(1, h, "10.0.0.1", from("198.51.100.9, 192.0.2.1")), 429)
}

func TestAProxyThatIsNotTrustedIsLoggedOnce(t *testing.T) {
	for _, c := range []struct {
		peers, trusted, header, sent string
		want                         int
	}{
		{"10.0.0.1", "", "", "X-Forwarded-For", 1},
		{"127.0.0.1", "", "Forwarded", "Forwarded", 1},
		{"10.0.0.1", "", "", "Forwarded", 0}, // not the field that a proxy would be asked for

		{"192.0.2.1", "", "", "X-Forwarded-For", 0}, // a client on the Internet
		{"10.0.0.1", "", "", "X-Something-Else", 0},
		{"10.0.0.1 10.0.0.2 127.0.0.1", "", "", "X-Forwarded-For", 3},
		{"10.0.0.1", "10.0.0.0/24", "", "X-Forwarded-For", 0},
		{"10.0.0.1", "::ffff:10.0.0.0/120", "", "X-Forwarded-For", 0},
		{"10.0.1.1 10.0.0.1", "10.0.0.0/24", "", "X-Forwarded-For", 1},
	} {
		var log bytes.Buffer
		s := httplimit.Setup{
			Caller: identity.Options{ClientIPHeader: c.header},
			Log:    slog.New(slog.NewTextHandler(&log, nil)),
		}
		if c.trusted != "" {
			s.Caller.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(c.trusted)}
		}
		h := s.Limit("9 per minute by ip")(done)
		for peer := range strings.FieldsSeq(c.peers) {
			statuses(3, h, peer, field(c.sent, "192.0.2.1"))
		}
		if got := strings.Count(log.String(), "proxy that is not trusted"); got != c.want {
			t.Errorf("%+v: %d warnings, want %d: %s", c, got, c.want, &log)
		}
	}
}

func TestWindowsCountByFieldsParametersAndFunctions(t *testing.T) {
	tenant := httplimit.KeyFunc("tenant", weir.Chosen, func(r *http.Request) (string, bool) {
		v := r.PathValue("tenant")
		return v, v != ""
	})
	customer := httplimit.KeyFunc("customer", weir.Credential, func(r *http.Request) (string, bool) {
		v, ok := r.Context().Value(customerKey{}).(string)
		return v, ok
	})
	s := httplimit.Setup{Caller: identity.Options{Extra: []identity.Source{tenant, customer}}}
	mux := http.NewServeMux()
	mux.Handle("/field", s.Limit("1 per minute by header:X-Api-Key+ip")(done))
	mux.Handle("/t/{tenant}/items", s.Limit("1 per minute by tenant+ip")(done))
	mux.Handle("/customers", s.Limit("1 per minute by customer")(done))
	for _, c := range []struct {
		path, from, key string
		want            int
	}{
		{"/field", "192.0.2.1", "a", 200}, {"/field", "192.0.2.1", "b", 200}, {"/field", "192.0.2.1", "a", 429}, {"/field", "192.0.2.2", "a", 200},
		{"/t/acme/items", "192.0.2.1", "", 200}, {"/t/acme/items", "192.0.2.1", "", 429}, {"/t/other/items", "192.0.2.1", "", 200},
		{"/customers", "192.0.2.1", "alice", 200}, {"/customers", "192.0.2.2", "alice", 429}, {"/customers", "192.0.2.1", "bob", 200},
		{"/customers", "192.0.2.1", "", 200}, {"/customers", "192.0.2.1", "", 429}, // by address
	} {
		r := httptest.NewRequest("GET", c.path, http.NoBody)
		r.RemoteAddr = c.from + ":4711"
		if c.key != "" {
			r.Header.Set("X-Api-Key", c.key)
			r = r.WithContext(contextWithCustomer(r.Context(), c.key))
		}
		w := httptest.NewRecorder()
		if mux.ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
}

func TestARouteOfSetupLeavesOtherRequestsAlone(t *testing.T) {
	route, err := weir.ParseRoute("POST /t/{tenant}/*")
	if err != nil {
		t.Fatal(err)
	}
	s := httplimit.Setup{Limiter: weir.Limiter{Routes: []weir.Route{route}}}
	h := s.Limit("1 per minute by path:tenant+ip")(done)
	post := func(path string) func(*http.Request) {
		return func(r *http.Request) { r.Method, r.URL.Path = "POST", path }
	}
	wantStatuses(t, "the route", statuses(2, h, "192.0.2.1", post("/t/acme/x")), 200, 429)
	wantStatuses(t, "another parameter", statuses(1, h, "192.0.2.1", post("/t/b/x")), 200)
	wantStatuses(t, "another method", statuses(3, h, "192.0.2.1", func(r *http.Request) { r.URL.Path = "/t/acme/x" }), 200, 200, 200)
}

func TestALimitInShadowModeRefusesNothing(t *testing.T) {
	h := httplimit.Setup{Limiter: weir.Limiter{Mode: weir.Shadow}}.Limit("1 per minute by ip")(done)
	wantStatuses(t, "shadow", statuses(3, h, "192.0.2.1"), 200, 200, 200)
}

func TestAnErrorOfLimitNamesTheMistake(t *testing.T) {
	noFunc := httplimit.KeyFunc("customer", weir.Credential, nil)
	slots, err := weir.ParseInFlight("2 by path:tenant+ip")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		setup   httplimit.Setup
		windows []string
		want    string
	}{
		{httplimit.Setup{}, []string{"100 per minut by ip"}, `unit "minut" is unknown: second, minute, hour and day are allowed`},
		{httplimit.Setup{}, []string{"100 per minute"}, `such as: 30 per minute by session or ip; "by KEY" is missing`},
		{httplimit.Setup{}, []string{"100 PER MINUTE BY IP"}, "; its words are in lower case"},
		{httplimit.Setup{}, []string{"100 per minute by pi"}, `"pi"`},
		{httplimit.Setup{}, []string{"100 per minute by header:X-Api-Key"}, "count by ip+header:X-Api-Key, or set Setup.Limiter.Chosen if that is meant"},
		{httplimit.Setup{}, nil, "no windows: at least one is needed, such as: 60 per minute by ip; or set Setup.Limiter.InFlight"},
		{httplimit.Setup{Limiter: weir.Limiter{Chosen: true}}, []string{"1 per minute by ip"}, "limit: Setup.Limiter.Chosen: "},
		{httplimit.Setup{Limiter: weir.Limiter{OnStoreFailure: 99}}, []string{"1 per minute by ip"}, "limit: Setup.Limiter.OnStoreFailure: "},
		{httplimit.Setup{}, []string{"1 per minute by ip", "2 per minute by ip"}, "only the lower limit would ever count"},
		{httplimit.Setup{Limiter: weir.Limiter{Name: "Not A Name"}}, []string{"1 per minute by ip"}, "lower-case letters"},
		{httplimit.Setup{Limiter: weir.Limiter{Windows: make([]weir.Window, 1)}}, []string{"1 per minute by ip"}, "arguments of Limit"},
		{httplimit.Setup{}, []string{"3 per minute by path:tenant+ip"}, `key source "path:tenant": route "/*" has no parameter {tenant}: set Setup.Limiter.Routes`},
		{httplimit.Setup{Limiter: weir.Limiter{InFlight: slots}}, []string{"3 per minute by ip"}, `route "/*" has no parameter {tenant}: set Setup.Limiter.Routes`},
		{httplimit.Setup{Limiter: weir.Limiter{Mode: weir.Shadow}}, []string{"3 per minute by path:tenant+ip"}, `it has none; every route of Setup.Limiter.Routes needs it, or count by a KeyFunc`},
		{httplimit.Setup{Caller: identity.Options{ClientIPHeader: "X-Client"}}, []string{"1 per minute by ip"}, "X-Forwarded-For, Forwarded, X-Real-IP are allowed"},
		{httplimit.Setup{Caller: identity.Options{Extra: []identity.Source{noFunc}}}, []string{"1 per minute by customer"}, "has no function"},
		{httplimit.Setup{Limiter: weir.Limiter{Requires: "token"}}, []string{"2 per minute by ip"}, "requires token: nothing verifies it: set Setup.Caller.Tokens"},
		{httplimit.Setup{}, []string{"2 per minute by token"}, "by token: nothing verifies it: set Setup.Caller.Tokens"},
		{httplimit.Setup{}, []string{"2 per minute by session or ip"}, "set Setup.Caller.Sessions"},
		{httplimit.Setup{}, []string{"2 per minute by cert"}, "set Setup.Caller.Certificates"},
		{httplimit.Setup{Options: httplimit.Options{Identity: new(identity.Resolver)}}, []string{"1 per minute by ip"}, "made of Setup.Caller"},
	} {
		_, err := c.setup.LimitErr(c.windows...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q in it", c.windows, err, c.want)
		}
		panicked := func() (message any) {
			defer func() { message = recover() }()
			c.setup.Limit(c.windows...)
			return nil
		}()
		if text := fmt.Sprint(panicked); !strings.Contains(text, c.want) || len(c.windows) > 0 && !strings.Contains(text, fmt.Sprintf("%q", c.windows[0])) {
			t.Errorf("%q: Limit panics with %v", c.windows, panicked)
		}
	}
	if _, err := httplimit.LimitErr("1 per fortnight by ip"); err == nil {
		t.Error("LimitErr accepts a fortnight")
	}
}

func TestAnErrorOfLimitHasAllProblems(t *testing.T) {
	whole := httplimit.Setup{
		Limiter: weir.Limiter{Name: "Not A Name", Requires: "token", Chosen: true, Notify: []int64{200}},
		Caller:  identity.Options{ClientIPHeader: "X-Client"},
		Options: httplimit.Options{Identity: new(identity.Resolver)},
	}
	for _, c := range []struct {
		setup   httplimit.Setup
		windows []string
		want    []string
	}{
		{httplimit.Setup{}, []string{"100 per minut by ip", "ten per hour by ip"}, []string{`"minut"`, `"ten"`}},
		{httplimit.Setup{}, []string{"100 per minut by ip", "5 per hour by agent", "5 per hour by tenant"}, []string{`"minut"`, `key source "tenant" is unknown`, "counts by agent"}},
		{httplimit.Setup{}, []string{"5 per hour by token", "9 per day by session", "2 per minute by agent"}, []string{"set Setup.Caller.Tokens", "set Setup.Caller.Sessions", "set Setup.Limiter.Chosen"}},
		{httplimit.Setup{}, []string{"1 per fortnight by ip"}, []string{`"fortnight"`}},
		{whole, []string{"1 per minute by tenant"}, []string{"Options.Identity", `client IP header "X-Client"`, "Setup.Limiter.Name", "Setup.Limiter.Notify"}},
		{httplimit.Setup{Limiter: weir.Limiter{Name: "Not A Name", Notify: []int64{200}}}, []string{"1 per minute by ip", "1 per minute by ip"},
			[]string{"Setup.Limiter.Name", "only the lower limit would ever count", "Setup.Limiter.Notify"}},
	} {
		_, err := c.setup.LimitErr(c.windows...)
		lines := strings.Split(fmt.Sprint(err), "\n")
		if len(lines) != len(c.want) {
			t.Errorf("%q: %d problems, want %d: %v", c.windows, len(lines), len(c.want), err)
			continue
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, "limit: ") || !strings.Contains(line, c.want[i]) {
				t.Errorf("%q: %s, want %q in it", c.windows, line, c.want[i])
			}
		}
	}
}

// The store needs no closing: it has no goroutine, and its memory is freed with it.
func TestLimitStartsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		statuses(1, httplimit.Limit("1 per minute by ip")(done), "192.0.2.1")
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines before, %d after", before, after)
	}
}

type customerKey struct{}

func contextWithCustomer(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, customerKey{}, name)
}
