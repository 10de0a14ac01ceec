package edge

import (
	"strings"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
)

// sharedWarnings warns of a host that a policy names, and whose upstream gets requests for other
// hosts too: a caller can send any Host, and is counted by other routes then.
func sharedWarnings(p weir.Policy, sites []gateway.Site) []Warning {
	var table weir.HostTable[string]
	for _, s := range sites {
		table.Set(s.Host, s.Host)
	}
	for i := range p.Limiters {
		l := &p.Limiters[i]
		for j := range l.Routes {
			if r := &l.Routes[j]; l.Mode == weir.Enforce && sharesUpstream(&table, r.Host) {
				return []Warning{{"the policy names a host, and its upstream gets requests for other hosts too, which other routes count, or none: " +
					"give it the host alone (--upstream HOST=URL), unless the backend refuses hosts that are not its own", []any{"limiter", l.Name, "route", r.String()}}}
			}
		}
	}
	return nil
}

// sharesUpstream reports whether the upstream of a route's host gets requests for hosts that the
// route does not cover.
func sharesUpstream(sites *weir.HostTable[string], host string) bool {
	authority := host
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		authority = "_" + suffix // as good as any
	}
	site := sites.Get(authority)
	return host != "" && site != nil && (*site == "" || (*site)[0] == '*' && *site != host)
}
