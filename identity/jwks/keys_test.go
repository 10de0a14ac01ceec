package jwks_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/identity/jwks"
)

// Each key is bound to one algorithm (D14).
func TestOnlyPublicKeysThatVerifyOurAlgorithmsAreTaken(t *testing.T) {
	r, e, d := rsaJWK("k", &rsaKey().PublicKey), ecJWK("k", &ecdsaKey().PublicKey), edJWK("k")
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	for _, c := range []struct {
		name string
		key  jwk
		alg  string
		want crypto.PublicKey
	}{
		{"RSA", r, "RS256", &rsaKey().PublicKey},
		{"P-256", e, "ES256", &ecdsaKey().PublicKey},
		{"Ed25519", d, "EdDSA", edKey()},
		{"for signatures", e.with("use", "sig", "key_ops", []string{"verify"}, "alg", "ES256"), "ES256", &ecdsaKey().PublicKey},
		{"for encryption", e.with("use", "enc"), "ES256", nil},
		{"for another use", e.with("use", "x"), "ES256", nil},
		{"for signing only", e.with("key_ops", []string{"sign"}), "ES256", nil},
		{"for another algorithm", r.with("alg", "RS512"), "RS256", nil},
		{"RSA too large to check quickly", r.with("n", b64(bytes.Repeat([]byte{0xff}, 4096))), "RS256", nil},
		{"for PSS", r.with("alg", "PS256"), "RS256", nil},
		{"RSA for HS256", r.with("alg", "HS256"), "HS256", nil},
		{"asked for as HS256", r, "HS256", nil},
		{"asked for as another kind", r, "ES256", nil},
		{"asked for as nothing", r, "", nil},
		{"symmetric", jwk{"kty": "oct", "kid": "k", "k": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}, "HS256", nil},
		{"with a secret", r.with("k", "AAAA"), "RS256", nil},
		{"a private one", e.with("d", "AAAA"), "ES256", nil},
		{"RSA of 1024 bits", rsaJWK("k", &weak.PublicKey), "RS256", nil},
		{"RSA whose exponent is 1", r.with("e", "AQ"), "RS256", nil},
		{"P-384", ecJWK("k", &p384.PublicKey), "ES256", nil},
		{"a point off its curve", e.with("y", e["x"]), "ES256", nil},
		{"a point at nowhere", e.with("x", "AA", "y", "AA"), "ES256", nil},
		{"a short Ed25519", d.with("x", "AAAA"), "EdDSA", nil},
		{"X25519", d.with("crv", "X25519"), "EdDSA", nil},
		{"an unknown kind", jwk{"kty": "PQ", "kid": "k"}, "EdDSA", nil},
		{"no kind", jwk{"kid": "k"}, "RS256", nil},
		{"with certificates, which are not looked at", e.with("x5c", []string{"!"}, "x5t", "!", "x5u", "http://127.0.0.1/x"), "ES256", &ecdsaKey().PublicKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := rsaJWK("other", &rsaKey().PublicKey) // makes the set valid
				f := follow(t, &endpoint{status: 200, body: document(other, c.key)}, jwks.Options{})
				f.knows(t, "k", c.alg, c.want)
				f.knows(t, "other", "RS256", &rsaKey().PublicKey)
			})
		})
	}
}

func TestATokenWithoutAKidNeedsASingleKeyOfItsAlgorithm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		f := follow(t, &endpoint{status: 200, body: document(rsaJWK("r", &rsaKey().PublicKey), ecJWK("e1", &ecdsaKey().PublicKey), ecJWK("e2", &other.PublicKey))}, jwks.Options{})
		f.knows(t, "", "RS256", &rsaKey().PublicKey)
		f.knows(t, "", "ES256", nil)
		f.knows(t, "e2", "ES256", &other.PublicKey)
	})
}

func TestAKeyWithoutAKidMatchesNoKid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, &endpoint{status: 200, body: document(rsaJWK("", &rsaKey().PublicKey))}, jwks.Options{})
		f.knows(t, "", "RS256", &rsaKey().PublicKey)
		f.knows(t, "k", "RS256", nil)
	})
}

