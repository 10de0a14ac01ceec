package upstream

// A State is how one address is doing.
type State struct {
	Address  Address
	Well     bool   // false from a failure until it answers again: others are preferred, and now and then a request tries it
	Busy     int    // exchanges under way
	Kept     int    // connections that wait for another exchange; of Take's, not of Transport's, which are its base's
	Failures uint64 // how many have counted against it, ever; an outage is one for each time that it is tried in vain
}

// States returns how each address is doing, in the order of Options. It looks while it is called; nothing is counted for it.
func (p *Pool) States() []State {
	all := make([]State, len(p.addresses))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.addresses {
		all[i] = State{Address: a.Address, Well: a.failures == 0, Busy: a.busy, Kept: len(a.kept), Failures: a.epoch}
	}
	return all
}
