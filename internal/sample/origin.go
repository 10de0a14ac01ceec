package sample

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// siteBytes is how much of an IPv6 address its site has, in bytes: one customer is commonly given a
// /48 (RFC 6177), which has 65,536 of the /64s that count as addresses.
const siteBytes = 6

// origin is where r comes from, as the storage is told it: hashes with a key that the data
// directory alone has. An address is what limiters count as one, IPv4 whole and IPv6 by its
// network. Callers without any share one origin.
func (b *Backend) origin(r *request) sqlite.Origin {
	address, _ := b.caller(r).AppendKey(nil, identity.IP)
	o := sqlite.Origin{Address: b.hash("address", address)}
	if len(address) <= siteBytes {
		return o
	}
	site := make([]byte, len(address))
	copy(site, address[:siteBytes])
	if string(site) != string(address) { // else addresses are counted by networks as large as that already
		o.Network = b.hash("network", site)
	}
	return o
}

// hash is 16 bytes that say whether two values of a kind are the same, and nothing else without the
// key.
func (b *Backend) hash(kind string, value []byte) []byte {
	h := hmac.New(sha256.New, b.secret)
	h.Write([]byte("weir sample " + kind + "\x00"))
	h.Write(value)
	return h.Sum(nil)[:16]
}
