package demo

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policyfile"
)

// The traffic is light and has something of everything.
func TestTheTrafficIsModestAndMeetsEveryLimiter(t *testing.T) {
	perSecond, met := 0.0, make(map[string]bool)
	limits := policyfile.Contract()
	routes, err := weir.NewRoutes(limits)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range cast {
		perSecond += float64(r.visitors) / r.every.Seconds()
		for _, a := range r.acts {
			if l := routes.Match(a.method, "", a.path).Limiter(); l != nil {
				met[l.Name] = true
			}
		}
	}
	if perSecond < 20 || perSecond > 60 {
		t.Errorf("the cast sends %.0f requests a second, want 20 to 60", perSecond)
	}
	for _, l := range limits.Limiters {
		if !met[l.Name] {
			t.Errorf("nobody meets limiter %s; met are %v", l.Name, slices.Sorted(maps.Keys(met)))
		}
	}
	if n := Visitors(); n < 24 || n > 60 {
		t.Errorf("there are %d visitors, want a few dozen", n)
	}
}

// The visitors go on when a server refuses requests, expires sessions and breaks connections, and
// all of them stop when ctx ends.
func TestVisitorsComeThroughTroubleAndLeaveWhenTold(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	var mu sync.Mutex
	from, kinds := make(map[string]bool), make(map[string]int)
	enough, n := make(chan struct{}), 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		host, _, _ := strings.Cut(r.RemoteAddr, ":")
		from[host] = true
		kinds[r.Method+" "+r.URL.Path]++
		if n++; n == 150 {
			close(enough)
		}
		if r.URL.Path != widget+"init" && r.Header.Get("Authorization") == "" && !strings.Contains(r.URL.Path, "admin") && !strings.Contains(r.URL.Path, ".env") && r.URL.Path != widget+"leads" {
			t.Errorf("%s %s without a credential", r.Method, r.URL.Path)
		}
		switch {
		case r.URL.Path == widget+"init":
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"token":"session"}`))
		case n%7 == 0:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		case n%11 == 0:
			w.WriteHeader(http.StatusUnauthorized)
		case n%13 == 0:
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Run(ctx, Options{URL: at, Tokens: [Tokens]string{"a", "b"}, Seed: 1})
	}()
	select {
	case <-enough:
	case <-time.After(time.Minute):
		t.Errorf("a minute brought %d requests, want 150", n)
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(timeout):
		t.Fatal("told to go, they stay")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(from) != addresses && len(from) != 1 {
		t.Errorf("they came from %v, want %d addresses, or one where this system has no more", from, addresses)
	}
	if kinds["POST "+widget+"init"] < 20 || len(kinds) < 8 {
		t.Errorf("they sent %v", kinds)
	}
}

// A session that may store no more (507) is given up for another one.
func TestAFullSessionIsReplaced(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes seconds of real time")
	}
	visitors := 0
	for _, r := range cast {
		if r.session {
			visitors += r.visitors
		}
	}
	var begun atomic.Int64
	replaced := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != widget+"init" {
			w.WriteHeader(http.StatusInsufficientStorage)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"token":"session"}`))
		if begun.Add(1) == int64(2*visitors) { // some init requests are visits of their own
			close(replaced)
		}
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, Options{URL: at, Tokens: [Tokens]string{"one", "two"}, Seed: 1})
	}()
	select {
	case <-replaced:
	case <-time.After(time.Minute):
		t.Errorf("%d sessions were begun for %d visitors in a minute: none was replaced", begun.Load(), visitors)
	}
	cancel()
	<-done
}
