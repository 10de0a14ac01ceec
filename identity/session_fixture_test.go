package identity_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// These mint tokens without the library that verifies them, so that its mistakes
// are not on both sides.

var raw = base64.RawURLEncoding.EncodeToString

// claims returns a payload that expires an hour after noon. pairs are alternating
// names and values; nil removes a name.
func claims(pairs ...any) map[string]any {
	c := map[string]any{"exp": noon.Add(time.Hour).Unix()}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		if c[name] = pairs[i+1]; pairs[i+1] == nil {
			delete(c, name)
		}
	}
	return c
}

func signed(header map[string]any, payload any, sign func([]byte) []byte) string {
	body := raw(must(json.Marshal(header))) + "." + raw(must(json.Marshal(payload)))
	return body + "." + raw(sign([]byte(body)))
}

func header(alg string) map[string]any { return map[string]any{"alg": alg, "typ": "JWT"} }

func hs256(payload any) string { return signed(header("HS256"), payload, mac([]byte(secret))) }

func mac(key []byte) func([]byte) []byte {
	return func(b []byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(b)
		return h.Sum(nil)
	}
}

func rs256(payload any) string { return signed(header("RS256"), payload, rsaSign) }

func rsaSign(b []byte) []byte {
	sum := sha256.Sum256(b)
	return must(rsa.SignPKCS1v15(nil, rsaKey(), crypto.SHA256, sum[:]))
}

func es256(payload any) string { return signed(header("ES256"), payload, ecdsaSign) }

func ecdsaSign(b []byte) []byte {
	sum := sha256.Sum256(b)
	r, s, err := ecdsaParts(sum[:])
	if err != nil {
		panic(err)
	}
	return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
}

func ecdsaParts(sum []byte) (r, s *big.Int, err error) {
	der, err := ecdsaKey().Sign(rand.Reader, sum, crypto.SHA256)
	if err != nil {
		return nil, nil, err
	}
	r, s = derInts(der)
	return r, s, nil
}

// derInts parses a SEQUENCE of two INTEGERs, all shorter than 128 bytes.
func derInts(der []byte) (a, b *big.Int) {
	der = der[2:]
	a = new(big.Int).SetBytes(der[2 : 2+der[1]])
	der = der[2+der[1]:]
	return a, new(big.Int).SetBytes(der[2 : 2+der[1]])
}

func eddsa(payload any) string {
	return signed(header("EdDSA"), payload, func(b []byte) []byte { return must(edKey().Sign(nil, b, crypto.Hash(0))) })
}

// allKeys are one key for each algorithm.
func allKeys() []identity.SessionKey {
	return []identity.SessionKey{
		must(identity.NewSecretKey("hs", []byte(secret))), must(identity.NewPublicKey("rs", &rsaKey().PublicKey)),
		must(identity.NewPublicKey("es", &ecdsaKey().PublicKey)), must(identity.NewPublicKey("ed", edKey().Public())),
	}
}

// verifier returns a resolver with those options and a clock that is stopped at
// noon.
func verifier(t testing.TB, o identity.SessionsOptions) (*identity.Resolver, *clock) {
	t.Helper()
	if o.Keys == nil && o.Lookup == nil {
		o.Keys = allKeys()
	}
	s, err := identity.NewSessions(o)
	if err != nil {
		t.Fatal(err)
	}
	c := newClock()
	return resolver(t, identity.Options{Sessions: s, Now: c.Now}), c
}

// budget returns the budget of a token, which must be a session.
func budget(t testing.TB, r *identity.Resolver, token string) string {
	t.Helper()
	k, ok := key(caller(r, bearing(token)), identity.Session)
	if !ok {
		_, err := caller(r, bearing(token)).Session()
		t.Fatalf("%.60s… is no session: %v", token, err)
	}
	return k
}
