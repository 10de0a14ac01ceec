package redisstore

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
)

// A hasher makes the names of windows on the server: keyed hashes, so that the server's data
// reveals no address and no token (D18: keys are hashed with a secret). Every node uses the same
// secret and so makes the same names.
type hasher struct {
	prefix string // with the colon

	key, tag pair
	mark     string // identifies the secret without revealing it
	secret   []byte // what the rest is derived from
}

// A pair is a SipHash key.
type pair struct{ k0, k1 uint64 }

func newHasher(prefix string, secret []byte) *hasher {
	derived, err := hkdf.Key(sha256.New, secret, nil, "weir redis keys 1", 48)
	if err != nil {
		panic(err) // impossible: HKDF makes up to 8,160 bytes
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(derived[8*i:]) }
	return &hasher{
		prefix: prefix + ":",
		key:    pair{word(0), word(1)},
		tag:    pair{word(2), word(3)},
		mark:   base64.RawURLEncoding.EncodeToString(derived[32:]),
		secret: secret,
	}
}

// A hash identifies one window.
type hash struct{ hi, lo uint64 }

// An id identifies one window in this process's memory: half of its hash.
type id uint64

func (x hash) id() id { return id(x.hi) }

func (h *hasher) hash(c *weir.Charge) hash {
	hi, lo := siphash.Hash128(h.key.k0, h.key.k1, c.Key)
	return hash{hi, lo}
}

// name returns the key of a charge on the server: PREFIX:{TAG}HASH. The tag is a hash of the
// caller, so that a cluster keeps all windows of one caller on one machine and spreads the callers.
func (h *hasher) name(c *weir.Charge, x hash) string {
	var buf [64 + 64]byte
	var raw [16]byte
	b := append(buf[:0], h.prefix...)
	b = append(b, '{')
	binary.BigEndian.PutUint64(raw[:8], siphash.Hash(h.tag.k0, h.tag.k1, c.Key[c.Scope:c.Subject]))
	b = base64.RawURLEncoding.AppendEncode(b, raw[:3]) // 24 bits are plenty for 16,384 slots
	b = append(b, '}')
	binary.BigEndian.PutUint64(raw[:8], x.hi)
	binary.BigEndian.PutUint64(raw[8:], x.lo)
	// 96 bits make a collision implausible; each byte costs the server
	b = base64.RawURLEncoding.AppendEncode(b, raw[:12])
	return string(b)
}

// sameSlot reports whether all names have one tag, so that a cluster has them on one machine.
func sameSlot(names []string) bool {
	for _, name := range names[1:] {
		if tagOf(name) != tagOf(names[0]) {
			return false
		}
	}
	return true
}

func tagOf(name string) string { return name[:strings.IndexByte(name, '}')] }
