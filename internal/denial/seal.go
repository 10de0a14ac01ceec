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
//	version   1   which kind of secret the key is derived from
//	salt     16   random for each process and secret; the key is HKDF-SHA256 of secret and salt
//	counter   8   number of ids sealed with this key before; as the nonce it never repeats
//	sealed    n   AES-256-GCM of the facts, with version and salt as associated data
//	tag      16
const (
	saltAt    = 1
	counterAt = saltAt + 16
	sealedAt  = counterAt + 8
	tagSize   = 16
	minSealed = sealedAt + block + tagSize
	maxSealed = sealedAt + maxPlain + tagSize
)

// The versions. Those from versionPrivate+1 to versionLast are reserved for later versions of Weir.
const (
	versionShared  = 1 // sealed with the secret that all nodes share
	versionPrivate = 2 // sealed with the secret of one process
	versionLast    = 15
)

var (
	errNotID     = errors.New("this is not a denial id: copy the value of a 429's X-Weir-Denial field")
	errTruncated = errors.New("it was truncated or altered: copy the whole value of the X-Weir-Denial field")
	errUnsealed  = errors.New("it was truncated or altered, or sealed with another secret: copy it whole, and ask a node that shares the secret or the store of the one that refused")
	errPrivate   = errors.New("it was sealed by a process that had no shared secret yet, because it had not reached its store: only that process can open it, while it runs (or the id was altered)")
	errLater     = errors.New("it was made by a later version of Weir: open it with that version")
	errNoSecret  = errors.New("this node does not have the shared secret yet, because it has not reached the store: try again once it has")
)

// A sealing is a key in use.
type sealing struct {
	secret  []byte // the shared secret that the key is derived from; nil if it is the process's own
	aead    cipher.AEAD
	head    [counterAt]byte // version and salt
	counter atomic.Uint64
}

// newSealing derives a new key from a secret; nil means the process's own.
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
		panic(err) // impossible: only if the key were longer than HKDF allows
	}
	c, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // impossible: only for another key length
	}
	aead, err := cipher.NewGCM(c)
	if err != nil {
		panic(err) // impossible: only for another block size than AES has
	}
	return aead
}

// seal returns the id of a plaintext of at most maxPlain bytes.
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

// parse decodes an id and checks its version and length.
func parse(id string) ([]byte, error) {
	// the decoder would skip line ends
	if len(id) > base64.RawURLEncoding.EncodedLen(maxSealed) || strings.ContainsAny(id, "\r\n") {
		return nil, errNotID
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil {
		if isBegun(raw) {
			return nil, errTruncated
		}
		return nil, errNotID
	}
	switch {
	case !isBegun(raw):
		return nil, errNotID
	case raw[0] > versionPrivate:
		return nil, fmt.Errorf("%w (version %d; up to %d are supported)", errLater, raw[0], versionPrivate)
	case len(raw) < minSealed || (len(raw)-minSealed)%block != 0:
		return nil, errTruncated
	}
	return raw, nil
}

// isBegun reports whether raw begins like an id.
func isBegun(raw []byte) bool {
	return len(raw) > 0 && versionShared <= raw[0] && raw[0] <= versionLast
}

// unseal decrypts an id that parse has accepted.
func unseal(secret, raw []byte) ([]byte, error) {
	nonce := nonceOf(raw)
	return newAEAD(secret, raw[saltAt:counterAt]).Open(nil, nonce[:], raw[sealedAt:], raw[:counterAt])
}
