package rules

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/answer"
	"github.com/weirlimit/weir/identity"
)

// A Record is what the access log reports of one request, whichever engine serves it.
type Record struct {
	Start               time.Time
	Method, Host, Proto string
	// canonical, escaped; as received if it has no canonical form; empty: it was not read
	Path string

	Status  int   // 0: nothing is written
	Written int64 // bytes of the body

	Client  netip.Addr
	Limiter string // empty: none
	Agent   AgentHash
	Reached bool // the limiter let the request through to the backend
	Aborted bool // the answer ends early, and the connection with it
	Gone    bool // the client went away before there was an answer
}

// statusGone is what the access log has for a client that went away before the answer, as other
// servers' logs do.
const statusGone = 499

// CoverBy records what the request is charged to.
func (r *Record) CoverBy(m weir.Match) {
	if l := m.Limiter(); l != nil {
		r.Limiter = l.Name
	}
}

// An AgentHash is the keyed hash of an agent, if that is known.
type AgentHash struct {
	hash  uint64
	known bool
}

// NoteAgent keeps the hash of the caller's agent if a limiter has asked for the agent, and the
// access log wants it.
func (r *Record) NoteAgent(o *Options, c *identity.Caller) {
	if o.AccessLog == nil || o.AgentHash == nil {
		return
	}
	if agent, asked := c.AskedAgent(); asked {
		r.Agent.hash, r.Agent.known = o.AgentHash(agent)
	}
}

// outcome is what the access log has as the limiter's outcome. The handlers' own 429 is an admitted
// request too.
func (r *Record) outcome() answer.Outcome {
	switch {
	case r.Limiter == "":
		return answer.Unlimited
	case r.Reached:
		return answer.Admitted
	case r.Status == http.StatusUnauthorized:
		return answer.Unauthenticated
	case r.Status == http.StatusForbidden:
		return answer.Denied
	case r.Status == http.StatusServiceUnavailable:
		return answer.Unavailable
	case r.Status == http.StatusTooManyRequests:
		return answer.Refused
	}
	return answer.Admitted // to an answer of the gateway's own
}

// AddTo writes the line of a request whose answer was complete at over.
func (r *Record) AddTo(l *AccessLog, over time.Time) {
	e := entry{
		start:    r.Start,
		client:   r.Client,
		method:   r.Method,
		path:     r.Path,
		status:   r.Status,
		bytes:    r.Written,
		duration: over.Sub(r.Start),
		limiter:  r.Limiter,
		agent:    r.Agent,
		outcome:  r.outcome(),
		host:     r.Host,
		proto:    r.Proto,
		aborted:  r.Aborted,
	}
	switch {
	case r.Gone:
		e.status = statusGone
	case e.status == 0:
		e.status = http.StatusOK
	}
	l.add(&e)
}
