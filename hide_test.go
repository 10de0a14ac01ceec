package weir_test

import (
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

const hiding = `limiters:
  - {name: keys, routes: ["/k/{key}/x", "/k/{key}", "/u/{user}/k/{key}/*"], windows: ["9 per minute by ip+path:key"]}
  - {name: slots, routes: ["/s/{slot}"], in_flight: "9 by ip+path:slot"}
  - {name: open, routes: ["/o/{key}"], windows: [9 per minute by ip]}
  - {name: tried, routes: ["/o/{key}"], windows: ["9 per minute by ip+path:key"], mode: shadow}
  - {name: rest, routes: [/*], windows: [9 per minute by ip]}
`

// A segment that a window counts by can be a secret, and a log must not have it, however the path
// is spelled. The rest of the path is kept.
func TestASegmentThatIsCountedByIsHidden(t *testing.T) {
	f, err := policyfile.Parse("p", []byte(hiding))
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d, err := weir.New(f.Policy, store, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hide := func(name, value string) string { return "<" + name + "=" + value + ">" }
	for _, c := range []struct{ path, escaped, want string }{
		{"/k/Secret/x", "/k/Secret/x", "/k/<key=secret>/x"},
		{"/k/a b/x", "/k/a%20b/x", "/k/<key=a b>/x"},
		{"/k/secret.v2", "/k/secret.v2", "/k/<key=secret>"},
		{"/K/secret;v=1/X", "/K/secret;v=1/X", "/K/<key=secret>/X"},
		{"/k/;v/secret/x", "/k/;v/secret/x", "/k/;v/<key=secret>/x"},
		{"/k/secret/x/", "/k/secret/x/", "/k/<key=secret>/x/"},
		{"/k/..;v/k/secret/x", "/k/..;v/k/secret/x", "/k/<key=secret>/x"},
		{"/u/Ann/k/secret/more/of it", "/u/Ann/k/secret/more/of%20it", "/u/Ann/k/<key=secret>/more/of%20it"},
		{"/s/secret", "/s/secret", "/s/<slot=secret>"},
		{"/o/secret", "/o/secret", "/o/<key=secret>"},
		{"/other/Path", "/other/Path", "/other/Path"},
	} {
		if got := d.Match("GET", "", c.path).HideCounted(c.escaped, hide); got != c.want {
			t.Errorf("%s: %s, want %s", c.escaped, got, c.want)
		}
	}
	if got := (weir.Match{}).HideCounted("/a", hide); got != "/a" {
		t.Errorf("without a limiter: %s", got)
	}
}
