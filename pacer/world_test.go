package pacer_test

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/memstore"
	"github.com/weirlimit/weir/pacer"
	"github.com/weirlimit/weir/policyfile"
)

// A world is a real limiter behind a network with latency. Tests run in a bubble,
// where time passes when all goroutines wait.
type world struct {
	t       *testing.T
	limit   http.Handler
	token   string
	latency time.Duration // one way
	think   func() time.Duration
	alter   func(*http.Response) // changes each response on its way back

	mu      sync.Mutex
	served  map[string]int // requests that reached the backend, by their body
	refused int
	sent    int
	at      []time.Time // times of the requests that reached the backend
}

// tokens are the API tokens of a world's server.
type tokens map[string]identity.StoredToken

func (t tokens) Lookup(id string) (identity.StoredToken, error) {
	if s, ok := t[id]; ok {
		return s, nil
	}
	return identity.StoredToken{}, identity.ErrUnknownToken
}

// newWorld starts a server with a policy. Its clock is ahead of the bubble's.
func newWorld(t *testing.T, policy string, ahead time.Duration) *world {
	t.Helper()
	file, err := policyfile.Parse("policy.yaml", []byte(policy))
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	w := &world{t: t, latency: time.Millisecond, served: make(map[string]int)}
	known := tokens{}
	var id string
	var hash identity.TokenHash
	if w.token, id, hash, err = identity.NewToken(rand.Reader); err != nil {
		t.Fatal(err)
	}
	known[id] = identity.StoredToken{Hash: hash}
	callers, err := identity.New(identity.Options{Tokens: known})
	if err != nil {
		t.Fatal(err)
	}
	decider, err := weir.New(file.Policy, store, weir.Options{Sources: callers.Sources()})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(decider, httplimit.Options{Identity: callers})
	if err != nil {
		t.Fatal(err)
	}
	w.limit = limit.Wrap(http.HandlerFunc(w.serve))
	return w
}

// serve is the backend.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.served[string(body)]++
	w.at = append(w.at, time.Now())
	w.mu.Unlock()
	if w.think != nil {
		pass(w.think())
	}
	rw.WriteHeader(http.StatusNoContent)
}

// RoundTrip is the network: the server reads the request's body directly.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) { return w.from("192.0.2.1", r) }

func (w *world) from(addr string, r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.sent++
	w.mu.Unlock()
	if r.Body != nil {
		defer r.Body.Close()
	}
	pass(w.latency)
	in := r.Clone(r.Context())
	in.RemoteAddr, in.RequestURI = addr+":1", r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	out := httptest.NewRecorder()
	w.limit.ServeHTTP(out, in)
	pass(w.latency)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	response := out.Result()
	response.Request = r
	if response.StatusCode == http.StatusTooManyRequests {
		w.mu.Lock()
		w.refused++
		w.mu.Unlock()
	}
	if w.alter != nil {
		w.alter(response)
	}
	return response, nil
}

// via is the network from one of several addresses.
type via struct {
	w    *world
	addr netip.Addr
}

func (v via) RoundTrip(r *http.Request) (*http.Response, error) { return v.w.from(v.addr.String(), r) }

// request returns a request with the world's token.
func (w *world) request(method, path, body string) *http.Request {
	w.t.Helper()
	r, err := http.NewRequest(method, "http://api.example.com"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.token)
	return r
}

// do sends a request and reads the answer; any status but 204 fails the test.
func (w *world) do(client http.RoundTripper, r *http.Request) {
	w.t.Helper()
	response, err := client.RoundTrip(r)
	if err != nil {
		w.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		return
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusNoContent {
		w.t.Errorf("%s %s: status %d, reading the answer: %v", r.Method, r.URL.Path, response.StatusCode, err)
	}
}

// spend lets workers send n requests, and returns how long that took.
func (w *world) spend(n, workers int, clients ...http.RoundTripper) time.Duration {
	w.t.Helper()
	began := time.Now()
	jobs := make(chan int)
	var all sync.WaitGroup
	for i := range workers {
		client := clients[i%len(clients)]
		all.Go(func() {
			for job := range jobs {
				w.do(client, w.request("PUT", "/v1/wp/documents", bodyOf(job)))
			}
		})
	}
	for i := range n {
		jobs <- i
	}
	close(jobs)
	all.Wait()
	return time.Since(began)
}

func bodyOf(job int) string {
	return strings.Repeat("x", job%7) + string(rune('a'+job%26)) + time.Duration(job).String()
}

// once fails the test unless each of n requests was served once.
func (w *world) once(n int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.served) != n {
		w.t.Errorf("%d different requests were served, want %d", len(w.served), n)
	}
	for body, times := range w.served {
		if times != 1 {
			w.t.Errorf("request %.30q was served %d times", body, times)
		}
	}
}

func policy(windows string) string {
	return "limiters:\n  - name: wp-plugin\n    routes: [/v1/wp/*]\n    windows: [" + windows + "]\n"
}

// asWait returns err as a *WaitError, or fails the test.
func asWait(t *testing.T, err error) *pacer.WaitError {
	t.Helper()
	var wait *pacer.WaitError
	if !errors.As(err, &wait) {
		t.Fatalf("the error is %v, want a *WaitError", err)
	}
	return wait
}

// bubble is synctest.Test under a shorter name.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// A memory is a Shared view for the callers of one bubble. A File's lock would stop
// the bubble's time.
type memory struct {
	mu     sync.Mutex
	states map[string][]byte
	fails  error
}

func (m *memory) Update(key string, change func([]byte) []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return m.fails
	}
	m.states[key] = append([]byte(nil), change(m.states[key])...)
	return nil
}

func b64(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// pass lets time pass in a bubble.
func pass(d time.Duration) { time.Sleep(d) }
