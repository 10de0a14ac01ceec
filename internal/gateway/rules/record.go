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
	// of a request that the limiter has ended; else Unlimited
	Ended   answer.Outcome
	Cost    Cost
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

// A Cost is what a request was charged before it was served, and what it has cost, in units. Used
// is -1 if the answer did not tell it. Both are 0 for a request whose answer cannot change that.
type Cost struct{ Reserved, Used int64 }

// NoteCost keeps the cost of a request that has ended.
func (r *Record) NoteCost(a *answer.Answer) {
	if reserved, used, ok := a.Cost(); ok {
		r.Cost = Cost{reserved, used}
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
	case r.Ended != answer.Unlimited:
		return r.Ended
	}
	return answer.Admitted // to the backend, or to an answer of the gateway's own
}

// NoteOutcome keeps the outcome of a request that the limiter has ended. The status does not show
// it, because a policy chooses that.
func (r *Record) NoteOutcome(o answer.Outcome) {
	if o != answer.Admitted {
		r.Ended = o
	}
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
		cost:     r.Cost,
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
