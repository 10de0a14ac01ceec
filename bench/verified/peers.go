package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"
)

// A world is the environment that peers are started in.
type world struct{ dir, weir string }

// A peer is a rate limiter that is verified.
type peer struct {
	name    string
	promise string // how it counts, according to its documentation
	// how to interpret its failures; each was examined by hand, with -serve and in its source
	reading string
	start   func(context.Context, world) (url string, stop func(), err error)
	version func(context.Context, world) (string, error)
}

// peers are in the table's order.
var peers = []peer{
	{"weir", "fixed windows, from the first request on", "", startWeir, weirVersion},
	{"go-chi/httprate", "a sliding window: requests of the previous window count less and less",
		"Retry-After is always the length of a window, so it is long enough, and mostly too long. Windows begin at a fraction of a second, which Reset " +
			"leaves out, and requests of the last window still count: at Reset it may still refuse, and the budget is not whole.",
		handler(chi), module("github.com/go-chi/httprate")},
	{"ulule/limiter", "fixed windows, from the first request on",
		"The counts are the contract's. Reset leaves out the fraction of a second at which the window ends, so a caller that returns at Reset is " +
			"refused for up to a second. There is no Retry-After.",
		handler(ulule), module("github.com/ulule/limiter/v3")},
	{"sethvargo/go-limiter", "fixed windows, from the first request on",
		"Reset and Retry-After are dates in words, as its documentation describes. A caller that expects numbers cannot use them, so clauses that " +
			"depend on them cannot be tested.",
		handler(sethvargo), module("github.com/sethvargo/go-limiter")},
	{"throttled", "GCRA: the budget is restored gradually",
		"Reset is the number of seconds until the whole budget is restored, not a time. Retry-After is the time until the next request fits, which is " +
			"correct for GCRA.",
		handler(throttle), module("github.com/throttled/throttled/v2")},
	{"nginx limit_req", "a leaky bucket: the budget is restored gradually",
		"It has no rate-limit fields, so clauses that depend on them cannot be tested. The status is 429 because the configuration sets it.",
		startNginx, nginxVersion},
}

// api is the backend of every peer: items are created from JSON objects, and every other path is
// not found.
func api(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Path != "/things/items":
		w.WriteHeader(http.StatusNotFound)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	default:
		var item map[string]any
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&item); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			break
		}
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = io.WriteString(w, "{}\n") // if the verifier went away, it reports that itself
}

// address returns the caller's address without its port.
func address(r *http.Request) (string, error) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	return httprate.CanonicalizeIP(host), err
}

func chi(next http.Handler) (http.Handler, error) {
	return httprate.LimitBy(limit, 10*time.Second, address)(next), nil
}

func ulule(next http.Handler) (http.Handler, error) {
	return stdlib.NewMiddleware(limiter.New(memory.NewStore(), limiter.Rate{Period: 10 * time.Second, Limit: limit})).Handler(next), nil
}

func sethvargo(next http.Handler) (http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: limit, Interval: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	middleware, err := golimiter.NewMiddleware(store, golimiter.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return middleware.Handle(next), nil
}

// byAddress counts by the address alone: throttled's own RemoteAddr includes the port.
type byAddress struct{}

func (byAddress) Key(r *http.Request) string {
	host, _ := address(r) // net/http writes RemoteAddr
	return host
}

func throttle(next http.Handler) (http.Handler, error) {
	store, err := memstore.NewCtx(65536)
	if err != nil {
		return nil, err
	}
	// Two a second with a burst of 19 beyond the first: 20 at once, and 20 in 10 seconds.
	rate, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(limit / 10), MaxBurst: limit - 1})
	if err != nil {
		return nil, err
	}
	l := throttled.HTTPRateLimiterCtx{RateLimiter: rate, VaryBy: byAddress{}}
	return l.RateLimit(next), nil
}

// handler starts a net/http server of this process with the limiter in front of the backend.
func handler(wrap func(http.Handler) (http.Handler, error)) func(context.Context, world) (string, func(), error) {
	return func(context.Context, world) (string, func(), error) {
		h, err := wrap(http.HandlerFunc(api))
		if err != nil {
			return "", nil, err
		}
		return listen(h)
	}
}

func listen(h http.Handler) (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server, done := &http.Server{Handler: h}, make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return "http://" + listener.Addr().String(), func() {
		_ = server.Close() // it ends with the program
		<-done
	}, nil
}

// module returns the version of a library in this program.
func module(path string) func(context.Context, world) (string, error) {
	return func(context.Context, world) (string, error) {
		info, ok := debug.ReadBuildInfo()
		if !ok {
			return "", fmt.Errorf("this program has no build information")
		}
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version, nil
			}
		}
		return "", fmt.Errorf("%s is not in this program", path)
	}
}

var listening = regexp.MustCompile(`(?m)^listening +(http://\S+)`)

func startWeir(ctx context.Context, w world) (url string, stop func(), err error) {
	backend, stopBackend, err := listen(http.HandlerFunc(api))
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, w.weir, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", filepath.Join(w.dir, "data"),
		"--policy", filepath.Join(w.dir, "policy.yaml"), "--upstream", backend, "--access-log=off")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // any exit status is fine
		stopBackend()
	}
	said := make([]byte, 0, 4096)
	for {
		n, err := out.Read(said[len(said):cap(said)])
		said = said[:len(said)+n]
		if m := listening.FindSubmatch(said); m != nil && strings.Contains(string(said), "\nready\n") {
			return string(m[1]), stop, nil
		}
		if err != nil || len(said) == cap(said) {
			stop()
			return "", nil, fmt.Errorf("weir serve prints no address: %s", said)
		}
	}
}

func weirVersion(ctx context.Context, w world) (string, error) {
	return "this commit", nil
}

// startNginx runs Debian's nginx with limits as its documentation shows, with the status and the
// burst that it offers for that.
func startNginx(ctx context.Context, w world) (url string, stop func(), err error) {
	backend, stopBackend, err := listen(http.HandlerFunc(api))
	if err != nil {
		return "", nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return "", nil, err
	}
	defer socket.Close()
	dir := filepath.Join(w.dir, "nginx")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;"
	}
	conf := fmt.Sprintf(`%s
daemon off;
worker_processes 1;
pid %[2]s/pid;
error_log /dev/null;
events { worker_connections 512; }
http {
	access_log off;
	client_body_temp_path %[2]s/body;
	proxy_temp_path %[2]s/proxy;
	fastcgi_temp_path %[2]s/fastcgi;
	uwsgi_temp_path %[2]s/uwsgi;
	scgi_temp_path %[2]s/scgi;
	limit_req_zone $binary_remote_addr zone=api:1m rate=2r/s;
	limit_req_status 429;
	server {
		listen %[3]s;
		location / {
			limit_req zone=api burst=19 nodelay;
			proxy_pass %[4]s;
		}
	}
}
`, user, dir, listener.Addr(), backend)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, nginxPath(), "-p", dir, "-c", file, "-e", "stderr")
	// descriptor 3, which already listens
	cmd.ExtraFiles, cmd.Env = []*os.File{socket}, append(os.Environ(), "NGINX=3;")
	// its master ends its worker
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	return "http://" + listener.Addr().String(), func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // any exit status is fine
		stopBackend()
	}, nil
}

func nginxPath() string {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path
	}
	return "/usr/sbin/nginx" // sbin is not on every PATH
}

func nginxVersion(ctx context.Context, _ world) (string, error) {
	out, err := exec.CommandContext(ctx, nginxPath(), "-v").CombinedOutput()
	_, version, _ := strings.Cut(strings.TrimSpace(string(out)), "nginx/")
	return version, err
}
