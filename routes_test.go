package weir_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

func TestCoveringRoutesAreListedMostSpecificFirst(t *testing.T) {
	limiter := func(name string, mode weir.Mode, routes ...string) weir.Limiter {
		l := weir.Limiter{Name: name, Mode: mode, Windows: []weir.Window{{Limit: 1, Per: time.Minute, Key: weir.Key{{"ip"}}}}}
		for _, text := range routes {
			r, err := weir.ParseRoute(text)
			if err != nil {
				t.Fatal(err)
			}
			l.Routes = append(l.Routes, r)
		}
		return l
	}
	routes, err := weir.NewRoutes(weir.Policy{Limiters: []weir.Limiter{
		limiter("all", weir.Enforce, "/*"),
		limiter("orders", weir.Enforce, "/orders/*", "GET /orders/7"),
		limiter("trial", weir.Shadow, "/orders*"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path string
		want         []string
	}{
		{"GET", "/orders/7", []string{"orders GET /orders/7", "orders /orders/*", "trial /orders*", "all /*"}},
		{"HEAD", "/Orders/7/", []string{"orders GET /orders/7", "orders /orders/*", "trial /orders*", "all /*"}},
		{"POST", "/orders/7", []string{"orders /orders/*", "trial /orders*", "all /*"}},
		{"GET", "/ordersheet", []string{"trial /orders*", "all /*"}},
		{"GET", "/", []string{"all /*"}},
	} {
		var got []string
		for _, m := range routes.Covering(c.method, "", c.path) {
			got = append(got, m.Limiter().Name+" "+m.Route().String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %s is covered by %q, want %q", c.method, c.path, got, c.want)
		}
		for _, m := range routes.Covering(c.method, "", c.path) {
			if m.Limiter().Mode == weir.Enforce {
				if first := routes.Match(c.method, "", c.path); first.Route() != m.Route() {
					t.Errorf("%s %s matches %v, and the first route that covers it is %v", c.method, c.path, first.Route(), m.Route())
				}
				break
			}
		}
	}
}
