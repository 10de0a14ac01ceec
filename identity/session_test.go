package identity_test

import (
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

// One key for each algorithm (D14).
func TestASessionHasTheClaimsOfItsToken(t *testing.T) {
	r, _ := verifier(t, identity.SessionsOptions{})
	for name, mint := range map[string]func(any) string{"HS256": hs256, "RS256": rs256, "ES256": es256, "EdDSA": eddsa} {
		t.Run(name, func(t *testing.T) {
			got, err := caller(r, bearing(mint(claims("sid", "s1", "jti", "j1", "iss", "widget", "sub", "u1", "x", "y")))).Session()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			if got.ID != "s1" || got.Issuer != "widget" || got.Subject != "u1" || !got.Expires.Equal(noon.Add(time.Hour)) || got.Claims["x"] != "y" || got.Key == "" {
				t.Errorf("%s: %+v", name, got)
			}
		})
	}
}

func TestAnUnverifiedTokenIsNotASession(t *testing.T) {
	good := es256(claims("sid", "s"))
	parts := strings.Split(good, ".")
	spki, _ := x509.MarshalPKIXPublicKey(&rsaKey().PublicKey)
	unsigned := func([]byte) []byte { return nil }
	with := func(name string, value any) map[string]any { h := header("HS256"); h[name] = value; return h }
	sign := mac([]byte(secret))
	for _, c := range []struct{ name, token, why string }{
		{"none", signed(header("none"), claims(), unsigned), ""},
		{"None", signed(header("None"), claims(), unsigned), ""},
		{"no algorithm", signed(map[string]any{"typ": "JWT"}, claims(), sign), ""},
		{"HS512", signed(header("HS512"), claims(), sign), ""},
		{"RS512", signed(header("RS512"), claims(), rsaSign), ""},
		{"PS256", signed(header("PS256"), claims(), rsaSign), ""},
		{"HS256 with the RSA key's PEM", signed(header("HS256"), claims(), mac([]byte(public(&rsaKey().PublicKey)))), "signature"},
		{"HS256 with the RSA key's DER", signed(header("HS256"), claims(), mac(spki)), "signature"},
		{"HS256 with nothing", signed(header("HS256"), claims(), mac(nil)), "signature"},
		{"an ES256 signature under RS256", signed(header("RS256"), claims(), ecdsaSign), "signature"},
		{"another secret", signed(header("HS256"), claims(), mac([]byte("x"+secret))), "signature"},
		{"without a signature", parts[0] + "." + parts[1] + ".", "signature"},
		{"another payload", parts[0] + "." + raw([]byte(`{"exp":9999999999}`)) + "." + parts[2], "signature"},
		{"zeros for a signature", parts[0] + "." + parts[1] + "." + raw(make([]byte, 64)), "signature"},
		{"a key of its own", signed(with("jwk", map[string]any{"kty": "oct", "k": "AA"}), claims(), mac([]byte{0})), "signature"},
		{"no exp", hs256(claims("exp", nil)), "such as exp"},
		{"exp beyond time", hs256(claims("exp", 9.2e18)), "exp is not a time"},
		{"nbf beyond time", hs256(claims("nbf", 1e300)), "nbf is not a time"},
		{"nbf before time", hs256(claims("nbf", -1)), "nbf is not a time"},
		{"exp of nothing", hs256(claims("exp", json.RawMessage("null"))), ""},
		{"exp as a text", hs256(claims("exp", "9999999999")), ""},
		{"exp of 0", hs256(claims("exp", 0)), ""},
		{"exp beyond counting", hs256(claims("exp", json.RawMessage("1e300"))), ""},
		{"exp before counting", hs256(claims("exp", json.RawMessage("-1e300"))), ""},
		{"nbf as a text", hs256(claims("nbf", "1")), ""},
		{"crit", signed(with("crit", []string{"b64"}), claims(), sign), "extension"},
		{"an empty crit", signed(with("crit", []string{}), claims(), sign), "extension"},
		{"no JSON", signed(header("HS256"), "text", sign), "malformed"},
		{"a list", signed(header("HS256"), []int{1}, sign), "malformed"},
		{"over 8 KiB", hs256(claims("x", strings.Repeat("x", 8<<10))), "at most 8192"},
		{"padded", good + "=", "outside base64url"},
		{"a plus sign", strings.Replace(good, ".", "+.", 1), "outside base64url"},
		{"a blank within", parts[0] + ". " + parts[1] + "." + parts[2], "outside base64url"},
		{"a NUL", good + "\x00", "outside base64url"},
		{"two parts", parts[0] + "." + parts[1], "three parts"},
		{"four parts", good + "." + parts[2], "three parts"},
		{"five parts", "a.b.c.d.e", "three parts"},
		{"dots", "..", ""},
		{"an API token", "wpt_aaaaaaaaaa_", "three parts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := verifier(t, identity.SessionsOptions{})
			got, err := caller(r, bearing(c.token)).Session()
			if err == nil || !strings.Contains(err.Error(), c.why) || got.Key != "" {
				t.Errorf("session %+v, error %v; want one about %q", got, err, c.why)
			}
			if k, ok := key(caller(r, bearing(c.token)), identity.Session); ok || k != "" {
				t.Errorf("counted as %x", k)
			}
		})
	}
}

