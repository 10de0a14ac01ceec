package sample

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/sample/sqlite"
)

// siteBytes is the length of the site prefix of an IPv6 address in bytes. One customer is commonly
// assigned a /48 (RFC 6177), which has 65,536 of the /64s that count as addresses.
const siteBytes = 6

// origin returns the origin of r for the storage: hashes with a key that is only in the data
// directory. An address is what limiters count as one: IPv4 whole, IPv6 by its network. Callers
// without an address share one origin.
func (b *Backend) origin(r *request) sqlite.Origin {
	address, _ := b.caller(r).AppendKey(nil, identity.IP)
	o := sqlite.Origin{Address: b.hash("address", address)}
	if len(address) <= siteBytes {
		return o
	}
	site := make([]byte, len(address))
	copy(site, address[:siteBytes])
	if string(site) != string(address) { // otherwise limiters count by the site already
		o.Network = b.hash("network", site)
	}
	return o
}

// hash returns 16 bytes of a keyed hash of a value. Equal values of a kind have equal hashes;
// without the key, hashes reveal nothing else.
func (b *Backend) hash(kind string, value []byte) []byte {
	h := hmac.New(sha256.New, b.secret)
	h.Write([]byte("weir sample " + kind + "\x00"))
	h.Write(value)
	return h.Sum(nil)[:16]
}
