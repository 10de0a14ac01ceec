package weir

import (
	"crypto/sha256"
	"net/netip"
	"slices"
)

// Known are the Keys of a caller that was kept, to ask about it or change what holds for it later (Inspect, Reset, Grant): the key
// sources that the windows of one limiter counted it by, and no others. It is read only; what it holds is raw, and not to be shown.
type Known []KnownSource

// A KnownSource is what one key source had of a caller.
type KnownSource struct {
	Source string
	Value  []byte
	Digest bool // Value is the SHA-256 of one that is longer than 256 bytes, as windows count it (D13)
}

var (
	_ Keys      = Known(nil)
	_ Addresser = Known(nil)
)

// Keep returns what all windows of a limiter count a caller by, each source once; it is never nil. With it the windows have the very
// keys that they have for the caller.
func Keep(l *Limiter, caller Keys) Known {
	k := Known{}
	for i := range l.Windows {
		for _, part := range l.Windows[i].Key {
			source, value := CountedBy(nil, part, caller)
			if source == "" || slices.ContainsFunc(k, func(s KnownSource) bool { return s.Source == source }) {
				continue
			}
			s := KnownSource{Source: source, Value: value}
			switch {
			case len(value) > maxValue:
				s.Value, s.Digest = appendDigest(nil, value), true
			case len(value) == sha256.Size:
				s.Digest = isDigested(caller, source)
			}
			k = append(k, s)
		}
	}
	return k
}

// find returns the source of a name, nil where there is none.
func (k Known) find(source string) *KnownSource {
	for i := range k {
		if k[i].Source == source {
			return &k[i]
		}
	}
	return nil
}

// AppendKey implements Keys.
func (k Known) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	s := k.find(source)
	if s == nil {
		return dst, false
	}
	return append(dst, s.Value...), true
}

// Digested reports whether what AppendKey appends for a source is a digest already.
func (k Known) Digested(source string) bool {
	s := k.find(source)
	return s != nil && s.Digest
}

// Addr implements Addresser for those who were counted by an IPv4 address, so that a policy's word on their network is found. Of IPv6
// only a network was counted, which does not tell in which smaller ones the caller is: it is the zero Addr then.
func (k Known) Addr() netip.Addr {
	if s := k.find(addressSource); s != nil && len(s.Value) == 4 {
		return netip.AddrFrom4([4]byte(s.Value))
	}
	return netip.Addr{}
}

// String keeps a caller's values out of whatever is printed.
func (k Known) String() string { return "a caller" }

// GoString is String.
func (k Known) GoString() string { return k.String() }
