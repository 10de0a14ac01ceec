package weir

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Networks are a set of networks that a policy names, such as those of a file ("@office.txt").
// Its dynamic type must be comparable, such as a pointer. It is safe for concurrent use, and what
// Contains reports must not change: a set with other networks is another value.
type Networks interface {
	// Contains reports whether addr is in one of the networks. addr is valid, has no zone, and is
	// never IPv4 mapped into IPv6. Contains is called for each request, so it must not block.
	Contains(addr netip.Addr) bool
	// String returns the name as a policy spells it: "@" and the name of the file.
	String() string
}

// A Finder is Networks that know which of them has an address. Of several overrides, that of the
// longest network applies; Networks without this method count as the whole Internet there.
type Finder interface {
	// Network returns the longest network that has addr, which is as in Networks.Contains. It is
	// invalid if none has it.
	Network(addr netip.Addr) netip.Prefix
}

// networksPrefix begins the name of Networks in a policy.
const networksPrefix = "@"

// unread are Networks that a policy names and that nothing has read: ParseWho knows no files.
type unread string

func (unread) Contains(netip.Addr) bool { return false }

func (u unread) String() string { return networksPrefix + string(u) }

// parseNetworks parses the name of Networks, which s begins with.
func parseNetworks(s string) (Who, error) {
	name := strings.TrimPrefix(s, networksPrefix)
	if name == "" || strings.TrimSpace(name) != name {
		return Who{}, fmt.Errorf("%q names no file; %s", s, whoForm)
	}
	return Who{Networks: unread(name)}, nil
}

// NetworksName returns the name of w.Networks without the "@", and false if w has none.
func (w Who) NetworksName() (name string, ok bool) {
	if w.Networks == nil {
		return "", false
	}
	return strings.TrimPrefix(w.Networks.String(), networksPrefix), true
}

func networksProblem(n Networks) error {
	if _, ok := n.(unread); ok {
		return fmt.Errorf("%v: the file was not read: policyfile.Load reads the files that a policy names; code sets Who.Networks", n)
	}
	if name := n.String(); len(name) <= len(networksPrefix) || !strings.HasPrefix(name, networksPrefix) {
		return errors.New("networks without a name: String must return \"@\" and a name")
	}
	return nil
}

// MapNetworks returns a copy of p in which each Who with Networks has what replace returns for it.
// replace must not return nil.
func (p Policy) MapNetworks(replace func(Networks) Networks) Policy {
	p = p.clone()
	for i := range p.Limiters {
		l := &p.Limiters[i]
		for _, list := range [][]Who{l.Exempt, l.Deny} {
			for j := range list {
				if n := list[j].Networks; n != nil {
					list[j].Networks = replace(n)
				}
			}
		}
		for j := range l.Overrides {
			if n := l.Overrides[j].For.Networks; n != nil {
				l.Overrides[j].For.Networks = replace(n)
			}
		}
	}
	return p
}
