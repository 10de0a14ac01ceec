// Command chi limits a service of chi's router.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8000", service())) }

func service() http.Handler {
	tenant := httplimit.KeyFunc("tenant", weir.Chosen, func(r *http.Request) (string, bool) {
		name := chi.URLParam(r, "tenant")
		// as it was sent, if RawPath is set; one tenant has one budget, however it is spelled
		if plain, err := url.PathUnescape(name); err == nil && r.URL.RawPath != "" {
			name = plain
		}
		return name, name != ""
	})
	byTenant := httplimit.Setup{Caller: identity.Options{Extra: []identity.Source{tenant}}}

	r := chi.NewRouter()
	r.With(httplimit.Limit("10 per minute by ip")).Get("/hello", hello)
	// With, and not Use, runs after chi has found the route and its parameter
	r.With(byTenant.Limit("3 per minute by tenant+ip")).Get("/tenants/{tenant}", helloTenant)
	return r
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func helloTenant(w http.ResponseWriter, r *http.Request) {
	if chi.URLParam(r, "tenant") == "missing" {
		http.NotFound(w, r)
		return
	}
	fmt.Fprintf(w, "hello, %s\n", chi.URLParam(r, "tenant"))
}
