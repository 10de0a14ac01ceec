package replay

import (
	"slices"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/identity"
	"github.com/weirlimit/weir/internal/accesslog"
)

// hosts are the hosts of the log's requests, for routes that name one (D33).
type hosts struct {
	limiters []string // those whose routes name hosts; none: hosts choose no limiter
	field    int      // the field that holds the host; -1: where the format has it
	known    int64    // requests with a host
	unknown  int64    // requests without one
}

func newHosts(o *Options) hosts {
	h := hosts{field: -1}
	if field, ok := o.Keys[identity.Host]; ok {
		h.field = field
	}
	policies := []*weir.Policy{&o.Policy, o.Against}
	for _, p := range policies {
		if p == nil {
			continue
		}
		for i := range p.Limiters {
			l := &p.Limiters[i]
			if slices.ContainsFunc(l.Routes, func(r weir.Route) bool { return r.Host != "" }) && !slices.Contains(h.limiters, l.Name) {
				h.limiters = append(h.limiters, l.Name)
			}
		}
	}
	return h
}

// of returns the host of a line, with its port if it has one; empty if the log does not have it.
func (h *hosts) of(l *accesslog.Line) []byte {
	if h.field >= 0 {
		return l.Field(h.field)
	}
	return l.Host
}

// routedHost returns the host by which the limiter of a line is chosen; empty if no route names
// one.
func (r *Replay) routedHost(l *accesslog.Line) string {
	if len(r.hosts.limiters) == 0 {
		return ""
	}
	return text(r.hosts.of(l))
}

// noteHost counts a request by whether its host is known.
func (r *Replay) noteHost(l *accesslog.Line) {
	if len(r.hosts.of(l)) > 0 {
		r.hosts.known++
	} else {
		r.hosts.unknown++
	}
}

// unrouted returns a Lack for a log without hosts, if routes name some.
func (h *hosts) unrouted() []Lack {
	if len(h.limiters) == 0 || h.known > 0 || h.unknown == 0 {
		return nil
	}
	return []Lack{{Source: identity.Host, Limiters: h.limiters, Requests: h.unknown, Routes: true}}
}
