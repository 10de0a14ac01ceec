package edge

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/cli"
	"github.com/weirlimit/weir/internal/gateway"
	"github.com/weirlimit/weir/internal/telemetry"
)

// maxFlush bounds the wait for a collector to take the last spans when the server ends.
const maxFlush = 3 * time.Second

// openTracer posts traces to a collector, if there is one.
func openTracer(o *observing) error {
	if o.Traces == nil {
		return nil
	}
	t := *o.Traces
	t.Version, t.Log = o.Build.Version, o.Log
	t.Trusts = func(r *http.Request) bool { return peerIn(r.RemoteAddr, o.Callers.TrustedProxies) }
	tracer, err := telemetry.NewTracer(t)
	if err != nil {
		return cli.Fail(err, "")
	}
	o.own.own(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), maxFlush)
		defer cancel()
		return tracer.Close(ctx)
	})
	h := o.hooks
	h.decisions = append(h.decisions, tracer.Observe)
	h.gateway = append(h.gateway, func(g *gateway.Options) {
		g.Wrap, g.TraceUpstream, g.Traceparent, g.TracePath = tracer.Wrap, tracer.TraceUpstream, tracer.Traceparent, tracer.TracePath
	})
	h.rows = append(h.rows, Row{"traces", t.Endpoint.Redacted()})
	return nil
}

// peerIn reports whether an address with a port is in one of the networks.
func peerIn(addr string, networks []netip.Prefix) bool {
	peer, err := netip.ParseAddrPort(addr)
	return err == nil && slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(peer.Addr().Unmap().WithZone("")) })
}
