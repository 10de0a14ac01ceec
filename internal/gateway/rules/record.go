package rules

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
	"github.com/weirlimit/weir/identity"
)

// A record is what the access log will say of one request, whichever engine serves it.
type record struct {
	start               time.Time
	method, host, proto string
	path                string // canonical, escaped; as received where it has no canonical form

	status  int   // 0: nothing is written
	written int64 // bytes of the body

	client  netip.Addr
	limiter string // empty: none
	agent   agentHash
	reached bool // the limiter let the request through to the backend
	aborted bool // the answer ends early, and the connection with it
	gone    bool // the client went away before there was an answer
}

// statusGone is what the access log says of a client that went away before the answer, as others do.
const statusGone = 499

// coverBy notes what the request is charged to.
func (r *record) coverBy(m weir.Match) {
	if l := m.Limiter(); l != nil {
		r.limiter = l.Name
	}
}

// An agentHash is the keyed hash of an agent, if that is known.
type agentHash struct {
	hash  uint64
	known bool
}

// noteAgent keeps the hash of the caller's agent if a limiter has asked for it, and the access log
// wants it.
func (r *record) noteAgent(o *Options, c *identity.Caller) {
	if o.AccessLog == nil || o.AgentHash == nil {
		return
	}
	if agent, asked := c.AskedAgent(); asked {
		r.agent.hash, r.agent.known = o.AgentHash(agent)
	}
}

// outcome is what the access log says of the limiter. The handlers' own 429 is an admitted request too.
func (r *record) outcome() httplimit.Outcome {
	switch {
	case r.limiter == "":
		return httplimit.Unlimited
	case r.reached:
		return httplimit.Admitted
	case r.status == http.StatusUnauthorized:
		return httplimit.Unauthenticated
	case r.status == http.StatusServiceUnavailable:
		return httplimit.Unavailable
	case r.status == http.StatusTooManyRequests:
		return httplimit.Refused
	}
	return httplimit.Admitted // to an answer of the gateway's own
}

// addTo writes the line of a request whose answer was complete at over.
func (r *record) addTo(l *AccessLog, over time.Time) {
	e := entry{
		start:    r.start,
		client:   r.client,
		method:   r.method,
		path:     r.path,
		status:   r.status,
		bytes:    r.written,
		duration: over.Sub(r.start),
		limiter:  r.limiter,
		agent:    r.agent,
		outcome:  r.outcome(),
		host:     r.host,
		proto:    r.proto,
		aborted:  r.aborted,
	}
	switch {
	case r.gone:
		e.status = statusGone
	case e.status == 0:
		e.status = http.StatusOK
	}
	l.add(&e)
}