func TestAnEndpointNeedsASecureConnection(t *testing.T) {
	for url, want := range map[string]bool{
		"https://issuer.example/keys": true, "HTTPS://issuer.example/keys": true, "http://127.0.0.1:8080/keys": true,
		"http://[::1]/keys": true, "http://localhost/keys": true,
		"http://issuer.example/keys": false, "http://127.0.0.1.issuer.example/keys": false, "http://localhost.issuer.example": false,
		"http://10.0.0.1/keys": false, "https://user:password@issuer.example/keys": false, "https:///keys": false, "https://:443/keys": false,
		"http://127.0.0.1@issuer.example/": false, "file:///etc/passwd": false, "ftp://issuer.example/": false, "issuer.example": false,
		"": false, "://": false, "https://issuer example/": false,
	} {
		t.Run(url, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := contextOf(t)
				s, err := jwks.New(ctx, url, jwks.Options{Client: &http.Client{Transport: &endpoint{down: true}}})
				if (err == nil) != want {
					t.Errorf("%q: %v, want it taken: %v", url, err, want)
				}
				if err != nil && strings.Contains(err.Error(), "password@") {
					t.Errorf("the password is in the error: %v", err)
				}
				cancel()
				if s != nil {
					s.Wait()
				}
			})
		})
	}
}

// Over the network, with the client's own TLS.
func TestRedirectsStaySecure(t *testing.T) {
	good := document(ecJWK("k", &ecdsaKey().PublicKey))
	var targets [2]atomic.Int64
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { targets[0].Add(1); w.Write([]byte(good)) }))
	defer plain.Close()
	var safe *httptest.Server
	safe = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/keys":
			targets[1].Add(1)
			w.Write([]byte(good))
		case "/safe":
			http.Redirect(w, r, safe.URL+"/keys", http.StatusFound)
		case "/plain":
			http.Redirect(w, r, plain.URL, http.StatusFound)
		case "/round":
			http.Redirect(w, r, safe.URL+"/round", http.StatusFound)
		}
	}))
	defer safe.Close()
	leaves := httptest.NewServer(http.RedirectHandler("http://issuer.invalid/keys", http.StatusFound))
	defer leaves.Close()
	for _, c := range []struct {
		name, url, reported string
		want                bool
	}{
		{"none", safe.URL + "/keys", "", true},
		{"https to https", safe.URL + "/safe", "", true},
		{"http to a loopback address", plain.URL, "", true},
		{"https to http", safe.URL + "/plain", "https is needed", false},
		{"round and round", safe.URL + "/round", "over 3 redirections", false},
		{"loopback to elsewhere", leaves.URL, "https is needed", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			reported := make(chan error, 8)
			ctx, cancel := contextOf(t)
			s, err := jwks.New(ctx, c.url, jwks.Options{Client: safe.Client(), Report: func(err error) { reported <- err }, Timeout: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Lookup("k", "ES256"); (err == nil) != c.want {
				t.Errorf("%v", err)
			}
			cancel()
			s.Wait()
			if c.want {
				return
			}
			select {
			case err := <-reported:
				if err == nil || !strings.Contains(err.Error(), c.reported) {
					t.Errorf("reported %v, want %q", err, c.reported)
				}
			default:
				t.Error("nothing was reported")
			}
		})
	}
	if targets[0].Load() != 1 || targets[1].Load() != 2 {
		t.Errorf("%d and %d answers were fetched, want 1 and 2", targets[0].Load(), targets[1].Load())
	}
}

func TestAnUnusableKeyDoesNotAffectTheOthers(t *testing.T) { // malformed or unknown keys
	good := document(ecJWK("good", &ecdsaKey().PublicKey))
	good = good[len(`{"keys":[`) : len(good)-len(`]}`)]
	for _, odd := range []string{`{"kty":"EC","kid":5}`, `{"kty":"RSA","key_ops":"verify"}`, `7`, `null`, `{"kty":"new"}`} {
		synctest.Test(t, func(t *testing.T) {
			f := follow(t, &endpoint{status: 200, body: `{"keys":[` + odd + `,` + good + `]}`}, jwks.Options{})
			f.knows(t, "good", "ES256", &ecdsaKey().PublicKey)
		})
	}
}
