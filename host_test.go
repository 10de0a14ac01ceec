package weir_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir"
)

func TestAHostIsFoldedAndAnInvalidOneIsReported(t *testing.T) {
	for _, c := range []struct{ route, want, problem string }{
		{route: "api.example.com/v1/*", want: "api.example.com/v1/*"},
		{route: "POST API.Example.COM/v1/chat*", want: "POST api.example.com/v1/chat*"},
		{route: "api.example.com./x", want: "api.example.com/x"},
		{route: "*.Example.com/*", want: "*.example.com/*"},
		{route: "localhost/x", want: "localhost/x"},
		{route: "api./x", want: "api./x"},
		{route: "[2001:DB8:0::1]/x", want: "[2001:db8::1]/x"},
		{route: "192.0.2.7/x", want: "192.0.2.7/x"},
		{route: "xn--bcher-kva.example/x", want: "xn--bcher-kva.example/x"},
		{route: "orders/x", problem: `if "orders" is a host, write a dot after it: orders./x`},
		{route: "api.example.com", problem: "does not begin with a slash"},
		{route: "api.example.com:8080/x", problem: `has a port, which is not compared: write "api.example.com"`},
		{route: "[::1]:80/x", problem: `write "[::1]"`},
		{route: "::1/*", problem: `write an IPv6 address in brackets: [::1]`},
		{route: "GET 2001:DB8::7/x", problem: `write an IPv6 address in brackets: [2001:db8::7]`},
		{route: "*/x", problem: "leave the star out: a route without a host is for all hosts: /x"},
		{route: "a.*.example.com/x", problem: "a star stands for all names before a dot"},
		{route: "*example.com/x", problem: "a star stands for all names before a dot"},
		{route: "bücher.example/x", problem: "xn--"},
		{route: "a..example.com/x", problem: "neither a name"},
		{route: "a%2eb.example.com/x", problem: "neither a name"},
		{route: strings.Repeat("a", 250) + ".com/x", problem: "neither a name"},
	} {
		r, err := weir.ParseRoute(c.route)
		switch {
		case c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)):
			t.Errorf("%q: %v, want %q", c.route, err, c.problem)
		case c.problem == "" && (err != nil || r.String() != c.want):
			t.Errorf("%q is %q, %v; want %q", c.route, r, err, c.want)
		case c.problem == "":
			if again, err := weir.ParseRoute(r.String()); err != nil || again != r {
				t.Errorf("%q parses as %+v, %v; want %+v", r, again, err, r)
			}
		}
	}
}

func TestTheNarrowestHostWithARouteCoversARequest(t *testing.T) {
	of := func(name string, specs ...string) weir.Limiter {
		return routed(limiter(name, "9 per minute by ip"), specs...)
	}
	d := newTried(t, policyOf(
		of("all", "/*"),
		of("chat", "POST api.example.com/v1/chat*"),
		of("api", "api.example.com/*"),
		of("wide", "*.example.com/*", "GET *.eu.example.com/orders"),
		of("eu", "*.eu.example.com/v1*"),
		shadowOf(of("soon", "*.example.com/v1*")),
	)).d
	for _, c := range []struct{ method, host, path, want string }{
		{"POST", "api.example.com", "/v1/chat", "chat"},
		{"GET", "api.example.com", "/v1/chat", "api"},
		{"POST", "API.EXAMPLE.COM", "/v1/Chat/", "chat"},
		{"POST", "api.example.com:443", "/v1/chat", "chat"},
		{"POST", "api.example.com.", "/v1/chat", "chat"},
		{"POST", "Api.Example.Com.:8443", "/v1/chat", "chat"},
		{"GET", "www.example.com", "/", "wide"},
		{"GET", "a.b.example.com", "/", "wide"},
		{"GET", "shop.eu.example.com", "/v1/x", "eu"},
		{"GET", "shop.eu.example.com", "/orders", "wide"},
		{"GET", "shop.eu.example.com", "/other", "wide"},
		{"GET", "example.com", "/", "all"}, // no name before the dot
		{"GET", "badexample.com", "/", "all"},
		{"GET", ".example.com", "/", "all"},
		{"GET", "", "/", "all"},
		{"GET", "api.example.com:x", "/", "all"},
		{"GET", "api.example.com@", "/", "all"},
	} {
		if got := d.Match(c.method, c.host, c.path).Limiter().Name; got != c.want {
			t.Errorf("%s %s%s is covered by %s, want %s", c.method, c.host, c.path, got, c.want)
		}
	}
	for host, want := range map[string]string{"api.example.com": "api", "x.eu.example.com": "eu", "other.example": "all"} {
		if got := d.CatchAll(host, "/v1/chat").Limiter().Name; got != want {
			t.Errorf("%s is caught by %s, want %s", host, got, want)
		}
	}
}