// The bits after the last whole byte are zero (D14).
func TestASignatureHasOneSpelling(t *testing.T) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, good := range []string{hs256(claims()), es256(claims()), rs256(claims())} {
		r, _ := verifier(t, identity.SessionsOptions{})
		for _, d := range digits {
			other := good[:len(good)-1] + string(d)
			_, err := caller(r, bearing(other)).Session()
			if (err == nil) != (other == good) {
				t.Errorf("…%s for …%s: %v", other[len(other)-4:], good[len(good)-4:], err)
			}
		}
	}
}

// (r, n−s) verifies as well as (r, s) (D14).
func TestBothFormsOfASignatureAreTheSameSession(t *testing.T) {
	for name, payload := range map[string]any{"sid": claims("sid", "a"), "jti": claims("jti", "a"), "neither": claims()} {
		r, _ := verifier(t, identity.SessionsOptions{BudgetPerToken: name == "jti"})
		token := es256(payload)
		cut := strings.LastIndexByte(token, '.') + 1
		sig := must(base64.RawURLEncoding.DecodeString(token[cut:]))
		s := new(big.Int).SetBytes(sig[32:])
		s.Sub(elliptic.P256().Params().N, s).FillBytes(sig[32:])
		other := token[:cut] + raw(sig)
		if other == token {
			t.Fatal("the other form is the token itself")
		}
		if budget(t, r, other) != budget(t, r, token) {
			t.Errorf("%s: two budgets for one token", name)
		}
	}
}

func TestASessionLastsUntilExactlyItsEnd(t *testing.T) {
	const second = time.Second
	exp, nbf := noon.Add(10*second).Unix(), noon.Add(5*second).Unix()
	for _, c := range []struct {
		name   string
		leeway time.Duration
		at     time.Duration
		want   bool
	}{
		{"before nbf", 0, 5*second - 1, false},
		{"at nbf", 0, 5 * second, true},
		{"before exp", 0, 10*second - 1, true},
		{"at exp", 0, 10 * second, false},
		{"before nbf less leeway", 2 * second, 3*second - 1, false},
		{"at nbf less leeway", 2 * second, 3 * second, true},
		{"before exp and leeway", 2 * second, 12*second - 1, true},
		{"at exp and leeway", 2 * second, 12 * second, false},
	} {
		token := hs256(claims("exp", exp, "nbf", nbf))
		r, clock := verifier(t, identity.SessionsOptions{Leeway: c.leeway})
		clock.set(c.at)
		if _, err := caller(r, bearing(token)).Session(); (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
		clock.set(7 * second)
		budget(t, r, token) // it is in the cache now
		clock.set(c.at)
		if _, err := caller(r, bearing(token)).Session(); (err == nil) != c.want {
			t.Errorf("%s, seen before: %v", c.name, err)
		}
	}
}

func TestTheIssuerAndTheAudienceHold(t *testing.T) {
	for _, c := range []struct {
		name string
		o    identity.SessionsOptions
		c    map[string]any
		want string
	}{
		{"the issuer", identity.SessionsOptions{Issuer: "w"}, claims("iss", "w"), ""},
		{"another issuer", identity.SessionsOptions{Issuer: "w"}, claims("iss", "W"), "issuer"},
		{"no issuer", identity.SessionsOptions{Issuer: "w"}, claims(), "required claim"},
		{"an issuer that is a list", identity.SessionsOptions{Issuer: "w"}, claims("iss", []string{"w"}), "malformed"},
		{"the audience", identity.SessionsOptions{Audience: "a"}, claims("aud", "a"), ""},
		{"among others", identity.SessionsOptions{Audience: "a"}, claims("aud", []string{"b", "a"}), ""},
		{"another audience", identity.SessionsOptions{Audience: "a"}, claims("aud", []string{"b"}), "audience"},
		{"no audience", identity.SessionsOptions{Audience: "a"}, claims(), "required claim"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := verifier(t, c.o)
			_, err := caller(r, bearing(hs256(c.c))).Session()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		})
	}
}

