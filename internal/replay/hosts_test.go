package replay

import (
	"testing"

	"github.com/weirlimit/weir"
)

// sitesPolicy has a limiter for each of two sites, and one for the rest.
func sitesPolicy(t *testing.T) weir.Policy {
	t.Helper()
	p := policyOf(limiterOf(t, "api", "1 per minute by ip"), limiterOf(t, "shops", "2 per minute by ip"), limiterOf(t, "rest", "3 per minute by ip"))
	p.Limiters[0].Routes[0].Host, p.Limiters[1].Routes[0].Host = "api.example.com", "*.example.com"
	return p
}

// counted returns the requests of each limiter of sitesPolicy, and how many it refused.
func countedBySite(o Outcome) (all [3][2]int64) {
	for i, l := range o.Limiters {
		all[i] = [2]int64{l.Requests, l.Refused}
	}
	return all
}

func TestTheHostOfALineChoosesTheRoute(t *testing.T) {
	p := sitesPolicy(t)
	r := start(t, Options{Policy: p})
	for i, host := range []string{
		"api.example.com", "API.example.com:443", "api.example.com.", // one host
		"a.example.com", "b.example.com", "b.example.com:80", "b.example.com", // one limiter
		"example.com", "example.org", "", "exa mple", // no host that a route names
	} {
		l := lineAt(float64(i), "192.0.2.7")
		if host != "" {
			l.Host = []byte(host)
		}
		if i%2 == 1 {
			l.Target = []byte("/odd%20path/./x") // not remembered
		}
		if err := r.Add(l); err != nil {
			t.Fatal(err)
		}
	}
	out := report(t, r)
	if got, want := countedBySite(out.Policy), [3][2]int64{{3, 2}, {4, 2}, {4, 1}}; got != want {
		t.Errorf("requests and refusals of api, shops, rest: %v, want %v", got, want)
	}
	if len(out.Log.Lacks) > 0 {
		t.Errorf("the log has hosts, but lacks %+v", out.Log.Lacks)
	}
}

func TestALogWithoutHostsIsReportedIfRoutesNameHosts(t *testing.T) {
	p := sitesPolicy(t)
	r := start(t, Options{Policy: p})
	for i := range 4 {
		send(t, r, float64(i), "192.0.2.7")
	}
	out := report(t, r)
	if got, want := countedBySite(out.Policy), [3][2]int64{{0, 0}, {0, 0}, {4, 1}}; got != want {
		t.Errorf("requests and refusals of api, shops, rest: %v, want %v", got, want)
	}
	if len(out.Log.Lacks) != 1 {
		t.Fatalf("lacks %+v", out.Log.Lacks)
	}
	lack := out.Log.Lacks[0]
	if lack.Source != "host" || !lack.Routes || lack.Requests != 4 || len(lack.Limiters) != 2 {
		t.Errorf("%+v: expected the host, of 4 requests, for api and shops", lack)
	}

	plain := start(t, Options{Policy: policyOf(limiterOf(t, "all", "9 per minute by ip"))})
	send(t, plain, 0, "192.0.2.7")
	if lacks := report(t, plain).Log.Lacks; len(lacks) > 0 {
		t.Errorf("no route names a host, but the log lacks %+v", lacks)
	}
}

func TestTheHostOfALineIsCounted(t *testing.T) {
	p := policyOf(limiterOf(t, "all", "1 per minute by ip+host"))
	r := start(t, Options{Policy: p})
	for i, host := range []string{"a.example.com", "b.example.com", "A.example.com:443"} {
		l := lineAt(float64(i), "192.0.2.7")
		l.Host = []byte(host)
		if err := r.Add(l); err != nil {
			t.Fatal(err)
		}
	}
	out := report(t, r)
	if out.Policy.Refused != 1 || len(out.Log.Lacks) > 0 {
		t.Errorf("%d refused, want 1; lacks %+v", out.Policy.Refused, out.Log.Lacks)
	}
}
