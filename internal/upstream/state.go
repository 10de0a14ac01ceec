package upstream

import "time"

// A State is the health of one address, and its load.
type State struct {
	Address Address
	// false from a failure until it answers again, and while a health check fails: others are
	// preferred, and now and then a request, or a check, probes it
	Well bool
	// when it was last found to be as Well says; zero: since the start
	Since time.Time
	Busy  int // exchanges under way
	Kept  int // connections kept for another exchange
	// of requests, that have counted against it, ever; in an outage each failed probe is one
	Failures uint64
}

// States returns the state of each address, in the order of Options.
func (p *Pool) States() []State {
	all := make([]State, len(p.addresses))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.addresses {
		all[i] = State{Address: a.Address, Well: a.failures == 0 && !a.out, Since: a.since, Busy: a.busy, Kept: len(a.kept), Failures: a.epoch}
	}
	return all
}
