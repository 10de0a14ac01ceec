package weircaddy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTheFirstRefusalHasTheContractsFields(t *testing.T) {
	at := freeAddress(t)
	serve(t, site(at, limited(policy(t, "- {name: all, routes: [/*], windows: [2 per minute by ip]}")), "respond hello"), "")
	for left := 1; left >= 0; left-- {
		a := get(t, "http://"+at+"/")
		if a.status != http.StatusOK || a.body != "hello" || a.header.Get("X-RateLimit-Remaining") != fmt.Sprint(left) {
			t.Errorf("with %d left: %+v", left+1, a)
		}
	}
	a := get(t, "http://"+at+"/")
	var refusal struct{ Error struct{ Code string } }
	if err := json.Unmarshal([]byte(a.body), &refusal); err != nil || a.status != http.StatusTooManyRequests || refusal.Error.Code != "rate_limited" {
		t.Errorf("the third request: %+v", a)
	}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Date"} {
		if len(a.header.Values(name)) != 1 {
			t.Errorf("the 429 has %s: %v", name, a.header.Values(name))
		}
	}
}

func TestParallelRequestsAreLimitedExactly(t *testing.T) {
	at := freeAddress(t)
	serve(t, site(at, limited(policy(t, "- {name: all, routes: [/*], windows: [50 per hour by ip]}")), "respond hello"), "")
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				if a, err := try("http://" + at + "/"); err == nil && a.status == http.StatusOK {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if passed.Load() != 50 {
		t.Errorf("%d requests have passed, want 50", passed.Load())
	}
}

// A configuration that is replaced while requests come, and a policy whose limit is raised with it,
// keep every count.
func TestReloadsUnderLoadKeepTheCounts(t *testing.T) {
	at, file := freeAddress(t), policy(t, "- {name: all, routes: [/*], windows: [100 per hour by ip]}")
	text := func(n int) string { return site(at, limited(file), fmt.Sprintf("respond \"config %d\"", n)) }
	serve(t, text(0), "")
	var passed, refused, failed atomic.Int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch a, err := try("http://" + at + "/"); {
				case err != nil:
					failed.Add(1)
				case a.status == http.StatusOK:
					passed.Add(1)
				case a.status == http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	for n := 1; n <= 8; n++ {
		if n == 4 {
			if err := os.WriteFile(file, []byte("limiters:\n- {name: all, routes: [/*], windows: [150 per hour by ip]}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := load(t, text(n), ""); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	all.Wait()
	for { // what the load has left
		a := get(t, "http://"+at+"/")
		if a.status != http.StatusOK {
			break
		}
		if passed.Add(1); a.body != "config 8" {
			t.Errorf("the configuration in force answers %q", a.body)
		}
	}
	// a request that was cut off may have been counted
	if n := passed.Load(); n > 150 || n < 150-failed.Load() {
		t.Errorf("%d requests have passed and %d were cut off, want 150 in all; %d refused", n, failed.Load(), refused.Load())
	}
}

func TestSitesShareTheCountsOfOnePolicyOnly(t *testing.T) {
	one := policy(t, "- {name: all, routes: [/*], windows: [2 per minute by ip]}")
	other := policy(t, "- {name: all, routes: [/*], windows: [2 per minute by ip]}")
	a, b, c := freeAddress(t), freeAddress(t), freeAddress(t)
	serve(t, site(a, limited(one), "respond a")+site(b, limited(one), "respond b")+site(c, limited(other), "respond c"), "")
	wantStatuses(t, "a", "http://"+a+"/", nil, 200)
	wantStatuses(t, "b, with the same policy", "http://"+b+"/", nil, 200, 429)
	wantStatuses(t, "c, with its own", "http://"+c+"/", nil, 200, 200, 429)
}

// Caddy answers a handler's error when all handlers have returned.
func TestAnErrorOfALaterHandlerStaysWhatItIs(t *testing.T) {
	at := freeAddress(t)
	file := policy(t, "- {name: all, routes: [/*], windows: [3 per minute by ip]}\n- {name: login, routes: [/login], windows: [2 per minute by ip], count: {status: [401]}}")
	serve(t, site(at, limited(file), "error /missing 404", "error /login 401", "respond hello"), "")
	a := get(t, "http://"+at+"/missing")
	if a.status != http.StatusNotFound || a.header.Get("X-RateLimit-Remaining") != "2" {
		t.Errorf("an error: %+v", a)
	}
	wantStatuses(t, "failures that are counted", "http://"+at+"/login", nil, 401, 401, 429)
}

func TestTheClientIsCaddysUnlessThatIsInDoubt(t *testing.T) {
	for _, c := range []struct {
		name, global string
		first, then  string // X-Forwarded-For of two requests
		want         int    // the status of the second, with one request a minute
	}{
		{"no proxy is trusted", "", "192.0.2.1", "192.0.2.2", 429},
		{"the proxy's clients", "trusted_proxies static 127.0.0.0/8", "192.0.2.1", "192.0.2.2", 200},
		{"what a client has written is no other client", "trusted_proxies static 127.0.0.0/8", "198.51.100.1, 192.0.2.1", "198.51.100.2, 192.0.2.1", 429},
		{"strict", "trusted_proxies static 127.0.0.0/8 10.0.0.0/8\n trusted_proxies_strict", "198.51.100.1, 192.0.2.1, 10.0.0.1", "198.51.100.2, 192.0.2.1, 10.0.0.1", 429},
		{"strict, another client", "trusted_proxies static 127.0.0.0/8 10.0.0.0/8\n trusted_proxies_strict", "192.0.2.1, 10.0.0.1", "192.0.2.2, 10.0.0.1", 200},
		{"no address at the end", "trusted_proxies static 127.0.0.0/8", "192.0.2.1, unknown", "192.0.2.2, unknown", 429},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := freeAddress(t)
			global := ""
			if c.global != "" {
				global = "servers {\n" + c.global + "\n}"
			}
			serve(t, site(at, limited(policy(t, "- {name: all, routes: [/*], windows: [1 per minute by ip]}")), "respond {remote_host}"), global)
			if a := get(t, "http://"+at+"/", "X-Forwarded-For", c.first); a.status != http.StatusOK || a.body != "127.0.0.1" {
				t.Errorf("the first request: %+v", a)
			}
			wantStatuses(t, "the second", "http://"+at+"/", []string{"X-Forwarded-For", c.then}, c.want)
		})
	}
}

func TestAPlaceholderIsAKeySource(t *testing.T) {
	at := freeAddress(t)
	file := policy(t, "- {name: all, routes: [/*], windows: [1 per minute by tenant+ip]}")
	serve(t, site(at, limited(file, "key tenant {http.request.header.X-Tenant}"), "respond hello"), "")
	wantStatuses(t, "a", "http://"+at+"/", []string{"X-Tenant", "a"}, 200, 429)
	wantStatuses(t, "b", "http://"+at+"/", []string{"X-Tenant", "b"}, 200)
}

// Caddy rejects the configuration and keeps the one before.
func TestAPolicyThatIsNotValidRejectsTheConfiguration(t *testing.T) {
	at, file := freeAddress(t), policy(t, "- {name: all, routes: [/*], windows: [1 per minute by ip]}")
	serve(t, site(at, limited(file), "respond hello"), "")
	wantStatuses(t, "before", "http://"+at+"/", nil, 200, 429)
	bad := policy(t, "- {name: all, routes: [/*], windows: [1 per minut by ip]}")
	for _, c := range []struct{ directive, want string }{
		{limited(bad), `unit "minut" is unknown`},
		{limited(bad + ".missing"), "no such file"},
		{"weir {\n ietf\n}", "no policy"},
		{limited(file, "store postgres://x"), `store "postgres://…" is neither memory nor the URL of a Redis server: expected redis://HOST:PORT`},
		{limited(file, "store bogus"), `store "bogus" is neither`},
		{limited(file, "store user:secret@h"), `store "…" is neither`},
		{limited(file, "key user name"), "is no placeholder"},
		{limited(file, "token_from cookie"), "token_from"},
		{limited(file, "store redis://127.0.0.1:1", "counts x"), "leave out counts or store"},
	} {
		if err := load(t, site(at, c.directive, "respond other"), ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.directive, err, c.want)
		}
		wantStatuses(t, "after "+c.directive, "http://"+at+"/", nil, 429)
	}
}

func TestAMistakeInTheCaddyfileIsNamed(t *testing.T) {
	for _, c := range []struct{ directive, want string }{
		{"weir {\n polcy x\n}", "policy, store, counts, token_file, token_from, key and ietf are allowed"},
		{"weir {\n policy x\n policy y\n}", "given twice"},
		{"weir x", "the policy's file is in the block"},
		{"weir {\n policy\n}", "argument"},
		{"weir {\n key a\n}", "key NAME PLACEHOLDER [verified]"},
		{"weir {\n key a {b} trusted\n}", "key NAME PLACEHOLDER [verified]"},
		{"weir {\n ietf yes\n}", "argument"},
	} {
		if _, err := adapt(site("127.0.0.1:1", c.directive), ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.directive, err, c.want)
		}
	}
}

// The figures of all handlers are in Caddy's own, once, and outlive a reload.
func TestCaddysMetricsHaveTheDecisions(t *testing.T) {
	a, b, file := freeAddress(t), freeAddress(t), policy(t, "- {name: all, routes: [/*], windows: [2 per minute by ip]}")
	text := site(a, limited(file), "respond hello") + site(b, "handle /metrics {\n metrics\n}", "handle {\n "+limited(file)+"\n respond hello\n}")
	serve(t, text, "")
	wantStatuses(t, "a", "http://"+a+"/", nil, 200)
	wantStatuses(t, "b", "http://"+b+"/", nil, 200, 429)
	if err := load(t, text, ""); err != nil {
		t.Fatal(err)
	}
	scraped := get(t, "http://"+b+"/metrics").body
	for _, want := range []string{"admitted", "refused"} {
		if n := strings.Count(scraped, fmt.Sprintf("outcome=%q", want)); n != 1 {
			t.Errorf("%d lines have the outcome %s in\n%s", n, want, scraped)
		}
	}
	if strings.Count(scraped, "\nweir_build_info{") != 1 || strings.Contains(scraped, "error") && strings.Contains(scraped, "gathering") {
		t.Errorf("/metrics has\n%s", scraped)
	}
}

func BenchmarkHandler(b *testing.B) {
	file := policy(b, "- {name: all, routes: [/*], windows: [2000000000 per hour by ip]}")
	bare, weir := freeAddress(b), freeAddress(b)
	serve(b, site(bare, "respond hello")+site(weir, limited(file), "respond hello"), "")
	for name, at := range map[string]string{"bare": bare, "weir": weir} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if a := get(b, "http://"+at+"/"); a.status != http.StatusOK {
					b.Fatal(a)
				}
			}
		})
	}
}
