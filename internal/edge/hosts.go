package edge

import (
	"log/slog"
	"strings"
	"sync"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/live"
)

// warnOfSharedUpstreams returns a hook that warns of a host that a policy names, and whose upstream
// gets requests for other hosts too: a caller can send any Host, and is counted by other routes
// then. It warns once for each policy that comes into force.
func warnOfSharedUpstreams(log *slog.Logger, sites []gateway.Site) func(live.State) {
	var table weir.HostTable[string]
	for _, s := range sites {
		table.Set(s.Host, s.Host)
	}
	var mu sync.Mutex
	warned := ""
	return func(s live.State) {
		mu.Lock()
		defer mu.Unlock()
		if s.Version == warned {
			return
		}
		warned = s.Version
		for i := range s.Policy.Limiters {
			l := &s.Policy.Limiters[i]
			for j := range l.Routes {
				if r := &l.Routes[j]; l.Mode == weir.Enforce && sharesUpstream(&table, r.Host) {
					log.Warn("the policy names a host, and its upstream gets requests for other hosts too, which other routes count, or none: "+
						"give it the host alone (--upstream HOST=URL), unless the backend refuses hosts that are not its own", "limiter", l.Name, "route", r.String())
					return
				}
			}
		}
	}
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
