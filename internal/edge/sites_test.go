package edge

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

func TestHostsThatOnlyThePolicyOrOnlyTheUpstreamsNameAreWarnedOf(t *testing.T) {
	for _, test := range []struct {
		name             string
		upstreams        []string
		routes           []string
		refused, unbound []string // the hosts of the two warnings
	}{
		{"the same", []string{"api.example.com"}, []string{"api.example.com/*"}, nil, nil},
		{"others", []string{"api.example.com"}, []string{"shop.example.com/*", "POST shop.example.com/x"}, []string{"shop.example.com"}, []string{"api.example.com"}},
		{"an upstream for all", []string{"api.example.com", ""}, []string{"shop.example.com/*", "api.example.com/*"}, nil, nil},
		{"a route for all", []string{"api.example.com"}, []string{"/*", "shop.example.com/*"}, []string{"shop.example.com"}, nil},
		{"an upstream with a star", []string{"*.example.com"}, []string{"shop.example.com/*", "example.com/*", "*.a.example.com/*"}, []string{"example.com"}, nil},
		{"a route with a star", []string{"api.example.com", "example.com", "*.a.example.com"}, []string{"*.example.com/*"}, nil, []string{"example.com"}},
		{"the sample backend", nil, []string{"shop.example.com/*"}, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var sites []gateway.Site
			for _, host := range test.upstreams {
				sites = append(sites, gateway.Site{Host: host})
			}
			var text bytes.Buffer
			warn := warnOnce(slog.New(slog.NewTextHandler(&text, nil)), func(p weir.Policy) []Warning { return hostWarnings(p, sites) })
			state := live.State{Version: "one", Policy: weir.Policy{Limiters: []weir.Limiter{{Name: "a"}}}}
			for _, r := range test.routes {
				route, err := weir.ParseRoute(r)
				if err != nil {
					t.Fatal(err)
				}
				state.Policy.Limiters[0].Routes = append(state.Policy.Limiters[0].Routes, route)
			}
			for range 2 { // once for each policy
				warn(state)
			}
			var refused, unbound []string
			for line := range strings.Lines(text.String()) {
				_, host, _ := strings.Cut(strings.TrimSpace(line), " host=")
				if strings.Contains(line, "421") {
					refused = append(refused, host)
				} else if strings.Contains(line, "not limited") {
					unbound = append(unbound, host)
				}
			}
			if !slices.Equal(refused, test.refused) || !slices.Equal(unbound, test.unbound) {
				t.Errorf("answered 421: %v, want %v; not limited: %v, want %v\n%s", refused, test.refused, unbound, test.unbound, &text)
			}
		})
	}
}

func TestAThousandHostsAreNotAThousandWarnings(t *testing.T) {
	var text bytes.Buffer
	warn := warnOnce(slog.New(slog.NewTextHandler(&text, nil)), func(p weir.Policy) []Warning { return hostWarnings(p, []gateway.Site{{Host: "api.example.com"}}) })
	var l weir.Limiter
	for i := range 1000 {
		l.Routes = append(l.Routes, weir.Route{Host: fmt.Sprintf("h%d.example.com", i), Path: "/", Prefix: true})
	}
	warn(live.State{Version: "one", Policy: weir.Policy{Limiters: []weir.Limiter{l}}})
	if n := strings.Count(text.String(), "421"); n != maxHostWarnings+1 || !strings.Contains(text.String(), `"more hosts"=990`) {
		t.Errorf("%d warnings:\n%s", n, &text)
	}
}

// A route for a method that the server answers 405 limits nothing.
func TestAMethodThatTheServerDoesNotAcceptIsWarnedOf(t *testing.T) {
	for route, want := range map[string]string{
		"/a": "", "POST /a": "", "PROPFIND /a": "", "PURGE /a": "give --methods PROPFIND,PURGE, or correct the route", "PROPFND /a": "give --methods PROPFIND,PROPFND",
		"TRACE /a": "", "CONNECT /a": "",
	} {
		r, err := weir.ParseRoute(route)
		if err != nil {
			t.Fatal(err)
		}
		all := PolicyWarnings(weir.Policy{Limiters: []weir.Limiter{{Name: "a", Routes: []weir.Route{r, r}}}}, &Config{Methods: []string{"PROPFIND"}})
		if text := fmt.Sprint(all); want == "" && len(all) > 0 || want != "" && (len(all) != 1 || !strings.Contains(text, want)) {
			t.Errorf("%s: %s, want %q", route, text, want)
		}
	}
}
