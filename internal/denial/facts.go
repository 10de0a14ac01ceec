package denial

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	"github.com/weirlimit/weir"
)

// Facts are what an id tells of one refusal.
type Facts struct {
	Limiter string
	Window  string // the one that bound, as a policy spells it: "30 per minute by session or ip"
	Limit   int64  // what held for the caller
	Count   int64  // units that the window had spent
	Reset   int64  // Unix seconds at which it gave the budget back
	At      int64  // Unix seconds of the refusal
	Policy  string // the version of the policy in force

	// Callers are who was counted: one for each key source that counted in any window of the limiter, each once.
	Callers []Caller
	// Partial says that an id had no room for all of them, which takes key sources beyond the usual ones: then Keys does not
	// name the caller.
	Partial bool
}

// A Caller is who was counted, by one key source.
type Caller struct {
	Source string
	Value  []byte // as the key source has it
	Digest bool   // Value is the SHA-256 of one that is longer than 256 bytes
}

// longest is the length of a value from which on a window's key has its SHA-256 instead (D13).
const longest = 256

// callersOf returns who the windows of l count.
func callersOf(l *weir.Limiter, caller weir.Keys) []Caller {
	var all []Caller
	for i := range l.Windows {
		for _, part := range l.Windows[i].Key {
			source, value := weir.CountedBy(nil, part, caller)
			if source == "" || slices.ContainsFunc(all, func(c Caller) bool { return c.Source == source }) {
				continue
			}
			c := Caller{Source: source, Value: value}
			switch {
			case len(value) > longest:
				sum := sha256.Sum256(value)
				c.Value, c.Digest = sum[:], true
			case len(value) == sha256.Size:
				kept, ok := caller.(interface{ Digested(source string) bool })
				c.Digest = ok && kept.Digested(source)
			}
			all = append(all, c)
		}
	}
	return all
}

// Keys returns a caller that has the facts' key sources and no others, so that its windows of the limiter are the very ones that
// the refused request was counted in, as long as the limiter counts as it did. It shares f's memory.
func (f *Facts) Keys() weir.Keys { return kept(f.Callers) }

// kept are Keys of another time.
type kept []Caller

// AppendKey implements weir.Keys.
func (k kept) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	for i := range k {
		if k[i].Source == source {
			return append(dst, k[i].Value...), true
		}
	}
	return dst, false
}

// Addr implements weir.Addresser for those who were counted by an IPv4 address, so that overrides for networks are found. Of IPv6 only
// a network was counted, which does not tell in which smaller ones the caller is: it is the zero Addr then.
func (k kept) Addr() netip.Addr {
	for i := range k {
		if v := k[i].Value; k[i].Source == "ip" && len(v) == 4 {
			return netip.AddrFrom4([4]byte(v))
		}
	}
	return netip.Addr{}
}

// Digested says that what AppendKey answers is a digest already (see weir.Keys).
func (k kept) Digested(source string) bool {
	for i := range k {
		if k[i].Source == source {
			return k[i].Digest
		}
	}
	return false
}
