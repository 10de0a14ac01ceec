package identity

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"
)

const (
	minSecretBytes = 32
	minRSABits     = 2048
	maxKeyFile     = 64 << 10
)

// A SessionKey verifies tokens of one algorithm. Make one with LoadKey, NewSecretKey or
// NewPublicKey.
type SessionKey struct {
	id  string
	alg string
	key any
}

// ID returns the name of the key. Budgets of tokens without an issuer are counted under it.
func (k SessionKey) ID() string { return k.id }

// Algorithm returns the one algorithm of the key: HS256, RS256, ES256 or EdDSA.
func (k SessionKey) Algorithm() string { return k.alg }

// NewSecretKey returns a key for HS256. The secret has at least 32 bytes. If id is empty, it is
// derived from the secret's hash.
func NewSecretKey(id string, secret []byte) (SessionKey, error) {
	if len(secret) < minSecretBytes {
		return SessionKey{}, fmt.Errorf("a secret of %d bytes: at least %d are needed, such as: openssl rand -hex 32", len(secret), minSecretBytes)
	}
	if id == "" {
		id = fingerprint(append([]byte("weir session secret\n"), secret...))
	}
	return SessionKey{id, "HS256", bytes.Clone(secret)}, nil
}

// NewPublicKey returns a key for RS256 (*rsa.PublicKey of at least 2048 bits), ES256
// (*ecdsa.PublicKey on P-256) or EdDSA (ed25519.PublicKey). If id is empty, it is derived from the
// key's hash.
func NewPublicKey(id string, key crypto.PublicKey) (SessionKey, error) {
	alg := algorithmOf(key)
	if alg == "" {
		return SessionKey{}, fmt.Errorf("a public key of kind %s: RSA of at least %d bits (RS256), P-256 (ES256) and Ed25519 (EdDSA) are allowed",
			kindOf(key), minRSABits)
	}
	if id == "" {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return SessionKey{}, fmt.Errorf("encode the public key: %w", err)
		}
		id = fingerprint(der)
	}
	return SessionKey{id, alg, key}, nil
}

func kindOf(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k != nil && k.N != nil {
			return fmt.Sprintf("RSA of %d bits", k.N.BitLen())
		}
	case *ecdsa.PublicKey:
		if k != nil && k.Curve != nil {
			return k.Curve.Params().Name
		}
	}
	return fmt.Sprintf("%T", key)
}

func fingerprint(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

// LoadKey reads a key file: a public key or a certificate in PEM, or a secret for HS256. Of a
// secret it drops one trailing newline. A text of several lines is an error. A file that looks like
// a key in PEM, DER, JWK or OpenSSH's form but is no public key in PEM is an error. It is never a
// secret, since anyone who knows a public key could then sign with it.
func LoadKey(path string) (SessionKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return SessionKey{}, fmt.Errorf("load a session key: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return SessionKey{}, fmt.Errorf("load a session key: %w", err)
	}
	if len(b) > maxKeyFile {
		return SessionKey{}, fmt.Errorf("load a session key: %s: over %d bytes: a key is shorter", path, maxKeyFile)
	}
	k, err := parseKey(b)
	if err != nil {
		return SessionKey{}, fmt.Errorf("load a session key: %s: %w", path, err)
	}
	return k, nil
}

func parseKey(b []byte) (SessionKey, error) {
	switch begins := bytes.Count(b, []byte("---BEGIN")) + bytes.Count(b, []byte("--- BEGIN")); {
	case begins > 1:
		return SessionKey{}, errors.New("it holds several PEM blocks: give one key a file")
	case begins == 0 && isOtherKey(b):
		return SessionKey{}, errors.New("it is a key, but not in PEM: give a public key as printed by: openssl pkey -pubout")
	case begins == 0 && isSeveralLines(b):
		return SessionKey{}, errors.New("it is a text of several lines: a secret is one line, or bytes that are no text")
	case begins == 0:
		return NewSecretKey("", bytes.TrimSuffix(b, []byte("\n")))
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return SessionKey{}, errors.New("it begins like PEM, but is not PEM: give a public key as printed by: openssl pkey -pubout")
	}
	key, err := parsePublic(block)
	if err != nil {
		return SessionKey{}, err
	}
	return NewPublicKey("", key)
}

// isSeveralLines reports whether b is text with a line break before its end, such as a README that
// was given for a key: anyone who knows it could sign. Random bytes have a line break by chance,
// but are not text.
func isSeveralLines(b []byte) bool {
	text := bytes.TrimSuffix(b, []byte("\n"))
	if !utf8.Valid(text) || !bytes.ContainsAny(text, "\r\n") {
		return false
	}
	return !bytes.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

// isOtherKey reports whether b is a key in a format that Weir cannot use.
func isOtherKey(b []byte) bool {
	for _, prefix := range []string{"ssh-", "ecdsa-sha2-", "sk-"} {
		if bytes.HasPrefix(b, []byte(prefix)) && bytes.ContainsRune(b, ' ') {
			return true
		}
	}
	var jwk map[string]any
	if json.Unmarshal(b, &jwk) == nil {
		return true
	}
	var der asn1.RawValue
	rest, err := asn1.Unmarshal(b, &der)
	return err == nil && len(bytes.TrimSpace(rest)) == 0 && der.Class == asn1.ClassUniversal && der.Tag == asn1.TagSequence
}

func parsePublic(block *pem.Block) (crypto.PublicKey, error) {
	switch block.Type {
	case "PUBLIC KEY":
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the public key: %w", err)
		}
		return key, nil
	case "RSA PUBLIC KEY":
		key, err := x509.ParsePKCS1PublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the RSA public key: %w", err)
		}
		return key, nil
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the certificate: %w", err)
		}
		return cert.PublicKey, nil
	}
	return nil, fmt.Errorf("a PEM block %q: a public key is needed, not a private one (openssl pkey -pubout prints the public part)", block.Type)
}
