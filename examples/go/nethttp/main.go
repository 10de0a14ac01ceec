// Command nethttp limits a net/http service.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

func main() { log.Fatal(http.ListenAndServe("127.0.0.1:8000", service())) }

func service() http.Handler {
	tenant := httplimit.KeyFunc("tenant", weir.Chosen, func(r *http.Request) (string, bool) {
		name := r.PathValue("tenant")
		return name, name != ""
	})
	// behind a proxy, also TrustedProxies
	byTenant := httplimit.Setup{Caller: identity.Options{Extra: []identity.Source{tenant}}}

	mux := http.NewServeMux()
	mux.Handle("GET /hello", httplimit.Limit("10 per minute by ip")(http.HandlerFunc(hello)))
	// inside of the mux, which has set the parameter
	mux.Handle("GET /tenants/{tenant}", byTenant.Limit("3 per minute by tenant+ip")(http.HandlerFunc(helloTenant)))
	return mux
}

func hello(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }

func helloTenant(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("tenant") == "missing" {
		http.NotFound(w, r)
		return
	}
	fmt.Fprintf(w, "hello, %s\n", r.PathValue("tenant"))
}
