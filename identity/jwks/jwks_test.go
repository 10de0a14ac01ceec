package jwks_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/identity/jwks"
)

// A client that invents kids cannot make us flood the issuer (D14).
func TestAThousandUnknownKeysCostOneFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{status: 200, body: document(ecJWK("k", &ecdsaKey().PublicKey))}, jwks.Options{})
		f.knows(t, "k", "ES256", &ecdsaKey().PublicKey)
		f.e.set(func(e *endpoint) { e.delay = time.Second })
		for minute := range 3 {
			<-time.After(time.Minute)
			var all sync.WaitGroup
			for i := range 1000 {
				all.Go(func() { f.knows(t, fmt.Sprintf("%d-%d", minute, i), "ES256", nil) })
			}
			all.Wait()
			if n := f.e.count(); n != minute+2 {
				t.Fatalf("%d fetches after %d floods", n, minute+1)
			}
			for i := range 100 { // and none until the minute is over
				f.knows(t, fmt.Sprint(i), "ES256", nil)
			}
		}
		if n := f.e.count(); n != 4 {
			t.Errorf("%d fetches", n)
		}
	})
}

func TestTwoFetchesAreAMinuteApart(t *testing.T) { // for any request, and any failure
	for _, o := range []jwks.Options{{}, {Between: time.Second, Every: time.Second}, {Between: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			f := follow(t, &endpoint{status: 500}, o)
			for i := range 1000 {
				f.knows(t, fmt.Sprint(i), "RS256", nil)
				<-time.After(time.Second)
			}
			least := max(o.Between, time.Minute)
			for i := range f.e.fetches[1:] {
				if d := f.e.fetches[i+1].Sub(f.e.fetches[i]); d < least {
					t.Errorf("%v between two fetches, want %v", d, least)
				}
			}
			if n, want := f.e.count(), 1+int(999*time.Second/least); n != want {
				t.Errorf("%d fetches in 1000 seconds, want %d", n, want)
			}
		})
	}
}

func TestANewKeyIsFetchedWhenItIsMissed(t *testing.T) { // an issuer rotates its keys
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{status: 200, body: document(ecJWK("old", &ecdsaKey().PublicKey))}, jwks.Options{})
		f.knows(t, "old", "ES256", &ecdsaKey().PublicKey)
		f.e.answer(200, document(rsaJWK("new", &rsaKey().PublicKey)))
		f.knows(t, "new", "RS256", nil) // the last fetch was a moment ago
		<-time.After(time.Minute)
		f.knows(t, "new", "RS256", &rsaKey().PublicKey)
		f.knows(t, "old", "ES256", nil) // withdrawn
	})
}

// A withdrawn key ends even if no key is missing.
func TestAKeySetIsFetchedAgainBeforeItIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{status: 200, body: document(ecJWK("old", &ecdsaKey().PublicKey))}, jwks.Options{})
		f.knows(t, "old", "ES256", &ecdsaKey().PublicKey)
		f.e.answer(200, document(rsaJWK("new", &rsaKey().PublicKey)))
		<-time.After(15*time.Minute - time.Second)
		f.knows(t, "old", "ES256", &ecdsaKey().PublicKey)
		<-time.After(time.Second)
		synctest.Wait()
		f.knows(t, "new", "RS256", &rsaKey().PublicKey)
		if n := f.e.count(); n != 2 {
			t.Errorf("%d fetches", n)
		}
	})
}

