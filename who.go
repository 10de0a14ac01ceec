package weir

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const whoForm = "callers are named by a network (10.0.0.0/8), an address (192.0.2.7), or the public id of an API token (token 3fk2mq7a4c)"

// tokenSource is the key source whose value is the id of a verified API token.
const tokenSource = "token"

// wholeToken is the prefix of a whole token (D15).
const wholeToken = "wpt_"

// ParseWho parses callers as a policy spells them: a network, an address, or "token" and the id of
// an API token.
func ParseWho(s string) (Who, error) {
	words := strings.Fields(s)
	switch {
	case len(words) == 2 && words[0] == tokenSource:
		w := Who{Token: words[1]}
		if err := w.problem(); err != nil {
			return Who{}, err
		}
		return w, nil
	case len(words) == 1 && strings.Contains(s, "/"):
		network, err := netip.ParsePrefix(words[0])
		if err != nil {
			return Who{}, fmt.Errorf("%q is not a network; %s", withoutToken(words[0]), whoForm)
		}
		w := Who{Network: network}
		if err := w.problem(); err != nil {
			return Who{}, err
		}
		return w, nil
	case len(words) == 1:
		addr, err := netip.ParseAddr(words[0])
		if err != nil || addr.Zone() != "" {
			return Who{}, fmt.Errorf("%q is not an address; %s", withoutToken(words[0]), whoForm)
		}
		addr = addr.Unmap()
		return Who{Network: netip.PrefixFrom(addr, addr.BitLen())}, nil
	}
	return Who{}, fmt.Errorf("%q: %s", withoutToken(s), whoForm)
}

func (w Who) problem() error {
	switch {
	case w.Token != "" && w.Network.IsValid():
		return fmt.Errorf("%v and token %s at once: %s", w.Network, w.Token, whoForm)
	case w.Token != "":
		return tokenProblem(w.Token)
	case !w.Network.IsValid():
		return errors.New("no caller is named: " + whoForm)
	case w.Network.Addr().Is4In6():
		return fmt.Errorf("network %v is IPv4 within IPv6: write it as IPv4, since that is how such callers are counted", w.Network)
	case w.Network != w.Network.Masked():
		return fmt.Errorf("network %v has bits beyond its length: write %v", w.Network, w.Network.Masked())
	}
	return nil
}

// tokenProblem returns what is wrong with a token's id. A whole token comes first: it must not be
// in a policy.
func tokenProblem(id string) error {
	if strings.HasPrefix(id, wholeToken) {
		return errors.New("this is a whole token, and its public id is needed: the part between its two underscores; revoke the token if others could read it here")
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return fmt.Errorf("token id %q: letters, digits, dots, dashes and underscores are allowed", id)
		}
	}
	if len(id) > maxValue {
		return fmt.Errorf("the token id has %d characters: at most %d are allowed", len(id), maxValue)
	}
	return nil
}

// String returns the callers as a policy spells them.
func (w Who) String() string {
	switch {
	case w.Token != "":
		return tokenSource + " " + w.Token
	case w.Network.IsValid() && w.Network.IsSingleIP():
		return w.Network.Addr().String()
	}
	return w.Network.String()
}

const overrideForm = "an override is LIMIT per [N] UNIT for WHO, such as: 600 per minute for token 3fk2mq7a4c"

// ParseOverride parses an override as a policy spells it: LIMIT per [N] UNIT for WHO.
func ParseOverride(s string) (Override, error) {
	head, who, found := strings.Cut(s, " for ")
	if !found {
		return Override{}, fmt.Errorf("override %q: %s", withoutToken(s), overrideForm)
	}
	limit, span, err := parseRate(head, overrideForm)
	if err != nil {
		return Override{}, fmt.Errorf("override %q: %w", withoutToken(s), err)
	}
	o := Override{Limit: limit, Per: span.per, Calendar: span.calendar.Unit}
	if span.hasPlace() {
		return Override{}, fmt.Errorf("override %q: zone and day belong to the window: write %v for WHO", withoutToken(s), o.rate())
	}
	if o.For, err = ParseWho(who); err != nil {
		return Override{}, fmt.Errorf("override %q: %w", withoutToken(s), err)
	}
	return o, nil
}

// withoutToken returns s for a message. If s has a whole token where its id belongs, the secret
// part is cut off.
func withoutToken(s string) string {
	if i := strings.Index(s, wholeToken); i >= 0 {
		return s[:i] + wholeToken + "…"
	}
	return s
}

// Changes reports whether the override applies to a window of its limiter: a window of its length
// that does not count all callers together. A higher limit for one caller would use up the others'
// budget, and a lower one would refuse the caller for what others spend.
func (o Override) Changes(w *Window) bool { return o.rate().Changes(w) }

func (o Override) rate() Rate { return Rate{o.Limit, o.Per, o.Calendar} }

// String returns the override as a policy spells it.
func (o Override) String() string { return o.rate().String() + " for " + o.For.String() }