// See RFC 9110, section 11.1 (D14).
func TestOneCredentialAndTheSchemeInAnyCase(t *testing.T) {
	good := hs256(claims("sid", "s"))
	for _, c := range []struct {
		name  string
		lines []string
		want  string // "" means a session, otherwise a part of the error
	}{
		{"Bearer", []string{"Bearer " + good}, ""},
		{"bearer", []string{"bearer " + good}, ""},
		{"BEARER and blanks", []string{"BEARER   " + good + "  "}, ""},
		{"two lines", []string{"Bearer " + good, "Bearer " + good}, "2 Authorization fields"},
		{"two with a bad one", []string{"Bearer x", "Bearer " + good}, "2 Authorization fields"},
		{"Basic", []string{"Basic " + good}, "another scheme"},
		{"without a scheme", []string{good}, "another scheme"},
		{"a tab", []string{"Bearer\t" + good}, "another scheme"},
		{"a list", []string{"Bearer " + good + ", Bearer " + good}, "outside base64url"},
		{"none", nil, identity.ErrNone.Error()},
		{"empty", []string{""}, identity.ErrNone.Error()},
		{"the scheme alone", []string{"Bearer"}, identity.ErrNone.Error()},
		{"the scheme and blanks", []string{"Bearer   "}, identity.ErrNone.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := verifier(t, identity.SessionsOptions{})
			req := request("203.0.113.7:1")
			req.Request.Header = http.Header{"Authorization": c.lines}
			_, err := caller(r, req).Session()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		})
	}
}

func TestSessionsNeedAKeyAndASaneLeeway(t *testing.T) {
	for name, o := range map[string]identity.SessionsOptions{
		"no key":          {},
		"negative leeway": {Keys: allKeys(), Leeway: -1},
		"endless leeway":  {Keys: allKeys(), Leeway: time.Hour},
	} {
		if _, err := identity.NewSessions(o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Lookup allows no algorithm confusion (D14).
func TestASecretNeverComesFromAKeySet(t *testing.T) {
	const other = "a secret that only the set has"
	asked := ""
	lookup := func(kid, alg string) (crypto.PublicKey, error) { asked = alg; return []byte(other), nil }
	forged := signed(header("HS256"), claims(), mac([]byte(other)))
	for _, keys := range [][]identity.SessionKey{nil, allKeys()[:1]} {
		r, _ := verifier(t, identity.SessionsOptions{Lookup: lookup, Keys: keys})
		if _, err := caller(r, bearing(forged)).Session(); err == nil || asked != "" {
			t.Errorf("%d other keys: error %v, asked for %q", len(keys), err, asked)
		}
	}
}

// For any Lookup (D14).
func TestAKeySetsKeysAreCheckedLikeAFiles(t *testing.T) {
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	token := signed(header("RS256"), claims(), func(b []byte) []byte {
		sum := sha256.Sum256(b)
		return must(rsa.SignPKCS1v15(nil, weak, crypto.SHA256, sum[:]))
	})
	for name, k := range map[string]crypto.PublicKey{"1024 bits": &weak.PublicKey, "another kind": &ecdsaKey().PublicKey, "nil": nil} {
		r, _ := verifier(t, identity.SessionsOptions{Lookup: func(string, string) (crypto.PublicKey, error) { return k, nil }})
		if _, err := caller(r, bearing(token)).Session(); err == nil {
			t.Errorf("%s: a session", name)
		}
	}
}

func TestWithoutKeysThereAreNoSessions(t *testing.T) {
	r := resolver(t, identity.Options{})
	if _, err := caller(r, bearing(hs256(claims()))).Session(); !errors.Is(err, identity.ErrUnverifiable) {
		t.Error(err)
	}
	if _, err := caller(r, bearing("wpt_")).Token(); !errors.Is(err, identity.ErrUnverifiable) {
		t.Error(err)
	}
	if r.Verifies(identity.Session) || r.Verifies(identity.Token) || r.Verifies(identity.IP) {
		t.Error("something is verified")
	}
}
