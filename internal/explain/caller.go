package explain

import (
	"cmp"
	"errors"
	"net/netip"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
)

// A Caller is who sends the request that is explained. The zero value is a caller with nothing but
// an address that is not known.
type Caller struct {
	Agent          string // empty: not known
	Session, Token string // ids; empty: the caller has no verified session or token

	addr    netip.Addr // exactly
	counted string     // as it is counted
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
		return c.Token == w.Token
	}
	return c.addr.IsValid() && w.Network.Contains(c.addr)
}

// value returns what the caller is counted by under a key source; false if the caller has no such
// credential. Every caller has an address and an agent: one that is not known is a placeholder.
func (c *Caller) value(source string) (value string, ok bool) {
	switch source {
	case identity.IP:
		return cmp.Or(c.counted, "<address>"), true
	case identity.Agent:
		return cmp.Or(c.Agent, "<agent>"), true
	case identity.Session:
		return c.Session, c.Session != ""
	case identity.Token:
		return c.Token, c.Token != ""
	case identity.Everyone:
		return "alike", true
	}
	return "", false
}

// count returns what one part of a key counts the caller by: the first of its sources that the
// caller has, else the address (D16).
func (c *Caller) count(part weir.Part) Counted {
	var missing []string
	for _, source := range part {
		if value, ok := c.value(source); ok {
			return Counted{source, value, unverified(missing)}
		}
		missing = append(missing, source)
	}
	address, _ := c.value(identity.IP)
	return Counted{identity.IP, address, unverified(missing)}
}

func unverified(sources []string) string {
	if len(sources) == 0 {
		return ""
	}
	return "no verified " + strings.Join(sources, " or ")
}
