package edge

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
)

// maxHostWarnings is how many hosts are warned of one by one, for one policy.
const maxHostWarnings = 10

// hostWarnings warns where a policy and the upstreams name different hosts: of the hosts of routes,
// if their requests are answered 421, and of the hosts of upstreams, if no route covers their
// requests.
func hostWarnings(p weir.Policy, sites []gateway.Site) []Warning {
	if len(sites) == 0 {
		return nil
	}
	var served hosts
	for _, s := range sites {
		served = append(served, s.Host)
	}
	seen := make(map[string]bool)
	var routed, unserved, unlimited hosts
	for i := range p.Limiters {
		for _, r := range p.Limiters[i].Routes {
			if seen[r.Host] {
				continue
			}
			seen[r.Host] = true
			if routed = append(routed, r.Host); r.Host != "" && !served.meet(r.Host) {
				unserved = append(unserved, r.Host)
			}
		}
	}
	for _, host := range served {
		if host != "" && !routed.meet(host) {
			unlimited = append(unlimited, host)
		}
	}
	return slices.Concat(
		unserved.warnings("no --upstream is for a host that routes name, so its requests are answered 421: give --upstream HOST=URL, or correct the routes"),
		unlimited.warnings("no route covers the host of an upstream, so its requests are not limited: add a route HOST/*, or correct --upstream"))
}

// hosts are hosts in the form of weir.Route.Host.
type hosts []string

// warnings returns a warning for each of the first hosts, and one of how many more there are.
func (all hosts) warnings(message string) (found []Warning) {
	for i, host := range all {
		if i == maxHostWarnings {
			return append(found, Warning{message, []any{"more hosts", len(all) - i}})
		}
		found = append(found, Warning{message, []any{"host", host}})
	}
	return found
}

// meet reports whether one of the hosts has requests in common with another host.
func (all hosts) meet(host string) bool {
	return slices.ContainsFunc(all, func(one string) bool {
		return one == "" || host == "" || one == host || under(one, host) || under(host, one)
	})
}

// under reports whether a host, which may have a star itself, is covered by one with a star.
func under(star, host string) bool {
	suffix, ok := strings.CutPrefix(star, "*")
	return ok && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
}
