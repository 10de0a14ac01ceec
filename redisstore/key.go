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

// A hasher turns the keys of windows into the names that the server sees: keyed hashes, so that whoever reads the server
// learns nobody's address or token (D18). Every node has the same one, made of the same secret.
type hasher struct {
	prefix string // as the names have it, colon included

	key, tag pair
	mark     string // tells secrets apart without telling them
	secret   []byte // what all this is made of
}

// A pair is a SipHash key.
type pair struct{ k0, k1 uint64 }

func newHasher(prefix string, secret []byte) *hasher {
	derived, err := hkdf.Key(sha256.New, secret, nil, "weir redis keys 1", 48)
	if err != nil {
		panic(err) // only a longer key than HKDF can make, which 48 bytes are not
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

// A hash stands for one window.
type hash struct{ hi, lo uint64 }

// An id stands for one window in this process's memory: half of its hash.
type id uint64

func (x hash) id() id { return id(x.hi) }

func (h *hasher) hash(c *weir.Charge) hash {
	hi, lo := siphash.Hash128(h.key.k0, h.key.k1, c.Key)
	return hash{hi, lo}
}

// name returns the key of a charge as the server sees it: PREFIX:{TAG}HASH. The tag is of who is counted, so that a cluster
// keeps all windows of one caller on one machine, and those of different callers wherever it likes.
func (h *hasher) name(c *weir.Charge, x hash) string {
	var room [64 + 64]byte
	var raw [16]byte
	b := append(room[:0], h.prefix...)
	b = append(b, '{')
	binary.BigEndian.PutUint64(raw[:8], siphash.Hash(h.tag.k0, h.tag.k1, c.Key[c.Scope:c.Subject]))
	b = base64.RawURLEncoding.AppendEncode(b, raw[:3]) // 24 bits: plenty for 16,384 slots
	b = append(b, '}')
	binary.BigEndian.PutUint64(raw[:8], x.hi)
	binary.BigEndian.PutUint64(raw[8:], x.lo)
	b = base64.RawURLEncoding.AppendEncode(b, raw[:12]) // 96 bits: no two callers meet, and each byte costs the server
	return string(b)
}

// sameSlot reports whether the names are of one caller, so that a cluster has them on one machine.
func sameSlot(names []string) bool {
	for _, name := range names[1:] {
		if tagOf(name) != tagOf(names[0]) {
			return false
		}
	}
	return true
}

func tagOf(name string) string { return name[:strings.IndexByte(name, '}')] }
