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
	"github.com/weirlimit/weir/identity"
)

// worst are the callers who were refused most. Only their names are kept: whoever is refused more than the last of them takes its
// place, so that at any time, and at the end, nobody else was refused more. Where callers have given way, what was forgotten of one that
// is named is known here still; of others it may be too little, so that one of them may be missing.
type worst struct {
	most  int
	least uint32 // of slots, once there are most of them
	slots []slot
}

type slot struct {
	hash     uint64
	group    int // which of a limiter's keys counts it
	name     []byte
	requests uint32
	refused  uint32
	first    uint32
	last     uint32
	peak     uint32
}

// note tells of a refusal that is noted in e already, an entry of of. name appends the caller's name.
func (w *worst) note(of *callers, e *entry, hash uint64, group int, now uint32, name func(dst []byte) []byte) {
	if len(w.slots) == w.most && e.refused < w.least && !of.lost() {
		return
	}
	s := w.find(hash, group)
	switch {
	case s != nil:
		s.refused++
		if e.refused < s.refused { // it was forgotten
			e.refused, e.first, e.requests = s.refused, s.first, plus(e.requests, s.requests)
		}
	case len(w.slots) < w.most:
		w.slots = append(w.slots, slot{hash: hash, group: group, refused: e.refused, first: e.first})
		s = &w.slots[len(w.slots)-1]
		s.name = name(nil)
	case e.refused <= w.least:
		return
	default:
		s = w.last()
		*s = slot{hash: hash, group: group, refused: e.refused, first: e.first, name: name(s.name[:0])}
	}
	s.last = now
	s.requests, s.peak = max(s.requests, e.requests), max(s.peak, e.peak)
	w.least = w.last().refused
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

// callers returns the worst first. in tells the callers of each group.
func (w *worst) callers(in func(group int) *callers) []Caller {
	slices.SortStableFunc(w.slots, func(a, b slot) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.first, b.first), cmp.Compare(string(a.name), string(b.name)))
	})
	out := make([]Caller, len(w.slots))
	for i := range w.slots {
		s := &w.slots[i]
		if e := in(s.group).lookUp(s.hash); e != nil { // it may have come since, and been admitted
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

// namer writes callers' names.
type namer struct {
	k0, k1 uint64 // of the digests
	ipv6   int    // bits of an address that are counted
	value  []byte
}

// name appends who a window counts, in words: "ip 192.0.2.7, agent "demo"". A session is only shown by a digest, which is another in
// each run, and a token by its public id.
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
	switch {
	case source == identity.Everyone:
		return dst
	case source == identity.IP && len(value) == 4:
		return netip.AddrFrom4([4]byte(value)).AppendTo(append(dst, ' '))
	case source == identity.IP && len(value) == 16:
		addr := netip.AddrFrom16([16]byte(value))
		if n.ipv6 == 128 {
			return addr.AppendTo(append(dst, ' '))
		}
		return netip.PrefixFrom(addr, n.ipv6).AppendTo(append(dst, ' '))
	case source == identity.Session, source == identity.Token && !isID(value):
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], siphash.Hash(n.k0, n.k1, value))
		return hex.AppendEncode(append(dst, " #"...), b[:4])
	case source == identity.Token:
		return append(append(dst, ' '), value...)
	}
	cut := value[:min(len(value), mostShown)]
	dst = strconv.AppendQuote(append(dst, ' '), text(cut))
	if len(cut) < len(value) {
		dst = append(dst, "…"...)
	}
	return dst
}

// mostShown is how much is shown of what a log says, in bytes.
const mostShown = 60

// isID reports whether b looks like a token's public id (D15): whatever else a log has in its place may be secret.
func isID(b []byte) bool {
	for _, c := range b {
		if !('a' <= c && c <= 'z' || '2' <= c && c <= '7') {
			return false
		}
	}
	return len(b) == 10
}
