package edge

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// maxHostWarnings is how many hosts are warned of one by one, for one policy.
const maxHostWarnings = 10

// warnOfHosts returns a function that logs where a policy and the upstreams name different hosts:
// the hosts of routes, if their requests are answered 421, and the hosts of upstreams, if no route
// covers their requests. Goroutines may share it.
func warnOfHosts(log *slog.Logger, sites []gateway.Site) func(live.State) {
	var served hosts
	for _, s := range sites {
		served = append(served, s.Host)
	}
	var mu sync.Mutex
	warned := ""
	return func(s live.State) {
		mu.Lock()
		defer mu.Unlock()
		if len(sites) == 0 || s.Version == warned {
			return
		}
		warned = s.Version
		seen := make(map[string]bool)
		var routed, unserved hosts
		for i := range s.Policy.Limiters {
			for _, r := range s.Policy.Limiters[i].Routes {
				if seen[r.Host] {
					continue
				}
				seen[r.Host] = true
				if routed = append(routed, r.Host); r.Host != "" && !served.meet(r.Host) {
					unserved = append(unserved, r.Host)
				}
			}
		}
		unserved.warn(log, "no --upstream is for a host that routes name, so its requests are answered 421: give --upstream HOST=URL, or correct the routes")
		var unlimited hosts
		for _, host := range served {
			if host != "" && !routed.meet(host) {
				unlimited = append(unlimited, host)
			}
		}
		unlimited.warn(log, "no route covers the host of an upstream, so its requests are not limited: add a route HOST/*, or correct --upstream")
	}
}

// hosts are hosts in the form of weir.Route.Host.
type hosts []string

// warn logs a warning for each of the first hosts, and how many more there are.
func (all hosts) warn(log *slog.Logger, message string) {
	for i, host := range all {
		if i == maxHostWarnings {
			log.Warn(message, "more hosts", len(all)-i)
			return
		}
		log.Warn(message, "host", host)
	}
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
