package identity_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/identity"
)

const secret = "an HS256 secret of thirty-two by" // 32 bytes

// The keys of all tests. RSA keys take long to generate.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecdsaKey = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	edKey    = sync.OnceValue(func() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func public(key crypto.PublicKey) string {
	return encode("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(key)))
}

func certificate(key crypto.Signer) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	return must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
}

func TestAKeyFileIsAPublicKeyOrASecret(t *testing.T) {
	p256 := public(&ecdsaKey().PublicKey)
	der := must(x509.MarshalPKIXPublicKey(&ecdsaKey().PublicKey))
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	// Want is the algorithm, or a part of the error.
	for _, c := range []struct{ name, content, want string }{
		{"a secret", secret, "HS256"},
		{"a secret with a newline", secret + "\n", "HS256"},
		{"a binary secret", strings.Repeat("\x00\xff", 16), "HS256"},
		{"a binary secret with a line break", strings.Repeat("\x00\xff\n", 16), "HS256"},
		{"a README", "# A service\n\nIt verifies sessions.\n" + secret, "a text of several lines"},
		{"a secret with a carriage return", secret + "\r\n", "a text of several lines"},
		{"a short secret", secret[:31], "at least 32"},
		{"a short secret with a newline", secret[:31] + "\n", "at least 32"},
		{"nothing", "", "at least 32"},
		{"RSA", public(&rsaKey().PublicKey), "RS256"},
		{"RSA, PKCS 1", encode("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)), "RS256"},
		{"P-256", p256, "ES256"},
		{"Ed25519", public(edKey().Public()), "EdDSA"},
		{"a certificate", encode("CERTIFICATE", certificate(ecdsaKey())), "ES256"},
		{"text before the key", "subject=x\n" + p256, "ES256"},
		{"RSA of 1024 bits", public(&weak.PublicKey), "RSA of 1024 bits"},
		{"P-384", public(&must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)).PublicKey), "P-384"},
		{"a private key", encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ecdsaKey()))), "not a private one"},
		{"an RSA private key", encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey())), "not a private one"},
		{"a broken PEM", "-----BEGIN PUBLIC KEY-----\n" + secret + "\n", "is not PEM"},
		{"a PEM cut short", p256[:len(p256)-30], "is not PEM"},
		{"a PEM around nonsense", encode("PUBLIC KEY", []byte(secret)), "read the public key"},
		{"a certificate around nonsense", encode("CERTIFICATE", []byte(secret)), "read the certificate"},
		{"PKCS 1 around nonsense", encode("RSA PUBLIC KEY", []byte(secret)), "read the RSA public key"},
		{"two blocks", p256 + p256, "several PEM blocks"},
		{"a broken block behind", p256 + "-----BEGIN PUBLIC KEY-----\n", "several PEM blocks"},
		{"a broken block before", "-----BEGIN PUBLIC KEY-----\n!\n" + p256, "several PEM blocks"},
		{"OpenSSH's other form", "---- BEGIN SSH2 PUBLIC KEY ----\n" + secret, "is not PEM"},
		{"OpenSSH", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ me@example", "not in PEM"},
		{"DER", string(der), "not in PEM"},
		{"a certificate in DER", string(certificate(ecdsaKey())), "not in PEM"},
		{"JWK", `{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`, "not in PEM"},
		{"too large", strings.Repeat("x", 64<<10+1), "over 65536 bytes"},
		{"as large as allowed", strings.Repeat("x", 64<<10), "HS256"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			k, err := identity.LoadKey(path)
			if err == nil && k.Algorithm() == c.want && k.ID() != "" {
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("algorithm %q, error %v, want %q", k.Algorithm(), err, c.want)
			}
		})
	}
	if _, err := identity.LoadKey(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

// Tokens without an issuer are counted under the key's name, on every node (D14).
func TestAKeysNameFollowsFromTheKey(t *testing.T) {
	a := must(identity.NewSecretKey("", []byte(secret)))
	b := must(identity.NewSecretKey("", []byte(secret)))
	c := must(identity.NewSecretKey("", []byte(secret+"x")))
	if a.ID() != b.ID() || a.ID() == c.ID() || strings.Contains(a.ID(), secret[:8]) {
		t.Errorf("names %q %q %q", a.ID(), b.ID(), c.ID())
	}
	if k := must(identity.NewPublicKey("mine", edKey().Public())); k.ID() != "mine" {
		t.Errorf("name %q", k.ID())
	}
}

// New rejects it, so that it never panics later (D14).
func TestAKeyThatCannotVerifyIsRefused(t *testing.T) {
	for name, k := range map[string]crypto.PublicKey{
		"nil": nil, "no RSA": (*rsa.PublicKey)(nil), "empty RSA": &rsa.PublicKey{}, "no ECDSA": (*ecdsa.PublicKey)(nil), "empty ECDSA": &ecdsa.PublicKey{},
		"short Ed25519": ed25519.PublicKey("short"), "a secret": []byte(secret), "private": ecdsaKey(),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := identity.NewPublicKey("", k); err == nil {
				t.Errorf("%s: taken", name)
			}
		})
	}
	if _, err := identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{{}}}); err == nil {
		t.Error("an empty key was taken")
	}
}

func TestASecretIsCopied(t *testing.T) { // its owner may wipe it
	b := []byte(secret)
	k := must(identity.NewSecretKey("k", b))
	clear(b)
	r := resolver(t, identity.Options{Sessions: must(identity.NewSessions(identity.SessionsOptions{Keys: []identity.SessionKey{k}})), Now: newClock().Now})
	if _, err := caller(r, bearing(hs256(claims("sid", "a")))).Session(); err != nil {
		t.Error(err)
	}
}
