package weir

import (
	"cmp"
	"net/netip"
	"slices"
)

// special has the exceptions of a limiter.
type special struct {
	tokens   map[string]*exception
	networks map[netip.Prefix]*exception
	lengths  [2][]int // the lengths of the IPv4 and IPv6 networks, longest first
	files    []networksException
}

// A networksException is what holds for the callers of one file of networks.
type networksException struct {
	Networks
	*exception
}

// An exception is what holds for one Who.
type exception struct {
	exempt bool
	denied bool
	limits [maxRows]int64 // 0: no override
}

// newSpecial returns nil for a limiter that treats all callers alike.
func newSpecial(l *Limiter) *special {
	if len(l.Exempt)+len(l.Deny)+len(l.Overrides) == 0 {
		return nil
	}
	s := &special{tokens: make(map[string]*exception), networks: make(map[netip.Prefix]*exception)}
	for _, w := range l.Exempt {
		s.of(w).exempt = true
	}
	for _, w := range l.Deny {
		s.of(w).denied = true
	}
	for _, o := range l.Overrides {
		for i := range min(len(l.Windows), MaxWindows) {
			if o.Changes(&l.Windows[i]) {
				s.of(o.For).limits[i] = o.Limit
			}
		}
	}
	return s
}

// of returns the exception of w, and creates a missing one first.
func (s *special) of(w Who) *exception {
	if w.Token != "" {
		if s.tokens[w.Token] == nil {
			s.tokens[w.Token] = new(exception)
		}
		return s.tokens[w.Token]
	}
	if w.Networks != nil {
		for _, f := range s.files {
			if f.Networks == w.Networks {
				return f.exception
			}
		}
		s.files = append(s.files, networksException{w.Networks, new(exception)})
		return s.files[len(s.files)-1].exception
	}
	if s.networks[w.Network] == nil {
		s.networks[w.Network] = new(exception)
		lengths := &s.lengths[family(w.Network.Addr())]
		if i, found := slices.BinarySearchFunc(*lengths, w.Network.Bits(), func(a, b int) int { return cmp.Compare(b, a) }); !found {
			*lengths = slices.Insert(*lengths, i, w.Network.Bits())
		}
	}
	return s.networks[w.Network]
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// add applies what holds for one Who. The first override of a window that is added counts.
func (x *exception) add(of *exception) {
	x.exempt, x.denied = x.exempt || of.exempt, x.denied || of.denied
	for i, limit := range of.limits {
		if x.limits[i] == 0 {
			x.limits[i] = limit
		}
	}
}

// find returns what holds for a caller: by its token first, then by its networks, the smallest
// first, then by the files of networks, in their order. scratch is room for the token's id. If the
// address is denied, the token is not asked for: verifying it could cost more than a decision.
func (s *special) find(keys Keys, scratch []byte) exception {
	by := s.byAddress(keys)
	if by.denied || len(s.tokens) == 0 {
		return by
	}
	if id, ok := keys.AppendKey(scratch, tokenSource); ok {
		if x := s.tokens[string(id[len(scratch):])]; x != nil {
			of := *x
			of.add(&by)
			return of
		}
	}
	return by
}

// byAddress returns what holds for a caller by its address alone.
func (s *special) byAddress(keys Keys) (all exception) {
	if len(s.networks)+len(s.files) == 0 {
		return all
	}
	who, ok := keys.(Addresser)
	if !ok {
		return all
	}
	addr := who.Addr().Unmap().WithZone("")
	if !addr.IsValid() {
		return all
	}
	for _, bits := range s.lengths[family(addr)] {
		network, err := addr.Prefix(bits)
		if err != nil {
			continue
		}
		if x := s.networks[network]; x != nil {
			all.add(x)
		}
	}
	for _, f := range s.files {
		if f.Contains(addr) {
			all.add(f.exception)
		}
	}
	return all
}

// DeniesAddress reports whether the limiter of m denies the caller by its address alone, so that a
// front door need not verify the caller's credentials first.
func (m Match) DeniesAddress(caller Keys) bool {
	return m.by != nil && m.by.limiter.special != nil && m.by.limiter.special.byAddress(caller).denied
}
