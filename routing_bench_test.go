package weir_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
)

// literalRoutes is a policy of 1,000 limiters without parameters, of many lengths.
func literalRoutes() map[string][]string {
	routes := make(map[string][]string)
	for i := range 1000 {
		star := []string{"", "*", "/*"}[i%3]
		routes[fmt.Sprintf("l%d", i)] = []string{fmt.Sprintf("/api/v1/%s%d/items%s", strings.Repeat("x", i%20), i, star)}
	}
	return routes
}

func matches(b *testing.B, routes map[string][]string, path, want string) {
	b.Helper()
	d := deciderFor(b, routes)
	if got := name(d.Match("GET", "", path)); got != want {
		b.Fatalf("GET %s: limiter %q, want %q", path[:min(len(path), 80)], got, want)
	}
	var m weir.Match
	b.ReportAllocs()
	for b.Loop() {
		m = d.Match("GET", "", path)
	}
	_ = m
}

func BenchmarkMatchOfALiteralRoute(b *testing.B) {
	b.Run("contract", func(b *testing.B) {
		matches(b, contractRoutes, "/api/v1/widget/conversations/42/close", "widget-session")
	})
	b.Run("contract miss", func(b *testing.B) { matches(b, contractRoutes, "/assets/site.css", "") })
	b.Run("1000 limiters", func(b *testing.B) { matches(b, literalRoutes(), "/api/v1/xxxxx505/items/42", "l505") })
	b.Run("1000 limiters miss", func(b *testing.B) {
		matches(b, literalRoutes(), "/api/v2/something/else/that/is/not/there", "")
	})
}

// mixedRoutes is a policy of 1,000 limiters, two thirds of which have parameters, in five shapes.
func mixedRoutes() map[string][]string {
	routes := make(map[string][]string)
	for i := range 1000 {
		resource := fmt.Sprintf("%s%d", strings.Repeat("x", i%20), i)
		routes[fmt.Sprintf("l%d", i)] = []string{[]string{
			"/api/v1/" + resource + "/{id}",
			"GET /t/{tenant}/" + resource + "/{id}/*",
			"/t/{tenant}/" + resource + "*",
			"/api/v1/" + resource + "/items*",
			"/api/{version}/" + resource + "/{a}/b/{c}",
			"/static/" + resource,
		}[i%6]}
	}
	return routes
}

func BenchmarkMatchOfARouteWithParameters(b *testing.B) {
	routes := mixedRoutes()
	for _, x := range []struct{ name, path, want string }{
		{"one parameter", "/api/v1/xxxxxx546/0190a7c4/more", "l546"},
		{"two parameters", "/t/acme/xxxxxxxxxxxxx553/0190a7c4/photo", "l553"},
		{"a prefix", "/t/acme/xxxxxx506/42/close", "l506"},
		{"three parameters", "/api/v1/xxxxxx526/42/b/7", "l526"},
		{"literal", "/static/xxxxxxxxxxx551", "l551"},
		{"miss", "/t/acme/something/that/is/not/there", ""},
		{"deep miss", "/api/v1" + strings.Repeat("/x", 60), ""},
		{"hostile 8 KiB", "/t" + strings.Repeat("/x", 4<<10), ""},
		{"hostile segment of 8 KiB", "/t/" + strings.Repeat("x", 8<<10) + "/y", ""},
	} {
		b.Run(x.name, func(b *testing.B) { matches(b, routes, x.path, x.want) })
	}
	// Every literal segment may also be a parameter: each of 2^10 routes is another choice.
	all := make(map[string][]string)
	for i := range 1 << 10 {
		var path string
		for j := range 10 {
			if i>>j&1 == 0 {
				path += "/x"
			} else {
				path += fmt.Sprintf("/{p%d}", j)
			}
		}
		all[fmt.Sprintf("l%d", i)] = []string{path + fmt.Sprintf("/end%d", i)}
	}
	b.Run("hostile policy", func(b *testing.B) { matches(b, all, strings.Repeat("/x", 4<<10), "") })
}

// BenchmarkMatchOfAHost is what hosts add to a match, for a policy of 1,000 of them.
func BenchmarkMatchOfAHost(b *testing.B) {
	sites := map[string][]string{"none": {"/v1/chat*"}}
	for i := range 1000 {
		sites[fmt.Sprintf("l%d", i)] = []string{fmt.Sprintf("tenant%d.example.com/v1/chat*", i)}
	}
	stars := map[string][]string{"wide": {"*.example.net/v1/chat*"}}
	for name, routes := range sites {
		stars[name] = routes
	}
	for _, c := range []struct {
		name   string
		routes map[string][]string
		host   string
		want   string
	}{
		{"no hosts", map[string][]string{"none": {"/v1/chat*"}}, "tenant505.example.com", "none"},
		{"1000 hosts", sites, "tenant505.example.com", "l505"},
		{"1000 hosts, another spelling", sites, "Tenant505.Example.com.:8443", "l505"},
		{"1000 hosts, unknown", sites, "www.example.org", "none"},
		{"with a star", stars, "a.b.example.net", "wide"},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := deciderFor(b, c.routes)
			if got := name(d.Match("GET", c.host, "/v1/chat")); got != c.want {
				b.Fatalf("limiter %q, want %q", got, c.want)
			}
			b.ReportAllocs()
			for b.Loop() {
				d.Match("GET", c.host, "/v1/chat")
			}
		})
	}
}
