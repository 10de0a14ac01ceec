package replay

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir"
)

// worst are the callers with the most refusals. Only they have names: a caller with more refusals
// than the last of them replaces it, so that at any time no other caller has more. If callers were
// evicted, a named caller's counts are still known here; those of others may be too low, so that
// one of them may be missing.
type worst struct {
	size       int
	minRefused uint32 // the minimum of refused in slots, once they are full
	slots      []slot
}

type slot struct {
	hash     uint64
	group    int // the index of the limiter's key that counts it
	name     []byte
	requests uint32
	refused  uint32
	first    uint32
	last     uint32
	peak     uint32
}

// note records a refusal that is already counted in e, an entry of of. name appends the caller's
// name.
func (w *worst) note(of *callers, e *entry, hash uint64, group int, now uint32, name func(dst []byte) []byte) {
	if len(w.slots) == w.size && e.refused < w.minRefused && !of.lost() {
		return
	}
	s := w.find(hash, group)
	switch {
	case s != nil:
		s.refused++
		if e.refused < s.refused { // it was evicted
			e.refused, e.first, e.requests = s.refused, s.first, plus(e.requests, s.requests)
		}
	case len(w.slots) < w.size:
		w.slots = append(w.slots, slot{hash: hash, group: group, refused: e.refused, first: e.first})
		s = &w.slots[len(w.slots)-1]
		s.name = name(nil)
	case e.refused <= w.minRefused:
		return
	default:
		s = w.last()
		*s = slot{hash: hash, group: group, refused: e.refused, first: e.first, name: name(s.name[:0])}
	}
	s.last = now
	s.requests, s.peak = max(s.requests, e.requests), max(s.peak, e.peak)
	w.minRefused = w.last().refused
}

func (w *worst) find(hash uint64, group int) *slot {
	for i := range w.slots {
		if w.slots[i].hash == hash && w.slots[i].group == group {
			return &w.slots[i]
		}
	}
	return nil
}

// last returns the slot with the fewest refusals.
func (w *worst) last() *slot {
	last := &w.slots[0]
	for i := range w.slots {
		if w.slots[i].refused < last.refused {
			last = &w.slots[i]
		}
	}
	return last
}

// callers returns the worst first. in returns the callers of each group.
func (w *worst) callers(in func(group int) *callers) []Caller {
	slices.SortStableFunc(w.slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.first, b.first), cmp.Compare(string(a.name), string(b.name)))
	})
	out := make([]Caller, len(w.slots))
	for i := range w.slots {
		s := &w.slots[i]
		if e := in(s.group).lookUp(s.hash); e != nil { // it may have sent admitted requests since
			s.requests, s.peak = max(s.requests, e.requests), max(s.peak, e.peak)
		}
		out[i] = Caller{Name: string(s.name), Requests: int64(s.requests), Refused: int64(s.refused), First: int64(s.first), Last: int64(s.last), Peak: int64(s.peak)}
	}
	return out
}

// add adds the doubts about a list of such callers.
func (d *Doubt) add(c *callers) {
	d.Requests = d.Requests || c.estimates != nil
	d.Refused = d.Refused || c.lost()
}

// A namer writes callers' names.
type namer struct {
	k0, k1 uint64 // of the digests
	ipv6   int    // the counted bits of an address
	value  []byte
}

// name appends the caller that a window counts, in words: "ip 192.0.2.7, agent "demo"". It shows a
// session, or the value of an HTTP field, only as a digest that differs in each run, and a token by
// its public id.
func (n *namer) name(dst []byte, key weir.Key, who weir.Keys) []byte {
	for i, part := range key {
		source, value := weir.CountedBy(n.value[:0], part, who)
		n.value = value
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = n.one(dst, source, value)
	}
	return dst
}

func (n *namer) one(dst []byte, source string, value []byte) []byte {
	if source == "" {
		return append(dst, "no address"...)
	}
	dst = append(dst, source...)
	row := weir.SourceOf(source)
	switch {
	case row.Kind == weir.Common:
		return dst
	case row.Kind == weir.Address && len(value) == 4:
		return netip.AddrFrom4([4]byte(value)).AppendTo(append(dst, ' '))
	case row.Kind == weir.Address && len(value) == 16:
		addr := netip.AddrFrom16([16]byte(value))
		if n.ipv6 == 128 {
			return addr.AppendTo(append(dst, ' '))
		}
		return netip.PrefixFrom(addr, n.ipv6).AppendTo(append(dst, ' '))
	case row.Public && isID(value):
		return append(append(dst, ' '), value...)
	case row.Kind == weir.Credential, row.Field != "": // it may be a secret
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], siphash.Hash(n.k0, n.k1, value))
		return hex.AppendEncode(append(dst, " #"...), b[:4])
	}
	cut := value[:min(len(value), maxShown)]
	dst = strconv.AppendQuote(append(dst, ' '), text(cut))
	if len(cut) < len(value) {
		dst = append(dst, "…"...)
	}
	return dst
}

// maxShown is how many bytes of a value from a log are shown.
const maxShown = 60

// isID reports whether b looks like a token's public id (D15): any other text in its place may be a
// secret.
func isID(b []byte) bool {
	for _, c := range b {
		if !('a' <= c && c <= 'z' || '2' <= c && c <= '7') {
			return false
		}
	}
	return len(b) == 10
}
