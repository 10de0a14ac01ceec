package replay

import "hash/maphash"

// peers remember what addresses are counted as, since logs have the same ones again and again: to read one, and to find it among all
// that there were, takes as long as all else that is done to find out who sent a request. A new one takes the place of another.
type peers struct {
	seed  maphash.Seed
	slots [1 << 14]peer // 512 KiB, which a processor's own cache holds
}

// A peer is what is known of an address, in 32 bytes.
type peer struct {
	hash  uint64   // of how the log has it: two that share one by chance are rarer than a wrong bit in memory; 0: nobody
	key   [16]byte // what a limiter counts by
	size  uint8    // of key
	noted uint8    // the marks that were noted of it among all addresses
}

// find returns the place of an address; ok is false where another has it, or none.
func (p *peers) find(logged []byte) (at *peer, hash uint64, ok bool) {
	hash = maphash.Bytes(p.seed, logged) | 1
	at = &p.slots[hash>>1%uint64(len(p.slots))]
	return at, hash, at.hash == hash
}

// keep has the place remember another address.
func (at *peer) keep(hash uint64, key []byte) {
	*at = peer{hash: hash, size: uint8(len(key))}
	copy(at.key[:], key)
}
