package redis_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/redistest"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/redisstore"
)

// Two nodes count one value of an HTTP field together, and two values apart. The
// server never receives a value, which may be a secret.
func TestTheValuesOfAFieldAreCountedTogether(t *testing.T) {
	server := redistest.Start(t)
	w, err := weir.ParseWindow("5 per day by header:X-Api-Key or ip")
	if err != nil {
		t.Fatal(err)
	}
	second := w
	second.Limit, second.Per = 7, time.Hour
	p := weir.Policy{Limiters: []weir.Limiter{{Name: "keyed", Windows: []weir.Window{w, second}}}}
	resolver, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	values := []string{"", "sk_live_27ab", "sk_live_27AB", strings.Repeat("sk_live_", 40)}
	admitted := make([]atomic.Int64, len(values))
	var senders sync.WaitGroup
	for range 2 {
		d, err := weir.New(p, open(t, redisstore.Options{Addresses: []string{server.Addr()}}), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		senders.Go(func() {
			for i := range 8 * len(values) {
				r := &http.Request{RemoteAddr: "192.0.2.1:1", Header: http.Header{}}
				if v := values[i%len(values)]; v != "" {
					r.Header.Set("X-Api-Key", v)
				}
				var c identity.Caller
				resolver.Start(&c, &identity.HTTPRequest{Request: r})
				decision, err := d.Decide(t.Context(), weir.Request{Limiters: []string{"keyed"}, Keys: &c})
				if err != nil {
					t.Error(err)
				}
				if decision.Allowed {
					admitted[i%len(values)].Add(1)
				}
			}
		})
	}
	senders.Wait()
	for i := range values {
		if n := admitted[i].Load(); n != 5 {
			t.Errorf("%.20q: %d of 16 requests on two nodes were admitted, want 5", values[i], n)
		}
	}
	answer := server.Do(t, "KEYS", "*")
	if keys, err := answer.AsStrSlice(); err != nil || len(keys) == 0 || strings.Contains(strings.Join(keys, " "), "sk_live") {
		t.Errorf("%v: the server's keys have a value, or there are none: %q", err, keys)
	}
}