// ParseMode parses a Mode as a policy spells it: enforce or shadow.
func ParseMode(s string) (Mode, error) {
	for m := Enforce; m <= Shadow; m++ {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("mode %q is unknown: enforce and shadow are allowed", s)
}

// String returns the mode as a policy file spells it: "enforce" or "shadow".
func (m Mode) String() string {
	switch m {
	case Enforce:
		return "enforce"
	case Shadow:
		return "shadow"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// An Addresser is a caller with an exact address. Networks in a policy apply only to such Keys,
// because the key source "ip" may have the value of a whole network.
type Addresser interface{ Addr() netip.Addr }

// special has the exceptions of a limiter.
type special struct {
	tokens   map[string]*exception
	networks map[netip.Prefix]*exception
	lengths  [2][]int // the lengths of the IPv4 and IPv6 networks, longest first
}

// An exception is what holds for one Who.
type exception struct {
	exempt bool
	limits [MaxWindows]int64 // 0: no override
}

// newSpecial returns nil for a limiter without exemptions and overrides.
func newSpecial(l *Limiter) *special {
	if len(l.Exempt)+len(l.Overrides) == 0 {
		return nil
	}
	s := &special{tokens: make(map[string]*exception), networks: make(map[netip.Prefix]*exception)}
	for _, w := range l.Exempt {
		s.of(w).exempt = true
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

// find returns what holds for a caller: by its token first, then by its networks, the smallest
// first. scratch is room for the token's id.
func (s *special) find(keys Keys, scratch []byte) (exempt bool, limits [MaxWindows]int64) {
	add := func(x *exception) {
		exempt = exempt || x.exempt
		for i, limit := range x.limits {
			if limits[i] == 0 {
				limits[i] = limit
			}
		}
	}
	if len(s.tokens) > 0 {
		if id, ok := keys.AppendKey(scratch, tokenSource); ok {
			if x := s.tokens[string(id[len(scratch):])]; x != nil {
				add(x)
			}
		}
	}
	if len(s.networks) == 0 {
		return exempt, limits
	}
	if who, ok := keys.(Addresser); ok {
		addr := who.Addr().Unmap().WithZone("")
		if !addr.IsValid() {
			return exempt, limits
		}
		for _, bits := range s.lengths[family(addr)] {
			network, err := addr.Prefix(bits)
			if err != nil {
				continue
			}
			if x := s.networks[network]; x != nil {
				add(x)
			}
		}
	}
	return exempt, limits
}

func (c *checker) checkSpecial(l *Limiter) {
	if l.Mode > Shadow {
		c.add("mode", -1, l.Mode.String(), "mode %v is unknown: enforce and shadow are allowed", l.Mode)
	}
	exempt := make(map[Who]bool, len(l.Exempt))
	for i, w := range l.Exempt {
		switch err := w.problem(); {
		case err != nil:
			c.add("exempt", i, w.String(), "exempt: %v", err)
		case exempt[w]:
			c.add("exempt", i, w.String(), "%v is exempt twice: remove one", w)
		}
		exempt[w] = true
	}
	type which struct {
		who      Who
		per      time.Duration
		calendar CalendarUnit
	}
	seen := make(map[which]bool, len(l.Overrides))
	for i, o := range l.Overrides {
		c.checkOverride(l, i, o)
		if seen[which{o.For, o.Per, o.Calendar}] {
			c.add("overrides", i, o.String(), "%q: these callers have an override of that length already: remove one", o)
		}
		seen[which{o.For, o.Per, o.Calendar}] = true
		if exempt[o.For] {
			c.add("overrides", i, o.String(), "%q: these callers are exempt, so no limit of theirs counts: remove one of the two", o)
		}
	}
}

func (c *checker) checkOverride(l *Limiter, i int, o Override) {
	if err := o.For.problem(); err != nil {
		c.add("overrides", i, o.String(), "override: %v", err)
	}
	if o.Limit < 1 || o.Limit > MaxLimit {
		c.add("overrides", i, o.String(), "limit %d is out of range: 1 to %d is allowed", o.Limit, MaxLimit)
	} else if l.Cost > o.Limit {
		c.add("overrides", i, o.String(), "cost %d exceeds the limit of %q: no request of these callers could ever be served; lower the cost or raise the limit, or revoke their credential", l.Cost, o)
	}
	c.checkChanges("overrides", i, o.String(), l, o.rate())
}

// checkChanges rejects another limit for windows of a length that no window of l has which it could
// change. value is the limit as the policy spells it.
func (c *checker) checkChanges(field string, index int, value string, l *Limiter, other Rate) {
	lengths := make([]string, 0, len(l.Windows))
	shared := ""
	for i := range l.Windows {
		w := &l.Windows[i]
		if other.Changes(w) {
			return
		}
		if other.isAsLong(w) {
			shared = "; a window by everyone is shared by all callers, and is not changed"
		}
		lengths = append(lengths, w.String())
	}
	c.add(field, index, value, "%q changes the limit of a window, and no window of this limiter has that length: it has %s%s", value, strings.Join(lengths, ", "), shared)
}
