package weir

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

const whoForm = "callers are named by a network (10.0.0.0/8), an address (192.0.2.7), a file of networks (@office.txt), or the public id of an API token (token 3fk2mq7a4c)"

// tokenSource is the key source whose value is the id of a verified API token.
const tokenSource = "token"

// wholeToken is the prefix of a whole token (D15).
const wholeToken = "wpt_"

// ParseWho parses callers as a policy spells them: a network, an address, "@" and the name of a
// file of networks, or "token" and the id of an API token. It reads no file: New rejects the
// Networks of its result, and whoever knows the file replaces them (Policy.MapNetworks).
func ParseWho(s string) (Who, error) {
	words := strings.Fields(s)
	switch {
	case len(words) > 0 && strings.HasPrefix(words[0], networksPrefix):
		return parseNetworks(strings.TrimSpace(s))
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
	case w.Networks != nil && (w.Token != "" || w.Network.IsValid()):
		return fmt.Errorf("%v, and a network or a token at once: %s", w.Networks, whoForm)
	case w.Networks != nil:
		return networksProblem(w.Networks)
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
		if !isNameByte(c) {
			return fmt.Errorf("token id %q: letters, digits, dots, dashes and underscores are allowed", id)
		}
	}
	if len(id) > maxValue {
		return fmt.Errorf("the token id has %d characters: at most %d are allowed", len(id), maxValue)
	}
	return nil
}

// maxTokenID is the max length of a token's public id that is shown.
const maxTokenID = 64

// IsTokenID reports whether b has the form of a token's public id: 1 to 64 letters, digits, dots,
// dashes and underscores. A whole token has not: it must not be shown.
func IsTokenID(b []byte) bool {
	for _, c := range b {
		if !isNameByte(c) {
			return false
		}
	}
	return len(b) > 0 && len(b) <= maxTokenID && !bytes.HasPrefix(b, []byte(wholeToken))
}

// String returns the callers as a policy spells them.
func (w Who) String() string {
	switch {
	case w.Networks != nil:
		return w.Networks.String()
	case w.Token != "":
		return tokenSource + " " + w.Token
	case w.Network.IsValid() && w.Network.IsSingleIP():
		return w.Network.Addr().String()
	}
	return w.Network.String()
}

// For returns the callers as a policy spells them. For a file of networks that can name the network
// which has addr, that follows in parentheses.
func (w Who) For(addr netip.Addr) string {
	if file, ok := w.Networks.(Finder); ok {
		return w.String() + " (" + Who{Network: file.Network(addr)}.String() + ")"
	}
	return w.String()
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
	o := Override{Limit: limit, Per: span.per, Calendar: span.calendar.Unit, Requests: span.requests}
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

func (o Override) rate() Rate { return Rate{o.Limit, o.Per, o.Calendar, o.Requests} }

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

func (c *checker) checkSpecial(l *Limiter) {
	if l.Mode > Shadow {
		c.add("mode", -1, l.Mode.String(), "mode %v is unknown: enforce and shadow are allowed", l.Mode)
	}
	special := make(map[Who]string, len(l.Exempt)+len(l.Deny))
	c.checkCallers("exempt", "exempt", l.Exempt, special)
	c.checkCallers("deny", "denied", l.Deny, special)
	type which struct {
		who      Who
		per      time.Duration
		calendar CalendarUnit
		requests bool
	}
	seen := make(map[which]bool, len(l.Overrides))
	for i, o := range l.Overrides {
		c.checkOverride(l, i, o)
		if seen[which{o.For, o.Per, o.Calendar, o.Requests}] {
			c.add("overrides", i, o.String(), "%q: these callers have an override of that length already: remove one", o)
		}
		seen[which{o.For, o.Per, o.Calendar, o.Requests}] = true
		if are := special[o.For]; are != "" {
			c.add("overrides", i, o.String(), "%q: these callers are %s, so no limit of theirs counts: remove one of the two", o, are)
		}
	}
}

// checkCallers checks a list of callers that are exempt or denied, and adds them to special.
func (c *checker) checkCallers(field, are string, list []Who, special map[Who]string) {
	for i, w := range list {
		if err := w.problem(); err != nil {
			c.add(field, i, w.String(), "%s: %v", field, err)
			continue
		}
		switch before := special[w]; before {
		case "":
			special[w] = are
		case are:
			c.add(field, i, w.String(), "%v is %s twice: remove one", w, are)
		default:
			c.add(field, i, w.String(), "%v is %s and %s: remove one of the two; a denied caller is refused, exempt or not", w, before, are)
		}
	}
}

func (c *checker) checkOverride(l *Limiter, i int, o Override) {
	if err := o.For.problem(); err != nil {
		c.add("overrides", i, o.String(), "override: %v", err)
	}
	if o.Limit < 1 || o.Limit > MaxLimit {
		c.add("overrides", i, o.String(), "limit %d is out of range: 1 to %d is allowed", o.Limit, MaxLimit)
	} else if l.leastLimit() > o.Limit && !o.Requests {
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
