package pacer_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/pacer"
)

func addresses(texts ...string) (all []netip.Addr) {
	for _, s := range texts {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// unsigned returns a request without a credential.
func unsigned(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Agent-Id", "demo")
	return r
}

const initPolicy = `limiters:
  - name: widget-init
    routes: [POST /api/v1/widget/init]
    windows: [20 per 10 seconds by ip+agent, 60 per minute by ip]
  - name: wp-plugin
    routes: [/v1/wp/*]
    windows: [60 per minute by token or ip]
`

func TestRequestsCountedByAddressSpreadOverSeveral(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, initPolicy, 0)
		p := pacer.New(&pacer.Options{Base: w, Egress: addresses("192.0.2.1", "192.0.2.2", "192.0.2.3"),
			EgressTransport: func(a netip.Addr) http.RoundTripper { return via{w, a} }})
		began := time.Now()
		var all sync.WaitGroup
		for range 3 * usable(20) {
			all.Go(func() { w.do(p, unsigned(t, "POST", "http://api.example.com/api/v1/widget/init")) })
		}
		all.Wait()
		if took := time.Since(began); took > 2*time.Second || w.refused != 0 {
			t.Errorf("the budgets of three addresses took %v, with %d refusals", took, w.refused)
		}
		for _, b := range p.Budgets() {
			if b.Limit == 20 && b.Remaining != 20-int64(usable(20)) {
				t.Errorf("%v has %d left: the addresses were not used evenly", b.Egress, b.Remaining)
			}
		}
		// The hour, here a minute of 60, binds after three spent windows of 10
		// seconds.
		for range 3 * (usable(60) - usable(20)) {
			all.Go(func() { w.do(p, unsigned(t, "POST", "http://api.example.com/api/v1/widget/init")) })
		}
		all.Wait()
		if took := time.Since(began); took > 30*time.Second || w.refused != 0 {
			t.Errorf("the longer window took %v to spend, with %d refusals", took, w.refused)
		}
	})
}

func TestRealAddresses(t *testing.T) {
	var mu sync.Mutex
	from := make(map[string]int)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		key := strings.Split(r.URL.Path, "/")[2] + " " + host
		from[key]++
		left := max(10-from[key], 0)
		h := rw.Header()
		h["X-RateLimit-Limit"], h["X-RateLimit-Remaining"] = []string{"10"}, []string{string(rune('0' + left))}
		h["X-RateLimit-Reset"] = []string{unix(time.Now().Add(time.Hour))}
	}))
	defer server.Close()
	p := pacer.New(&pacer.Options{Egress: addresses("127.0.0.1", "127.0.0.2", "127.0.0.3"), Threshold: pacer.Keep(2), MaxWait: pacer.NoWait})
	defer p.CloseIdleConnections()
	send := func(r *http.Request) error {
		response, err := p.RoundTrip(r)
		if err == nil {
			response.Body.Close()
		}
		return err
	}
	for i := range 27 {
		if err := send(unsigned(t, "POST", server.URL+"/api/v1/widget/typing")); err != nil {
			t.Fatalf("request %d: %v", i+1, err)
		}
	}
	wait := asWait(t, send(unsigned(t, "POST", server.URL+"/api/v1/widget/typing")))
	if wait.Limiter != "widget-typing" {
		t.Errorf("%+v", wait)
	}
	signed := unsigned(t, "GET", server.URL+"/v1/wp/status")
	signed.Header.Set("Authorization", "Bearer wpt_abc_def")
	for range 9 {
		if err := send(signed); err != nil {
			t.Fatal(err)
		}
	}
	asWait(t, send(signed)) // other addresses would not help
	for key, want := range map[string]int{"v1 127.0.0.1": 9, "v1 127.0.0.2": 9, "v1 127.0.0.3": 9, "wp 127.0.0.1": 9} {
		t.Run(key, func(t *testing.T) {
			if from[key] != want {
				t.Errorf("%s sent %d requests, want %d: %v", key, from[key], want, from)
			}
		})
	}
}

func TestABaseThatCannotBeBoundPanics(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "EgressTransport") {
			t.Errorf("New panicked with %q", text)
		}
	}()
	pacer.New(&pacer.Options{Base: &script{}, Egress: addresses("127.0.0.1")})
}