// A limiter counts the requests of all its hosts together; another limiter has counts of its own.
func TestLimitersOfTwoHostsShareNoCount(t *testing.T) {
	x := newTried(t, policyOf(
		routed(limiter("a", "1 per minute by ip"), "a.example.com/*"),
		routed(limiter("b", "1 per minute by ip"), "b.example.com/*", "c.example.com/*")))
	for _, c := range []struct {
		host string
		want bool
	}{{"a.example.com", true}, {"A.example.com.:80", false}, {"b.example.com", true}, {"c.example.com", false}} {
		d, err := x.d.Decide(context.Background(), weir.Request{Method: "GET", Host: c.host, Path: "/", Keys: ip})
		if err != nil || d.Allowed != c.want {
			t.Errorf("%s: allowed %v, %v; want %v", c.host, d.Allowed, err, c.want)
		}
	}
}

func TestARouteIsUnreachableOnItsOwnHostOnly(t *testing.T) {
	_, err := weir.NewRoutes(policyOf(
		routed(limiter("a", "1 per minute by ip"), "a.example.com/x", "/x", "*.example.com/x"),
		routed(limiter("b", "1 per minute by ip"), "b.example.com/x", "a.example.com/X/")))
	if err == nil || strings.Count(err.Error(), "unreachable") != 1 || !strings.Contains(err.Error(), `"a.example.com/X/"`) {
		t.Error(err)
	}
}

func TestTooManyShadowsOfOneHostAreReported(t *testing.T) {
	var all []weir.Limiter
	for i := range weir.MaxShadows {
		all = append(all, shadowOf(routed(limiter(fmt.Sprint("s", i), "1 per minute by ip"), "*.example.com/x*")))
	}
	last := shadowOf(routed(limiter("last", "1 per minute by ip"), "other.example/x"))
	if _, err := weir.NewRoutes(policyOf(append(all, last)...)); err != nil {
		t.Errorf("on another host: %v", err)
	}
	last.Routes = routes("a.example.com/x")
	if _, err := weir.NewRoutes(policyOf(append(all, last)...)); err == nil {
		t.Error("on one of the hosts: no problem")
	}
}

// Whatever hosts a policy names, a request finds the route that a search through all of them finds.
func TestSitesAgreeWithASearchThroughAllRoutes(t *testing.T) {
	hosts := []string{"", "a.example.com", "b.example.com", "*.example.com", "*.a.example.com", "x.a.example.com", "*.com", "example.com"}
	paths := []string{"/*", "/v1*", "/v1/chat", "/v1/*"}
	rapid.Check(t, func(t *rapid.T) {
		var all []weir.Limiter
		seen := map[string]bool{}
		for i := range rapid.IntRange(1, 8).Draw(t, "limiters") {
			spec := rapid.SampledFrom(hosts).Draw(t, "host") + rapid.SampledFrom(paths).Draw(t, "path")
			if !seen[spec] {
				seen[spec] = true
				all = append(all, routed(limiter(fmt.Sprint("l", i), "1 per minute by ip"), spec))
			}
		}
		r, err := weir.NewRoutes(policyOf(all...))
		if err != nil {
			t.Fatal(err)
		}
		host := rapid.SampledFrom([]string{"a.example.com", "b.example.com", "c.example.com", "x.a.example.com", "y.x.a.example.com", "example.com", "other.com", "other.net", "A.Example.com.:80", ""}).Draw(t, "request host")
		path := rapid.SampledFrom([]string{"/", "/v1", "/v1/chat", "/v1/x", "/v10", "/w"}).Draw(t, "request path")
		folded, _ := weir.AppendHost(nil, host)
		want, best := "", -1
		for _, l := range all {
			of := l.Routes[0]
			rank := -1
			switch {
			case of.Host == "":
				rank = 0
			case of.Host == string(folded):
				rank = 1000
			case of.Host[0] == '*' && strings.HasSuffix(string(folded), of.Host[1:]):
				rank = len(of.Host)
			}
			alone := of
			alone.Host = ""
			l.Routes = []weir.Route{alone}
			one, err := weir.NewRoutes(policyOf(l))
			if err != nil {
				t.Fatal(err)
			}
			if rank < 0 || one.Match("GET", "", path).Limiter() == nil {
				continue
			}
			if specific := rank*1000 + len(of.Path)*2; specific > best {
				best, want = specific, l.Name
			}
		}
		got := ""
		if l := r.Match("GET", host, path).Limiter(); l != nil {
			got = l.Name
		}
		// "/v1*" and "/v1/*" both cover /v1, and the segment route comes first.
		if got != want {
			t.Fatalf("%s%s is covered by %q, want %q", host, path, got, want)
		}
	})
}
