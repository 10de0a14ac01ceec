package explain

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A Caller is who sends the request that is explained. The zero value is a caller with nothing but
// an address that is not known.
type Caller struct {
	values  map[string]string // by key source, except for the address
	addr    netip.Addr        // exactly
	counted string            // as it is counted
	plan    string            // empty: none
}

// Set sets the value of a key source other than the address: an agent, the id of a session or of a
// token, the value of an HTTP field, of a cookie or of a claim. A caller with a claim has the
// session that it is read from. An empty value sets none.
func (c *Caller) Set(source, value string) {
	if value == "" {
		return
	}
	if c.values == nil {
		c.values = make(map[string]string)
	}
	c.values[source] = value
	if from := weir.SourceOf(source).From; from != "" && c.values[from] == "" {
		c.values[from] = "<" + from + ">"
	}
}

// setQuery sets the parameters of a raw query that the windows of l count by, unless they are set.
func (c *Caller) setQuery(l *weir.Limiter, query string) {
	for _, w := range l.Rows() {
		for _, source := range slices.Concat(w.Key...) {
			name, field := weir.SplitSource(source)
			if name != identity.Query || c.values[source] != "" || identity.QueryIsAmbiguous(query, field) {
				continue
			}
			value, _ := identity.QueryValue(query, field)
			c.Set(source, value)
		}
	}
}

// SetIP sets the address, which is counted as a server counts it: IPv4 whole, IPv6 by its /64
// (D12). An empty text sets none.
func (c *Caller) SetIP(text string) error {
	if text == "" {
		return nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return errors.New("expected an IPv4 or IPv6 address")
	}
	c.addr = addr.Unmap().WithZone("")
	if c.addr.Is4() {
		c.counted = c.addr.String()
		return nil
	}
	network, err := c.addr.Prefix(64)
	c.counted = network.String()
	return err
}

// is reports whether an exemption or override of a policy is for this caller.
func (c *Caller) is(w weir.Who) bool {
	if w.Token != "" {
		return c.values[identity.Token] == w.Token
	}
	if w.Networks != nil {
		return c.addr.IsValid() && w.Networks.Contains(c.addr)
	}
	return c.addr.IsValid() && w.Network.Contains(c.addr)
}

// spellOverride returns o as the policy spells it, with the network of a file as in Who.For.
func (c *Caller) spellOverride(o *weir.Override) string {
	return strings.TrimSuffix(o.String(), o.For.String()) + o.For.For(c.addr)
}

// asked are the weir.Keys of a Caller, as far as they decide which limits it has.
type asked struct{ *Caller }

// AppendKey implements weir.Keys.
func (a asked) AppendKey(dst []byte, source string) (value []byte, ok bool) {
	v := a.values[source]
	return append(dst, v...), v != ""
}

// Addr implements weir.Addresser.
func (a asked) Addr() netip.Addr { return a.addr }

// Plan implements weir.Planner.
func (a asked) Plan(string) (plan string, known bool) { return a.plan, true }

// value returns what the caller is counted by under a key source; ok is false if the caller has no
// value of it. A value that every caller has and that is not known is a placeholder. So is the
// value of a source with a name after the colon, which may be a secret.
func (c *Caller) value(source string) (value string, ok bool) {
	row, value := weir.SourceOf(source), c.values[source]
	switch {
	case row.Kind == weir.Address:
		return cmp.Or(c.counted, "<address>"), true
	case row.Kind == weir.Common:
		return "alike", true
	case value == "" && row.Optional:
		return "", false
	case value == "" || row.Field != "" && row.Name != identity.Path:
		return "<" + row.Name + ">", true
	}
	return value, true
}

// count returns what one part of a key counts the caller by: the first of its sources that the
// caller has, else the address (D16).
func (c *Caller) count(part weir.Part) Counted {
	var missing []string
	for _, source := range part {
		if value, ok := c.value(source); ok {
			return Counted{source, value, without(missing)}
		}
		missing = append(missing, source)
	}
	address, _ := c.value(identity.IP)
	return Counted{identity.IP, address, without(missing)}
}

// without returns in words that a caller lacks key sources: "no verified session or token, no
// header X-Api-Key".
func without(sources []string) string {
	var credentials, all []string
	for _, source := range sources {
		if row := weir.SourceOf(source); row.Kind == weir.Credential && row.From == "" {
			credentials = append(credentials, source)
		} else {
			all = append(all, "no "+strings.Replace(source, ":", " ", 1))
		}
	}
	if len(credentials) > 0 {
		all = append([]string{"no verified " + strings.Join(credentials, " or ")}, all...)
	}
	return strings.Join(all, ", ")
}
