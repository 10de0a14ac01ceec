package edge

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

func TestAHostThatSharesItsUpstreamIsWarnedOfOncePerPolicy(t *testing.T) {
	state := func(version, route string, mode weir.Mode) live.State {
		r, err := weir.ParseRoute(route)
		if err != nil {
			t.Fatal(err)
		}
		return live.State{Version: version, Policy: weir.Policy{Limiters: []weir.Limiter{
			{Name: "rest", Routes: []weir.Route{{Path: "/", Prefix: true}}}, {Name: "api", Mode: mode, Routes: []weir.Route{r}}}}}
	}
	for _, test := range []struct {
		route string
		sites []string
		warns bool
	}{
		{"api.example.com/*", []string{""}, true},
		{"api.example.com/*", []string{"*.example.com"}, true},
		{"*.example.com/*", []string{"", "shop.example.com"}, true},
		{"*.a.example.com/*", []string{"*.example.com"}, true},
		{"api.example.com/*", []string{"", "api.example.com"}, false},
		{"*.example.com/*", []string{"*.example.com", ""}, false},
		{"api.example.com/*", []string{"shop.example.com"}, false}, // 421
		{"api.example.com/*", nil, false},
		{"/login", []string{""}, false},
	} {
		var sites []gateway.Site
		for _, host := range test.sites {
			sites = append(sites, gateway.Site{Host: host})
		}
		var text bytes.Buffer
		warn := warnOnce(slog.New(slog.NewTextHandler(&text, nil)), func(p weir.Policy) []Warning { return sharedWarnings(p, sites) })
		warn(state("tried", test.route, weir.Shadow))
		if text.Len() > 0 {
			t.Errorf("%s in a shadow: %s", test.route, text.String())
		}
		warn(state("one", test.route, weir.Enforce))
		warn(state("one", test.route, weir.Enforce))
		if got := strings.Count(text.String(), test.route); got != map[bool]int{true: 1}[test.warns] {
			t.Errorf("%s before %q: %d warnings, want them: %t\n%s", test.route, test.sites, got, test.warns, text.String())
		}
	}
}
