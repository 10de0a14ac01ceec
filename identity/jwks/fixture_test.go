package jwks_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity/jwks"
)

var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecdsaKey = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	edKey    = sync.OnceValue(func() ed25519.PublicKey { return must2(ed25519.GenerateKey(rand.Reader)) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must2[T, U any](v T, _ U, err error) T { return must(v, err) }

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// A jwk is one key of a set, written by hand.
type jwk map[string]any

func (k jwk) with(pairs ...any) jwk {
	c := jwk{}
	for name, v := range k {
		c[name] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		c[pairs[i].(string)] = pairs[i+1]
	}
	return c
}

func rsaJWK(kid string, k *rsa.PublicKey) jwk {
	return jwk{"kty": "RSA", "kid": kid, "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())}
}

func ecJWK(kid string, k *ecdsa.PublicKey) jwk {
	point := must(k.Bytes())[1:]
	half := len(point) / 2
	return jwk{"kty": "EC", "kid": kid, "crv": k.Curve.Params().Name, "x": b64(point[:half]), "y": b64(point[half:])}
}

func edJWK(kid string) jwk {
	return jwk{"kty": "OKP", "kid": kid, "crv": "Ed25519", "x": b64(edKey())}
}

func document(keys ...jwk) string {
	return string(must(json.Marshal(map[string]any{"keys": keys})))
}

// An endpoint answers fetches and counts them. A test can change its answer. It
// needs no network, so that it works in a synctest bubble.
type endpoint struct {
	mu      sync.Mutex
	fetches []time.Time
	status  int
	body    string
	delay   time.Duration
	down    bool
}

var errDown = errors.New("connection refused")

func (e *endpoint) answer(status int, body string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.body, e.delay, e.down = status, body, 0, false
}

func (e *endpoint) set(change func(*endpoint)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.fetches)
}

func (e *endpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	e.mu.Lock()
	e.fetches = append(e.fetches, time.Now())
	status, body, delay, down := e.status, e.body, e.delay, e.down
	e.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	if down {
		return nil, errDown
	}
	w := httptest.NewRecorder()
	w.WriteHeader(status)
	io.WriteString(w, body)
	resp := w.Result()
	resp.Request = req
	return resp, nil
}

// A following is a Set that follows an endpoint, with its reports.
type following struct {
	*jwks.Set
	e        *endpoint
	mu       sync.Mutex
	reported []string
}

// follow starts a following that ends with the test.
func follow(t *testing.T, e *endpoint, o jwks.Options) *following {
	t.Helper()
	f := &following{e: e}
	o.Client = &http.Client{Transport: e}
	o.Report = func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if err == nil {
			f.reported = append(f.reported, "well")
			return
		}
		f.reported = append(f.reported, err.Error())
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, err := jwks.New(ctx, "https://issuer.example/keys", o)
	if err != nil {
		t.Fatal(err)
	}
	f.Set = s
	t.Cleanup(func() { cancel(); s.Wait() })
	return f
}

func (f *following) reports() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.reported...)
}

// knows checks whether there is a key.
func (f *following) knows(t *testing.T, kid, alg string, want crypto.PublicKey) {
	t.Helper()
	got, err := f.Lookup(kid, alg)
	if want == nil {
		if !errors.Is(err, jwks.ErrUnknownKey) || got != nil {
			t.Errorf("kid %q for %s: %T, %v; want none", kid, alg, got, err)
		}
		return
	}
	if equal, ok := want.(interface{ Equal(crypto.PublicKey) bool }); err != nil || !ok || !equal.Equal(got) {
		t.Errorf("kid %q for %s: %T, %v", kid, alg, got, err)
	}
}

func has(reports []string, part string) bool {
	return len(reports) > 0 && strings.Contains(reports[len(reports)-1], part)
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, cancel
}
