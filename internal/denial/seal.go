package denial

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
)

// An id is, in base64url without padding,
//
//	version   1   which secret the key is derived from
//	salt     16   random, of one process and secret: the key is HKDF-SHA256 of both
//	counter   8   how many ids this key had sealed before: the nonce, so that none comes twice
//	sealed    n   AES-256-GCM of the facts, with version and salt as associated data
//	tag      16
const (
	saltAt     = 1
	counterAt  = saltAt + 16
	sealedAt   = counterAt + 8
	tagSize    = 16
	shortest   = sealedAt + block + tagSize
	mostSealed = sealedAt + mostPlain + tagSize
)

// The versions that are known. Bytes above versionPrivate, up to versionLast, are those of later ones.
const (
	versionShared  = 1 // by the secret that all nodes share
	versionPrivate = 2 // by one that died with its process
	versionLast    = 15
)

var (
	errNoID     = errors.New("this is no denial id: it stands in the X-Weir-Denial field of a 429")
	errCut      = errors.New("it was cut or altered: copy it whole, as it stands in the X-Weir-Denial field")
	errRefused  = errors.New("it was cut or altered, or sealed with another secret: copy it whole, and ask a node that shares the secret or the store of the one that refused")
	errPrivate  = errors.New("it was sealed by a process that had no shared secret, as before its store was reached: only that process can open it while it runs (or the id was altered)")
	errLater    = errors.New("it was made by a later version of Weir: open it with that one")
	errNoSecret = errors.New("the shared secret is not known here yet, since the store was not reached: try again when it answers")
)

// A sealing is one key in use.
type sealing struct {
	secret  []byte // the shared one it is derived from; nil: this process's
	aead    cipher.AEAD
	head    [counterAt]byte // version and salt
	counter atomic.Uint64
}

// newSealing derives a key of its own from a secret; nil means this process's.
func (s *Sealer) newSealing(secret []byte) (*sealing, error) {
	n := &sealing{secret: bytes.Clone(secret)}
	n.head[0] = versionShared
	if secret == nil {
		n.head[0], secret = versionPrivate, s.own
	}
	if _, err := io.ReadFull(s.rand, n.head[saltAt:]); err != nil {
		return nil, fmt.Errorf("read a salt of %d random bytes: %w", counterAt-saltAt, err)
	}
	n.aead = newAEAD(secret, n.head[saltAt:])
	return n, nil
}

func newAEAD(secret, salt []byte) cipher.AEAD {
	key, err := hkdf.Key(sha256.New, secret, salt, "weir denial id 1", 32)
	if err != nil {
		panic(err) // only a longer key than HKDF can make, which 32 bytes are not
	}
	c, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only a key of another length
	}
	aead, err := cipher.NewGCM(c)
	if err != nil {
		panic(err) // only another block size than AES has
	}
	return aead
}

// seal returns the id of a plaintext of at most mostPlain bytes.
func (n *sealing) seal(plain []byte) string {
	raw := append(make([]byte, 0, sealedAt+len(plain)+tagSize), n.head[:]...)
	raw = binary.BigEndian.AppendUint64(raw, n.counter.Add(1)-1)
	nonce := nonceOf(raw)
	raw = n.aead.Seal(raw, nonce[:], plain, n.head[:])
	return base64.RawURLEncoding.EncodeToString(raw)
}

func nonceOf(raw []byte) (nonce [12]byte) {
	copy(nonce[4:], raw[counterAt:sealedAt])
	return nonce
}

// parse returns the bytes of an id of a version that is known here.
func parse(id string) ([]byte, error) {
	if len(id) > base64.RawURLEncoding.EncodedLen(mostSealed) || strings.ContainsAny(id, "\r\n") { // which the decoder skips
		return nil, errNoID
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil {
		if isBegun(raw) {
			return nil, errCut
		}
		return nil, errNoID
	}
	switch {
	case !isBegun(raw):
		return nil, errNoID
	case raw[0] > versionPrivate:
		return nil, fmt.Errorf("%w (version %d, known are up to %d)", errLater, raw[0], versionPrivate)
	case len(raw) < shortest || (len(raw)-shortest)%block != 0:
		return nil, errCut
	}
	return raw, nil
}

// isBegun reports whether raw begins as an id does.
func isBegun(raw []byte) bool {
	return len(raw) > 0 && versionShared <= raw[0] && raw[0] <= versionLast
}

// unseal returns the plaintext of an id that parse has accepted.
func unseal(secret, raw []byte) ([]byte, error) {
	nonce := nonceOf(raw)
	return newAEAD(secret, raw[saltAt:counterAt]).Open(nil, nonce[:], raw[sealedAt:], raw[:counterAt])
}
