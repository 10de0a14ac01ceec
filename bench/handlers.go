package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ululestd "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/weirlimit/weir"
	weirhttp "github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	weirmem "github.com/weirlimit/weir/memstore"
)

// plenty is a limit that no run reaches: served requests are measured.
const plenty = 2_000_000_000

// path is the path of every request.
const path = "/api/v1/widget/typing"

var hello = []byte("hello\n")

// bare is the floor: a handler with an answer of a few bytes.
func bare(w http.ResponseWriter, _ *http.Request) { w.Write(hello) }

// A contestant wraps the bare handler with a limiter by address that writes the fields.
type contestant struct {
	name string
	wrap func(http.Handler) (http.Handler, error)
}

var contestants = []contestant{
	{"bare handler", func(h http.Handler) (http.Handler, error) { return h, nil }},
	{"weir", wrapWeir},
	{"httprate", func(h http.Handler) (http.Handler, error) {
		return httprate.LimitByIP(plenty, time.Minute)(h), nil
	}},
	{"sethvargo", wrapSethvargo},
	{"ulule", func(h http.Handler) (http.Handler, error) {
		store := ulule.NewStore()
		return ululestd.NewMiddleware(limiter.New(store, limiter.Rate{Period: time.Minute, Limit: plenty})).Handler(h), nil
	}},
	{"throttled", wrapThrottled},
}

func wrapWeir(h http.Handler) (http.Handler, error) {
	window, err := weir.ParseWindow(fmt.Sprintf("%d per minute by ip", plenty))
	if err != nil {
		return nil, err
	}
	store, err := weirmem.New(weirmem.Options{})
	if err != nil {
		return nil, err
	}
	decider, err := weir.New(weir.Policy{Limiters: []weir.Limiter{{
		Name:    "widget-typing",
		Routes:  []weir.Route{{Method: "POST", Path: path}, {Method: "GET", Path: path}},
		Windows: []weir.Window{window},
	}}}, store, weir.Options{})
	if err != nil {
		return nil, err
	}
	callers, err := identity.New(identity.Options{})
	if err != nil {
		return nil, err
	}
	m, err := weirhttp.New(decider, weirhttp.Options{Identity: callers})
	if err != nil {
		return nil, err
	}
	return m.Wrap(h), nil
}

func wrapSethvargo(h http.Handler) (http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: plenty, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	m, err := httplimit.NewMiddleware(store, httplimit.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return m.Handle(h), nil
}

func wrapThrottled(h http.Handler) (http.Handler, error) {
	store, err := memstore.NewCtx(65536)
	if err != nil {
		return nil, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000), MaxBurst: 1_000_000})
	if err != nil {
		return nil, err
	}
	l := throttled.HTTPRateLimiterCtx{RateLimiter: limiter, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return l.RateLimit(h), nil
}

// proxy is the gateway's floor: a bare ReverseProxy with a transport that keeps connections. A nil
// pool is the default of ReverseProxy.
func proxy(upstream string, pool httputil.BufferPool) (http.Handler, error) {
	to, err := url.Parse(upstream)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(to); r.SetXForwarded() },
		Transport:  &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute, DisableCompression: true},
		BufferPool: pool,
	}, nil
}

// buffers is a BufferPool.
type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.Pool.Put(&p) }

const (
	bareProxy   = "ReverseProxy"
	pooledProxy = "ReverseProxy, pooled"
)

// handlerFor returns the handler of `bench serve NAME`; $BENCH_UPSTREAM is the upstream's address.
func handlerFor(name string) (http.Handler, error) {
	switch name {
	case bareProxy:
		return proxy(os.Getenv("BENCH_UPSTREAM"), nil)
	case pooledProxy:
		return proxy(os.Getenv("BENCH_UPSTREAM"), new(buffers))
	case "upstream":
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body); w.Write(hello) }), nil
	}
	if isView(name) {
		return viewFor(name)
	}
	for _, c := range contestants {
		if c.name == name {
			return c.wrap(http.HandlerFunc(bare))
		}
	}
	return nil, fmt.Errorf("serve %q: no such contestant", name)
}
