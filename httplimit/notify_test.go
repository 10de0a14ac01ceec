package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/policyfile"
)

// A percentage that is reported when the request is settled is one of the caller that was charged,
// also if the handler has removed what counts it, as one that forwards the request does.
func TestAnEventNamesTheCallerThatWasCharged(t *testing.T) {
	f, err := policyfile.Parse("p", []byte("limiters:\n- {name: a, routes: [/*], windows: ['10 per hour by header:X-Key'], chosen: yes, count: {status: [200]}, notify: [10]}\n"+
		"- {name: b, routes: [/b], windows: ['10 per hour by query:key'], chosen: yes, cost: {from: 'header:X-Cost'}, notify: [10]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	d, err := weir.New(f.Policy, store, weir.Options{OnCrossed: func(c weir.Crossed) {
		by, _, _ := weir.ShownCaller(c.Standing.Window, c.Keys, nil)
		got = append(got, fmt.Sprint(c.Percent, " ", by))
	}})
	if err != nil {
		t.Fatal(err)
	}
	who, err := identity.New(identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(d, httplimit.Options{Identity: who})
	if err != nil {
		t.Fatal(err)
	}
	h := limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("X-Key")
		r.URL.RawQuery = ""
		w.Header().Set("X-Cost", "1")
		w.WriteHeader(200)
	}))
	for _, target := range []string{"/a", "/b?key=1"} {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("X-Key", "1")
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	if want := []string{"10 header:X-Key", "10 query:key"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
