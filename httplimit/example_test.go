package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
)

// Limiting a net/http service takes fifteen lines: a policy, a store, an identity resolver, and the
// middleware.
func Example() {
	route, _ := weir.ParseRoute("POST /feedback")
	window, _ := weir.ParseWindow("2 per minute by ip")
	policy := weir.Policy{Limiters: []weir.Limiter{{Name: "feedback", Routes: []weir.Route{route}, Windows: []weir.Window{window}}}}

	store, err := memstore.New(memstore.Options{})
	check(err)
	decider, err := weir.New(policy, store, weir.Options{Sources: identity.Sources()})
	check(err)
	who, err := identity.New(identity.Options{}) // behind a proxy: TrustedProxies
	check(err)
	limit, err := httplimit.New(decider, httplimit.Options{Identity: who})
	check(err)
	handler := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "thanks") }))

	for range 3 { // instead of http.ListenAndServe(":8080", handler)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/feedback", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 thanks
	// 200 thanks
	// 429 {"error":{"code":"rate_limited","message":"Too many requests. Please slow down."}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// What a request has cost is often known only when it is served. It is charged the most that it can
// cost before, and the rest is given back.
func ExampleSettle() {
	route, _ := weir.ParseRoute("POST /search")
	window, _ := weir.ParseWindow("100 per minute by ip")
	policy := weir.Policy{Limiters: []weir.Limiter{{
		Name: "search", Routes: []weir.Route{route}, Windows: []weir.Window{window}, Cost: 40,
	}}}

	store, err := memstore.New(memstore.Options{})
	check(err)
	decider, err := weir.New(policy, store, weir.Options{Sources: identity.Sources()})
	check(err)
	who, err := identity.New(identity.Options{})
	check(err)
	limit, err := httplimit.New(decider, httplimit.Options{Identity: who})
	check(err)
	handler := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		const rows = 7 // that were read
		if err := httplimit.Settle(w, rows); err != nil {
			log.Print(err) // it stays charged 40
		}
		fmt.Fprint(w, "found")
	}))

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/search", nil))
		fmt.Println(w.Body, w.Header()["X-RateLimit-Remaining"])
	}
	// Output:
	// found [93]
	// found [86]
}

// One line limits a handler. The window is wrong if it panics at the start.
func ExampleLimit() {
	limit := httplimit.Limit("2 per minute by ip", "1000 per day by ip")
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))

	for range 3 { // instead of http.ListenAndServe(":8080", handler)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header()["X-RateLimit-Remaining"], w.Body)
	}
	// Output:
	// 200 [1] hello
	// 200 [0] hello
	// 429 [0] {"error":{"code":"rate_limited","message":"Too many requests. Please slow down."}}
}

// Behind a proxy, the proxy is named, and callers are counted by the address that it reports. Here
// they are counted by customer, if they have logged in.
func ExampleSetup() {
	type customerKey struct{} // what the login of your service has left in the request's context
	setup := httplimit.Setup{Caller: identity.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Extra: []identity.Source{httplimit.KeyFunc("customer", weir.Credential, func(r *http.Request) (string, bool) {
			id, ok := r.Context().Value(customerKey{}).(string)
			return id, ok
		})},
	}}
	handler := setup.Limit("1 per minute by customer or ip")(http.NotFoundHandler())

	for _, client := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", client)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(client, w.Code)
	}
	// Output:
	// 192.0.2.1 404
	// 192.0.2.1 429
	// 192.0.2.2 404
}
