package check_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/e2e/selfsigned"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/check"
	"github.com/weirlimit/weir/memstore"
)

// serving serves a door at an address of loopback. stop drains it.
func serving(t *testing.T, d *check.Door) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func TestQuestionsComeOverTLS(t *testing.T) {
	certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	pair, err := selfsigned.Write(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	for _, proto := range []string{"http/1.1", "h2"} {
		t.Run(proto, func(t *testing.T) {
			secured := func(o *check.Options) {
				// A connection that is not counted as closed would take it.
				o.Rules.Limits.Drain = time.Hour
				o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
			}
			addr, stop := serving(t, open(t, check.Traefik, policy, secured))
			client := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: proto == "h2", TLSClientConfig: &tls.Config{RootCAs: roots, NextProtos: []string{proto}}}}
			defer client.CloseIdleConnections()
			r := asked(check.Traefik, "POST", "/api/leads", "192.0.2.7").request()
			r.RequestURI = ""
			r.URL.Scheme, r.URL.Host = "https", addr
			for n := range 4 {
				a, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, a.Body)
				_ = a.Body.Close()
				if want := map[bool]int{true: 204, false: 429}[n < 3]; a.StatusCode != want || a.TLS == nil || (a.ProtoMajor == 2) != (proto == "h2") {
					t.Errorf("question %d: %d over %s, want %d", n+1, a.StatusCode, a.Proto, want)
				}
			}
			if a, err := http.Get("http://" + addr + "/readyz"); err == nil && a.StatusCode != http.StatusBadRequest {
				t.Errorf("clear text is answered %d", a.StatusCode)
			}
			client.CloseIdleConnections()
			stop()
		})
	}
}

// A draining store begins the drain of its door during a take, and returns when the door refuses
// connections.
type draining struct {
	weir.Store
	begin func()
	addr  string
}

func (s *draining) Take(ctx context.Context, charges []weir.Charge, receipt *weir.Receipt) error {
	s.begin()
	for {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			return s.Store.Take(ctx, charges, receipt)
		}
		_ = c.Close()
	}
}

// countedBy makes a door count all requests in a store.
func countedBy(t *testing.T, store weir.Store) func(*check.Options) {
	return func(o *check.Options) {
		p := weir.Policy{Limiters: []weir.Limiter{{Name: "all", Routes: []weir.Route{{Path: "/", Prefix: true}}, Windows: []weir.Window{{Limit: 5, Per: time.Minute, Key: weir.Key{{identity.IP}}}}}}}
		var err error
		if o.Rules.Decider, err = weir.New(p, store, weir.Options{Sources: o.Rules.Identity.Sources()}); err != nil {
			t.Fatal(err)
		}
	}
}

// A broken store fails, or panics.
type broken struct{ panics bool }

func (s broken) Take(context.Context, []weir.Charge, *weir.Receipt) error {
	if s.panics {
		panic("the store is broken")
	}
	return errors.New("the store is broken")
}

// What a question over HTTP/1 has is not there for one over HTTP/2 after it.
func TestNoQuestionHasTheFieldsOfAnother(t *testing.T) {
	d := open(t, check.Traefik, policy)
	for range 50 {
		if r := asked(check.Traefik, "GET", "/x", "192.0.2.7").ask(d); r.StatusCode != http.StatusNoContent {
			t.Fatal(r.StatusCode)
		}
		w := httptest.NewRecorder()
		d.ServeHTTP(w, question{}.request())
		if w.Code < 400 {
			t.Fatalf("a question without a field is answered %d", w.Code)
		}
	}
}

func TestNothingPassesThatCannotBeJudged(t *testing.T) {
	for _, store := range []broken{{}, {panics: true}} {
		d := open(t, check.Traefik, policy, countedBy(t, store))
		if r := asked(check.Traefik, "GET", "/x", "192.0.2.7").ask(d); r.StatusCode < 500 {
			t.Errorf("%+v: answered %d", store, r.StatusCode)
		}
	}
}

func TestAQuestionUnderWayIsAnsweredInTheDrain(t *testing.T) {
	memory, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &draining{Store: memory}
	d := open(t, check.Traefik, policy, countedBy(t, store))
	addr, stop := serving(t, d)
	var ended sync.WaitGroup
	store.addr, store.begin = addr, func() { ended.Go(stop) }
	r := asked(check.Traefik, "POST", "/api/leads", "192.0.2.7").request()
	r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", addr
	a, err := http.DefaultClient.Do(r)
	if err != nil || a.StatusCode != http.StatusNoContent {
		t.Errorf("%v, %v", a, err)
	}
	if status, _ := d.Ready(t.Context()); status != http.StatusServiceUnavailable {
		t.Errorf("a door that drains answers /readyz with %d", status)
	}
	ended.Wait()
}

func TestADoorThatCannotListenReportsWhy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := open(t, check.Caddy, policy).Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), "serve forward auth at "+l.Addr().String()) {
		t.Error(err)
	}
}
