package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/target"
)

// An explanation has the values of the parameters, which are in the path that is asked about.
func TestAnExplanationHasTheParametersOfTheRoute(t *testing.T) {
	p := policyBy(t, "path:tenant+ip")
	p.Limiters[0].Routes = []weir.Route{{Path: "/t/{tenant}/", Prefix: true}, {Path: "/t/{tenant}/users/{user}"}}
	other := policyBy(t, "ip").Limiters[0]
	other.Name, other.Routes = "me", []weir.Route{{Path: "/t/me/{what}"}}
	p.Limiters = append(p.Limiters, other)
	for _, c := range []struct{ path, route, counted, why string }{
		{"/t/Acme/users/ann", "/t/{tenant}/users/{user}", "[{path:tenant acme } {ip <address> }]", `{tenant} covers one segment, here "acme"`},
		{"/t/acme/x", "/t/{tenant}/*", "[{path:tenant acme } {ip <address> }]", "/t/{tenant}/* covers every path that begins with /t/{tenant}/"},
		{"/t/me/x", "/t/me/{what}", "[{ip <address> }]", "/t/me/{what} beats /t/{tenant}/* (all): from the left, literal text beats a parameter"},
		{"/t/acme/users/ann", "/t/{tenant}/users/{user}", "[{path:tenant acme } {ip <address> }]", "beats /t/{tenant}/* (all): a literal path beats a prefix"},
	} {
		e, err := Request(p, "GET", c.path, Caller{})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(e.Windows[0].Counted); e.Route != c.route || got != c.counted {
			t.Errorf("%s: route %s, counted %s", c.path, e.Route, got)
		}
		if !slices.ContainsFunc(e.Why, func(why string) bool { return strings.Contains(why, c.why) }) {
			t.Errorf("%s: %q, want %q", c.path, e.Why, c.why)
		}
	}
	e, _ := Request(p, "GET", "/t/acme/users/ann", Caller{})
	if strings.Contains(fmt.Sprint(e.Why), "also covers") {
		t.Errorf("the path is that of the route: %q", e.Why)
	}
}

// The order of specificity decides which shadows judge a request.
func TestAnExplanationNamesTheShadowsThatAreMoreSpecific(t *testing.T) {
	p := policyBy(t, "ip")
	p.Limiters[0].Routes = []weir.Route{{Path: "/t/{tenant}/items"}}
	for i, path := range []string{"/t/acme", "/t/{x}/{y}"} {
		l := policyBy(t, "ip").Limiters[0]
		l.Name, l.Mode, l.Routes = fmt.Sprint("tried-", i), weir.Shadow, []weir.Route{{Path: path}}
		p.Limiters = append(p.Limiters, l)
	}
	e, err := Request(p, "GET", "/t/acme/items", Caller{})
	if err != nil {
		t.Fatal(err)
	}
	if why := fmt.Sprint(e.Why); !strings.Contains(why, "/t/acme (tried-0, mode shadow) counts it too") || strings.Contains(why, "tried-1") {
		t.Error(why)
	}
}

// A route for a method that a server answers 405 by default is explained as one.
func TestAnExplanationNamesTheFlagThatAMethodNeeds(t *testing.T) {
	p := policyBy(t, "ip")
	p.Limiters[0].Routes = []weir.Route{{Method: "PROPFIND", Path: "/a"}, {Path: "/", Prefix: true}}
	for method, want := range map[string]bool{"PROPFIND": true, "GET": false} {
		e, err := Request(p, method, "/a", Caller{})
		if err != nil || e.Limiter != "all" {
			t.Fatalf("%v, %+v", err, e)
		}
		if got := strings.Contains(fmt.Sprint(e.Why), "--methods "+method); got != want {
			t.Errorf("%s: %q", method, e.Why)
		}
	}
}

// A server that forwards paths as sent counts them by their folded form, and so does its
// explanation.
func TestAPathIsExplainedAsTheServerReadsIt(t *testing.T) {
	p := policyBy(t, "ip")
	p.Limiters[0].Routes = []weir.Route{{Path: "/", Prefix: true}}
	other := policyBy(t, "ip").Limiters[0]
	other.Name, other.Routes = "packages", []weir.Route{{Path: "/npm/{scope}/{name}"}}
	admin := policyBy(t, "ip").Limiters[0]
	admin.Name, admin.Routes = "admin", []weir.Route{{Path: "/admin/"}}
	p.Limiters = append(p.Limiters, other, admin)
	const rejected = "answered 400 invalid_request"
	for _, c := range []struct {
		paths                         target.Paths
		path, limiter, canonical, why string
	}{
		{target.Strict, "/npm/a/b", "packages", "/npm/a/b", ""},
		{target.Strict, "/npm//a/b", "packages", "/npm/a/b", "another spelling"},
		{target.Strict, "/npm/@a%2Fb", "all", "", rejected},
		{target.AsSent, "/npm/a/b", "packages", "/npm/a/b", ""},
		{target.AsSent, "/x/100%25", "all", "/x/100%25", ""},
		{target.AsSent, "/x/%41//b?c=1", "all", "/x/A/b", "is counted as /x/A/b"},
		{target.AsSent, "/npm/@a%2Fb", "all", "", "several ways"}, // one segment, or two
		{target.AsSent, "/a/../b", "all", "", "has a dot segment"},
		{target.AsSent, "/a%00", "all", "", rejected},
	} {
		e, err := Server{Paths: c.paths}.Request(p, "GET", c.path, Caller{})
		if err != nil {
			t.Fatal(err)
		}
		if e.Limiter != c.limiter || e.Canonical != c.canonical || !strings.Contains(fmt.Sprint(e.Why), c.why) {
			t.Errorf("%d %s: limiter %s, canonical %q, why %q", c.paths, c.path, e.Limiter, e.Canonical, e.Why)
		}
	}
}
