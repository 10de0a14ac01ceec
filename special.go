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
	overrides bool
}

// An exception is what holds for one Who, or for one caller.
type exception struct {
	exempt bool
	denied bool
	limits [maxRows]int64 // 0: no override
	by     [maxRows]int32 // the override of each limit, as an index of Limiter.Overrides
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
	for at, o := range l.Overrides {
		for i := range min(len(l.Windows), MaxWindows) {
			if o.Changes(&l.Windows[i]) {
				x := s.of(o.For)
				x.limits[i], x.by[i] = o.Limit, int32(at)
			}
		}
	}
	for i := range s.files {
		s.files[i].overrides = s.files[i].limits != [maxRows]int64{}
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
		s.files = append(s.files, networksException{Networks: w.Networks, exception: new(exception)})
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
			x.limits[i], x.by[i] = limit, of.by[i]
		}
	}
}

// A byLength is what holds for a caller by its networks: of several overrides of a window, that of
// the longest network counts, and the first that is added of equally long ones.
type byLength struct {
	exception
	lengths [maxRows]int // of the networks of limits
}

// add applies what holds for a network of a length.
func (x *byLength) add(of *exception, length int) {
	x.exempt, x.denied = x.exempt || of.exempt, x.denied || of.denied
	for i, limit := range of.limits {
		if limit != 0 && (x.limits[i] == 0 || length > x.lengths[i]) {
			x.limits[i], x.by[i], x.lengths[i] = limit, of.by[i], length
		}
	}
}

// find returns what holds for a caller: by its token first, then by its networks, the longest
// first, whether the policy or a file has them. scratch is room for the token's id. If the address
// is denied, the token is not asked for: verifying it could cost more than a decision.
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
func (s *special) byAddress(keys Keys) exception {
	if len(s.networks)+len(s.files) == 0 {
		return exception{}
	}
	who, ok := keys.(Addresser)
	if !ok {
		return exception{}
	}
	addr := who.Addr().Unmap().WithZone("")
	if !addr.IsValid() {
		return exception{}
	}
	var all byLength
	for _, bits := range s.lengths[family(addr)] {
		network, err := addr.Prefix(bits)
		if err != nil {
			continue
		}
		if x := s.networks[network]; x != nil {
			all.add(x, bits)
		}
	}
	for i := range s.files {
		if f := &s.files[i]; f.overrides {
			if length := lengthIn(f.Networks, addr); length >= 0 {
				all.add(f.exception, length)
			}
		} else if f.Contains(addr) {
			all.add(f.exception, 0)
		}
	}
	return all.exception
}

// lengthIn returns the length of the longest network of n that has addr; -1: none has it.
func lengthIn(n Networks, addr netip.Addr) int {
	switch in, ok := n.(Finder); {
	case ok:
		return in.Network(addr).Bits()
	case n.Contains(addr):
		return 0
	}
	return -1
}

// A CallerLimit is the limit of a window for one caller, and where it comes from.
type CallerLimit struct {
	Limit    int64
	Override *Override // that sets it; nil: none; read only
	Plan     string    // that sets it; empty: none
}

// CallerLimits returns the limits that the limiter of m has for a caller, one for each of its Rows,
// as a decision finds them: an override, else the caller's plan, else the window's own. Grants are
// left out. It returns nil if m has no limiter.
func (m Match) CallerLimits(caller Keys) []CallerLimit {
	if m.by == nil {
		return nil
	}
	l := m.by.limiter
	var holds exception
	if l.special != nil {
		holds = l.special.find(caller, nil)
	}
	planned := holds.limits
	if l.plans != nil {
		l.plans.fill(caller, &planned)
	}
	out := make([]CallerLimit, l.rows)
	for i := range out {
		switch {
		case holds.limits[i] > 0:
			out[i] = CallerLimit{Limit: holds.limits[i], Override: &l.Overrides[holds.by[i]]}
		case planned[i] > 0:
			plan, _ := planOf(&l.Limiter, caller)
			out[i] = CallerLimit{Limit: planned[i], Plan: plan}
		default:
			out[i] = CallerLimit{Limit: l.all[i].Limit}
		}
	}
	return out
}

// DeniesAddress reports whether the limiter of m denies the caller by its address alone, so that a
// front door need not verify the caller's credentials first.
func (m Match) DeniesAddress(caller Keys) bool {
	return m.by != nil && m.by.limiter.special != nil && m.by.limiter.special.byAddress(caller).denied
}
