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
	// canonical, escaped; as received if it has no canonical form; empty: it was not read.
	// CoverBy hides segments of it.
	Path string

	Status  int   // 0: nothing is written
	Written int64 // bytes of the body

	Client  netip.Addr
	Limiter string // empty: none
	Agent   KeyedHash
	Reached bool // the limiter let the request through to the backend
	// of a request that the limiter has ended; else Unlimited
	Ended answer.Outcome
	// the gateway answers 421 itself: the request, or its connection, is for another host
	Misdirected bool
	Cost        Cost
	Aborted     bool // the answer ends early, and the connection with it
	Gone        bool // the client went away before there was an answer

	Joined
}

// statusGone is what the access log has for a client that went away before the answer, as other
// servers' logs do.
const statusGone = 499

// CoverBy records what the request is charged to. From here on, Path has no segment of the path
// that a window counts by: it has the parameter's name in its place, and a keyed hash of the value,
// so that a replay of the log counts each value apart.
func (r *Record) CoverBy(o *Options, m weir.Match) {
	if l := m.Limiter(); l != nil {
		r.Limiter = l.Name
	}
	r.Path = m.HideCounted(r.Path, o.hidden)
}

// hidden returns what a log has in the place of a segment that is counted by.
func (o *Options) hidden(name, value string) string {
	b := append([]byte{'{'}, name...)
	if o.ValueHash != nil {
		if hash, ok := o.ValueHash(value); ok {
			b = KeyedHash{hash, true}.append(append(b, ':'))
		}
	}
	return string(append(b, '}'))
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

// A KeyedHash is the keyed hash of an agent or of a caller, if that is known.
type KeyedHash struct {
	hash  uint64
	known bool
}

// noteAgent keeps the hash of the caller's agent if a limiter has asked for the agent.
func (r *Record) noteAgent(o *Options, c *identity.Caller) {
	if o.ValueHash == nil {
		return
	}
	if agent, asked := c.AskedAgent(); asked {
		r.Agent.hash, r.Agent.known = o.ValueHash(agent)
	}
}

// outcome is what the access log has as the limiter's outcome. The handlers' own 429 is an admitted
// request too.
func (r *Record) outcome() answer.Outcome {
	switch {
	case r.Limiter == "" && r.Misdirected:
		return answer.Misdirected
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

// A Served is a request whose answer is complete, for figures. It has nothing that the client
// chooses.
type Served struct {
	// Site is Site.Host; AnySite for the site of all other hosts, or for a handler; empty if no
	// upstream serves the host of the request.
	Site     string
	Limiter  string        // empty: none
	Status   int           // 499: the client went away before the answer
	Duration time.Duration // from its head to the end of the answer
	Upstream time.Duration // of it, until the head of the upstream's answer; 0: none was asked
}

// AnySite is the Served.Site of a site without a host.
const AnySite = "*"

// siteName returns Served.Site of a request for a site.
func (r *Rules) siteName(s *Site) string {
	switch {
	case s == nil && len(r.Sites) > 0:
		return ""
	case s == nil:
		return AnySite
	}
	return s.name()
}

// Finish reports a request for a site, whose answer was complete at over, and writes its line in
// the access log.
func (r *Rules) Finish(x *Record, site *Site, over time.Time) {
	status := x.Status
	switch {
	case x.Gone:
		status = statusGone
	case status == 0:
		status = http.StatusOK
	}
	took := over.Sub(x.Start)
	if r.Options.Served != nil {
		r.Options.Served(Served{Site: r.siteName(site), Limiter: x.Limiter, Status: status, Duration: took, Upstream: x.UpstreamTime})
	}
	if r.AccessLog != nil {
		r.AccessLog.write(x, status, took, r.LogFields)
	}
}

// Add writes the line of a request that another door has answered at over.
func (l *AccessLog) Add(x *Record, over time.Time, want LogFields) {
	l.write(x, x.Status, over.Sub(x.Start), want)
}

func (l *AccessLog) write(x *Record, status int, took time.Duration, want LogFields) {
	l.add(&entry{
		start:    x.Start,
		client:   x.Client,
		method:   x.Method,
		path:     x.Path,
		status:   status,
		bytes:    x.Written,
		duration: took,
		limiter:  x.Limiter,
		agent:    x.Agent,
		cost:     x.Cost,
		outcome:  x.outcome(),
		host:     x.Host,
		proto:    x.Proto,
		joined:   &x.Joined,
		aborted:  x.Aborted,
	}, want)
}