func TestTheLastGoodKeysStayWhileTheEndpointFails(t *testing.T) {
	good := document(ecJWK("k", &ecdsaKey().PublicKey))
	for _, c := range []struct {
		name     string
		change   func(*endpoint)
		reported string
	}{
		{"500", func(e *endpoint) { e.status = 500 }, "500"},
		{"404 with a set", func(e *endpoint) { e.status = 404 }, "404"},
		{"a redirection to nowhere", func(e *endpoint) { e.status = 302 }, "302"},
		{"nothing", func(e *endpoint) { e.body = "" }, "not a key set"},
		{"garbage", func(e *endpoint) { e.body = "<html>" }, "not a key set"},
		{"a list", func(e *endpoint) { e.body = "[]" }, "not a key set"},
		{"cut short", func(e *endpoint) { e.body = good[:len(good)-1] }, "not a key set"},
		{"two documents", func(e *endpoint) { e.body = good + good }, "not a key set"},
		{"no member keys", func(e *endpoint) { e.body = "{}" }, "none of its 0 keys"},
		{"an empty set", func(e *endpoint) { e.body = document() }, "none of its 0 keys"},
		{"no usable key", func(e *endpoint) { e.body = document(jwk{"kty": "oct", "k": "AAAA"}) }, "none of its 1 keys"},
		{"too large", func(e *endpoint) { e.body = good + strings.Repeat(" ", 1<<20) }, "over 1048576 bytes"},
		{"too many keys", func(e *endpoint) { e.body = document(make([]jwk, 257)...) }, "257 keys"},
		{"too slow", func(e *endpoint) { e.delay = time.Hour }, "deadline"},
		{"down", func(e *endpoint) { e.down = true }, "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := follow(t, &endpoint{status: 200, body: good}, jwks.Options{})
				f.knows(t, "k", "ES256", &ecdsaKey().PublicKey)
				f.e.set(c.change)
				<-time.After(time.Minute)
				f.knows(t, "missed", "ES256", nil)
				f.knows(t, "k", "ES256", &ecdsaKey().PublicKey)
				if r := f.reports(); len(r) != 1 || !has(r, c.reported) {
					t.Errorf("reported %q, want one about %q", r, c.reported)
				}
				<-time.After(time.Hour)
				f.knows(t, "k", "ES256", &ecdsaKey().PublicKey)
				f.e.answer(200, document(rsaJWK("new", &rsaKey().PublicKey)))
				<-time.After(time.Minute + 5*time.Second)
				f.knows(t, "new", "RS256", &rsaKey().PublicKey)
				if r := f.reports(); !has(r, "well") {
					t.Errorf("reported %q, want the recovery last", r)
				}
			})
		})
	}
}

// The fetch is repeated a minute later, without a request (D17).
func TestASetStartsWhileItsEndpointIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{down: true}, jwks.Options{})
		f.knows(t, "k", "ES256", nil)
		f.e.answer(200, document(ecJWK("k", &ecdsaKey().PublicKey)))
		<-time.After(time.Minute)
		synctest.Wait()
		f.knows(t, "k", "ES256", &ecdsaKey().PublicKey)
		if r := f.reports(); len(r) != 2 || !strings.Contains(r[0], "refused") || r[1] != "well" {
			t.Errorf("reported %q", r)
		}
	})
}

func TestTheFirstRequestWaitsForTheFirstFetchAtMostItsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{status: 200, body: document(ecJWK("k", &ecdsaKey().PublicKey)), delay: 3 * time.Second}, jwks.Options{})
		start := time.Now()
		f.knows(t, "k", "ES256", &ecdsaKey().PublicKey)
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("waited %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{delay: time.Hour}, jwks.Options{Timeout: 2 * time.Second})
		start := time.Now()
		f.knows(t, "k", "ES256", nil)
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("waited %v", d)
		}
	})
}

func TestASetStopsWithItsContext(t *testing.T) { // every goroutine has an owner
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{delay: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		s, err := jwks.New(ctx, "https://issuer.example/keys", jwks.Options{Client: &http.Client{Transport: e}, Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan struct{})
		go func() { s.Lookup("k", "ES256"); close(waited) }() // waits for the fetch
		synctest.Wait()
		start := time.Now()
		cancel()
		s.Wait()
		<-waited
		if _, err := s.Lookup("k", "ES256"); err == nil {
			t.Error("a key from nowhere")
		}
		if d := time.Since(start); d != 0 || e.count() != 1 {
			t.Errorf("stopped after %v and %d fetches", d, e.count())
		}
	})
}

func TestAnEndpointThatAnswersIsNotFetchedFasterEither(t *testing.T) { // for any value of Every
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{status: 200, body: document(edJWK("k"))}, jwks.Options{Every: time.Second})
		<-time.After(10*time.Minute - time.Second)
		if n := f.e.count(); n != 10 {
			t.Errorf("%d fetches in ten minutes, want 10", n)
		}
	})
}
