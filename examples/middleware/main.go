// Command middleware is a whole net/http service with a rate limit, all errors handled.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

const policy = `
limiters:
  - name: hello
    routes: [/hello*]
    windows: [5 per 10 seconds by ip, 100 per hour by ip]
`

func main() {
	limit, err := limiter()
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })
	log.Fatal(http.ListenAndServe("127.0.0.1:8000", limit(mux)))
}

func limiter() (func(http.Handler) http.Handler, error) {
	file, err := policyfile.Parse("policy", []byte(policy))
	if err != nil {
		return nil, err
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		return nil, err
	}
	callers, err := identity.New(identity.Options{})
	if err != nil {
		return nil, err
	}
	decider, err := weir.New(file.Policy, store, weir.Options{Sources: callers.Sources()})
	if err != nil {
		return nil, err
	}
	m, err := httplimit.New(decider, httplimit.Options{Identity: callers})
	if err != nil {
		return nil, err
	}
	return m.Wrap, nil
}
